"""Restore: bring a task's stores forward from their changelogs, in one slice per job.

The same step restores tasks being initialized, keeps standbys warm, and drops journals of leaving tasks.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from sparkrelay.errors import OffsetOutOfRangeException, SparkRelayError
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commands import RestoreCommand, RestoreReport, RestoreSlice
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, current_spark_partition, drain, report_row, reporting
from sparkrelay.runtime.worker.decoding import decoded_rows, raw_columns
from sparkrelay.runtime.worker.outdated_copies import removed_as_outdated
from sparkrelay.state.changelog import Marker, split
from sparkrelay.state.home.removal import set_aside, wipe
from sparkrelay.state.space import disk_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.runtime.contract.commands import StoreRestore
    from sparkrelay.runtime.contract.specs import SourceChangelog
    from sparkrelay.state import TaskStore
    from sparkrelay.types import TopicPartition

log = logging.getLogger(__name__)

#: Least bytes that a core writes to a large store.
_BYTES_A_SECOND: Final = 32 << 20
#: Share of a Spark partition's bytes that is written together: keys and values are copied and sorted.
_GATHERED: Final = 4


@dataclass(frozen=True, slots=True)
class RestoreSpec:
    """What restores need for as long as the process lives.

    ``sources`` has, for tables whose topic is their changelog, how the store is restored; other changelogs hold
    changelog records. ``max_bytes`` is the share of ``max.batch.bytes`` of a Spark partition; None: unlimited.
    """

    spark_partitions: int
    application: str
    client: Mapping[str, Any]
    map_limit: int
    sources: Mapping[str, SourceChangelog] = field(default_factory=dict)
    instance: str = ""
    max_bytes: int | None = None

    @property
    def source_topics(self) -> frozenset[str]:
        """The topics that are both changelogs and sources."""
        return frozenset(topic for source in self.sources.values() for topic in source.fetch.topics)


@reporting
def restore_partition(spec: RestoreSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Restore this Spark partition's part of the slice; yield one row with all reports."""
    drain(batches)
    connections.begin_step()
    slice_ = current_command(RestoreSlice)
    budget = _Budget(slice_.seconds, spec.max_bytes)
    reports = [
        _restore(spec, command, budget)
        for command in slice_.spark_partitions[current_spark_partition(spec.spark_partitions)]
    ]
    yield report_row(reports)


