"""One value of a group: the first or last to arrive, or that of the row where another column is smallest or largest.

Values of any type are kept; those without a numpy type are encoded like rows of a repartition topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import as_type, is_variable, whole
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.state.aggregate.base import Aggregate
from sparkrelay.state.aggregate.columns import array_of, chosen, greater
from sparkrelay.state.aggregate.grouped_rows import last_of_each
from sparkrelay.state.layout import Field, physical_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.state.aggregate.base import Partial
    from sparkrelay.state.aggregate.grouped_rows import Groups, RowGrouping
    from sparkrelay.state.aggregate.spec import AggregateSpec


class _Picked(Aggregate):
    """Keeps one value of a column, natively or as bytes."""

    def __init__(self, spec: AggregateSpec, others: Sequence[pa.DataType] = ()) -> None:
        kind = spec.input_type
        self._packed = physical_dtype(kind) is None and not is_variable(kind)
        self._schema = pa.schema([("value", kind)])
        super().__init__(spec, [pa.binary() if self._packed else kind, *others])

    def result(self, state: Sequence[Field]) -> pa.Array:
        value = array_of(state[0], self.kinds[0])
        if self._packed:
            (value,) = key_columns(value, self._schema)
        return as_type(value, self.spec.result_type)

    def _taken(self, column: pa.ChunkedArray, rows: pa.Array) -> pa.Array:
        """Return the column's values in some rows, null where the row is, as they are kept."""
        values = whole(column.take(rows))
        if not self._packed:
            return values
        return pc.if_else(values.is_valid(), key_bytes([values], normal=False), pa.scalar(None, pa.binary()))


class FirstOrLast(_Picked):
    """``first`` and ``last``, in the order of arrival.

    The state is the value and, unless nulls are ignored, whether there was any. An optional second column selects rows.
    """

    def __init__(self, spec: AggregateSpec) -> None:
        self._last = spec.function.startswith("last")
        self._nulls = not spec.function.endswith("_not_null")
        super().__init__(spec, [pa.bool_()] if self._nulls else [])

    def plan(self, rows: RowGrouping) -> Partial:
        column = self._argument(rows)
        counting = rows.column(self.spec.others[0][0], pa.bool_()) if self.spec.others else None
        rows.by_row()

        def finish(groups: Groups) -> list[pa.Array]:
            counts = np.ones(len(column), dtype=np.bool_)
            if counting is not None:
                counts &= pc.fill_null(counting, False).to_numpy()
            if not self._nulls:
                counts &= column.is_valid().to_numpy()
            numbers = np.flatnonzero(counts)
            if not self._last:
                numbers = numbers[::-1]
            picked = last_of_each(len(groups), groups.of_rows[numbers], numbers)
            value = self._taken(column, picked)
            return [value, pc.greater_equal(picked, 0)] if self._nulls else [value]

        return finish

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        take = new[-1].there if self._last else ~old[-1].there
        return [chosen(take, now, was) for now, was in zip(new, old, strict=True)]


class ValueBy(_Picked):
    """``max_by`` and ``min_by``: the value, and its rank's column. Of equals, the last to arrive."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._largest = spec.function == "max_by"
        ((self._by, self._by_type),) = spec.others
        super().__init__(spec, [self._by_type])

    def plan(self, rows: RowGrouping) -> Partial:
        column = self._argument(rows)
        by = rows.column(self._by, self._by_type)
        rows.by_row()

        def finish(groups: Groups) -> list[pa.Array]:
            numbers = np.flatnonzero(by.is_valid().to_numpy())
            ranked = pc.rank(_comparable(by), sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False)
            ranks = ranked.astype(np.int64)[numbers]
            of = groups.of_rows[numbers]
            order = np.lexsort((numbers, ranks if self._largest else -ranks, of))
            picked = last_of_each(len(groups), of[order], numbers[order])
            return [self._taken(column, picked), whole(by.take(picked))]

        return finish

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        (_, was), (_, now) = old, new
        left, right = (was, now) if self._largest else (now, was)
        # A value that is not worse replaces the old one.
        take = now.there & (~was.there | ~greater(left, right, self._by_type))
        return [chosen(take, later, earlier) for later, earlier in zip(new, old, strict=True)]


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column that Arrow sorts as Spark does: zero has no sign."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
