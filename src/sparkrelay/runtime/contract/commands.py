"""Commands from the driver to workers, and the reports that come back.

A prepared DataFrame runs again and again. What changes from one micro-batch to the next (ranges, batch numbers, lent
producer ids) travels as a job-local property, so nothing is analysed or planned anew. Reports come back as the rows of
the job. Our own errors travel in them too: raising would end the Python worker with all its caches and fail the other
tasks of the batch. Only user code raises.

Records of which a micro-batch has one per task are named tuples: creating, pickling and reading them takes half the
time of a dataclass.
"""

from __future__ import annotations

import base64
import io
import pickle  # noqa: TID251 - read by _Reader alone
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from sparkrelay import errors
from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.arrow_stream import from_stream, to_stream

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
#: Name of the job-local property that carries the id of the job's executor; empty: any.
EXECUTOR_PROPERTY: Final = "sparkrelay.executor"
#: Never changed. Not a MappingProxyType, which cannot be pickled.
_NOTHING: Final[Mapping[Any, Any]] = {}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a record is left out: the exception (its class), its message, and its stack as far as it is known."""

    exception: str
    message: str
    trace: str = ""


class TaskCommand(NamedTuple):
    """One task's part of a micro-batch.

    Attributes:
        batch: number of the batch within the task; it only grows.
        tries: number of this attempt, from 1. The effects of an earlier attempt are undone: it may have been partial.
        committed: the last batch that the driver knows as committed.
        task_epoch: epoch of the current owner; a store taken over under another epoch refuses the batch.
        ranges: input partition -> offsets ``[from, to)``, for all legs.
        positions: input partition -> offset before the batch, for the inputs of stateful legs.
        changelog_next: changelog partition -> offset from which to restore after the last committed batch.
        sequences: output partition -> first sequence number, if an earlier leg of the batch wrote to it.
        skipped: input partition -> offset up to which the state has read, if the records after it were deleted.
        behind: input topics with more records than the batch takes: they hold watermarks back.
        silence_ms: how far to advance idle watermarks; 0: not at all.
        awaited: store -> fully read input topics that still hold its watermark back.
        event_time_limits: input topic -> the newest event time that moves watermarks, in milliseconds since 1970, if
            tasks that write the topic are behind.
        unread: the topics of ``event_time_limits`` that had more records than the batch takes when it was chosen.
        clock_ms: the wall clock when the batch was chosen, in milliseconds since 1970, if every attempt must agree on
            which times are too far ahead; 0: use the worker's clock.
        now_ms: the time for timers and expiry in processing time: the driver's clock when the batch was chosen, in
            milliseconds since 1970; None: use the worker's clock.
        left_out: records to leave out, by partition and offset.
        describe: changelog topics to which the description of their store is written again.
        topic_ids: source topic -> id of the topic that ``ranges`` and ``positions`` refer to, if known.
        changelog_ids: changelog topic -> id of the topic that has the state, if known.
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
        """The offsets up to which the state has read after the batch."""
        return {p: self.ranges[p][1] if p in self.ranges else offset for p, offset in self.positions.items()}


@dataclass(frozen=True, slots=True)
class BatchCommand:
    """One micro-batch of one stream thread.

    Attributes:
        partitions: partition count of each topic that is written.
        kept_rows: directory of this batch for rows of ``foreachBatch``, if any leg has it.
        skipped_records: directory of this batch for skipped records; None where none may be skipped.
        skips_of: (leg, Kafka topic) pairs: the leg that reports the skipped records of a topic read by several legs.
        max_bytes: bytes that the records of a leg may take in each Spark partition, as fetched and decoded; 0:
            unlimited. Tasks with fixed records do not count.
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
    """Rows of a task that are stored for ``foreachBatch``: path of the file on the process's host, and row count."""

    path: str
    rows: int


