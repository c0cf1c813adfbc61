"""Aggregates of all the values of a group, which are stored beside its state, each under its own key.

The state is only the number of values. The values are read for a result, and never written as a whole.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.keys import key_columns
from sparkrelay.state.aggregate.base import Aggregate
from sparkrelay.state.aggregate.columns import field_of
from sparkrelay.state.aggregate.grouped_rows import PREFIX, RowGrouping, last_of_each
from sparkrelay.state.aggregate.sums import Count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.aggregate.spec import AggregateSpec
    from sparkrelay.state.layout import Field

_PLACE: Final = f"{PREFIX}place"


@dataclass(frozen=True, slots=True)
class Values:
    """The values of some groups.

    Attributes:
        groups: the number of groups.
        places: the group of each value.
        packed: the values as bytes (``records.keys``), of each group in the order of arrival where that is kept.
        counts: the multiplicity of each value.
    """

    groups: int
    places: NDArray[np.int64]
    packed: pa.Array
    counts: NDArray[np.int64]

    def columns(self, schema: pa.Schema) -> list[pa.Array]:
        """Return the values as columns of these types."""
        return key_columns(self.packed, schema)

    def bytes_of_groups(self, *, repeated: bool) -> NDArray[np.int64]:
        """Return the least size of a list of each group's values, which may repeat each by its count."""
        sizes = 1.0 + pc.binary_length(self.packed).to_numpy(zero_copy_only=False)
        if repeated:
            sizes *= self.counts
        return np.bincount(self.places, weights=sizes, minlength=self.groups).astype(np.int64)


class Collected(Count):
    """An aggregate of collected values. Its state is the number of values.

    Attributes:
        lists: whether a result grows with the number of values.
    """

    lists: ClassVar[bool] = False

    @property
    def subtracts(self) -> bool:  # type: ignore[override]
        """Whether values can be subtracted: not from a list, which does not count each value."""
        return not self.spec.in_order

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        return super().subtract(old, gone) if self.subtracts else Aggregate.subtract(self, old, gone)

    def result(self, state: Sequence[Field]) -> pa.Array:
        """Return nulls; :meth:`of` has the results."""
        return pa.nulls(len(state[0].values), self.spec.result_type)

    @abstractmethod
    def of(self, values: Values) -> pa.Array:
        """Return the result column of groups."""

    def _typed(self, values: Values) -> pa.Array:
        (column,) = values.columns(pa.schema([("value", self.spec.input_type)]))
        return column

    def _lists(self, values: Values, order: NDArray[np.int64]) -> pa.Array:
        """Return one list per group, by an order of the values that keeps groups together."""
        ends = np.cumsum(np.bincount(values.places, minlength=values.groups))
        offsets = pa.array(np.r_[0, ends].astype(np.int32))
        return pa.ListArray.from_arrays(offsets, self._typed(values).take(pa.array(order)))


class CollectedList(Collected):
    """``collect_list`` and ``array_agg``, in the order of arrival."""

    lists: ClassVar[bool] = True

    def of(self, values: Values) -> pa.Array:
        return self._lists(values, np.argsort(values.places, kind="stable"))


class CollectedSet(Collected):
    """``collect_set``, in the order of the values' bytes."""

    lists: ClassVar[bool] = True

    def of(self, values: Values) -> pa.Array:
        return self._lists(values, _by_bytes(values))


class ListAgg(Collected):
    """``listagg`` of texts or bytes: in the order of arrival or, if counted, of the values; null without values.

    The options: the delimiter, and whether the order is descending.
    """

    lists: ClassVar[bool] = True

    def of(self, values: Values) -> pa.Array:
        delimiter, descending = self.spec.options
        order = np.argsort(values.places, kind="stable") if self.spec.in_order else _by_bytes(values)
        counts = values.counts
        if descending:
            order = order[::-1][np.argsort(values.places[order[::-1]], kind="stable")]
        if self.spec.distinct:
            counts = np.ones(len(counts), dtype=np.int64)
        all_of_them = np.repeat(order, counts[order])
        lists = self._lists(Values(values.groups, np.repeat(values.places, counts), values.packed, counts), all_of_them)
        return pc.if_else(
            pc.greater(pc.list_value_length(lists), 0),
            pc.binary_join(lists, pa.scalar(delimiter, lists.type.value_type)),
            pa.scalar(None, lists.type.value_type),
        )


class Mode(Collected):
    """``mode``: the most frequent value; of several, the smallest or, by the option, the largest."""

    def of(self, values: Values) -> pa.Array:
        column = self._typed(values)
        ranks = _ranks(column, values.packed)
        if self.spec.options and self.spec.options[0] == "largest":
            ranks = -ranks
        order = np.lexsort((-ranks, values.counts, values.places))
        return column.take(last_of_each(values.groups, values.places[order], order))


