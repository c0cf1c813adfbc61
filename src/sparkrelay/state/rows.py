"""Reading and writing many keys of one table: whole lists at a time, in LMDB's order where that pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StateStoreException
from sparkrelay.state.long_keys import SPELT_BYTES, read_spelt, spell, spelt_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["SortedKeys", "as_binary", "get", "latest", "put"]


def as_binary(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return bytes-like values as one flat binary array."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def latest(keys: pa.Array, values: pa.Array) -> tuple[list[bytes], list[bytes | None]]:
    """Return the distinct keys in LMDB's order, and the last value of each."""
    # A stable sort: equal keys stay in the order in which they were written.
    order = pc.array_sort_indices(keys)
    ordered = keys.take(order)
    if len(keys) > 1:
        last = pa.concat_arrays([pc.not_equal(ordered[1:], ordered[:-1]), pa.array([True])])
        if not pc.all(last).as_py():
            order, ordered = order.filter(last), ordered.filter(last)
    return ordered.to_pylist(), values.take(order).to_pylist()


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """A batch's distinct keys in LMDB's order, which is that of bytes, and the way back to the caller's order."""

    keys: list[bytes]
    order: pa.Array
    back: pa.Array

    @classmethod
    def of(cls, keys: pa.Array) -> SortedKeys:
        """Sort ``keys``.

        Raises:
            StateStoreException: a key is null, or comes twice.
        """
        if keys.null_count:
            raise StateStoreException(f"{keys.null_count} keys of a batch are null; a store has no such key")
        order = pc.array_sort_indices(keys)
        ordered = keys.take(order)
        if len(ordered) > 1:
            twice = pc.equal(ordered[1:], ordered[:-1])
            if pc.any(twice).as_py():
                key = ordered[pc.index(twice, value=True).as_py()].as_py()
                raise StateStoreException(f"key {key!r} comes twice in one batch; group the batch before it is merged")
        back = np.empty(len(keys), dtype=np.int64)
        back[order.to_numpy(zero_copy_only=False)] = np.arange(len(keys))
        return cls(ordered.to_pylist(), order, pa.array(back))


def _spelt(keys: Sequence[bytes]) -> bool:
    return b"" in keys or max(map(len, keys), default=0) >= SPELT_BYTES


def get(transaction: Any, table: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return the value of each key, or None."""
    if _spelt(keys):
        found = {}
        for key in keys:
            stored = transaction.get(spell(key), db=table)
            if stored is not None:
                found[key] = stored if 0 < len(key) < SPELT_BYTES else read_spelt(stored)[1]
        return [found.get(key) for key in keys]
    with transaction.cursor(db=table) as cursor:
        pairs = cursor.getmulti(keys)
    if len(pairs) == len(keys):
        return [value for _, value in pairs]
    known = dict(pairs)
    return [known.get(key) for key in keys]


def put(transaction: Any, table: Any, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
    """Write each value under its key; None deletes."""
    if _spelt(keys):
        values = [
            value if value is None or 0 < len(key) < SPELT_BYTES else spelt_value(key, value)
            for key, value in zip(keys, values, strict=True)
        ]
        keys = [spell(key) for key in keys]
    items: Iterable[tuple[bytes, bytes | None]]
    if None in values:
        gone = [key for key, value in zip(keys, values, strict=True) if value is None]
        for key in gone:
            transaction.delete(key, db=table)
        items = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    else:
        # Not made into a list: zip uses its pair again and again, and the garbage collector has nothing to look at.
        items = zip(keys, values, strict=True)
    with transaction.cursor(db=table) as cursor:
        cursor.putmulti(items)
