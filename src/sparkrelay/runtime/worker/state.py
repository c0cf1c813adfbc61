"""The stateful step of a leg: aggregate in Arrow, merge with the store in one LMDB write transaction."""

from __future__ import annotations

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
from sparkrelay.state import BatchStamp, MergeResult
from sparkrelay.state.aggregate import AggregateCodec
from sparkrelay.state.rows import ascending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.state import Applied

__all__ = ["TaskOutcome", "apply_leg", "collect_rows"]


@dataclass(slots=True)
class TaskOutcome:
    """What the stateful step did for one task: its rows and changed state, or the error."""

    command: TaskCommand
    rows_in: int
    seconds: float
    applied: Applied | None = None
    error: SparkRelayError | None = None

    def result(self) -> Applied:
        """Return what was applied, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.applied is not None
        return self.applied


def apply_leg(spec: StateSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[TaskOutcome]:
    """Yield one outcome for each task of this Spark partition, also for those whose rows were all filtered away.

    Every task's store moves on with every batch, or its position would not match the next one's.
    """
    tasks = leg_tasks(spec)
    rows = collect_rows(tasks, batches)
    release_unused_memory()
    connections.close_unused()
    for task in tasks:
        yield _apply_task(spec, task, rows.pop(task.task.partition))


def collect_rows(tasks: Iterable[TaskCommand], batches: Iterable[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
    """Read all input and sort it by task, that is, by the hidden partition column."""
    rows: dict[int, list[pa.RecordBatch]] = {task.task.partition: [] for task in tasks}
    for batch in batches:
        if not batch.num_rows:
            continue
        partitions = batch.column(hidden_columns.PARTITION).to_numpy(zero_copy_only=False)
        first = int(partitions[0])
        if (partitions == first).all():
            # The usual case, in which nothing is copied.
            rows[first].append(batch)
            continue
        for partition in np.unique(partitions):
            rows[int(partition)].append(batch.filter(pa.array(partitions == partition)))
    return rows


def _apply_task(spec: StateSpec, task: TaskCommand, parts: list[pa.RecordBatch]) -> TaskOutcome:
    started = time.perf_counter()
    outcome = TaskOutcome(task, sum(part.num_rows for part in parts), 0.0)
    fault_points.reach("state-before-apply")
    try:
        outcome.applied = _merge(spec, task, parts)
    except SparkRelayError as error:
        assert task.directory is not None
        connections.forget_store(task.directory)
        outcome.error = error
    fault_points.reach("state-after-apply")
    outcome.seconds = time.perf_counter() - started
    return outcome


def _merge(spec: StateSpec, task: TaskCommand, parts: list[pa.RecordBatch]) -> Applied:
    assert task.directory is not None, "a stateful task has a directory"
    codec = AggregateCodec(spec.aggregates)
    rows = pa.Table.from_batches(parts) if parts else spec.input.empty_table()
    flat, names = _flatten_keys(rows, spec.keys)
    groups = codec.partial(flat, [name for children in names for name in children])
    keys = [
        _key_column(groups, spec.input.field(key).type, children)
        for key, children in zip(spec.keys, names, strict=True)
    ]
    encoded = key_bytes(keys)
    if encoded.null_count:
        # As in Kafka Streams, a record without a key belongs to no group.
        kept = pc.is_valid(encoded)
        groups, encoded, keys = groups.filter(kept), encoded.filter(kept), [key.filter(kept) for key in keys]
    if not ascending(encoded):
        # In the store's order from here on: old and new values are where they are wanted, and a slice of the changelog,
        # which gets this order too, is of keys that lie together in the store that it restores.
        order = pc.array_sort_indices(encoded)
        # (Taken from many chunks, each row would be looked for first.)
        groups = groups.combine_chunks().take(order)
        encoded, keys = encoded.take(order), [key.take(order) for key in keys]

    def merge(old: pa.Array) -> MergeResult:
        new, results = codec.merge(groups, old)
        return MergeResult(new=new, emitted=_emit(spec, task, keys, results, encoded))

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
    store = connections.store(task.directory, map_limit=spec.map_limit)
    return store.apply_batch(spec.leg, spec.store, encoded, batch=stamp, merge=merge)


def _emit(
    spec: StateSpec, task: TaskCommand, keys: list[pa.Array], results: list[pa.Array], encoded: pa.Array
) -> pa.RecordBatch:
    """Lay the changed groups out as the rows that go on; the last result is their newest timestamp."""
    *values, timestamps = results
    partitions = pa.array(np.full(len(encoded), task.task.partition, dtype=np.int32))
    columns = [*keys, *values, partitions, timestamps, encoded]
    return pa.RecordBatch.from_arrays(
        [_as(column, field.type) for column, field in zip(columns, spec.output, strict=True)],
        schema=spec.output,
    )


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
