"""Distinct rows of a key with their counts.

::

    length, 2 | key | digest of the row, 16   ->   count, 8 | the row, as in a table of newest rows

With windows, the key begins with the end of the window. A deleted row is found by its contents: equal rows are stored
once, with their number.
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

_DIGEST: Final = 16
_COUNT: Final = 8
#: Greater than all digests of a key.
_BEHIND: Final = b"\xff" * (_DIGEST + 1)
#: Prefix of a stored row's columns: the tuple's version, and the timestamp's tag and 64 bits.
_TIMESTAMP: Final = 10


@dataclass(frozen=True, slots=True)
class CountedRows:
    """Rows of some keys with their counts.

    Attributes:
        which: index of each row's key.
        keys: the store's key of each row.
        counts: the number of equal rows.
        rows: encoded rows.
    """

    which: Numbers
    keys: pa.Array
    counts: Numbers
    rows: pa.Array

    @classmethod
    def stored(cls, view: StoreView, parts: pa.Array) -> CountedRows:
        """Return all stored rows of keys, given as ``parts`` (``key_parts``)."""
        order = pc.array_sort_indices(parts)
        starts = parts.take(order).to_pylist()
        which, keys, values = view.ranges(starts, (part + _BEHIND for part in starts))
        counts, rows = counts_and_rows(values)
        return cls(order.to_numpy(zero_copy_only=False).astype(np.int64)[which], keys, counts, rows)

    def values(self) -> pa.Array:
        """Return the store's values; null for a count of 0."""
        values = side_by_side(fixed(self.counts.astype("<i8"), _COUNT), self.rows)
        return pc.if_else(pa.array(self.counts > 0), values, pa.scalar(None, pa.binary()))


def counts_and_rows(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return the counts and the encoded rows of the store's values."""
    counts = np.frombuffer(b"".join(pc.binary_slice(values, 0, _COUNT).to_pylist()), "<i8").astype(np.int64)
    return counts, drop_first(values, _COUNT)


def places_in_store(parts: pa.Array, rows: pa.Array) -> pa.Array:
    """Return the store's keys of rows, given the ``parts`` of their keys."""
    digests = [hashlib.blake2b(row[_TIMESTAMP:], digest_size=_DIGEST).digest() for row in rows.to_pylist()]
    return side_by_side(parts, pa.array(digests, pa.binary()))


def together(held: CountedRows, brought: CountedRows) -> CountedRows:
    """Return distinct rows with the sums of their counts, and the timestamps of the later ones."""
    keys = pa.concat_arrays([held.keys, brought.keys])
    encoded = pc.dictionary_encode(keys)
    number = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.zeros(len(encoded.dictionary), dtype=np.int64)
    np.add.at(counts, number, np.concatenate([held.counts, brought.counts]))
    last = np.zeros(len(encoded.dictionary), dtype=np.int64)
    # The last one: a new row follows stored and old ones.
    np.maximum.at(last, number, np.arange(len(number)))
    indices = pa.array(last)
    which = np.concatenate([held.which, brought.which])[last]
    rows = pa.concat_arrays([held.rows, brought.rows]).take(indices)
    return CountedRows(which, encoded.dictionary, counts, rows)


def changes_of(view: StoreView, rows: CountedRows, touched: pa.Array, watermark: Watermark | None) -> Changes:
    """Return the changes that store rows, without no-ops.

    Args:
        view: the store.
        rows: rows with their new counts; 0 deletes.
        touched: which of them may differ from the store.
        watermark: the store's watermark after the batch.
    """
    return Changes.moved(view, rows.keys.filter(touched), rows.values().filter(touched), watermark)


def content(rows: pa.Array) -> pa.Array:
    """Return encoded rows without their timestamps."""
    return drop_first(rows, _TIMESTAMP)
