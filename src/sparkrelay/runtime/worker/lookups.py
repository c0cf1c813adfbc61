"""The lookup step: each row of a stream gets what a table holds for its key, as of the row's place in time.

The table's leg has run before, in an earlier wave of the same micro-batch. What it has changed stands in its journal
with every version in between, so a row sees the table as it is when the rows of both are taken by their partitions'
times, the table's first where those are equal. Kafka Streams takes records so one by one (``PartitionGroup``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SparkRelayError
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import leg_tasks, release_unused_memory
from sparkrelay.runtime.worker.newest_rows import NewestRows
from sparkrelay.runtime.worker.shares import partitions_of, share_out
from sparkrelay.runtime.worker.table_changes import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import LookupSpec
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import LookedUp

__all__ = ["lookup_leg"]

#: Before every time that a row can have: what the table held before the micro-batch.
_BEFORE: Final = np.iinfo(np.int64).min


def lookup_leg(spec: LookupSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows with the table's columns behind theirs; a row goes on only if it has some, or with ``left``."""
    shares = share_out(leg_tasks(spec), batches)
    release_unused_memory()
    connections.close_unused()
    for share in shares:
        for task, rows in _by_task(share):
            try:
                yield _looked_up(spec, task, rows)
            except SparkRelayError as error:
                if task.directory is not None:
                    connections.forget_store(task.directory)
                raise WorkerFailure(error, spec.failure_key, task.task) from None


def _by_task(share: Share) -> Iterator[tuple[TaskCommand, pa.RecordBatch]]:
    if not share.batches:
        return
    rows = pa.concat_batches(share.batches)
    if len(share.tasks) == 1:
        yield share.tasks[0], rows
        return
    partitions = partitions_of(rows)
    for task in share.tasks:
        own = rows.filter(pa.array(partitions == task.task.partition))
        if own.num_rows:
            yield task, own


def _looked_up(spec: LookupSpec, task: TaskCommand, rows: pa.RecordBatch) -> pa.RecordBatch:
    keys = key_bytes([rows.column(name) for name in spec.columns])
    distinct = keys.dictionary_encode()
    assert task.directory is not None, "a task with a table has a directory"
    store = connections.store(task.directory, map_limit=spec.map_limit)
    found = store.look_up(
        spec.store, distinct.dictionary, task_epoch=task.task_epoch, number=task.batch, tries=task.tries
    )
    # Null keys have no number: they find what stands last, which is nothing.
    numbers = pc.fill_null(distinct.indices, len(distinct.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    values = pa.concat_arrays([found.values, pa.nulls(1, found.values.type)])
    if VERSIONS in found.beside:
        times = rows.column(hidden_columns.PARTITION_TIME).to_numpy(zero_copy_only=False)
        values, numbers = _as_of(found, distinct.dictionary, values, numbers, times)
    taken = pa.array(numbers)
    there = pc.is_valid(values).take(taken)
    if spec.how == "inner" and there.false_count:
        rows, taken = rows.filter(there), taken.filter(there)
    found_rows = NewestRows(spec.row).results(values)[:-1]
    table = dict(zip(spec.row.names, (column.take(taken) for column in found_rows), strict=True))
    columns = [table[f.name] if f.name in table else rows.column(f.name) for f in spec.output]
    return pa.RecordBatch.from_arrays(
        [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, spec.output, strict=True)],
        schema=spec.output,
    )


def _as_of(
    found: LookedUp,
    keys: pa.Array,
    values: pa.Array,
    numbers: np.ndarray[Any, np.dtype[np.int64]],
    times: np.ndarray[Any, np.dtype[np.int64]],
) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.int64]]]:
    """Return values and which of them each row finds, where the micro-batch has changed the table.

    Args:
        found: what the store holds, and the versions.
        keys: distinct keys.
        values: what is there now of each, and a null.
        numbers: number of each row's key.
        times: of the rows' partitions.
    """
    assert found.before is not None, "versions stand in a journal"
    changes = found.beside[VERSIONS]
    starts = pc.index_in(found.before.column("key"), value_set=keys)
    versions = pc.index_in(changes.column("key"), value_set=keys)
    started, changed = pc.is_valid(starts), pc.is_valid(versions)
    every = pa.concat_arrays(
        [
            values,
            found.before.column("old").filter(started).cast(values.type),
            changes.column("value").filter(changed).cast(values.type),
        ]
    )
    # In front of each key's versions stands what there was before; of keys that have none, what is there now.
    of_key = np.concatenate(
        [
            np.arange(len(values)),
            starts.filter(started).to_numpy(zero_copy_only=False),
            versions.filter(changed).to_numpy(zero_copy_only=False),
            numbers,
        ]
    )
    time = np.concatenate(
        [
            np.full(len(values) + started.true_count, _BEFORE),
            changes.column("time").filter(changed).to_numpy(zero_copy_only=False),
            times,
        ]
    )
    versions_end = len(every)
    # Stable: of equal times, versions come in their order and before the rows, and what was before comes last of what
    # has no time, so that it hides what is there now.
    order = np.lexsort((time, of_key))
    at = np.where(order < versions_end, np.arange(len(order)), 0)
    last = order[np.maximum.accumulate(at)]
    result = np.empty(len(order), dtype=np.int64)
    result[order] = last
    return every, result[versions_end:]
