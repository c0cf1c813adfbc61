"""The smallest and the largest value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import as_type, is_variable
from sparkrelay.state.aggregate.base import Aggregate
from sparkrelay.state.aggregate.columns import array_of, chosen, greater
from sparkrelay.state.layout import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.state.aggregate.base import Partial
    from sparkrelay.state.aggregate.grouped_rows import Groups, RowGrouping
    from sparkrelay.state.aggregate.spec import AggregateSpec


class Extreme(Aggregate):
    """``min`` and ``max``; of booleans these are ``bool_and`` and ``bool_or``."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._largest = spec.function == "max"
        super().__init__(spec, [spec.input_type])

    def plan(self, rows: RowGrouping) -> Partial:
        kind, column = self.spec.input_type, self._argument(rows)
        function = f"hash_{self.spec.function}"
        if pa.types.is_floating(kind):
            nan = pc.is_nan(column)
            if pc.any(nan).as_py():
                # Arrow ignores NaN, Spark ranks it above any number.
                any_nan = rows.add("hash_any", pc.fill_null(nan, False))
                name = rows.add(function, pc.if_else(nan, pa.scalar(None, kind), column))
                return lambda groups: [self._with_nan(groups, name, any_nan)]
        if pa.types.is_duration(kind):
            # Arrow has no minimum of durations, only of integers.
            column = column.cast(pa.int64())
        name = rows.add(function, column)
        return lambda groups: [groups.column(name)]

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        (was,), (now,) = old, new
        if is_variable(self.spec.input_type):
            pick: Any = pc.max_element_wise if self._largest else pc.min_element_wise
            best = pick(was.data, now.data, skip_nulls=True)
            return [Field(was.values, best.is_valid().to_numpy(zero_copy_only=False), best)]
        left, right = (now, was) if self._largest else (was, now)
        # An empty state is ignored.
        take = now.there & (~was.there | greater(left, right, self.spec.input_type))
        return [Field(chosen(take, now, was).values, was.there | now.there)]

    def result(self, state: Sequence[Field]) -> pa.Array:
        return as_type(array_of(state[0], self.spec.input_type), self.spec.result_type)

    def _with_nan(self, groups: Groups, name: str, any_nan: str) -> pa.Array:
        column, nan = groups.column(name), groups.column(any_nan)
        value = pa.scalar(float("nan"), self.spec.input_type)
        return pc.if_else(nan if self._largest else pc.and_(nan, pc.is_null(column)), value, column)
