"""Rows of a key beside one another, each with how many of it there are.

::

    length, 2 | key | digest of the row, 16   ->   how many there are, 8 | the row, as a table of newest rows holds it

Of windows the key begins with the end of the window. A row that is no more is found by what it was: equal rows count
as one, so many times.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.state.byte_arrays import drop_first, fixed, side_by_side
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparkrelay.state.batch import Watermark
    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]

__all__ = ["CountedRows", "changes_of", "content", "counts_and_rows", "places_in_store", "together"]

_DIGEST: Final = 16
_COUNT: Final = 8
#: Behind all digests of a key.
_BEHIND: Final = b"\xff" * (_DIGEST + 1)
#: What stands in front of a stored row's columns: the tuple's version and its timestamp, tag and 64 bits.
_TIMESTAMP: Final = 10


@dataclass(frozen=True, slots=True)
class CountedRows:
    """Rows of some keys.

    Attributes:
        which: number of each one's key.
        keys: where it stands in the store.
        counts: how many of it there are.
        rows: as a table of newest rows holds them.
    """

    which: Numbers
    keys: pa.Array
    counts: Numbers
    rows: pa.Array

    @classmethod
    def stored(cls, view: StoreView, parts: pa.Array) -> CountedRows:
        """Return all rows that a store has of some keys, which it has as ``parts`` (``key_parts``)."""
        order = pc.array_sort_indices(parts)
        starts = parts.take(order).to_pylist()
        which, keys, values = view.ranges(starts, (part + _BEHIND for part in starts))
        counts, rows = counts_and_rows(values)
        return cls(order.to_numpy(zero_copy_only=False).astype(np.int64)[which], keys, counts, rows)

    def values(self) -> pa.Array:
        """Return the rows as the store has them; null where there is none any more."""
        values = side_by_side(fixed(self.counts.astype("<i8"), _COUNT), self.rows)
        return pc.if_else(pa.array(self.counts > 0), values, pa.scalar(None, pa.binary()))


def counts_and_rows(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return how many there are of stored rows, and the rows as a table of newest rows holds them."""
    counts = np.frombuffer(b"".join(pc.binary_slice(values, 0, _COUNT).to_pylist()), "<i8").astype(np.int64)
    return counts, drop_first(values, _COUNT)


def places_in_store(parts: pa.Array, rows: pa.Array) -> pa.Array:
    """Return where rows stand in the store, of keys that it has as ``parts``."""
    digests = [hashlib.blake2b(row[_TIMESTAMP:], digest_size=_DIGEST).digest() for row in rows.to_pylist()]
    return side_by_side(parts, pa.array(digests, pa.binary()))


def together(held: CountedRows, brought: CountedRows) -> CountedRows:
    """Return rows, each once, with how many there are when others have come and gone; the newer ones' timestamps."""
    keys = pa.concat_arrays([held.keys, brought.keys])
    encoded = pc.dictionary_encode(keys)
    number = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.zeros(len(encoded.dictionary), dtype=np.int64)
    np.add.at(counts, number, np.concatenate([held.counts, brought.counts]))
    last = np.zeros(len(encoded.dictionary), dtype=np.int64)
    # Whoever comes later: a row that is new behind one that is stored, or was.
    np.maximum.at(last, number, np.arange(len(number)))
    indices = pa.array(last)
    which = np.concatenate([held.which, brought.which])[last]
    rows = pa.concat_arrays([held.rows, brought.rows]).take(indices)
    return CountedRows(which, encoded.dictionary, counts, rows)


def changes_of(view: StoreView, rows: CountedRows, touched: pa.Array, watermark: Watermark | None) -> Changes:
    """Return the changes that put those of some rows into a store that are ``touched``, and are not there as they are.

    Args:
        view: of the store.
        rows: with how many there are of each; none: it is deleted.
        touched: which of them may differ from what is stored.
        watermark: of the store with the batch.
    """
    return Changes.moved(view, rows.keys.filter(touched), rows.values().filter(touched), watermark)


def content(rows: pa.Array) -> pa.Array:
    """Return what stored rows are, without their timestamps."""
    return drop_first(rows, _TIMESTAMP)
