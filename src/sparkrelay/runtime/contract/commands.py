"""What travels between driver and workers: commands one way, reports the other.

A prepared DataFrame is run again and again; what changes from one micro-batch to the next - ranges, batch numbers,
lent producer ids - travels beside it as a job-local property, so that nothing is analysed or planned anew. Reports
come back as the rows of the job. Our own errors travel in them too: raising would end the Python worker with all its
caches, and take down the other tasks of the batch. Only user code raises.

Records that a micro-batch has one of for each task are named tuples: these are made, pickled and read in half the time
of a dataclass.
"""

from __future__ import annotations

import base64
import io
import pickle  # noqa: TID251 - read by _Reader alone
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay import errors
from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.client.transactions import ProducerIdentity
    from sparkrelay.types import TaskId, TopicPartition

__all__ = [
    "COMMAND_PROPERTY",
    "EXECUTOR_PROPERTY",
    "BatchCommand",
    "KeptRows",
    "LeftOut",
    "LegReport",
    "RestoreCommand",
    "RestoreReport",
    "RestoreSlice",
    "StateReport",
    "StoreRestore",
    "TaskCommand",
    "decode",
    "decode_bytes",
    "encode",
    "encode_bytes",
]

#: Name of the job-local property that carries the command.
COMMAND_PROPERTY: Final = "sparkrelay.command"
#: Name of the job-local property that carries the id of the executor where the job belongs; empty: anywhere.
EXECUTOR_PROPERTY: Final = "sparkrelay.executor"
#: Never changed. No proxy: it is pickled.
_NOTHING: Final[Mapping[Any, Any]] = {}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a record is left out: what was raised each time that it was tried alone.

    Attributes:
        exception: name of the class.
        message: what it said.
        trace: where, as far as it is known.
    """

    exception: str
    message: str
    trace: str = ""


class TaskCommand(NamedTuple):
    """One task's share of a micro-batch.

    Attributes:
        task: which task.
        batch: the batch's number within the task; it only grows.
        tries: number of this attempt, from 1. What an earlier attempt did is taken back: it may be a part.
        committed: the last batch number that the driver knows as committed.
        task_epoch: of the task's present owner; a store taken over under another one refuses the batch.
        directory: the task's directory, or None if no leg of it has a store.
        transaction: what to produce under: the open transaction, lent to the workers for this batch.
        ranges: input partition -> offsets ``[from, to)``, of all legs.
        positions: input partition -> offset before the batch, of what stateful legs read.
        changelog_next: changelog partition -> offset where a restore would go on after the last committed batch.
        sequences: output partition -> first sequence number, where an earlier leg of the batch wrote to it.
        skipped: input partition -> offset that the state has seen, where records behind it are gone from the topic.
        behind: input topics that have more than the batch takes: they hold watermarks back.
        silence_ms: by how much watermarks go on although nothing has come; else 0.
        awaited: store -> input topics that are read to their end and hold its watermark back all the same.
        event_time_limits: input topic -> the newest event time of its rows that moves watermarks, in milliseconds since
            1970, where tasks that write the topic are behind.
        unread: those of these topics of which more is to come that was there when the batch was chosen.
        clock_ms: what the machine's clock said when the batch was chosen, in milliseconds since 1970, where every try
            of it must take the same for too far ahead; 0: the worker's own clock counts.
        now_ms: what timers and expiries of processing time go by, in milliseconds since 1970: the driver's clock when
            the batch was chosen; None: the worker's own counts.
        left_out: records that the batch goes on without, by partition and offset.
        describe: the changelog topics that are to say again what their stores hold.
        topic_ids: source topic -> the id of the topic that ``ranges`` and ``positions`` belong to, as far as known.
        changelog_ids: changelog topic -> the id of the topic that has the state, as far as known.
        fixed: True if the batch takes all of its records, whatever their size.
    """

    task: TaskId
    batch: int
    committed: int
    task_epoch: int
    directory: str | None
    transaction: ProducerIdentity
    ranges: Mapping[TopicPartition, tuple[int, int]]
    positions: Mapping[TopicPartition, int]
    changelog_next: Mapping[TopicPartition, int] = _NOTHING
    sequences: Mapping[TopicPartition, int] = _NOTHING
    skipped: Mapping[TopicPartition, int] = _NOTHING
    tries: int = 1
    behind: frozenset[str] = frozenset()
    silence_ms: int = 0
    awaited: Mapping[str, frozenset[str]] = _NOTHING
    event_time_limits: Mapping[str, int] = _NOTHING
    unread: frozenset[str] = frozenset()
    clock_ms: int = 0
    now_ms: int | None = None
    left_out: Mapping[TopicPartition, Mapping[int, LeftOut]] = _NOTHING
    describe: frozenset[str] = frozenset()
    topic_ids: Mapping[str, str] = _NOTHING
    changelog_ids: Mapping[str, str] = _NOTHING
    fixed: bool = False

    def topic_ids_of(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """Return the known ids of the topics of partitions."""
        topics = {partition.topic for partition in partitions}
        return {topic: id_ for topic, id_ in self.topic_ids.items() if topic in topics}

    @property
    def positions_after(self) -> dict[TopicPartition, int]:
        """What the state has seen once the batch is in."""
        return {p: self.ranges[p][1] if p in self.ranges else offset for p, offset in self.positions.items()}


@dataclass(frozen=True, slots=True)
class BatchCommand:
    """One micro-batch of one stream thread.

    Attributes:
        spark_partitions: for each Spark partition, the tasks it works on.
        partitions: partition count of each topic that is written.
        global_tables: directory of the process's global tables, if it has any.
        kept_rows: directory of this batch alone for rows that ``foreachBatch`` is to get, if any leg has one.
        skipped_records: the same for records that are skipped; None where none may be.
        skips_of: which leg speaks for the skipped records of a topic that several may read: leg and Kafka's name of it.
        max_bytes: bytes that the records of a leg may take in each Spark partition, as fetched and decoded; 0: any
            number. Tasks whose records are fixed do not count.
    """

    spark_partitions: tuple[tuple[TaskCommand, ...], ...]
    partitions: Mapping[str, int]
    global_tables: str | None = None
    kept_rows: str | None = None
    skipped_records: str | None = None
    skips_of: frozenset[tuple[str, str]] = frozenset()
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a task that wait in a file for ``foreachBatch``.

    Attributes:
        path: of the file, on the host of the process.
        rows: how many.
    """

    path: str
    rows: int


