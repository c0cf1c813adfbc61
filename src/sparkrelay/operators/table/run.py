"""The stateful step of a leg: aggregate in Arrow, merge with the store in one LMDB write transaction."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.client.config import longest_request
from sparkrelay.errors import SparkRelayError, StateStoreException
from sparkrelay.operators.aggregate.collected_values import (
    TaskCollection,
    collected_results,
    collected_rows,
    has_collected,
)
from sparkrelay.operators.aggregate.distinct_values import (
    counting,
    has_distinct,
    marked,
    stored_groups,
    value_rows,
)
from sparkrelay.operators.aggregate.table_aggregates import TableAggregates
from sparkrelay.operators.foreign_join.answers import as_newest_rows
from sparkrelay.operators.history.run import TaskVersions
from sparkrelay.operators.latest.rows import NewestRows
from sparkrelay.operators.ranking.tables import TaskRankings
from sparkrelay.operators.ranking.windows import TaskRankedWindows, ranked_results
from sparkrelay.operators.sessions.run import TaskSessions
from sparkrelay.operators.table.changed_rows import TaskGroups, changed_rows
from sparkrelay.operators.table.codecs import aggregate_codec, codec_of
from sparkrelay.operators.watermarks import Sources, end_fronts, stored_keys, with_silence, without_late
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.records.encode import next_sequence
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.runtime.contract import fault_points, hidden_columns
from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import clock_ms, laid_out, leg_tasks, whole
from sparkrelay.runtime.worker.memory import freeze_loaded_objects
from sparkrelay.runtime.worker.shares import partitions_of, share_out
from sparkrelay.runtime.worker.task_steps import store_after, task_store
from sparkrelay.state import BatchStamp, MergeResult
from sparkrelay.state.aggregate import AggregateCodec
from sparkrelay.state.rows import ascending
from sparkrelay.state.space import disk_bytes
from sparkrelay.state.together import TaskShare, merge_together
from sparkrelay.state.view import merging
from sparkrelay.state.watermarks import LATEST, NO_TIME
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sparkrelay.operators.aggregate.collected_values import CollectedRows
    from sparkrelay.operators.aggregate.distinct_values import DistinctValues
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StateSpec, StepSpec, StoreSpec, WatermarkSpec
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import Applied, JournalEntry, Watermark
    from sparkrelay.state.view import Changes, StoreView

__all__ = [
    "Merged",
    "TaskOutcome",
    "apply_leg",
    "batch_stamp",
    "newest_rows",
    "next_in_changelog",
    "state_before",
    "state_report",
    "stored_results",
    "warn_of_late",
]

log = logging.getLogger(__name__)

_WARN_SECONDS: Final = 60.0
#: Bytes of windows; a column of Arrow's has no more.
_MOST_OVER: Final = (1 << 31) - 1
_WINDOWS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
#: Store -> when it was last said that rows come too late.
_warned: dict[str, float] = {}


@dataclass(slots=True)
class TaskOutcome:
    """What the stateful step did for one task: its changed state, or the error.

    Attributes:
        rows_in: how many rows it had.
        seconds: what it took; of what is done for several tasks at once, an equal part each.
        first: index of its first row among those that go on.
        rows_out: how many of them are its.
        applied: what was done to the store.
        over: ``key, value`` of the windows that are over, if they are asked for.
        error: why there is nothing of that.
    """

    command: TaskCommand
    rows_in: int
    seconds: float = 0.0
    first: int = 0
    rows_out: int = 0
    applied: Applied | None = None
    over: pa.RecordBatch | None = None
    error: SparkRelayError | None = None

    def result(self) -> Applied:
        """Return what was applied, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.applied is not None
        return self.applied

    def emitted(self) -> pa.RecordBatch:
        """Return the changed rows, or raise the error."""
        emitted = self.result().emitted
        assert emitted is not None, "a merge says what goes on"
        return emitted


