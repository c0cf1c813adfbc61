"""A fixed list of aggregates: partial results of a batch, merged with a store's encoded states."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.state.aggregate.base import OutOfRange
from sparkrelay.state.aggregate.columns import field_of
from sparkrelay.state.aggregate.decimals import converted
from sparkrelay.state.aggregate.functions import aggregate_of
from sparkrelay.state.aggregate.grouped_rows import PREFIX, RowGrouping, last_of_each
from sparkrelay.state.layout import StateLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.aggregate.base import Aggregate, Partial
    from sparkrelay.state.aggregate.spec import AggregateSpec
    from sparkrelay.state.layout import Field

_PLACE: Final = f"{PREFIX}place"


class AggregateCodec:
    """Computes a fixed list of aggregates; cheap enough to be created for each batch.

    ``make`` returns the implementation of a spec; a TopologyException names an aggregate that cannot be kept, and the
    remedy. Methods raise SerializationException if a result is out of the range of its type, with the group's key where
    it is known, and StoreCorruptedException if a state is not of these aggregates.
    """

    def __init__(
        self, specs: Sequence[AggregateSpec], *, make: Callable[[AggregateSpec], Aggregate] = aggregate_of
    ) -> None:
        self.specs = tuple(specs)
        self.aggregates = tuple(map(make, self.specs))
        self._layout = StateLayout([kind for aggregate in self.aggregates for kind in aggregate.kinds])

    @property
    def subtracts(self) -> bool:
        """Whether all of the aggregates can subtract rows."""
        return self.combines and all(aggregate.subtracts for aggregate in self.aggregates)

    @property
    def combines(self) -> bool:
        """Whether two states can be combined: not of distinct values, as both may have seen the same."""
        return not any(spec.seen_once for spec in self.specs)

    def partial(self, rows: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> pa.Table:
        """Group rows by their key columns; return those, and the state columns of each aggregate.

        Groups are in the order of their first rows; null is a key. Aggregates of distinct values have seen none;
        :meth:`with_values` adds them.
        """
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        grouping = RowGrouping(table, keys)
        plans = [
            self._nothing(aggregate) if aggregate.spec.seen_once else aggregate.plan(grouping)
            for aggregate in self.aggregates
        ]
        groups = grouping.run()
        out = {name: groups.table.column(name) for name in keys}
        for index, (spec, finish) in enumerate(zip(self.specs, plans, strict=True)):
            with _in_range(spec, groups.table):
                columns = finish(groups)
            out.update((_name(index, place), column) for place, column in enumerate(columns))
        return pa.table(out)

    def with_values(self, partial: pa.Table, index: int, places: pa.Array, values: pa.Table) -> pa.Table:
        """Return partial results with new distinct values of one aggregate.

        Args:
            partial: of groups.
            index: of the aggregate.
            places: the group of each value.
            values: by the names of the aggregate's columns; distinct in each group.
        """
        aggregate = self.aggregates[index]
        grouping = RowGrouping(values.append_column(_PLACE, places), [_PLACE])
        finish = aggregate.plan(grouping)
        groups = grouping.run()
        own = groups.column(_PLACE).to_numpy(zero_copy_only=False)
        with _in_range(aggregate.spec, partial, own):
            columns = finish(groups)
        rows = last_of_each(partial.num_rows, own, np.arange(len(own)))
        for place, column in enumerate(columns):
            number = partial.schema.get_field_index(_name(index, place))
            partial = partial.set_column(number, _name(index, place), column.take(rows))
        return partial

    def states(self, partial: pa.Table) -> pa.Array:
        """Return partial results as the states of new groups."""
        nothing = pa.nulls(partial.num_rows, pa.binary())
        return self.merge(partial, nothing)[0]

    @np.errstate(all="ignore")  # Infinity and NaN are valid results.
    def merge(self, partial: pa.Table, old: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Merge partial results with the states of their groups (null where a group is new).

        Returns:
            The new states, and one result column for each aggregate.
        """
        merged: list[Field] = []
        results: list[pa.Array] = []
        for index, (aggregate, fields) in enumerate(self._each(self._layout.decode(old))):
            columns = [whole(partial.column(_name(index, place))) for place in range(len(aggregate.kinds))]
            added = [field_of(column, kind) for column, kind in zip(columns, aggregate.kinds, strict=True)]
            with _in_range(aggregate.spec, partial):
                new = aggregate.combine(fields, added)
                results.append(aggregate.result(new))
            merged += new
        return self._layout.encode(merged, len(old)), results

    def combine(self, earlier: pa.Array, later: pa.Array) -> pa.Array:
        """Return the combined states of two arrays, row by row; null is no state.

        Raises:
            TopologyException: an aggregate is of distinct values; see ``combines``.
        """
        return self._pairwise(lambda aggregate: aggregate.combine, earlier, later)

    def subtract(self, states: pa.Array, gone: pa.Array) -> pa.Array:
        """Return ``states`` without the input of ``gone``, row by row; null is no state.

        Raises:
            TopologyException: an aggregate cannot do that; see ``subtracts``.
        """
        return self._pairwise(lambda aggregate: aggregate.subtract, states, gone)

    @np.errstate(all="ignore")
    def _pairwise(
        self,
        operation: Callable[[Aggregate], Callable[[Sequence[Field], Sequence[Field]], list[Field]]],
        left: pa.Array,
        right: pa.Array,
    ) -> pa.Array:
        for spec in self.specs:
            if spec.seen_once:
                raise TopologyException(f"{spec}: distinct values cannot be combined from two states")
        fields: list[Field] = []
        pairs = zip(self._each(self._layout.decode(left)), self._each(self._layout.decode(right)), strict=True)
        for (aggregate, one), (_, other) in pairs:
            with _in_range(aggregate.spec):
                fields += operation(aggregate)(one, other)
        return self._where_any(fields, left, right)

    def states_of(self, states: pa.Array, other: AggregateCodec, groups: pa.Table | None = None) -> pa.Array:
        """Return states of another codec, of the same aggregates with totals of other types, as this one's.

        Errors name the key columns of ``groups``.
        """
        fields: list[Field] = []
        pairs = zip(self.aggregates, other._each(other._layout.decode(states)), strict=True)
        for aggregate, (its, old) in pairs:
            with _in_range(aggregate.spec, groups):
                fields += map(converted, old, its.kinds, aggregate.kinds)
        return self._where_any(fields, states, states)

    def counts(self, states: pa.Array, index: int) -> NDArray[np.int64]:
        """Return each state's number of values of a collecting aggregate; 0 where there is no state."""
        for number, (_, fields) in enumerate(self._each(self._layout.decode(states))):
            if number == index:
                return fields[0].values.astype(np.int64)
        raise IndexError(index)

    @np.errstate(all="ignore")
    def results(self, states: pa.Array, groups: pa.Table | None = None) -> list[pa.Array]:
        """Return the result columns of stored states; null is no state. Errors name the key columns of ``groups``."""
        results: list[pa.Array] = []
        for aggregate, fields in self._each(self._layout.decode(states)):
            with _in_range(aggregate.spec, groups):
                results.append(aggregate.result(fields))
        return results

    @staticmethod
    def _nothing(aggregate: Aggregate) -> Partial:
        """Return the partial of groups that have seen nothing."""
        return lambda groups: [pa.nulls(len(groups), kind) for kind in aggregate.kinds]

    def _each(self, fields: Sequence[Field]) -> Iterator[tuple[Aggregate, Sequence[Field]]]:
        """Yield each aggregate with its part of the fields."""
        at = 0
        for aggregate in self.aggregates:
            yield aggregate, fields[at : at + len(aggregate.kinds)]
            at += len(aggregate.kinds)

    def _where_any(self, fields: Sequence[Field], one: pa.Array, other: pa.Array) -> pa.Array:
        """Return fields as states; null where neither side is one."""
        states = self._layout.encode(fields, len(one))
        return pc.if_else(pc.or_(one.is_valid(), other.is_valid()), states, pa.scalar(None, pa.binary()))


def _name(index: int, place: int) -> str:
    return f"{PREFIX}{index}_{place}"


@contextlib.contextmanager
def _in_range(
    spec: AggregateSpec, groups: pa.Table | None = None, rows: NDArray[np.int64] | None = None
) -> Iterator[None]:
    """Raise OutOfRange as a SerializationException that names the aggregate and, by its key columns, the group.

    ``rows`` maps the error's row to one of ``groups``.
    """
    try:
        yield
    except OutOfRange as error:
        row = error.row if rows is None else int(rows[error.row])
        names = [] if groups is None else [name for name in groups.column_names if not name.startswith(PREFIX)]
        group = {} if groups is None else {name: groups.column(name)[row].as_py() for name in names}
        within = f" in the group {group}" if group else ""
        raise SerializationException(
            f"{spec} leaves the range of {error.limits}: {error.what}{within}; cast the argument to double, or take a "
            "larger unit or finer groups"
        ) from None