class StateReport(NamedTuple):
    """What the stateful step of a leg did for a task in a batch.

    Attributes:
        keys_changed: groups of the store that got rows.
        rows_late: rows that were left out because their window was over.
        expired: windows that end by then are removed, in milliseconds since 1970; None where windows do not end.
        last_end: when the last window of the store ends, in milliseconds since 1970.
        left_ms: how far the watermark is from the end of the next window that is not over, or would be if no topic held
            it back; 0: that window is open only because one does. None: there is none.
        sources: where topics hold it back: those that the batch had rows of.
        watermark: in milliseconds since 1970; None where there is none yet.
        disk_bytes: what the task's stores take on the disk, all together.
    """

    store: str
    keys_changed: int
    rows_late: int = 0
    expired: int | None = None
    last_end: int = 0
    left_ms: int | None = None
    sources: frozenset[str] = frozenset()
    watermark: int | None = None
    disk_bytes: int | None = None


class LegReport(NamedTuple):
    """What one leg of one task did in a batch.

    Attributes:
        rows_in: records that reached the stateful step or, without one, the sink.
        rows_out: records written to the sink topic.
        oldest_out: sink topic of the user's -> the oldest timestamp written to it, in milliseconds since 1970.
        newest_out: repartition topic -> the newest event time written to it, in milliseconds since 1970, where that is
            gone by behind it.
        state: what its stateful step did; None without one.
        next_sequences: output partition -> next sequence number.
        seconds: step -> seconds spent.
        shown: the rows that ``show`` prints, their cells as text.
        kept: the rows that ``foreachBatch`` is to get; None if there are none.
        skipped: topic -> how many of its records were skipped, of those that the leg speaks for.
        error: what went wrong, if anything did; then nothing else counts.
    """

    leg: str
    task: TaskId
    batch: int
    rows_in: int = 0
    rows_out: int = 0
    oldest_out: Mapping[str, int] = _NOTHING
    newest_out: Mapping[str, int] = _NOTHING
    state: StateReport | None = None
    next_sequences: Mapping[TopicPartition, int] = _NOTHING
    seconds: Mapping[str, float] = _NOTHING
    shown: tuple[tuple[str | None, ...], ...] = ()
    kept: KeptRows | None = None
    skipped: Mapping[str, int] = _NOTHING
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class StoreRestore:
    """One store to restore: its changelog partition up to an offset (exclusive).

    Attributes:
        cut: True if the changelog is cut at what is over, so that it may begin behind what the store has seen.
    """

    store: str
    changelog: TopicPartition
    end: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class RestoreCommand:
    """Bring one task's stores forward.

    Attributes:
        stores: what to restore, and how far.
        take_over: True to take the store over for ``task_epoch`` first, and back what it holds of unfinished batches.
        wipe: True to set the local copy aside first.
        kept_aside: with ``wipe``: False to remove it instead.
        unused_before: epoch seconds; a copy that was not changed since is removed first: what it has not seen of its
            changelog may lack deletions by now. One that has seen all of it, or has none, stays.
        drop_journals: last committed batch, up to which journals are dropped, or None.
        changelog_next: with ``drop_journals``: changelog partition -> offset where a restore would go on.
        task_epoch: under which the store is, or was, taken over; nothing is changed under another one.
        close: True to sync and close the store afterwards, as its task leaves.
        topic_ids: with ``take_over``: the ids of the changelog topics, as far as known.
        changelogs: with ``take_over``: every store of the task, or nothing if that is not known; others are emptied.
        source_ends: with ``take_over``: store -> how far the group has read the topic that is its source and its
            changelog, None if that is not known. A table that stands further on is emptied.
        committed: of a task whose stores have no changelog: the group's offset, or None, of each partition that they
            are made of. That decides about a batch whose outcome is not known here; stores that stand elsewhere are
            emptied. Else None.
        width: of the same, the number of tasks that its stores are spread over. Else None.
    """

    task: TaskId
    directory: str
    stores: tuple[StoreRestore, ...] = ()
    take_over: bool = False
    wipe: bool = False
    kept_aside: bool = True
    unused_before: float | None = None
    drop_journals: int | None = None
    changelog_next: Mapping[TopicPartition, int] = field(default_factory=dict)
    task_epoch: int = 0
    close: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    changelogs: Mapping[str, TopicPartition] = field(default_factory=dict)
    source_ends: Mapping[str, int | None] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int | None] | None = None
    width: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreSlice:
    """One restore slice.

    Attributes:
        spark_partitions: for each Spark partition, the tasks it brings forward, in this order.
        seconds: how long the records of a partition's tasks may take together. The tasks that no time is left for have
            everything but records done, and report; the next slice goes on.
    """

    spark_partitions: tuple[tuple[RestoreCommand, ...], ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """Where one task's stores stand now.

    Attributes:
        positions: input positions that the state has seen.
        batch: number of the last committed batch in the state; 0 if none.
        changelog_next: changelog partition -> offset where the restore goes on.
        records: changelog records applied in this slice.
        started_at: changelog partition -> offset where the slice began.
        task_epoch: that of the command; None for a standby.
        disk_bytes: what the stores take on the disk.
        topic_ids: source topic -> the id of the topic that ``positions`` belong to, as far as known.
        read_through: False while rows of a store that an instance before did not close are still to be compared with
            what was written. The command comes again.
    """

    task: TaskId
    positions: Mapping[TopicPartition, int]
    batch: int
    changelog_next: Mapping[TopicPartition, int]
    records: int = 0
    started_at: Mapping[TopicPartition, int] = field(default_factory=dict)
    task_epoch: int | None = None
    disk_bytes: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    read_through: bool = True
    error: Exception | None = None


#: Module -> what of it may be made from a command or a report. Only names of values: none of them does anything.
_KNOWN: Final = {
    __name__: frozenset(__all__),
    "sparkrelay.types": frozenset({"ProcessId", "TaskId", "TopicPartition"}),
    "sparkrelay.client.transaction_calls": frozenset({"ProducerIdentity"}),
    "sparkrelay.runtime.contract.host_metadata": frozenset({"HostMetadata"}),
    "sparkrelay.runtime.worker.cleaning": frozenset({"CleanCommand"}),
    "sparkrelay.operators.table.reading": frozenset({"ReadCommand", "ReadReport", "StoreReading"}),
    "sparkrelay.runtime.worker.slot_keeper": frozenset({"ClaimCommand", "ClaimedSlot", "ReleaseCommand"}),
    "sparkrelay.runtime.contract.failure_marks": frozenset({"MisplacedTask"}),
    "sparkrelay.runtime.contract.resident": frozenset({"ResidentCommand"}),
    "sparkrelay.errors": frozenset({*errors.__all__, "_rebuild_error"}),
    "uuid": frozenset({"UUID"}),
}


class _Reader(pickle.Unpickler):
    """Reads commands and reports, and nothing else: bytes that name anything beside their classes are refused.

    Both ends are ours, within one Spark application. So this holds no door shut that is known to be open; it keeps one
    that somebody opens later from running code.
    """

    def find_class(self, module: str, name: str) -> Any:
        if name not in _KNOWN.get(module, ()):
            raise StreamsException(
                f"a command or report names {module}.{name}, which is no part of any: it is not ours"
            )
        return super().find_class(module, name)


def encode_bytes(value: Any) -> bytes:
    """Return ``value`` as bytes for a report row."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def decode_bytes(data: bytes) -> Any:
    """Read what :func:`encode_bytes` wrote, whatever stands behind it.

    Raises:
        StreamsException: it holds something that no command or report does.
    """
    return _Reader(io.BytesIO(data)).load()


def encode(value: Any) -> str:
    """Return ``value`` as text that a Spark property can carry."""
    return base64.b64encode(encode_bytes(value)).decode("ascii")


def decode(text: str) -> Any:
    """Read what :func:`encode` wrote; raises as :func:`decode_bytes` does."""
    return decode_bytes(base64.b64decode(text))
