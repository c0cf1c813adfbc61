"""The lookup step: each row of a stream gets what a table holds for its key, as of the row's place in time.

The table's leg has run before, in an earlier wave of the same micro-batch. What it has changed stands in its journal
with every version in between, so a row sees the table as it is when the rows of both are taken by their partitions'
times, the table's first where those are equal. Kafka Streams takes records so one by one (``PartitionGroup``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.table.changes import VERSIONS
from sparkrelay.operators.table.newest_rows import NewestRows
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.commands import BatchCommand
from sparkrelay.runtime.contract.specs import StepSpec
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, laid_out, whole
from sparkrelay.runtime.worker.task_steps import each_task, look, look_up
from sparkrelay.state import versions
from sparkrelay.state.join_rows import key_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state import LookedUp

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

__all__ = ["LookupRunner"]

#: Before every time that a row can have: what the table held before the micro-batch.
_BEFORE: Final = np.iinfo(np.int64).min
#: Of the table's rows, in one batch of rows that go on.
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRunner(StepSpec):
    """How a leg's rows get what a table holds for their keys.

    Attributes:
        store: the table's.
        columns: names of the columns that make the key, in order.
        how: ``inner`` or ``left``.
        row: Arrow schema of the table's rows without the key.
        contents: what the store holds, in words: one that holds something else is refused.
        output: Arrow schema of the rows that leave the step: only columns that something behind it reads.
        is_global: True for a global table, which the process keeps beside its tasks.
        history_ms: of a table with a history: how far back it goes; None for others.
        time: of such a table: the column that says as of when each row looks, ms since 1970; null: by its timestamp.
    """

    store: str
    contents: str
    columns: tuple[str, ...]
    how: str
    row: pa.Schema
    output: pa.Schema
    is_global: bool = False
    history_ms: int | None = None
    time: str = hidden_columns.TIMESTAMP

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the table's columns behind theirs; rows that find none go on with ``left`` alone."""
        yield from each_task(self, batches, self._looked_up)

    def _looked_up(self, task: TaskCommand, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = pa.chunked_array([key_bytes([rows.column(name) for name in self.columns]) for rows in batches])
        distinct = pc.unique(keys).drop_null()
        # Null keys have no number: they find what stands last, which is nothing.
        numbers = whole(pc.fill_null(pc.index_in(keys, value_set=distinct), len(distinct)))
        taken = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
        if self.history_ms is not None:
            values, taken = _rows_as_of(self, task, distinct.cast(pa.binary()), taken, _own_times(self, batches))
        else:
            if self.is_global:
                found = _found_globally(self, distinct)
            else:
                found = look_up(self, task, self.store, self.contents, distinct)
            values = pa.concat_arrays([found.values, pa.nulls(1, found.values.type)])
            if VERSIONS in found.beside:
                times = [rows.column(hidden_columns.PARTITION_TIME).to_numpy(zero_copy_only=False) for rows in batches]
                values, taken = _as_of(found, distinct, values, taken, np.concatenate(times))
        there = values.is_valid().to_numpy(zero_copy_only=False)
        sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        results = zip(self.row.names, NewestRows(self.row).results(values)[:-1], strict=True)
        table = {name: column for name, column in results if name in self.output.names}
        first = 0
        for rows in batches:
            own = taken[first : first + rows.num_rows]
            first += rows.num_rows
            kept = np.flatnonzero(there[own]) if self.how == "inner" else np.arange(rows.num_rows)
            # A column of one array holds 2 GiB at most; the table's value stands there once for each row that finds it.
            pieces = np.cumsum(sizes[own[kept]]) // _MOST_BYTES
            for piece in np.split(kept, np.flatnonzero(np.diff(pieces)) + 1) if len(kept) else ():
                taken_here = pa.array(own[piece])
                yield _beside(self, rows, piece, {name: column.take(taken_here) for name, column in table.items()})


def _own_times(spec: LookupRunner, batches: Sequence[pa.RecordBatch]) -> Numbers:
    """Return as of when each row looks into a table with a history; one without an event time by its timestamp."""
    times = (pc.coalesce(rows.column(spec.time), rows.column(hidden_columns.TIMESTAMP)) for rows in batches)
    return np.concatenate([some.to_numpy(zero_copy_only=False) for some in times])


def _found_globally(spec: LookupRunner, keys: pa.Array) -> LookedUp:
    """Return what the process's copy of a global table holds for keys, as of now: it follows its topic by itself."""
    home = current_command(BatchCommand).global_tables
    assert home is not None, "a process with global tables has a directory of them"
    store = connections.store(str(Path(home, spec.store)), map_limit=spec.map_limit)
    return store.look_up(spec.store, keys, contents=spec.contents)


def _beside(spec: LookupRunner, rows: pa.RecordBatch, kept: Numbers, given: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Lay rows and what they have found out as they leave the step."""
    if len(kept) < rows.num_rows:
        rows = rows.take(pa.array(kept))
    return laid_out((given[f.name] if f.name in given else rows.column(f.name) for f in spec.output), spec.output)


def _as_of(
    found: LookedUp,
    keys: pa.Array,
    values: pa.Array,
    numbers: Numbers,
    times: Numbers,
) -> tuple[pa.Array, Numbers]:
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
    changed_at = pc.index_in(changes.column("key"), value_set=keys)
    started, changed = pc.is_valid(starts), pc.is_valid(changed_at)
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
            changed_at.filter(changed).to_numpy(zero_copy_only=False),
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


def _rows_as_of(
    spec: LookupRunner, task: TaskCommand, keys: pa.Array, numbers: Numbers, times: Numbers
) -> tuple[pa.Array, Numbers]:
    """Return rows of a table, the last of them null, and which of them each row of a stream finds.

    Args:
        spec: the step that looks.
        task: whose table it is.
        keys: distinct keys.
        numbers: of each row's key; one more than there are for a key that is null.
        times: as of when each row looks, milliseconds since 1970.
    """
    assert spec.history_ms is not None, "such a table has a history"
    history_ms, parts = spec.history_ms, key_parts(keys)
    order = np.lexsort((times, numbers))
    order = order[numbers[order] < len(keys)]
    # What rows of one key and time find is looked for once.
    new = np.r_[True, (np.diff(numbers[order]) != 0) | (np.diff(times[order]) != 0)][: len(order)]
    asked = order[new]
    wanted, at = parts.take(pa.array(numbers[asked])), times[asked]
    # The rows of the micro-batch are in the store; what it has changed says nothing more.
    found = look(
        spec, task, spec.store, spec.contents, lambda view: versions.as_of(view, wanted, at, history_ms, task.batch)
    ).values
    values = found.dictionary
    which = pc.fill_null(found.indices, len(values)).to_numpy(zero_copy_only=False)
    taken = np.full(len(numbers), len(values), dtype=np.int64)
    taken[order] = which[np.cumsum(new) - 1]
    return pa.concat_arrays([values, pa.nulls(1, values.type)]), taken
