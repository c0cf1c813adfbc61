"""Aggregates of a table: when a row changes or is deleted, its old version is subtracted from its group.

Rows are changes of a table (``hidden_columns.CHANGE``). New rows are added to the states of their groups and old rows
subtracted, like ``KTable.groupBy`` of Kafka Streams with its adder and subtractor. A hidden count of each group's rows
shows when it is empty and deleted.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException
from sparkrelay.operators.row_numbers import by_number, numbered
from sparkrelay.operators.table.changes import NEW, OLD
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec, wide_aggregate_of
from sparkrelay.state.byte_arrays import drop_first, fixed, side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ADDED: Final = f"{hidden_columns.PREFIX}added"
_GONE: Final = f"{hidden_columns.PREFIX}gone"
#: Whether these two are states of wide sums.
_WIDE: Final = f"{hidden_columns.PREFIX}wide"
_TIME: Final = f"{hidden_columns.PREFIX}time"


class TableAggregates:
    """Codec of a table's aggregates, like ``AggregateCodec`` of a stream's."""

    def __init__(self, specs: Sequence[AggregateSpec], *, stay: bool = False) -> None:
        """Take the aggregates; the last is the newest timestamp.

        Args:
            specs: the aggregates.
            stay: whether a group stays when it has no rows any more.
        """
        self._stay = stay
        *own, newest = (replace(spec, subtracts=True) for spec in specs)
        counted = [*own, AggregateSpec("count_all", None, pa.int64(), pa.int64())]
        self._rows = AggregateCodec(counted)
        #: An intermediate sum can overflow before old rows are subtracted. Then all is computed again with wider sums,
        #: which are several times slower.
        self._wide = AggregateCodec(counted, make=wide_aggregate_of)
        self._times = AggregateCodec([newest])
        #: The user's aggregates, without the count.
        self.specs, self.aggregates = tuple(own), self._rows.aggregates[:-1]

    def partial(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return each group's key columns, the states of its new and of its old rows, and its newest timestamp."""
        by, wide = [*keys, hidden_columns.CHANGE], False
        try:
            changes = self._rows.partial(rows, by)
            states = self._rows.states(changes)
        except SerializationException:
            changes, wide = self._wide.partial(rows, by), True
            states = self._wide.states(changes)
        times = self._times.partial(rows, by)
        which, firsts = numbered(changes.select(list(keys)))
        change = whole(changes.column(hidden_columns.CHANGE))
        columns = {name: whole(changes.column(name)).take(pa.array(firsts)) for name in keys}
        for name, kind in ((_ADDED, NEW), (_GONE, OLD)):
            here = pc.equal(change, kind)
            columns[name] = by_number(states.filter(here), which[here.to_numpy(zero_copy_only=False)], len(firsts))
        newest = np.full(len(firsts), np.iinfo(np.int64).min)
        np.maximum.at(newest, which, self._times.results(self._times.states(times))[0].to_numpy(zero_copy_only=False))
        return pa.table({**columns, _TIME: pa.array(newest), _WIDE: pa.repeat(pa.scalar(wide), len(firsts))})

    def merge(self, partial: pa.Table, old: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Add new rows to the states of groups, and subtract old rows.

        Returns:
            The new values; and the results (the last ones of a deleted group), their timestamps, which groups are
            deleted, and which exist or existed.

        Raises:
            SerializationException: a sum overflows its type; the message has the group's key.
        """
        times, states = _parted(old)
        named = partial.select([name for name in partial.column_names if not name.startswith(hidden_columns.PREFIX)])
        states = self._changed(partial, states, named)
        left = pc.not_equal(self._rows.results(states, named)[-1], 0)
        if self._stay:
            left = pa.repeat(pa.scalar(True), len(left))
        newest = pc.max_element_wise(times, whole(partial.column(_TIME)))
        values = _joined(newest, pc.if_else(left, states, pa.scalar(None, pa.binary())))
        there = pc.is_valid(old)
        *results, _ = self.results(pc.if_else(left, values, old))
        return values, [*results, newest, pc.and_not(there, left), pc.or_(there, left)]

    def _changed(self, partial: pa.Table, states: pa.Array, named: pa.Table) -> pa.Array:
        added, gone = (whole(partial.column(name)) for name in (_ADDED, _GONE))
        if not pc.any(partial.column(_WIDE)).as_py():
            with contextlib.suppress(SerializationException):
                return self._rows.subtract(self._rows.combine(states, added), gone)
            added, gone = (self._wide.states_of(some, self._rows) for some in (added, gone))
        wide = self._wide.combine(self._wide.states_of(states, self._rows), added)
        return self._rows.states_of(self._wide.subtract(wide, gone), self._wide, named)

    def counts(self, values: pa.Array, index: int) -> NDArray[np.int64]:
        """Return the number of collected values of an aggregate in each stored value."""
        return self._rows.counts(_parted(values)[1], index)

    def results(self, values: pa.Array) -> list[pa.Array]:
        """Return the result columns of stored values, then their timestamps."""
        times, states = _parted(values)
        return [*self._rows.results(states)[:-1], times]


def _joined(times: pa.Array, states: pa.Array) -> pa.Array:
    """Encode values: the newest timestamp of a group (8 bytes) and its state; null where the state is."""
    return side_by_side(fixed(times.to_numpy(zero_copy_only=False).astype("<i8"), 8), states)


def _parted(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the timestamps and states of values; null for null."""
    fronts = b"".join(pc.binary_slice(values, 0, 8).drop_null().to_pylist())
    times = np.zeros(len(values), dtype=np.int64)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    times[there] = np.frombuffer(fronts, "<i8")
    return pa.array(times, mask=~there), drop_first(values, 8)