class StateReport(NamedTuple):
    """What the stateful step of a leg did for a task in a batch. Times are in milliseconds since 1970.

    Attributes:
        keys_changed: groups of the store that got rows.
        rows_late: rows dropped because their window was closed.
        expired: windows that end at or before this time are removed; None if windows do not end.
        left_ms: milliseconds from the watermark to the end of the next open window, as if no topic held the watermark
            back; 0: the window is open only because a topic does. None: no window is open.
        sources: the topics with rows in the batch, if topics hold the watermark back.
        disk_bytes: disk usage of all stores of the task.
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
        rows_in: rows that reached the stateful step or, without one, the sink.
        rows_out: records written to the sink topic.
        oldest_out: user's sink topic -> the oldest timestamp written, in milliseconds since 1970.
        newest_out: repartition topic -> the newest event time written, in milliseconds since 1970, if a watermark
            downstream depends on it.
        shown: rows for ``show``, cells as text.
        skipped: topic -> skipped records, for topics that this leg reports.
        error: why the leg failed; all other fields are then meaningless.
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
    """A store to restore, up to ``end`` (exclusive); if ``cut``, its changelog may begin after the store's position."""

    store: str
    changelog: TopicPartition
    end: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class RestoreCommand:
    """Bring one task's stores forward.

    Attributes:
        take_over: take the stores over for ``task_epoch`` first, and undo unfinished batches.
        wipe: set the local copy aside first.
        kept_aside: with ``wipe``: False to delete the copy instead.
        unused_before: epoch seconds; a copy last changed before this is removed first, since deletions may be missing
            from it. It stays if it has all of its changelog, or no changelog.
        drop_journals: last committed batch, up to which journals are dropped; None: keep them.
        changelog_next: with ``drop_journals``: changelog partition -> offset from which to restore.
        task_epoch: epoch under which the stores are or were taken over; under another one nothing is changed.
        close: sync and close the stores afterwards, as the task leaves.
        topic_ids: with ``take_over``: known ids of the changelog topics.
        changelogs: with ``take_over``: all stores of the task; empty if unknown. Other stores are emptied.
        source_ends: with ``take_over``: store -> the group's offset in the topic that is both its source and its
            changelog; None if unknown. A table that is further is emptied.
        committed: only for tasks whose stores have no changelog: the group's offset, or None, of each partition that
            they are built from. It decides whether an unfinished batch was committed; stores at other offsets are
            emptied.
        width: for the same tasks, the number of tasks that the stores are spread over.
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
    """One restore slice: the commands of each Spark partition, in order.

    Attributes:
        seconds: time limit for a partition's records. Tasks left without time do all but apply records; the next slice
            continues.
    """

    spark_partitions: tuple[tuple[RestoreCommand, ...], ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """How far one task's stores are restored.

    Attributes:
        positions: input positions that the state has read up to.
        batch: number of the last committed batch in the state; 0 if none.
        changelog_next: changelog partition -> offset where the restore continues.
        topic_ids: source topic -> id of the topic that ``positions`` refer to, if known.
        read_through: False while rows of an uncleanly closed store are still being verified; the command is sent again.
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


#: Module -> names that a command or a report may contain. All are plain values; none has side effects.
_KNOWN: Final = {
    __name__: frozenset(__all__),
    "sparkrelay.types": frozenset({"ProcessId", "TaskId", "TopicPartition"}),
    "sparkrelay.client.transaction_calls": frozenset({"ProducerIdentity"}),
    "sparkrelay.runtime.contract.host_metadata": frozenset({"HostMetadata"}),
    "sparkrelay.runtime.worker.cleaning": frozenset({"CleanCommand"}),
    "sparkrelay.operators.table.reading": frozenset({"StoreRead", "StoreReading"}),
    "sparkrelay.runtime.contract.arrow_stream": frozenset({"from_stream"}),
    "sparkrelay.runtime.worker.slot_keeper": frozenset({"ClaimCommand", "ClaimedSlot", "ReleaseCommand"}),
    "sparkrelay.runtime.contract.failure_marks": frozenset({"MisplacedTask"}),
    "sparkrelay.runtime.contract.resident": frozenset({"ResidentCommand"}),
    "sparkrelay.errors": frozenset({*errors.__all__, "_rebuild_error"}),
    "uuid": frozenset({"UUID"}),
}
#: Rows travel as Arrow streams: their own pickles name much of pyarrow.
_REDUCERS: Final = {pa.RecordBatch: lambda rows: (from_stream, (to_stream(rows),))}


class _Reader(pickle.Unpickler):
    """Unpickles commands and reports only. It closes no known hole, but keeps one opened later from running code."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _KNOWN.get(module, ()):
            raise StreamsException(f"a command or report names {module}.{name}, which is not allowed in one: not ours")
        return super().find_class(module, name)


def encode_bytes(value: Any) -> bytes:
    """Return a value as bytes for a report row."""
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    return sink.getvalue()


def decode_bytes(data: bytes) -> Any:
    """Decode :func:`encode_bytes`, ignoring trailing bytes; raise StreamsException for any foreign class."""
    return _Reader(io.BytesIO(data)).load()


def encode(value: Any) -> str:
    """Return a value as text for a Spark property."""
    return base64.b64encode(encode_bytes(value)).decode("ascii")


def decode(text: str) -> Any:
    """Decode the output of :func:`encode`; raises like :func:`decode_bytes`."""
    return decode_bytes(base64.b64decode(text))
