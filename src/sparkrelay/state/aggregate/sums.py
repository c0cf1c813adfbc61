"""Counts, sums and averages of whole numbers and doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.state.aggregate.base import Aggregate, OutOfRange
from sparkrelay.state.aggregate.columns import array_of
from sparkrelay.state.layout import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.aggregate.base import Partial
    from sparkrelay.state.aggregate.grouped_rows import Groups, RowGrouping
    from sparkrelay.state.aggregate.spec import AggregateSpec

_SAFE_SUM: Final = float(1 << 62)
_LOW_BITS: Final = 32


def not_null() -> pc.CountOptions:
    """Return the options by which Arrow counts non-null values."""
    return pc.CountOptions(mode="only_valid")


def counted(old: Field, new: Field, sign: int = 1) -> Field:
    """Return the sums of counts."""
    return Field(old.values + sign * new.values, np.ones(len(old.values), dtype=np.bool_))


class Count(Aggregate):
    """``count`` of what is not null, and ``count_all`` of rows."""

    subtracts: ClassVar[bool] = True

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec, [pa.int64()])

    def plan(self, rows: RowGrouping) -> Partial:
        if self.spec.column is None:
            name = rows.add("hash_count_all", None)
        else:
            name = rows.add("hash_count", rows.column(self.spec.column), not_null())
        return lambda groups: [groups.column(name)]

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        return [counted(old[0], new[0])]

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        return [counted(old[0], gone[0], -1)]

    def result(self, state: Sequence[Field]) -> pa.Array:
        # A group without a state, as in a query for a missing key, has a count of 0.
        return as_type(pa.array(state[0].values), self.spec.result_type)


class Sum(Aggregate):
    """``sum``, of whole numbers a bigint; with subtraction it also counts the values."""

    subtracts: ClassVar[bool] = True

    def __init__(self, spec: AggregateSpec) -> None:
        self._whole = pa.types.is_integer(spec.input_type)
        total = pa.int64() if self._whole else pa.float64()
        super().__init__(spec, [total, pa.int64()] if spec.subtracts else [total])

    def plan(self, rows: RowGrouping) -> Partial:
        column = self._argument(rows)
        counts = [rows.add("hash_count", column, not_null())] if self.spec.subtracts else []
        if self._whole and _may_overflow(column):
            # Two sums of half the bits each cannot overflow; they are joined and checked afterwards.
            column = column.cast(pa.int64())
            low = rows.add("hash_sum", pc.bit_wise_and(column, (1 << _LOW_BITS) - 1))
            high = rows.add("hash_sum", pc.shift_right(column, _LOW_BITS))
            return lambda groups: [_joined(groups, low, high), *map(groups.column, counts)]
        total = rows.add("hash_sum", column)
        return lambda groups: [*map(groups.column, [total, *counts])]

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        total = old[0].values + new[0].values
        if self._whole:
            signs = (old[0].values ^ total) & (new[0].values ^ total)
            _check_range(old[0].values, new[0].values, signs, "+")
        counts = [counted(old[1], new[1])] if self.spec.subtracts else []
        return [Field(total, old[0].there | new[0].there), *counts]

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        if not self.spec.subtracts:
            # Only a count shows whether any value is left.
            return super().subtract(old, gone)
        total = old[0].values - gone[0].values
        if self._whole:
            signs = (old[0].values ^ gone[0].values) & (old[0].values ^ total)
            _check_range(old[0].values, gone[0].values, signs, "-")
        counts = counted(old[1], gone[1], -1)
        left = counts.values != 0
        return [Field(np.where(left, total, 0), left), counts]

    def result(self, state: Sequence[Field]) -> pa.Array:
        return as_type(array_of(state[0], self.kinds[0]), self.spec.result_type)


class Average(Aggregate):
    """``avg`` as a double: a sum and a count."""

    subtracts: ClassVar[bool] = True

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec, [pa.float64(), pa.int64()])

    def plan(self, rows: RowGrouping) -> Partial:
        column = self._argument(rows)
        if pa.types.is_integer(self.spec.input_type) and _may_overflow(column):
            column = column.cast(pa.float64(), safe=False)
        total, count = rows.add("hash_sum", column), rows.add("hash_count", column, not_null())
        return lambda groups: [groups.column(total).cast(pa.float64(), safe=False), groups.column(count)]

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        there = new[0].there
        total = Field(np.where(there, old[0].values + new[0].values, old[0].values), old[0].there | there)
        return [total, counted(old[1], new[1])]

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        counts = counted(old[1], gone[1], -1)
        left = counts.values != 0
        return [Field(np.where(left, old[0].values - gone[0].values, 0.0), left), counts]

    def result(self, state: Sequence[Field]) -> pa.Array:
        counts = state[1].values
        none = counts == 0
        return as_type(pa.array(state[0].values / np.where(none, 1, counts), mask=none), self.spec.result_type)


def _may_overflow(column: pa.ChunkedArray) -> bool:
    if column.type.bit_width < 64 or not len(column):
        return False
    bounds = pc.min_max(column)
    if not bounds["min"].is_valid:
        return False
    largest = max(abs(bounds["min"].as_py()), abs(bounds["max"].as_py()))
    return float(largest) * len(column) >= _SAFE_SUM


def _joined(groups: Groups, low: str, high: str) -> pa.Array:
    totals = [
        None if lower is None else (upper << _LOW_BITS) + lower
        for lower, upper in zip(groups.column(low).to_pylist(), groups.column(high).to_pylist(), strict=True)
    ]
    for row, total in enumerate(totals):
        if total is not None and not -(1 << 63) <= total < 1 << 63:
            raise OutOfRange(row, "bigint", f"{total} within one batch")
    return pa.array(totals, pa.int64())


def _check_range(left: NDArray[Any], right: NDArray[Any], signs: NDArray[Any], by: str) -> None:
    """Raise OutOfRange where a sum has wrapped, by the signs of its parts and its own."""
    wrapped = signs < 0
    if wrapped.any():
        row = int(np.flatnonzero(wrapped)[0])
        raise OutOfRange(row, "bigint", f"{int(left[row])} {by} {int(right[row])}")
