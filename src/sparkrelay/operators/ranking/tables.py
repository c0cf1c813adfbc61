"""Rankings of a table, whose rows change and are deleted.

A deletion can promote a row that was not among the first. So all rows of a key are stored (``counted_rows``). A
micro-batch reads all rows of each changed key, sorts them as before and as after the batch, and emits the places whose
rows differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.ranking.counted_rows import (
    CountedRows,
    changes_of,
    content,
    places_in_store,
    together,
)
from sparkrelay.operators.row_numbers import places
from sparkrelay.operators.table.changed_rows import Groups, changed_rows
from sparkrelay.operators.table.changes import NEW
from sparkrelay.operators.table.run import TableRunner, Taskwise
from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes
from sparkrelay.state.key_parts import key_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sparkrelay.operators.ranking.layout import RowsBesideLayout
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import Watermark
    from sparkrelay.state.view import Changes, StoreView

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTableRunner(TableRunner):
    """Runs a step that keeps all rows of each key and emits the first ones."""

    layout: RowsBesideLayout

    def begin(self, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]) -> Taskwise:
        """Return the work on the tasks' rows."""
        del share, watermarks
        return Taskwise(rows, lambda task, own: TaskRankings(self, task.task.partition, own).operate)


class TaskRankings:
    """The work of one task."""

    def __init__(self, runner: RankedTableRunner, partition: int, rows: pa.Table) -> None:
        """Take the changes of a table: old and new rows of the task with this partition."""
        layout = runner.layout
        self._runner = runner
        self._ranking = layout.ranking
        self._partition = partition
        self._first = layout.codec
        self._names = [name for name in layout.keys.names if name != layout.ranking.number]
        columns = [as_type(whole(rows.column(name)), layout.keys.field(name).type) for name in self._names]
        encoded = pc.dictionary_encode(key_bytes(columns).cast(pa.binary()))
        self._which = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._parts = key_parts(encoded.dictionary)
        _, firsts = np.unique(self._which, return_index=True)
        self._columns = [column.take(pa.array(firsts)) for column in columns]
        self._rows = self._first.stored(rows)
        new = pc.equal(whole(rows.column(hidden_columns.CHANGE)), NEW).to_numpy(zero_copy_only=False)
        self._counts = np.where(new, 1, -1).astype(np.int64)
        #: Time of each key's last change.
        self._newest = np.full(len(firsts), np.iinfo(np.int64).min)
        times = whole(rows.column(hidden_columns.TIMESTAMP)).to_numpy(zero_copy_only=False)
        np.maximum.at(self._newest, self._which, times)

    def operate(self, view: StoreView) -> Changes:
        """Return the changes of the store, and of the first rows."""
        before = CountedRows.stored(view, self._parts)
        at = places_in_store(self._parts.take(pa.array(self._which)), self._rows)
        after = together(before, CountedRows(self._which, at, self._counts, self._rows))
        changes = changes_of(view, after, pc.is_in(after.keys, value_set=at), None)
        emitted, beside = self._emitted(self._in_places(before), self._in_places(after))
        return replace(changes, emitted=emitted, beside=beside)

    def _in_places(self, held: CountedRows) -> pa.Array:
        """Return the row of each place of each key, or null."""
        most = self._ranking.count
        # Rows that are equal in the order keep the order of the store.
        by_key = pc.array_sort_indices(held.keys).to_numpy(zero_copy_only=False)
        which, rows = held.which[by_key], held.rows.take(pa.array(by_key))
        counts = np.clip(held.counts[by_key], 0, most)
        order = self._first.in_order(rows, which)
        order = np.repeat(order, counts[order])
        at = places(which[order])
        kept = at < most
        taken = np.full(len(self._parts) * most, -1, dtype=np.int64)
        taken[which[order][kept] * most + at[kept]] = order[kept]
        return rows.take(pa.array(taken, mask=taken < 0))

    def _emitted(self, before: pa.Array, after: pa.Array) -> tuple[pa.RecordBatch, dict[str, pa.RecordBatch]]:
        """Return the output rows, and the batches that other legs find in the journal."""
        most = self._ranking.count
        there = pc.or_(before.is_valid(), after.is_valid())
        same = pc.fill_null(pc.equal(content(before), content(after)), False)
        changed = pc.and_(there, pc.invert(same))
        of_key = np.repeat(np.arange(len(self._parts)), most)
        number = pa.array(np.tile(np.arange(1, most + 1, dtype=np.int32), len(self._parts)))
        chosen = pa.array(np.flatnonzero(changed.to_numpy(zero_copy_only=False)))
        of_each = pa.array(of_key).take(chosen)
        columns = dict(zip(self._names, (column.take(of_each) for column in self._columns), strict=True))
        columns[self._ranking.number] = number.take(chosen)
        keys = [columns[name] for name in self._runner.layout.keys.names]
        old, new = before.take(chosen), after.take(chosen)
        encoded = key_bytes(keys)
        groups = Groups.of_one(self._partition, pa.table([]), keys, encoded, encoded)
        # An empty place is deleted, with the columns of its last row.
        *shown, times = self._first.results(pc.coalesce(new, old))
        gone, every = pc.is_null(new), pa.repeat(pa.scalar(True), len(chosen))
        times = pc.if_else(gone, pa.array(self._newest).take(of_each), times)
        emitted, beside = changed_rows(self._runner, self._first, groups, old, [*shown, times, gone, every])
        return emitted, dict(beside)