class Percentile(Collected):
    """``percentile``, ``median`` and ``percentile_cont`` interpolate; ``percentile_disc`` picks a value.

    ``approx_percentile``, here exact, picks a value of its own type. The options: the percentages, whether the result
    is a list, and whether the order is descending.
    """

    def of(self, values: Values) -> pa.Array:
        percentages, several, descending = self.spec.options
        column = self._typed(values)
        ranks = _ranks(column, values.packed)
        order = np.lexsort((-ranks if descending else ranks, values.places))
        weights = np.ones(len(order), dtype=np.int64) if self.spec.distinct else values.counts
        counts = weights[order]
        # For each value, the position after its last repetition in the sequence of all values, group by group.
        upto = np.cumsum(counts)
        totals = np.bincount(values.places, weights=weights, minlength=values.groups).astype(np.int64)
        before = np.cumsum(totals) - totals
        there = totals > 0
        numbers = column if self.spec.function == "approx_percentile" else _doubles(column)
        found = []
        for percentage in percentages:
            if self.spec.function == "percentile" and len(column):
                position = (np.maximum(totals, 1) - 1) * percentage
                low, high = (
                    _at(upto, before + at.astype(np.int64), order, there)
                    for at in (np.floor(position), np.ceil(position))
                )
                found.append(pa.array(_between(numbers.to_numpy(), low, high, position), mask=~there))
                continue
            at = np.clip(np.ceil(totals * percentage).astype(np.int64), 1, np.maximum(totals, 1)) - 1
            rows = pa.array(_at(upto, before + at, order, there), mask=~there)
            found.append(numbers.take(rows))
        if not several:
            return found[0]
        width = len(found)
        flat = pa.concat_arrays([numbers[:0], *(some.filter(pa.array(there)) for some in found)])
        count = int(there.sum())
        rows = np.arange(width * count).reshape(width, count).T.reshape(-1)
        offsets = pa.array(np.r_[0, np.cumsum(np.where(there, width, 0))].astype(np.int32))
        lists = pa.ListArray.from_arrays(offsets, flat.take(pa.array(rows)))
        # Without percentages there is no list.
        return pc.if_else(pa.array(there & bool(found)), lists, pa.scalar(None, lists.type))


class OfDistinct(Collected):
    """Any aggregate of distinct values with subtraction: computed from the values that are left."""

    def __init__(self, spec: AggregateSpec, inner: Aggregate) -> None:
        super().__init__(spec)
        self._inner = inner

    def of(self, values: Values) -> pa.Array:
        assert self.spec.column is not None
        schema = pa.schema([(self.spec.column, self.spec.input_type), *self.spec.others])
        table = pa.table([*values.columns(schema), pa.array(values.places)], [*schema.names, _PLACE])
        grouping = RowGrouping(table, [_PLACE])
        finish = self._inner.plan(grouping)
        groups = grouping.run()
        rows = last_of_each(values.groups, groups.column(_PLACE).to_numpy(), np.arange(len(groups)))
        with np.errstate(all="ignore"):
            states = [
                field_of(column.take(rows), kind)
                for column, kind in zip(finish(groups), self._inner.kinds, strict=True)
            ]
            return self._inner.result(states)


#: Function -> its class.
COLLECTED: Final[dict[str, type[Collected]]] = {
    "collect_list": CollectedList,
    "collect_set": CollectedSet,
    "listagg": ListAgg,
    "sorted_listagg": ListAgg,
    "mode": Mode,
    "percentile": Percentile,
    "percentile_disc": Percentile,
    "approx_percentile": Percentile,
}


def _doubles(column: pa.Array) -> pa.Array:
    # Via text: Arrow's own cast of a decimal does not always give the nearest double.
    return (column.cast(pa.string()) if pa.types.is_decimal(column.type) else column).cast(pa.float64(), safe=False)


def _by_bytes(values: Values) -> NDArray[np.int64]:
    table = pa.table([values.places, values.packed], ["place", "value"])
    order = pc.sort_indices(table, [("place", "ascending"), ("value", "ascending")])
    return order.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _ranks(column: pa.Array, packed: pa.Array) -> NDArray[np.int64]:
    """Return each value's rank; NaN is the greatest. Structs are ranked by their bytes, which sort as they do."""
    ranked = packed if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type) else column
    ranks: NDArray[np.int64] = pc.rank(ranked, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _at(upto: NDArray[np.int64], at: NDArray[np.int64], order: NDArray[np.int64], there: NDArray[np.bool_]) -> Any:
    """Return the values at these positions of the sequence of all values; 0 where there is none."""
    numbers = np.zeros(len(at), dtype=np.int64)
    numbers[there] = order[np.searchsorted(upto, at[there], side="right")]
    return numbers


def _between(values: NDArray[np.float64], low: NDArray[np.int64], high: NDArray[np.int64], position: Any) -> Any:
    """Interpolate between two values of each group by Spark's formula."""
    lower, higher = values[low], values[high]
    with np.errstate(invalid="ignore"):
        between = lower + (position - np.floor(position)) * (higher - lower)
    # A single value is the result, even if it is infinite.
    return np.where(low == high, lower, between)