class _Budget:
    """The limits for the records of a Spark partition's tasks: time together, bytes at once.

    The time begins with the first record: each slice makes progress, however long opening stores took.
    """

    def __init__(self, seconds: float, max_bytes: int | None) -> None:
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._deadline: float | None = None

    @property
    def bytes_at_once(self) -> int:
        """Most bytes that a store gets in one transaction, which must not outlast the slice by far."""
        in_time = int(self._seconds * _BYTES_A_SECOND)
        return in_time if self._max_bytes is None else min(in_time, self._max_bytes // _GATHERED)

    def spent(self) -> bool:
        """Return whether to fetch no further records; the first call starts the time."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        return now > self._deadline


def _restore(spec: RestoreSpec, command: RestoreCommand, budget: _Budget) -> RestoreReport:
    try:
        return _advance(spec, command, budget)
    except SparkRelayError as error:
        connections.forget_store(command.directory)
        connections.forget_fetcher(spec.client)
        return RestoreReport(command.task, {}, 0, {}, error=error)


class _Gathered:
    """Records of a changelog on their way to the store; a context manager.

    If a changelog is not in key order, as after many small batches, each transaction writes most pages of the store. So
    several fetches are written as one.
    """

    def __init__(
        self, spec: RestoreSpec, store: TaskStore, target: StoreRestore, task_epoch: int, bytes_at_once: int
    ) -> None:
        self._store = store
        self._target = target
        self._source = spec.sources.get(target.store)
        self._source_topics = spec.source_topics
        self._task_epoch = task_epoch
        self._bytes_at_once = bytes_at_once
        self._parts: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a fetch's records; they are written now or later."""
        self._parts.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._bytes_at_once:
            self.apply()

    def apply(self) -> None:
        """Write the gathered records to the store."""
        if not self._parts:
            return
        batch = pa.concat_batches(self._parts)
        self._parts, self._bytes = [], 0
        offsets = batch.column("offset")
        changelog = self._target.changelog
        following = offsets[-1].as_py() + 1
        if self._source is None:
            keys, values, marker = split(batch.column("key"), batch.column("value"), partial(_name, changelog, offsets))
            marker = self._without_sources(marker)
        else:
            rows = decoded_rows(self._source.fetch, changelog, batch, {})
            keys, values = self._source.stored(pa.Table.from_batches([rows]))
            marker = Marker(0, {}, self._source.contents)
        self._store.restore(
            self._target.store,
            changelog,
            keys,
            values,
            following,
            marker,
            task_epoch=self._task_epoch,
            is_source=self._source is not None,
        )
        fault_points.reach("restore-after-slice")

    def _without_sources(self, marker: Marker | None) -> Marker | None:
        """Return the marker of a store without positions in topics that are changelogs of other stores of the task.

        A table is at its restored position, which may differ from that in the marker.
        """
        if marker is None or not self._source_topics:
            return marker
        own = {p: offset for p, offset in marker.positions.items() if p.topic not in self._source_topics}
        return replace(marker, positions=own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Even after a failed fetch: earlier records count.
        self.apply()


def _name(changelog: TopicPartition, offsets: pa.Array, index: int) -> str:
    return f"changelog topic {changelog.topic!r}, partition {changelog.partition}, offset {offsets[index].as_py()}"


def _advance(spec: RestoreSpec, command: RestoreCommand, budget: _Budget) -> RestoreReport:
    if removed_as_outdated(command, spec.map_limit, spec.client, spec.source_topics) and not command.take_over:
        return RestoreReport(command.task, {}, 0, {})
    if command.wipe:
        connections.forget_store(command.directory)
        if not command.kept_aside:
            wipe(Path(command.directory))
        elif (aside := set_aside(Path(command.directory))) is not None:
            log.error("task %s: its unusable state was set aside as %s and is rebuilt", command.task, aside)
    store = connections.store(command.directory, map_limit=spec.map_limit)
    # A cleanly closed copy that is only closed again is not marked as open: a write waits for the disk.
    only_looked_at = command.close and store.header.clean
    if not only_looked_at and store.opened_by(spec.instance):
        log.info("task %s: its state was not closed; all of it is read before it is used", command.task)
    if command.take_over:
        store.claim(spec.application, command.topic_ids, command.width)
        fault_points.reach("restore-before-undo")
        # Before anything else: from here on, late batches of a former owner are refused. Its unfinished batch is
        # undone; if it was committed after all, restoring its changelog records gives the same values again.
        if command.committed is None:
            store.take_over(command.task_epoch)
        elif store.take_over_at(command.task_epoch, command.committed):
            log.warning(
                "task %s: its local stores without changelog do not match the group's offsets (it ran elsewhere, or "
                "its state was lost): they start empty",
                command.task,
            )
    if command.drop_journals is not None:
        store.commit_known(command.drop_journals, command.changelog_next, task_epoch=command.task_epoch)
    if command.take_over:
        if command.changelogs and (dropped := store.keep_only(command.changelogs, task_epoch=command.task_epoch)):
            log.warning("task %s: no longer has %s; its local rows are removed", command.task, dropped)
        for name, end in command.source_ends.items():
            at, words = command.changelogs[name], spec.sources[name].contents
            known = store.require_source(name, at, end, contents=words, task_epoch=command.task_epoch)
            if known is not None:
                log.warning(
                    "task %s: table %r has %s up to %d, but the group's offset is %s: it was set back, or has expired. "
                    "The table is rebuilt up to where it is read next",
                    command.task,
                    name,
                    at,
                    known,
                    end,
                )
        fault_points.reach("restore-after-undo")
    read_through = command.close or store.read_through(budget.spent)
    records, started_at = 0, dict(store.header.changelog)
    for target in command.stores:
        start = store.header.changelog.get(target.changelog, 0)
        if start >= target.end:
            continue
        if not read_through or budget.spent():
            break
        try:
            records += _follow(spec, command, store, target, budget)
        except OffsetOutOfRangeException as error:
            is_source = target.store in spec.sources
            first = connections.fetcher(spec.client).log_start(target.changelog) if target.cut or is_source else start
            if first <= start:
                raise _incomplete(spec, command, target, start) from error
            _begin_anew(command, store, target, first, is_source=is_source)
    header, taken = store.header, disk_bytes(store.path)
    if command.close:
        connections.forget_store(command.directory, clean=True)
    return RestoreReport(
        command.task,
        dict(header.positions),
        header.batch,
        dict(header.changelog),
        records,
        started_at,
        task_epoch=command.task_epoch,
        disk_bytes=taken,
        topic_ids={p.topic: header.topics[p.topic] for p in header.positions if p.topic in header.topics},
        read_through=read_through,
    )


def _incomplete(
    spec: RestoreSpec, command: RestoreCommand, target: StoreRestore, start: int
) -> OffsetOutOfRangeException:
    """Return the error of a changelog that lacks the next records of a copy."""
    return OffsetOutOfRangeException(
        f"task {command.task}: store {target.store!r} is to be restored from offset {start} of its changelog "
        f"{target.changelog}, which does not exist: the topic deletes records, somebody has deleted some, or brokers "
        "have lost them. Set cleanup.policy=compact again if it is another. An instance with a more recent copy can "
        "still run the task; if there is none, start the application over: sparkrelay reset --application-id "
        f"{spec.application} ..."
    )


def _begin_anew(
    command: RestoreCommand, store: TaskStore, target: StoreRestore, first: int, *, is_source: bool
) -> None:
    """Continue at the beginning of a changelog that lost records after the store's position.

    The lost records had expired, or were deleted by the batch after them. Rows of the copy may have been deleted too,
    with tombstones lost in the cut: so nothing of it is kept.
    """
    at = store.header.changelog.get(target.changelog, 0)
    emptied = store.restore_anew(
        target.store,
        target.changelog,
        min(first, target.end),
        task_epoch=command.task_epoch,
        is_source=is_source,
    )
    if emptied:
        log.log(
            logging.WARNING if is_source else logging.INFO,
            "task %s: records %d to %d are gone from %s; store %r, which had what was before them, is emptied and "
            "restored from there on",
            command.task,
            at,
            first,
            target.changelog,
            target.store,
        )


def _follow(spec: RestoreSpec, command: RestoreCommand, store: TaskStore, target: StoreRestore, budget: _Budget) -> int:
    """Bring one store forward while there is time; return the number of records."""
    records = 0
    source = spec.sources.get(target.store)
    fetched = connections.fetcher(spec.client).fetch(
        {target.changelog: (store.header.changelog.get(target.changelog, 0), target.end)},
        columns=frozenset({"key", "value", "offset"}) if source is None else raw_columns(source.fetch),
        max_bytes=spec.max_bytes,
    )
    with _Gathered(spec, store, target, command.task_epoch, budget.bytes_at_once) as gathered:
        for _, batch in fetched:
            if batch.num_rows:
                gathered.add(batch)
                records += batch.num_rows
            if budget.spent():
                break
        else:
            gathered.apply()
            store.restore_reached(
                target.changelog, target.end, task_epoch=command.task_epoch, is_source=source is not None
            )
    return records
