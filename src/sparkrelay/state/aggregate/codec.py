"""A fixed list of aggregates: partial results of a batch, merged with the encoded states of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.state.aggregate.base import OutOfRange
from sparkrelay.state.aggregate.columns import field_of
from sparkrelay.state.aggregate.decimals import converted
from sparkrelay.state.aggregate.functions import aggregate_of
from sparkrelay.state.aggregate.grouped_rows import PREFIX, RowGrouping
from sparkrelay.state.layout import StateLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.aggregate.base import Aggregate, Partial
    from sparkrelay.state.aggregate.spec import AggregateSpec
    from sparkrelay.state.layout import Field

__all__ = ["AggregateCodec"]

_PLACE: Final = f"{PREFIX}place"


class AggregateCodec:
    """Computes and keeps a fixed list of aggregates; cheap enough to be made for each batch.

    Attributes:
        specs: the aggregates.
        aggregates: what computes each of them.
    """

    def __init__(
        self, specs: Sequence[AggregateSpec], *, make: Callable[[AggregateSpec], Aggregate] = aggregate_of
    ) -> None:
        """Check the list.

        Args:
            specs: the aggregates.
            make: returns what computes one.

        Raises:
            TopologyException: an aggregate cannot be kept; the message names it and the remedy.
        """
        self.specs = tuple(specs)
        self.aggregates = tuple(map(make, self.specs))
        self._layout = StateLayout([kind for aggregate in self.aggregates for kind in aggregate.kinds])

    @property
    def subtracts(self) -> bool:
        """Whether what was added can be taken out again of each of the aggregates."""
        return self.combines and all(aggregate.subtracts for aggregate in self.aggregates)

    @property
    def combines(self) -> bool:
        """Whether two states make one: not where distinct values count, for both may have seen the same."""
        return not any(spec.seen_once for spec in self.specs)

    def partial(self, rows: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> pa.Table:
        """Group rows by their key columns; return those, and the state columns of each aggregate.

        Groups stand in the order of their first row. Null keys make a group. What is of distinct values has seen none;
        :meth:`with_values` adds them.

        Raises:
            SerializationException: a sum leaves the range of its type; the message has the group's key.
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
            try:
                columns = finish(groups)
            except OutOfRange as error:
                raise _overflow(spec, error, groups.table) from None
            out.update((_name(index, place), column) for place, column in enumerate(columns))
        return pa.table(out)

    def with_values(self, partial: pa.Table, index: int, places: pa.Array, values: pa.Table) -> pa.Table:
        """Return partial results with values of one aggregate that their groups have not had before.

        Args:
            partial: of groups.
            index: of the aggregate.
            places: which of the groups each value is of.
            values: by the names of the aggregate's columns; distinct in each group.

        Raises:
            SerializationException: a sum leaves the range of its type; the message has the group's key.
        """
        aggregate = self.aggregates[index]
        grouping = RowGrouping(values.append_column(_PLACE, places), [_PLACE])
        finish = aggregate.plan(grouping)
        groups = grouping.run()
        own = groups.column(_PLACE).to_numpy(zero_copy_only=False)
        try:
            columns = finish(groups)
        except OutOfRange as error:
            raise _overflow(
                aggregate.spec, OutOfRange(int(own[error.row]), error.limits, error.what), partial
            ) from None
        at = np.full(partial.num_rows, -1, dtype=np.int64)
        at[own] = np.arange(len(own))
        rows = pa.array(at, mask=at < 0)
        for place, column in enumerate(columns):
            number = partial.schema.get_field_index(_name(index, place))
            partial = partial.set_column(number, _name(index, place), column.take(rows))
        return partial

    def states(self, partial: pa.Table) -> pa.Array:
        """Return partial results as states of their own: of groups that hold nothing else."""
        nothing = pa.nulls(partial.num_rows, pa.binary())
        return self.merge(partial, nothing)[0]

    @np.errstate(all="ignore")  # Sums to infinity, and of both infinities, are results like others.
    def merge(self, partial: pa.Table, old: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Merge partial results with the states of their groups (null where a group is new).

        Returns:
            The new states, and one result column for each aggregate.

        Raises:
            SerializationException: a sum leaves the range of its type; the message has the group's key.
            StoreCorruptedException: a state is not of these aggregates.
        """
        merged: list[Field] = []
        results: list[pa.Array] = []
        for index, (aggregate, fields) in enumerate(self._each(self._layout.decode(old))):
            columns = [_whole(partial.column(_name(index, place))) for place in range(len(aggregate.kinds))]
            added = [field_of(column, kind) for column, kind in zip(columns, aggregate.kinds, strict=True)]
            try:
                new = aggregate.combine(fields, added)
                results.append(aggregate.result(new))
            except OutOfRange as error:
                raise _overflow(aggregate.spec, error, partial) from None
            merged += new
        return self._layout.encode(merged, len(old)), results

    @np.errstate(all="ignore")
    def combine(self, earlier: pa.Array, later: pa.Array) -> pa.Array:
        """Return the states of what two arrays of states are of, one by one; null is no state.

        Raises:
            TopologyException: an aggregate is of distinct values; see ``combines``.
            SerializationException: a sum leaves the range of its type.
            StoreCorruptedException: a state is not of these aggregates.
        """
        self._check_combines()
        merged: list[Field] = []
        pairs = zip(self._each(self._layout.decode(earlier)), self._each(self._layout.decode(later)), strict=True)
        for (aggregate, old), (_, new) in pairs:
            try:
                merged += aggregate.combine(old, new)
            except OutOfRange as error:
                raise _overflow(aggregate.spec, error) from None
        return self._where_any(merged, earlier, later)

    @np.errstate(all="ignore")
    def subtract(self, states: pa.Array, gone: pa.Array) -> pa.Array:
        """Return the states of what ``states`` are of without what ``gone`` are of, one by one; null is no state.

        Raises:
            TopologyException: an aggregate cannot do that; see ``subtracts``.
            SerializationException: a sum leaves the range of its type.
            StoreCorruptedException: a state is not of these aggregates.
        """
        self._check_combines()
        left: list[Field] = []
        pairs = zip(self._each(self._layout.decode(states)), self._each(self._layout.decode(gone)), strict=True)
        for (aggregate, old), (_, removed) in pairs:
            try:
                left += aggregate.subtract(old, removed)
            except OutOfRange as error:
                raise _overflow(aggregate.spec, error) from None
        return self._where_any(left, states, gone)

    def states_of(self, states: pa.Array, other: AggregateCodec, groups: pa.Table | None = None) -> pa.Array:
        """Return another codec's states as this one's: of the same aggregates, and with the same columns.

        Args:
            states: the other's, one by one; null is no state.
            other: has totals of other types.
            groups: the key columns of the groups, which errors name.

        Raises:
            SerializationException: a sum leaves the range of its type.
            StoreCorruptedException: a state is not of these aggregates.
        """
        fields: list[Field] = []
        pairs = zip(self.aggregates, other._each(other._layout.decode(states)), strict=True)
        for aggregate, (its, old) in pairs:
            try:
                fields += map(converted, old, its.kinds, aggregate.kinds)
            except OutOfRange as error:
                raise _overflow(aggregate.spec, error, groups) from None
        return self._where_any(fields, states, states)

    def counts(self, states: pa.Array, index: int) -> NDArray[np.int64]:
        """Return how many values each state has of an aggregate that collects them; 0 where there is no state."""
        for number, (_, fields) in enumerate(self._each(self._layout.decode(states))):
            if number == index:
                return fields[0].values.astype(np.int64)
        raise IndexError(index)

    @np.errstate(all="ignore")
    def results(self, states: pa.Array, groups: pa.Table | None = None) -> list[pa.Array]:
        """Return the result columns of stored states, as for a query.

        Args:
            states: one by one; null is no state.
            groups: the key columns of the groups, which errors name.

        Raises:
            SerializationException: an average leaves the range of its type.
            StoreCorruptedException: a state is not of these aggregates.
        """
        results: list[pa.Array] = []
        for aggregate, fields in self._each(self._layout.decode(states)):
            try:
                results.append(aggregate.result(fields))
            except OutOfRange as error:
                raise _overflow(aggregate.spec, error, groups) from None
        return results

    def _check_combines(self) -> None:
        for spec in self.specs:
            if spec.seen_once:
                raise TopologyException(f"{spec}: what is of distinct values is not known of two states together")

    @staticmethod
    def _nothing(aggregate: Aggregate) -> Partial:
        """Return what makes the state columns of groups that have seen nothing."""
        return lambda groups: [pa.nulls(len(groups), kind) for kind in aggregate.kinds]

    def _each(self, fields: Sequence[Field]) -> Iterator[tuple[Aggregate, Sequence[Field]]]:
        """Yield each aggregate with its part of the fields."""
        at = 0
        for aggregate in self.aggregates:
            yield aggregate, fields[at : at + len(aggregate.kinds)]
            at += len(aggregate.kinds)

    def _where_any(self, fields: Sequence[Field], one: pa.Array, other: pa.Array) -> pa.Array:
        """Return fields as states; null where neither of two was one."""
        states = self._layout.encode(fields, len(one))
        return pc.if_else(pc.or_(one.is_valid(), other.is_valid()), states, pa.scalar(None, pa.binary()))


def _name(index: int, place: int) -> str:
    return f"{PREFIX}{index}_{place}"


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _overflow(spec: AggregateSpec, error: OutOfRange, groups: pa.Table | None = None) -> SerializationException:
    names = [] if groups is None else [name for name in groups.column_names if not name.startswith(PREFIX)]
    group = {name: groups.column(name)[error.row].as_py() for name in names} if groups is not None else {}
    within = f" in the group {group}" if group else ""
    return SerializationException(
        f"{spec} leaves the range of {error.limits}: {error.what}{within}; cast the argument to double, or take a "
        "larger unit or finer groups"
    )
