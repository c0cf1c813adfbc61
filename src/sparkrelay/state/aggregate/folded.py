"""Bitwise aggregates and products: folds over the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.state.aggregate.base import Aggregate
from sparkrelay.state.aggregate.columns import array_of
from sparkrelay.state.layout import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.state.aggregate.base import Partial
    from sparkrelay.state.aggregate.grouped_rows import Groups, RowGrouping
    from sparkrelay.state.aggregate.spec import AggregateSpec

FOLDED: Final[dict[str, Any]] = {
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "product": np.multiply,
}


class Folded(Aggregate):
    """``bit_and``, ``bit_or``, ``bit_xor`` of whole numbers and ``product`` of doubles."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._fold = FOLDED[spec.function]
        super().__init__(spec, [pa.float64() if spec.function == "product" else spec.input_type])

    def plan(self, rows: RowGrouping) -> Partial:
        (kind,) = self.kinds
        column = self._argument(rows, kind)
        rows.by_row()

        def finish(groups: Groups) -> list[pa.Array]:
            there = column.is_valid().to_numpy()
            values, of = pc.fill_null(column, 0).to_numpy()[there], groups.of_rows[there]
            order = np.argsort(of, kind="stable")
            found, starts = np.unique(of[order], return_index=True)
            folded = np.zeros(len(groups), dtype=values.dtype)
            empty = np.ones(len(groups), dtype=np.bool_)
            if len(found):
                with np.errstate(all="ignore"):
                    folded[found] = self._fold.reduceat(values[order], starts)
                empty[found] = False
            return [pa.array(folded, kind, mask=empty)]

        return finish

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        (was,), (now,) = old, new
        both = self._fold(was.values, now.values)
        values = np.where(was.there & now.there, both, np.where(now.there, now.values, was.values))
        return [Field(values, was.there | now.there)]

    def result(self, state: Sequence[Field]) -> pa.Array:
        return as_type(array_of(state[0], self.kinds[0]), self.spec.result_type)
