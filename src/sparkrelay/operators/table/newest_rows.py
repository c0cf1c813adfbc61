"""The codec of tables of newest rows.

A stored row is its timestamp and its columns without the key, encoded like the columns of a repartition topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.records.arrow_buffers import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Encoded timestamp: the tuple's version, the column's tag, 64 bits.
_BEGINNING: Final = 10
_INDEX: Final = f"{hidden_columns.PREFIX}index"


class NewestRows:
    """Codec of the newest row of each key."""

    def __init__(self, row: pa.Schema) -> None:
        """Take the columns of a row without its key."""
        self._row = row
        self._columns = StoredColumns(row)

    def partial(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return the last row of each key: key columns, other columns, timestamp, and whether it is a tombstone."""
        columns = dict.fromkeys([*keys, *self._row.names, hidden_columns.TIMESTAMP, hidden_columns.TOMBSTONE])
        indexed = rows.select(list(keys)).append_column(_INDEX, pa.array(np.arange(rows.num_rows)))
        last = indexed.group_by(list(keys), use_threads=False).aggregate([(_INDEX, "max")]).column(f"{_INDEX}_max")
        # (take() from many chunks searches the chunk of each row.)
        return rows.select(list(columns)).combine_chunks().take(last.combine_chunks())

    def merge(self, partial: pa.Table, old: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Replace old rows by the newest ones.

        Returns:
            The new values; and the rows' columns (of a tombstone, those of the deleted row), their timestamps, which
            are tombstones, and which change anything. A row equal to the old one and no older is dropped, and the old
            timestamp stays (KIP-557).
        """
        new = self.values(partial)
        same = _same(old, new)
        deletes = _deletes(partial)
        columns = [whole(partial.column(field.name)).cast(field.type) for field in self._row]
        if deletes.true_count:
            were = self.results(old)[:-1]
            columns = [pc.if_else(deletes, before, now) for before, now in zip(were, columns, strict=True)]
        times = whole(partial.column(hidden_columns.TIMESTAMP))
        return pc.if_else(same, old, new), [*columns, times, deletes, pc.invert(same)]

    def values(self, rows: pa.Table) -> pa.Array:
        """Encode rows; null for tombstones."""
        packed = self._columns.values(rows)
        return pc.if_else(_deletes(rows), pa.scalar(None, packed.type), packed)

    def results(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of stored rows, null for null, then their timestamps."""
        return self._columns.results(values)


def _same(old: pa.Array, new: pa.Array) -> pa.Array:
    """Return which rows are equal to the old ones and no older."""
    longest = max((pc.max(pc.binary_length(array)).as_py() or 0 for array in (old, new)), default=0)
    contents = [pc.binary_slice(array, _BEGINNING, max(longest, _BEGINNING)) for array in (old, new)]
    # Encoded timestamps sort like timestamps.
    before, now = (pc.binary_slice(array, 0, _BEGINNING) for array in (old, new))
    kept = pc.and_(pc.equal(*contents), pc.greater_equal(now, before))
    return pc.or_(pc.fill_null(kept, False), pc.and_(pc.is_null(old), pc.is_null(new)))


def _deletes(rows: pa.Table) -> pa.Array:
    return pc.fill_null(whole(rows.column(hidden_columns.TOMBSTONE)), False)