@dataclass(frozen=True, slots=True)
class Merged:
    """Tasks that were merged together.

    Attributes:
        outcomes: one a task.
        emitted: the rows that go on, task by task. Where a task failed there are none: the driver takes the whole
            batch back.
    """

    outcomes: list[TaskOutcome]
    emitted: pa.RecordBatch


def apply_leg(spec: StateSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[Merged]:
    """Merge the rows of each task of this Spark partition with its store, also where all were filtered away.

    Every task's store moves on with every batch, or its position would not match the next one's.
    """
    shares = share_out(leg_tasks(spec), batches)
    freeze_loaded_objects()
    connections.close_unused()
    for share in shares:
        yield _merge(spec, share)


def state_before(spec: StepSpec, task: TaskCommand) -> StateReport | None:
    """Return what the stateful step of a leg, which may have run in another process, did for a task."""
    assert task.directory is not None, "a stateful task has a directory"
    entry = task_store(spec, task).journal_of(spec.leg, number=task.batch, tries=task.tries)
    return None if entry is None else state_report(entry, disk_bytes(task.directory))


def next_in_changelog(task: TaskCommand, changelog: str | None, state: StateReport | None) -> dict[TopicPartition, int]:
    """Return the sequence that a task's changelog goes on with behind a leg that others follow in it."""
    if changelog is None or state is None:
        return {}
    partition = TopicPartition(changelog, task.task.partition)
    # Behind a record for each key there is a marker, and in front of that what the store is, where that is to be said.
    count = state.keys_changed + (2 if changelog in task.describe else 1)
    return {partition: next_sequence(task.sequences.get(partition, 0), count)}


def state_report(entry: JournalEntry, taken: int | None = None) -> StateReport:
    """Return what a leg's entry in the journal says, for the driver; ``taken`` are the bytes of the task's state."""
    timed = entry.watermark != NO_TIME
    without_holding = max(entry.watermark, *entry.sources.values(), NO_TIME)
    known = NO_TIME not in {without_holding, entry.next_end}
    return StateReport(
        entry.store,
        entry.keys,
        entry.rows_late,
        entry.expired if timed else None,
        entry.last_end,
        max(0, entry.next_end - without_holding) if known else None,
        entry.sources_read,
        entry.watermark if timed else None,
        taken,
    )


def _merge(spec: StateSpec, share: Share) -> Merged:
    outcomes = [TaskOutcome(task, share.rows_in(task)) for task in share.tasks]
    started = time.perf_counter()
    rows = pa.Table.from_batches(share.batches) if share.batches else spec.input.empty_table()
    watermarks: Mapping[int, Watermark] = {}
    try:
        if spec.watermark is not None:
            rows, watermarks = _on_time(spec, spec.watermark, outcomes, rows)
        if spec.follows_changes:
            rows = as_newest_rows(spec, share, rows)
        alone = spec.merges or spec.ranks_beside or spec.history_ms is not None
        groups = None if alone else _group(spec, share, rows)
    except SparkRelayError as error:
        for outcome in outcomes:
            outcome.error = outcome.error or error
        return Merged(outcomes, _no_rows(spec.output))
    together = None if groups is None else _merge_together(spec, outcomes, groups, watermarks)
    seconds = time.perf_counter() - started
    for outcome in outcomes:
        outcome.seconds = seconds / len(outcomes)
        watermark = watermarks.get(outcome.command.task.partition)
        if outcome.applied is not None:
            continue
        if groups is None:
            _apply(spec, outcome, _operator(spec, outcome.command, rows, watermark))
        else:
            _apply(spec, outcome, _merging(spec, groups.of(outcome.command.task.partition), watermark))
    if any(outcome.error is not None for outcome in outcomes):
        return Merged(outcomes, _no_rows(spec.output))
    if spec.history_ms is not None:
        late = sum(outcome.result().entry.rows_late for outcome in outcomes)
        warn_of_late(spec.store, late, "after the table's history", "a longer history= of the table")
    if spec.watermark is not None and spec.watermark.final:
        return Merged(outcomes, _final_rows(spec, outcomes))
    if together is not None:
        counts = np.bincount(partitions_of(together), minlength=outcomes[-1].command.task.partition + 1)
        sizes = [int(counts[outcome.command.task.partition]) for outcome in outcomes]
    else:
        sizes = [outcome.emitted().num_rows for outcome in outcomes]
        together = pa.concat_batches([outcome.emitted() for outcome in outcomes])
    first = 0
    for outcome, size in zip(outcomes, sizes, strict=True):
        outcome.first, outcome.rows_out = first, size
        first += size
    return Merged(outcomes, together)


def _merge_together(
    spec: StateSpec, outcomes: Sequence[TaskOutcome], groups: _Groups, watermarks: Mapping[int, Watermark]
) -> pa.RecordBatch | None:
    """Merge the groups of all tasks with their stores in one go; return the rows that go on.

    What has come of a task is in its outcome then. None, and nothing in any, where they are to be merged one by one.
    """
    says_more = spec.changes or spec.joined or spec.kept is not None or groups.versions is not None
    if len(outcomes) == 1 or has_distinct(spec) or says_more:
        return None
    codec, emitted = codec_of(spec), []

    def merge(old: pa.Array) -> pa.Array:
        new, results = codec.merge(groups.partial, old)
        emitted.append(changed_rows(spec, codec, groups.of_all(), old, results)[0])
        return new

    fault_points.reach("state-before-apply")
    shares = [
        TaskShare(
            task_store(spec, outcome.command),
            batch_stamp(spec, outcome.command),
            groups.keys_of(outcome.command.task.partition),
            watermarks.get(outcome.command.task.partition),
        )
        for outcome in outcomes
    ]
    found = merge_together(spec.leg, spec.store, shares, merge)
    if found is None:
        return None
    for outcome, applied in zip(outcomes, found, strict=True):
        if applied is not None:
            _note(spec, outcome, applied)
    fault_points.reach("state-after-apply")
    return emitted[0]


def _on_time(
    spec: StateSpec, watermark: WatermarkSpec, outcomes: list[TaskOutcome], rows: pa.Table
) -> tuple[pa.Table, dict[int, Watermark]]:
    """Leave the rows out that come too late; return the watermarks with the batch too, by partition."""
    before: dict[int, int] = {}
    behind: dict[int, list[int]] = {}
    sources: dict[int, Sources] = {}
    for outcome in outcomes:
        task = outcome.command
        behind[task.task.partition] = [index for index, topic in enumerate(spec.topics) if topic in task.behind]
        assert task.directory is not None, "a stateful task has a directory"
        try:
            store, stamp = task_store(spec, task), batch_stamp(spec, task)
            before[task.task.partition] = store.watermark_before(spec.store, batch=stamp)
            if watermark.by_source:
                known = store.sources_before(spec.store, batch=stamp)
                holding = task.behind | task.awaited.get(spec.store, frozenset())
                limits = {topic: ms - watermark.delay_ms for topic, ms in task.event_time_limits.items()}
                sources[task.task.partition] = Sources(spec.topics, known, holding, limits)
        except SparkRelayError as error:
            connections.forget_store(task.directory)
            outcome.error = error
            raise
    now_ms = {outcome.command.task.partition: clock_ms(outcome.command) for outcome in outcomes}
    rows, after = without_late(watermark, rows, before, now_ms, behind, sources)
    for outcome in outcomes:
        mark = after[outcome.command.task.partition]
        after[outcome.command.task.partition] = replace(mark, ms=with_silence(mark.ms, outcome.command, spec.topics))
    warn_of_late(spec.store, sum(ms.rows_late for ms in after.values()), "after their window was over")
    return rows, after


def warn_of_late(store: str, count: int, how: str, remedy: str = "a longer delay in withWatermark()") -> None:
    """Say, now and then, that rows were left out: nothing else shows it where results go."""
    now = time.monotonic()
    if count and now >= _warned.get(store, 0.0) + _WARN_SECONDS:
        _warned[store] = now
        log.warning(
            "store %r left out %d rows of a micro-batch, which came %s; %s lets them in",
            store,
            count,
            how,
            remedy,
        )


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of some tasks, task by task; a task's are in the order of their encoded keys.

    In the store's order, that is: old and new values are where they are wanted, and a slice of the changelog, which
    gets this order too, is of keys that lie together in the store that it restores.

    Attributes:
        partial: their partial results.
        partitions: of the task that each group is of.
        encoded: their message keys.
        stored: their keys in the store.
        versions: partition -> every change of its rows, for legs that look into the store; None if there are none.
        values: the distinct values of each aggregate that counts those.
        collected: what each aggregate that collects values gets, and loses.
    """

    partial: pa.Table
    partitions: np.ndarray[tuple[int], np.dtype[np.int32]]
    keys: list[pa.Array]
    encoded: pa.Array
    stored: pa.Array
    versions: Mapping[int, pa.RecordBatch] | None = None
    values: Sequence[DistinctValues] = ()
    collected: Sequence[CollectedRows] = ()

    def of_all(self) -> TaskGroups:
        """Return the groups of all tasks, with what stands in no order between them."""
        return TaskGroups(self.partitions, self.partial, self.keys, self.encoded, self.stored, None)

    def keys_of(self, partition: int) -> pa.Array:
        """Return the keys in the store of one task's groups."""
        first, end = np.searchsorted(self.partitions, [partition, partition + 1]).tolist()
        return self.stored.slice(first, end - first)

    def of(self, partition: int) -> TaskGroups:
        """Return the groups of one task."""
        first, end = np.searchsorted(self.partitions, [partition, partition + 1]).tolist()
        count = end - first
        return TaskGroups(
            self.partitions[first:end],
            self.partial.slice(first, count),
            [key.slice(first, count) for key in self.keys],
            self.encoded.slice(first, count),
            self.stored.slice(first, count),
            None if self.versions is None else self.versions[partition],
            [values.of(partition) for values in self.values],
            [rows.of(partition) for rows in self.collected],
        )


def _group(spec: StateSpec, share: Share, rows: pa.Table) -> _Groups:
    flat, names = _flatten_keys(rows, spec.keys)
    several = [hidden_columns.PARTITION] if len(share.tasks) > 1 else []
    by = [*several, *(name for children in names for name in children)]
    groups, keys, encoded = _encoded_groups(spec, flat, names, by)
    values: list[DistinctValues] = []
    collected: list[CollectedRows] = []
    stored = encoded if spec.watermark is None else stored_keys(keys[spec.keys.index(spec.watermark.window)], encoded)
    if has_distinct(spec):
        stored = marked(_ends(spec, keys), encoded)

        def encode(pairs: pa.Table) -> tuple[pa.Array, pa.Array | None]:
            columns = _keys(spec, pairs, names)
            return key_bytes(columns), _ends(spec, columns)

        partition = None if several else share.tasks[0].task.partition
        values = value_rows(spec, flat, by, encode, partition)
        collected = collected_rows(spec, flat, by, lambda pairs: encode(pairs)[0], partition)
    order, as_it_is = None, stored is encoded
    if several:
        by_task = pa.table([whole(groups.column(hidden_columns.PARTITION)), stored], ["partition", "key"])
        order = pc.sort_indices(by_task, [("partition", "ascending"), ("key", "ascending")])
    elif not ascending(stored):
        order = pc.array_sort_indices(stored)
    if order is not None:
        # (Taken from many chunks, each row would be looked for first.)
        groups = groups.combine_chunks().take(order)
        keys, stored = [key.take(order) for key in keys], stored.take(order)
        encoded = stored if as_it_is else encoded.take(order)
    if several:
        partitions = whole(groups.column(hidden_columns.PARTITION)).to_numpy(zero_copy_only=False)
    else:
        partitions = np.full(len(encoded), share.tasks[0].task.partition, dtype=np.int32)
    return _Groups(groups, partitions, keys, encoded, stored, _versions(spec, share, flat), values, collected)


def _encoded_groups(
    spec: StateSpec, flat: pa.Table, names: Sequence[Sequence[str]], by: Sequence[str]
) -> tuple[pa.Table, list[pa.Array], pa.Array]:
    """Return the partial results of groups, their key columns, and their message keys."""
    groups = codec_of(spec).partial(flat, by)
    keys = _keys(spec, groups, names)
    encoded = key_bytes(keys)
    if not encoded.null_count:
        return groups, keys, encoded
    # As in Kafka Streams, a record without a key belongs to no group.
    kept = pc.is_valid(encoded)
    return groups.filter(kept), [key.filter(kept) for key in keys], encoded.filter(kept)


def newest_rows(spec: StateSpec, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the keys and values of a table of newest rows as its store has them; null values delete."""
    codec = codec_of(spec)
    assert isinstance(codec, NewestRows), "only such a table is what its topic is"
    flat, names = _flatten_keys(rows, spec.keys)
    groups, _, encoded = _encoded_groups(spec, flat, names, [name for children in names for name in children])
    return encoded, codec.values(groups)


def _keys(spec: StateSpec, groups: pa.Table, names: Sequence[Sequence[str]]) -> list[pa.Array]:
    return [
        _key_column(groups, spec.input.field(key).type, children)
        for key, children in zip(spec.keys, names, strict=True)
    ]


def _ends(spec: StateSpec, keys: Sequence[pa.Array]) -> pa.Array | None:
    """Return the ends of the windows among keys as the store's keys begin with them; None if they have none."""
    return None if spec.watermark is None else end_fronts(keys[spec.keys.index(spec.watermark.window)])


def _versions(spec: StateSpec, share: Share, rows: pa.Table) -> Mapping[int, pa.RecordBatch] | None:
    """Return each row as a version of its key's, by partition, if a leg that looks into the store has input."""
    read = {partition.topic for task in share.tasks for partition in task.ranges}
    if spec.newest is None or read.isdisjoint(spec.looked_up_by):
        return None
    keys = key_bytes([whole(rows.column(key)) for key in spec.keys])
    columns = [keys, whole(rows.column(hidden_columns.PARTITION_TIME)), NewestRows(spec.newest).values(rows)]
    versions = pa.record_batch(columns, ["key", "time", "value"])
    partitions = whole(rows.column(hidden_columns.PARTITION))
    return {task.task.partition: versions.filter(pc.equal(partitions, task.task.partition)) for task in share.tasks}


def _merging(spec: StateSpec, own: TaskGroups, watermark: Watermark | None) -> Callable[[StoreView], Changes]:
    """Return what merges one task's groups with its store."""
    codec = codec_of(spec)
    if not has_distinct(spec):

        def merged(old: pa.Array) -> MergeResult:
            new, results = codec.merge(own.partial, old)
            return MergeResult(new, *changed_rows(spec, codec, own, old, results))

        return merging(spec.store, own.stored, merged, watermark)
    assert isinstance(codec, AggregateCodec | TableAggregates), "rows as they came have no aggregates"
    ends = None if spec.watermark is None else pc.binary_slice(own.stored, 0, 8)
    collection = TaskCollection(spec, codec, own.encoded, ends, longest_request(spec.client))

    def completed(partial: pa.Table, old: pa.Array) -> MergeResult:
        new, results = codec.merge(partial, old)
        # What is deleted goes on as it was.
        deletes = results[-2] if spec.deletes else None
        after = collection.results_after(results, deletes)
        return MergeResult(new, *changed_rows(spec, codec, own, old, after, collection.results_before))

    def collected(view: StoreView, old: pa.Array) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
        return collection.change(view, old, own.collected)

    return counting(codec, own.stored, own.partial, own.values, completed, watermark, collected)


def _looked_from(spec: StateSpec, task: TaskCommand) -> int:
    """Return from when on, in milliseconds since 1970, a table with a history is still going to be looked into.

    Who has been away has much to read, of the table and of those who look into it. These may be further back: their
    rows come through a repartition topic, say. Kafka Streams takes both by their timestamps.
    """
    limits = task.event_time_limits
    held = [
        limits.get(topic, NO_TIME)
        for topic in spec.looked_up_by
        if topic in task.unread or (topic in task.behind and topic not in limits)
    ]
    return min(held, default=LATEST)


def _operator(
    spec: StateSpec, task: TaskCommand, rows: pa.Table, watermark: Watermark | None
) -> Callable[[StoreView], Changes]:
    """Return what brings one task's rows into its store, where they are merged with more than one key's value."""
    partition = task.task.partition
    own = rows.filter(pc.equal(rows.column(hidden_columns.PARTITION), partition))
    if spec.ranks_changes:
        return TaskRankings(spec, partition, own).operate
    if spec.history_ms is not None:
        latest_ms = clock_ms(task) + spec.ahead_ms
        return TaskVersions(spec, partition, task.batch, own, latest_ms, _looked_from(spec, task)).operate
    assert watermark is not None, "sessions end by a watermark, as windows do"
    if spec.ranks_windows:
        return TaskRankedWindows(spec, own, watermark).operate
    return TaskSessions(spec, aggregate_codec(spec.aggregates), partition, own, watermark).operate


def _apply(spec: StateSpec, outcome: TaskOutcome, operate: Callable[[StoreView], Changes]) -> None:
    """Change one task's store."""
    task = outcome.command
    assert task.directory is not None, "a stateful task has a directory"
    started = time.perf_counter()
    fault_points.reach("state-before-apply")
    try:
        stamp = batch_stamp(spec, task)
        _note(spec, outcome, task_store(spec, task).change_batch(spec.leg, spec.store, batch=stamp, operate=operate))
    except SparkRelayError as error:
        connections.forget_store(task.directory)
        outcome.error = error
    fault_points.reach("state-after-apply")
    outcome.seconds += time.perf_counter() - started


def _note(spec: StateSpec, outcome: TaskOutcome, applied: Applied) -> None:
    """Note what was done to a task's store, and read the windows that are over with it."""
    outcome.applied = applied
    if applied.over is not None:
        outcome.over = _in_one_piece(spec, store_after(spec, outcome.command, applied).over())


def _in_one_piece(spec: StateSpec, windows: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the windows that are over in one piece."""
    found, size = [_no_rows(_WINDOWS)], 0
    for some in windows:
        found.append(some)
        size += some.nbytes
        if size > _MOST_OVER:
            raise StateStoreException(
                f"store {spec.store!r}: the windows of one task that are over at once have more than {_MOST_OVER} "
                "bytes, and no micro-batch emits that much: make their results smaller (fewer columns, fewer collected "
                "values), or start over with more tasks: repartition(..., partitions=N) before the step, and "
                "sparkrelay reset"
            )
    return pa.concat_batches(found)


def batch_stamp(spec: StoreSpec, task: TaskCommand) -> BatchStamp:
    """Return what a store compares a leg's share of a task's batch with."""
    topics = set(spec.topics)
    return BatchStamp(
        task_epoch=task.task_epoch,
        number=task.batch,
        committed=task.committed,
        ranges={partition: span for partition, span in task.ranges.items() if partition.topic in topics},
        positions_before={p: offset for p, offset in task.positions.items() if p.topic in topics},
        changelog_next=task.changelog_next,
        contents=spec.contents,
        skipped=task.skipped,
        tries=task.tries,
        topics={topic: id_ for topic, id_ in task.topic_ids.items() if topic in topics},
    )


def _final_rows(spec: StateSpec, outcomes: list[TaskOutcome]) -> pa.RecordBatch:
    """Lay the windows that are over out as the rows that go on, and note whose they are."""
    windows, partitions, first = [], [], 0
    results: list[list[pa.Array]] = []
    for outcome in outcomes:
        stored = outcome.over
        assert stored is not None, "a store that was asked for windows says which are over"
        if spec.ranks_windows:
            keys, columns = ranked_results(spec, stored)
        else:
            over = stored_groups(spec, stored)
            keys, columns = over.column("key"), stored_results(spec, over, stored)
        results.append(columns)
        outcome.first, outcome.rows_out = first, len(keys)
        first += len(keys)
        windows.append(keys)
        partitions.append(np.full(len(keys), outcome.command.task.partition, dtype=np.int32))
    encoded = pa.concat_arrays(windows)
    kinds = [spec.input.field(name) for name in spec.keys]
    *values, timestamps = (pa.concat_arrays(columns) for columns in zip(*results, strict=True))
    groups = key_columns(encoded, pa.schema(kinds))
    return laid_out([*groups, *values, pa.array(np.concatenate(partitions)), timestamps, encoded], spec.output)


def stored_results(spec: StateSpec, groups: pa.RecordBatch, stored: pa.RecordBatch) -> list[pa.Array]:
    """Return the results of stored groups, and last their timestamps.

    Args:
        spec: of the stateful step.
        groups: the groups (``stored_groups``).
        stored: ``key, value`` of the store, with all that is of these.

    Raises:
        SerializationException: a result would be too long; the message names the group.
    """
    codec = codec_of(spec)
    results = codec.results(groups.column("value"))
    if not has_collected(spec):
        return results
    windowed, most = spec.watermark is not None, longest_request(spec.client)
    return collected_results(codec, groups, stored, results, windowed=windowed, most=most)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _flatten_keys(rows: pa.Table, keys: tuple[str, ...]) -> tuple[pa.Table, list[list[str]]]:
    """Replace struct keys, such as windows, by their fields: Arrow does not group by structs.

    Where one is null, whether it is comes as one more column: null is another group than a struct of nulls.
    """
    names: list[list[str]] = []
    for key in keys:
        column = rows.column(key)
        if not pa.types.is_struct(column.type):
            names.append([key])
            rows = rows.set_column(rows.schema.get_field_index(key), rows.schema.field(key), _normal(column))
            continue
        children = []
        for index in range(column.type.num_fields):
            children.append(f"{hidden_columns.PREFIX}{key}_{index}")
            rows = rows.append_column(children[-1], _normal(pc.struct_field(column, [index])))
        if column.null_count:
            children.append(f"{hidden_columns.PREFIX}{key}_null")
            rows = rows.append_column(children[-1], pc.is_null(column))
        names.append(children)
    return rows, names


def _normal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return keys with one zero and one NaN, as Spark groups (NormalizeFloatingNumbers); Arrow compares their bits."""
    if not pa.types.is_floating(column.type):
        return column
    plain = pc.add(column, pa.scalar(0.0, column.type))  # turns -0.0 into 0.0
    return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), column.type), plain)


def _key_column(groups: pa.Table, kind: pa.DataType, children: Sequence[str]) -> pa.Array:
    """Put a key of this type together. Spark sends times in the session's zone; those of ``kind`` are in UTC."""
    columns = [whole(groups.column(name)) for name in children]
    if not pa.types.is_struct(kind):
        return as_type(columns[0], kind)
    nulls = columns.pop() if len(columns) > kind.num_fields else None
    columns = [as_type(column, field.type) for column, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)
