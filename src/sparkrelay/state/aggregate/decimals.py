"""Sums and averages of decimals: 16 bytes, of Spark's precision; beyond it is an error, as under ANSI."""

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

__all__ = ["DecimalAverage", "DecimalSum"]

_MOST: Final = 38
#: What Spark adds to a decimal's precision for its sum.
_ROOM: Final = 10
#: Digits behind the point of a quotient before it is rounded to the result's, as Spark has it.
_QUOTIENT_SCALE: Final = 39
_EXACT: Final = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)


class DecimalSum(Aggregate):
    """``sum`` of decimals, and what averages keep of them: the total, and how many there are if that matters."""

    subtracts: ClassVar[bool] = True

    def __init__(self, spec: AggregateSpec, *, counts: bool | None = None) -> None:
        kind = spec.input_type
        self._total = pa.decimal128(min(kind.precision + _ROOM, _MOST), kind.scale)
        self._counts = spec.subtracts if counts is None else counts
        super().__init__(spec, [self._total, pa.int64()] if self._counts else [self._total])

    def plan(self, rows: RowGrouping) -> Partial:
        assert self.spec.column is not None
        column = rows.column(self.spec.column, self.spec.input_type)
        wide = pa.decimal256(76, self._total.scale)
        total = rows.add("hash_sum", column.cast(wide))
        counts = [rows.add("hash_count", column, not_null())] if self._counts else []
        return lambda groups: [self._narrow(groups.column(total)), *map(groups.column, counts)]

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        total = self._computed("add", old[0], new[0], old[0].there | new[0].there)
        return [total, counted(old[1], new[1])] if self._counts else [total]

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        if not self._counts:
            # Whether none is left, only a count knows.
            return super().subtract(old, gone)
        counts = counted(old[1], gone[1], -1)
        return [self._computed("subtract", old[0], gone[0], counts.values != 0), counts]

    def result(self, state: Sequence[Field]) -> pa.Array:
        return as_type(array_of(state[0], self._total), self.spec.result_type)

    def _computed(self, function: str, left: Field, right: Field, there: NDArray[np.bool_]) -> Field:
        wide = pa.decimal256(self._total.precision, self._total.scale)
        # What is not there is 0 as it is kept.
        everywhere = np.ones(len(there), dtype=np.bool_)
        sides = [array_of(Field(field.values, everywhere), self._total).cast(wide) for field in (left, right)]
        total = field_of(self._narrow(pc.call_function(function, sides)), self._total)
        return Field(np.where(there, total.values, np.zeros((), total.values.dtype)), there)

    def _narrow(self, totals: pa.Array) -> pa.Array:
        try:
            return totals.cast(self._total)
        except pa.ArrowInvalid:
            limit = decimal.Decimal(10) ** (self._total.precision - self._total.scale)
            for row, total in enumerate(totals.to_pylist()):
                if total is not None and abs(total) >= limit:
                    raise OutOfRange(row, f"decimal({self._total.precision},{self._total.scale})", str(total)) from None
            raise


class DecimalAverage(DecimalSum):
    """``avg`` of decimals, which is a decimal."""

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec, counts=True)

    def result(self, state: Sequence[Field]) -> pa.Array:
        totals, counts = array_of(state[0], self._total).to_pylist(), state[1].values.tolist()
        kind = self.spec.result_type
        first, last = decimal.Decimal(1).scaleb(-_QUOTIENT_SCALE), decimal.Decimal(1).scaleb(-kind.scale)
        averages: list[decimal.Decimal | None] = []
        for total, count in zip(totals, counts, strict=True):
            if not count or total is None:
                averages.append(None)
                continue
            average = _EXACT.divide(total, decimal.Decimal(count))
            averages.append(_EXACT.quantize(_EXACT.quantize(average, first), last))
        return pa.array(averages, kind)
