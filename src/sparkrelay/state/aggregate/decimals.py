"""Sums and averages of decimals: 16 bytes, with Spark's precision; overflow is an error, as under ANSI."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.state.aggregate.base import Aggregate, OutOfRange
from sparkrelay.state.aggregate.columns import array_of, field_of
from sparkrelay.state.aggregate.sums import counted, not_null
from sparkrelay.state.layout import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.aggregate.base import Partial
    from sparkrelay.state.aggregate.grouped_rows import RowGrouping
    from sparkrelay.state.aggregate.spec import AggregateSpec

_MOST: Final = 38
#: Spark's extra digits of a sum.
_ROOM: Final = 10
#: Spark's scale of a quotient before it is rounded to the result's.
_QUOTIENT_SCALE: Final = 39
#: Enough for the sum of 2^63 decimals; Arrow can add two such sums, which it could not with 76 digits.
_WIDE: Final = 60
_EXACT: Final = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)


class DecimalSum(Aggregate):
    """``sum`` of decimals: the total and, for averages and subtraction, the count."""

    subtracts: ClassVar[bool] = True

    def __init__(self, spec: AggregateSpec, *, counts: bool | None = None, total: pa.DataType | None = None) -> None:
        kind = spec.input_type
        self._total = total or pa.decimal128(min(kind.precision + _ROOM, _MOST), kind.scale)
        self._counts = spec.subtracts if counts is None else counts
        super().__init__(spec, [self._total, pa.int64()] if self._counts else [self._total])

    def plan(self, rows: RowGrouping) -> Partial:
        column = self._argument(rows)
        wide = pa.decimal256(76, self._total.scale)
        total = rows.add("hash_sum", column.cast(wide))
        counts = [rows.add("hash_count", column, not_null())] if self._counts else []
        return lambda groups: [_narrow(groups.column(total), self._total), *map(groups.column, counts)]

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        total = self._computed("add", old[0], new[0], old[0].there | new[0].there)
        return [total, counted(old[1], new[1])] if self._counts else [total]

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        if not self._counts:
            # Only a count shows whether any value is left.
            return super().subtract(old, gone)
        counts = counted(old[1], gone[1], -1)
        return [self._computed("subtract", old[0], gone[0], counts.values != 0), counts]

    def result(self, state: Sequence[Field]) -> pa.Array:
        return as_type(array_of(state[0], self._total), self.spec.result_type)

    def _computed(self, function: str, left: Field, right: Field, there: NDArray[np.bool_]) -> Field:
        wide = pa.decimal256(self._total.precision, self._total.scale)
        # Absent values are stored as 0.
        everywhere = np.ones(len(there), dtype=np.bool_)
        sides = [array_of(Field(field.values, everywhere), self._total).cast(wide) for field in (left, right)]
        total = field_of(_narrow(pc.call_function(function, sides), self._total), self._total)
        return Field(np.where(there, total.values, np.zeros((), total.values.dtype)), there)


class DecimalAverage(DecimalSum):
    """``avg`` of decimals, which is a decimal."""

    def __init__(self, spec: AggregateSpec, *, total: pa.DataType | None = None) -> None:
        super().__init__(spec, counts=True, total=total)

    def result(self, state: Sequence[Field]) -> pa.Array:
        totals, counts = array_of(state[0], self._total).to_pylist(), state[1].values.tolist()
        kind = self.spec.result_type
        first, last = decimal.Decimal(1).scaleb(-_QUOTIENT_SCALE), decimal.Decimal(1).scaleb(-kind.scale)
        most = decimal.Decimal(10) ** (kind.precision - kind.scale)
        averages: list[decimal.Decimal | None] = []
        for row, (total, count) in enumerate(zip(totals, counts, strict=True)):
            if not count or total is None:
                averages.append(None)
                continue
            average = _EXACT.quantize(_EXACT.quantize(_EXACT.divide(total, decimal.Decimal(count)), first), last)
            averages.append(average if average.copy_abs() < most else self._beyond(row, average))
        return pa.array(averages, kind)

    def _beyond(self, row: int, average: decimal.Decimal) -> decimal.Decimal | None:
        """Return what stands for an average that is out of the result's range.

        Raises:
            OutOfRange: always.
        """
        kind = self.spec.result_type
        raise OutOfRange(row, f"decimal({kind.precision},{kind.scale})", str(average))


class WideSum(DecimalSum):
    """An intermediate total of whole numbers or decimals, which may be out of range until others are subtracted."""

    def __init__(self, spec: AggregateSpec) -> None:
        scale = spec.input_type.scale if pa.types.is_decimal(spec.input_type) else 0
        super().__init__(spec, counts=True, total=pa.decimal256(_WIDE, scale))

    def result(self, state: Sequence[Field]) -> pa.Array:
        """Return nulls; results are computed from the stored state."""
        return pa.nulls(len(state[0].values), self.spec.result_type)


class TrySum(WideSum):
    """``try_sum``: null while the total is out of the result's range."""

    def result(self, state: Sequence[Field]) -> pa.Array:
        totals, kind = array_of(state[0], self._total), self.spec.result_type
        try:
            return as_type(_narrow(totals, kind), kind)
        except OutOfRange:
            digits = 0 if pa.types.is_integer(kind) else kind.precision - kind.scale
            most = decimal.Decimal(10) ** digits if digits else decimal.Decimal(1 << 63)
            least = most.copy_negate() - (0 if digits else 1)
            kept = [one if one is not None and least < one < most else None for one in totals.to_pylist()]
            return as_type(pa.array(kept, self._total), kind)


class TryAverage(DecimalAverage):
    """``try_avg`` of decimals: null while the average is out of the result's range."""

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec, total=pa.decimal256(_WIDE, spec.input_type.scale))

    def _beyond(self, row: int, average: decimal.Decimal) -> None:
        """Return null."""
        del row, average


def converted(field: Field, kind: pa.DataType, wanted: pa.DataType) -> Field:
    """Return totals in another type.

    Raises:
        OutOfRange: one is beyond it.
    """
    if kind == wanted:
        return field
    # Absent values are stored as 0.
    everywhere = Field(field.values, np.ones(len(field.values), dtype=np.bool_))
    return Field(field_of(_narrow(array_of(everywhere, kind), wanted), wanted).values, field.there)


def _narrow(totals: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return totals.cast(kind)
    except pa.ArrowInvalid:
        whole = pa.types.is_integer(kind)
        most = decimal.Decimal(1 << 63) if whole else decimal.Decimal(10) ** (kind.precision - kind.scale)
        limits = "bigint" if whole else f"decimal({kind.precision},{kind.scale})"
        for row, total in enumerate(totals.to_pylist()):
            if total is not None and (total >= most or total < -most or (not whole and total == -most)):
                raise OutOfRange(row, limits, str(total)) from None
        raise
