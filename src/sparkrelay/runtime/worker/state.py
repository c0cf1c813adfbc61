"""The stateful step of a leg: aggregate in Arrow, merge with the store in one LMDB write transaction."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SparkRelayError
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract import fault_points, hidden_columns
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import leg_tasks, release_unused_memory
from sparkrelay.runtime.worker.shares import share_out
from sparkrelay.state import BatchStamp, MergeResult
from sparkrelay.state.aggregate import AggregateCodec
from sparkrelay.state.rows import ascending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import Applied
    from sparkrelay.state.aggregate import AggregateSpec

__all__ = ["Merged", "TaskOutcome", "apply_leg"]


@dataclass(slots=True)
class TaskOutcome:
    """What the stateful step did for one task: its changed state, or the error.

    Attributes:
        rows_in: how many rows it had.
        seconds: what it took; of what is done for several tasks at once, an equal part each.
        first: index of its first row among those that go on.
        rows_out: how many of them are its.
    """

    command: TaskCommand
    rows_in: int
    seconds: float = 0.0
    first: int = 0
    rows_out: int = 0
    applied: Applied | None = None
    error: SparkRelayError | None = None

    def result(self) -> Applied:
        """Return what was applied, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.applied is not None
        return self.applied


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
    release_unused_memory()
    connections.close_unused()
    for share in shares:
        yield _merge(spec, share)


def _merge(spec: StateSpec, share: Share) -> Merged:
    outcomes = [TaskOutcome(task, share.rows_in(task)) for task in share.tasks]
    started = time.perf_counter()
    try:
        groups = _group(spec, share)
    except SparkRelayError as error:
        for outcome in outcomes:
            outcome.error = error
        return Merged(outcomes, _no_rows(spec.output))
    seconds = time.perf_counter() - started
    for outcome in outcomes:
        outcome.seconds = seconds / len(outcomes)
        _apply(spec, outcome, groups)
    if any(outcome.error is not None for outcome in outcomes):
        return Merged(outcomes, _no_rows(spec.output))
    for outcome in outcomes:
        outcome.first, outcome.rows_out = groups.span(outcome.command.task.partition)
    return Merged(outcomes, _emit(spec, groups, [outcome.result().emitted for outcome in outcomes]))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of some tasks, task by task; a task's are in the order of their encoded keys.

    In the store's order, that is: old and new values are where they are wanted, and a slice of the changelog, which
    gets this order too, is of keys that lie together in the store that it restores.

    Attributes:
        partial: their partial results.
        partitions: of the task that each group is of.
    """

    partial: pa.Table
    partitions: np.ndarray[tuple[int], np.dtype[np.int32]]
    keys: list[pa.Array]
    encoded: pa.Array

    def span(self, partition: int) -> tuple[int, int]:
        """Return where the groups of a task begin, and how many it has."""
        first, end = np.searchsorted(self.partitions, [partition, partition + 1]).tolist()
        return first, end - first


def _group(spec: StateSpec, share: Share) -> _Groups:
    codec = _codec(spec.aggregates)
    rows = pa.Table.from_batches(share.batches) if share.batches else spec.input.empty_table()
    flat, names = _flatten_keys(rows, spec.keys)
    several = [hidden_columns.PARTITION] if len(share.tasks) > 1 else []
    groups = codec.partial(flat, [*several, *(name for children in names for name in children)])
    keys = [
        _key_column(groups, spec.input.field(key).type, children)
        for key, children in zip(spec.keys, names, strict=True)
    ]
    encoded = key_bytes(keys)
    if encoded.null_count:
        # As in Kafka Streams, a record without a key belongs to no group.
        kept = pc.is_valid(encoded)
        groups, encoded, keys = groups.filter(kept), encoded.filter(kept), [key.filter(kept) for key in keys]
    order = None
    if several:
        by_task = pa.table([_whole(groups.column(hidden_columns.PARTITION)), encoded], ["partition", "key"])
        order = pc.sort_indices(by_task, [("partition", "ascending"), ("key", "ascending")])
    elif not ascending(encoded):
        order = pc.array_sort_indices(encoded)
    if order is not None:
        # (Taken from many chunks, each row would be looked for first.)
        groups = groups.combine_chunks().take(order)
        encoded, keys = encoded.take(order), [key.take(order) for key in keys]
    if several:
        partitions = _whole(groups.column(hidden_columns.PARTITION)).to_numpy(zero_copy_only=False)
    else:
        partitions = np.full(len(encoded), share.tasks[0].task.partition, dtype=np.int32)
    return _Groups(groups, partitions, keys, encoded)


@functools.lru_cache(maxsize=64)
def _codec(aggregates: tuple[AggregateSpec, ...]) -> AggregateCodec:
    return AggregateCodec(aggregates)


def _apply(spec: StateSpec, outcome: TaskOutcome, groups: _Groups) -> None:
    """Merge one task's groups with its store."""
    task = outcome.command
    assert task.directory is not None, "a stateful task has a directory"
    started = time.perf_counter()
    first, count = groups.span(task.task.partition)
    partial = groups.partial.slice(first, count)

    def merge(old: pa.Array) -> MergeResult:
        new, results = _codec(spec.aggregates).merge(partial, old)
        return MergeResult(new, pa.RecordBatch.from_arrays(results, [str(index) for index in range(len(results))]))

    topics = set(spec.topics)
    stamp = BatchStamp(
        task_epoch=task.task_epoch,
        number=task.batch,
        committed=task.committed,
        ranges={partition: span for partition, span in task.ranges.items() if partition.topic in topics},
        positions_before={p: offset for p, offset in task.positions.items() if p.topic in topics},
        changelog_next=task.changelog_next,
        contents=spec.contents,
        skipped=task.skipped,
        tries=task.tries,
    )
    fault_points.reach("state-before-apply")
    try:
        store = connections.store(task.directory, map_limit=spec.map_limit)
        encoded = groups.encoded.slice(first, count)
        outcome.applied = store.apply_batch(spec.leg, spec.store, encoded, batch=stamp, merge=merge)
    except SparkRelayError as error:
        connections.forget_store(task.directory)
        outcome.error = error
    fault_points.reach("state-after-apply")
    outcome.seconds += time.perf_counter() - started


def _emit(spec: StateSpec, groups: _Groups, results: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Lay the changed groups out as the rows that go on; the last result is their newest timestamp."""
    *values, timestamps = pa.concat_batches(results).columns
    columns = [*groups.keys, *values, pa.array(groups.partitions), timestamps, groups.encoded]
    return pa.RecordBatch.from_arrays(
        [_as(column, field.type) for column, field in zip(columns, spec.output, strict=True)],
        schema=spec.output,
    )


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


def _key_column(groups: pa.Table, kind: pa.DataType, children: list[str]) -> pa.Array:
    """Put a key of this type together. Spark sends times in the session's zone; those of ``kind`` are in UTC."""
    columns = [_whole(groups.column(name)) for name in children]
    if not pa.types.is_struct(kind):
        return _as(columns[0], kind)
    nulls = columns.pop() if len(columns) > kind.num_fields else None
    columns = [_as(column, field.type) for column, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
