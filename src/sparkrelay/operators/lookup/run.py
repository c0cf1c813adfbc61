"""Lookups in workers: each row of a stream is joined with the table's row of its key, as of the row's time.

The table's leg ran in an earlier wave of the same micro-batch. Its journal has every version in between, so each row
sees the table as if the records of both were taken in order of their partitions' times, the table's first on ties. This
is the order of Kafka Streams (``PartitionGroup``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.table.changes import VERSIONS
from sparkrelay.operators.table.newest_rows import NewestRows
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.runtime.contract.commands import BatchCommand
from sparkrelay.runtime.contract.specs import StepSpec
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, laid_out
from sparkrelay.runtime.worker.task_steps import each_task, look, look_up
from sparkrelay.state import versions
from sparkrelay.state.key_parts import key_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state import LookedUp
    from sparkrelay.state.view import StoreView

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

#: Earlier than every timestamp: the table before the micro-batch.
_BEFORE: Final = np.iinfo(np.int64).min
#: Limit of table data in an output batch.
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRunner(StepSpec):
    """Joins rows of a leg with the table's rows of their keys.

    Attributes:
        store: the table's store.
        columns: names of the key columns, in order.
        how: ``inner`` or ``left``.
        row: Arrow schema of the table's rows without the key.
        contents: the store's expected contents, in words; others are rejected.
        output: Arrow schema of output rows: only columns that are read downstream.
        is_global: True for a global table, of which each process has a copy.
        history_ms: length of the table's history, or None.
        time: with a history: the column of each row's lookup time, ms since 1970; null: its timestamp.
        found: the column that says whether the table has the key; None: there is none.
        all_rows: without key columns: the column for all rows of the table, and Arrow schema of their key.
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
    found: str | None = None
    all_rows: tuple[str, pa.Schema] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the table's columns appended; rows without a match only with ``left``."""
        yield from each_task(self, batches, self._looked_up)

    def _looked_up(self, task: TaskCommand, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.all_rows is not None:
            yield from _with_all_rows(self, *self.all_rows, batches)
            return
        keys = pa.chunked_array([key_bytes([rows.column(name) for name in self.columns]) for rows in batches])
        distinct = pc.unique(keys).drop_null()
        # Null keys take the last value, which is null.
        numbers = whole(pc.fill_null(pc.index_in(keys, value_set=distinct), len(distinct)))
        taken = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
        if self.history_ms is not None:
            values, taken = _rows_as_of(self, task, distinct.cast(pa.binary()), taken, _own_times(self, batches))
        else:
            if self.is_global:
                found = _found_globally(self, lambda view: view.get(distinct))
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
            # An Arrow column holds at most 2 GiB, and a table's value is repeated for each matching row.
            pieces = np.cumsum(sizes[own[kept]]) // _MOST_BYTES
            for piece in np.split(kept, np.flatnonzero(np.diff(pieces)) + 1) if len(kept) else ():
                taken_here = pa.array(own[piece])
                given = {name: column.take(taken_here) for name, column in table.items()}
                if self.found in self.output.names:
                    given[self.found] = pa.array(there[own[piece]])
                yield _beside(self, rows, piece, given)


def _own_times(spec: LookupRunner, batches: Sequence[pa.RecordBatch]) -> Numbers:
    """Return each row's lookup time: its event time, or its timestamp."""
    times = (pc.coalesce(rows.column(spec.time), rows.column(hidden_columns.TIMESTAMP)) for rows in batches)
    return np.concatenate([some.to_numpy(zero_copy_only=False) for some in times])


def _found_globally(spec: LookupRunner, find: Callable[[StoreView], pa.Array]) -> LookedUp:
    """Look into the process's copy of a global table, as of now: it follows its topic independently."""
    home = current_command(BatchCommand).global_tables
    assert home is not None, "the command lacks the directory of global tables"
    store = connections.store(str(Path(home, spec.store)), map_limit=spec.map_limit)
    return store.look(spec.store, find, contents=spec.contents)


def _with_all_rows(
    spec: LookupRunner, name: str, key: pa.Schema, batches: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield rows with all rows of a global table in one column."""

    def read(view: StoreView) -> pa.Array:
        found = view.all()
        return pa.StructArray.from_arrays(found.columns, found.schema.names)

    found = _found_globally(spec, read).values
    columns = [*key_columns(found.field("key"), key), *NewestRows(spec.row).results(found.field("value"))[:-1]]
    field = spec.output.field(name)
    rows = pa.StructArray.from_arrays(columns, fields=[*field.type.value_type])
    once = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows).cast(field.type)
    # An Arrow column holds at most 2 GiB, and a table's rows are repeated for each row.
    size = max(1, _MOST_BYTES // (rows.nbytes + 1))
    for given in batches:
        for first in range(0, given.num_rows, size):
            some = given.slice(first, size)
            here: dict[str, pa.Array] = {name: once.take(pa.array(np.zeros(some.num_rows, dtype=np.int32)))}
            if spec.found is not None and spec.found in spec.output.names:
                here[spec.found] = pa.array(np.full(some.num_rows, len(rows) > 0))
            yield _beside(spec, some, np.arange(some.num_rows), here)


def _beside(spec: LookupRunner, rows: pa.RecordBatch, kept: Numbers, given: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return the ``kept`` rows with the table's columns as output rows."""
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
    """Return values and the index of each row's match, if the micro-batch changed the table.

    Args:
        found: the store's rows, and the versions.
        keys: distinct keys.
        values: the current value of each key, then null.
        numbers: index of each row's key.
        times: partition time of each row.
    """
    assert found.before is not None, "versions come from a journal"
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
    # Before each key's versions comes its value before the batch; for keys without versions, the current value.
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
    # The sort is stable: with equal times, versions keep their order and precede the rows, and the value before the
    # batch follows the current one and so replaces it.
    order = np.lexsort((time, of_key))
    at = np.where(order < versions_end, np.arange(len(order)), 0)
    last = order[np.maximum.accumulate(at)]
    result = np.empty(len(order), dtype=np.int64)
    result[order] = last
    return every, result[versions_end:]


def _rows_as_of(
    spec: LookupRunner, task: TaskCommand, keys: pa.Array, numbers: Numbers, times: Numbers
) -> tuple[pa.Array, Numbers]:
    """Return rows of a table with a history, the last of them null, and the index of each stream row's match.

    Args:
        spec: the step.
        task: the task of the table.
        keys: distinct keys.
        numbers: index of each row's key; ``len(keys)`` for null.
        times: lookup time of each row, ms since 1970.
    """
    assert spec.history_ms is not None, "not a table with a history"
    history_ms, parts = spec.history_ms, key_parts(keys)
    order = np.lexsort((times, numbers))
    order = order[numbers[order] < len(keys)]
    # Equal keys and times are looked up once.
    new = np.r_[True, (np.diff(numbers[order]) != 0) | (np.diff(times[order]) != 0)][: len(order)]
    asked = order[new]
    wanted, at = parts.take(pa.array(numbers[asked])), times[asked]
    # The store already has the micro-batch's rows.
    found = look(
        spec, task, spec.store, spec.contents, lambda view: versions.as_of(view, wanted, at, history_ms, task.batch)
    ).values
    values = found.dictionary
    which = pc.fill_null(found.indices, len(values)).to_numpy(zero_copy_only=False)
    taken = np.full(len(numbers), len(values), dtype=np.int64)
    taken[order] = which[np.cumsum(new) - 1]
    return pa.concat_arrays([values, pa.nulls(1, values.type)]), taken
