"""The codec of rankings of a stream's rows: the first rows of each key in an order.

Every place of a key is a row, keyed by the key and the place, and encoded as in a table of newest rows. A row that is
inserted shifts the following ones by one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.ranking.row_order import RowOrder
from sparkrelay.operators.row_numbers import numbered, places
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.records.arrow_buffers import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.operators.ranking.row_order import RowRanking

#: Index of a place's key, and whether the micro-batch has a row for the place.
_KEY: Final = f"{hidden_columns.PREFIX}ranked_key"
_THERE: Final = f"{hidden_columns.PREFIX}ranked"


class FirstRows:
    """Codec of the first rows of each key."""

    def __init__(self, row: pa.Schema, ranking: RowRanking) -> None:
        """Take the columns of a row without key and place, and the ranking."""
        self._row = row
        self._ranking = ranking
        self._columns = StoredColumns(row)
        self._order = RowOrder(ranking)

    def partial(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return every place of each key with the micro-batch's row for it, as if the store were empty, or nulls."""
        count, number = self._ranking.count, self._ranking.number
        rows = rows.combine_chunks()
        names = [name for name in keys if name != number]
        which, firsts = numbered(rows.select(names))
        order = self._order.sort(rows, which)
        which = which[order]
        at = places(which)
        kept = at < count
        order, slots = order[kept], which[kept] * count + at[kept]
        taken = np.full(len(firsts) * count, -1, dtype=np.int64)
        taken[slots] = order
        there = taken >= 0
        indices = pa.array(taken, mask=~there)
        of_key = pa.array(np.repeat(firsts, count))
        columns = {name: whole(rows.column(name)).take(of_key) for name in names}
        columns[number] = pa.array(np.tile(np.arange(1, count + 1, dtype=np.int32), len(firsts)))
        for name in (*self._row.names, hidden_columns.TIMESTAMP):
            columns[name] = whole(rows.column(name)).take(indices)
        columns[_KEY], columns[_THERE] = pa.array(np.repeat(np.arange(len(firsts)), count)), pa.array(there)
        return pa.table(columns)

    def merge(self, partial: pa.Table, old: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Merge the micro-batch's rows into the stored order.

        Returns:
            The new values; and the rows' columns, their timestamps, which are deleted (none), and which changed.
        """
        names = [hidden_columns.TIMESTAMP, *self._row.names]
        held, new = pc.is_valid(old), whole(partial.column(_THERE))
        stored = pa.table(self._columns.read(old.filter(held))).select(names)
        schema = stored.schema
        candidates = pa.concat_tables([stored, partial.select(names).filter(new).cast(schema)]).combine_chunks()
        keys = whole(partial.column(_KEY)).to_numpy()
        which = np.concatenate([keys[_flags(held)], keys[_flags(new)]])
        # Stored rows first, then new ones in order of arrival: equal rows keep this order.
        order = self._order.sort(candidates, which)
        which = which[order]
        at = places(which)
        kept = at < self._ranking.count
        # The places of a key need not be adjacent here.
        numbers = whole(partial.column(self._ranking.number)).to_numpy() - 1
        by_slot = np.argsort(keys * self._ranking.count + numbers, kind="stable")
        first = np.searchsorted(keys[by_slot], which[kept])
        taken = np.full(partial.num_rows, -1, dtype=np.int64)
        taken[by_slot[first + at[kept]]] = order[kept]
        indices = pa.array(taken, mask=taken < 0)
        rows = candidates.take(indices)
        values = pc.if_else(pc.is_valid(indices), self._columns.values(rows), pa.scalar(None, pa.binary()))
        changed = pc.and_(pc.is_valid(indices), pc.fill_null(pc.not_equal(old, values), True))
        columns = [whole(rows.column(name)) for name in self._row.names]
        none = pa.repeat(pa.scalar(False), len(old))
        return values, [*columns, whole(rows.column(hidden_columns.TIMESTAMP)), none, changed]

    def stored(self, rows: pa.Table) -> pa.Array:
        """Encode rows."""
        return self._columns.values(rows)

    def in_order(self, values: pa.Array, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the order of encoded rows by key, then by the ranking; stable. ``which`` is the index of each key."""
        return self._order.sort(pa.table(self._columns.read(values)), which)

    def results(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of stored rows, null for null, then their timestamps."""
        return self._columns.results(values)


def _flags(array: pa.Array) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return flags
