"""Reading and writing many keys of one table, in LMDB's order where that pays, some thousands at a time.

A key and its value are Python objects only while LMDB takes or gives them: those of a whole batch would be made, passed
by and freed one after the other, each time through memory that no cache holds any more.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StateStoreException
from sparkrelay.state.long_keys import PREFIX_BYTES, SPELT_BYTES, read_spelt, spell, spelt_value
from sparkrelay.state.watermarks import LATEST, end_of, over

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "SortedKeys",
    "any_in",
    "as_binary",
    "ascending",
    "between",
    "drop_below",
    "ends",
    "first_key",
    "firsts",
    "found_in",
    "get",
    "get_some",
    "has",
    "last_key",
    "latest",
    "put",
    "ranges",
]

_AT_A_TIME: Final = 8192
#: Of keys whose values may be large, to begin with.
_FEW: Final = 64
#: So many keys that it takes less time to put them in LMDB's order first.
_WORTH_SORTING: Final = 1024


def as_binary(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return bytes-like values as one flat binary array."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def ascending(keys: pa.Array) -> bool:
    """Return whether keys come in LMDB's order, which is that of bytes, each of them once, and none is null."""
    return not keys.null_count and (len(keys) < 2 or bool(pc.all(pc.greater(keys[1:], keys[:-1])).as_py()))


def latest(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the distinct keys in LMDB's order, and the last value of each."""
    if ascending(keys):
        return keys, values
    # A stable sort: equal keys stay in the order in which they were written.
    order = pc.array_sort_indices(keys)
    ordered = keys.take(order)
    last = pa.concat_arrays([pc.not_equal(ordered[1:], ordered[:-1]), pa.array([True])])
    if not pc.all(last).as_py():
        order, ordered = order.filter(last), ordered.filter(last)
    return ordered, values.take(order)


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """A batch's distinct keys in LMDB's order, and the way there and back; both None if they came in that order."""

    keys: pa.Array
    order: pa.Array | None = None
    back: pa.Array | None = None

    @classmethod
    def of(cls, keys: pa.Array) -> SortedKeys:
        """Sort ``keys``.

        Raises:
            StateStoreException: a key is null, or comes twice.
        """
        if keys.null_count:
            raise StateStoreException(f"{keys.null_count} keys of a batch are null; a store has no such key")
        if ascending(keys):
            return cls(keys)
        order = pc.array_sort_indices(keys)
        ordered = keys.take(order)
        twice = pc.equal(ordered[1:], ordered[:-1])
        if pc.any(twice).as_py():
            key = ordered[pc.index(twice, value=True).as_py()].as_py()
            raise StateStoreException(f"key {key!r} comes twice in one batch; group the batch before it is merged")
        return cls(ordered, order, _way_back(order))

    def as_stored(self, values: pa.Array) -> pa.Array:
        """Return what came with the keys in their order."""
        return values if self.order is None else values.take(self.order)

    def as_given(self, values: pa.Array) -> pa.Array:
        """Return what belongs to the sorted keys in the order in which the keys came."""
        return values if self.back is None else values.take(self.back)


def _way_back(order: pa.Array) -> pa.Array:
    """Return where each row stands once rows are in this order."""
    back = np.empty(len(order), dtype=np.int64)
    back[order.to_numpy(zero_copy_only=False)] = np.arange(len(order))
    return pa.array(back)


def get(transaction: Any, table: Any, keys: pa.Array) -> pa.Array:
    """Return the value of each key, null where there is none."""
    if len(keys) < _WORTH_SORTING or ascending(keys):
        return _in_order(transaction, table, keys)
    # The next key mostly lies on the page of the one before: half the time, be it one key of ten that is asked for.
    order = pc.array_sort_indices(keys)
    return _in_order(transaction, table, keys.take(order)).take(_way_back(order))


def get_some(transaction: Any, table: Any, keys: pa.Array, most_bytes: int) -> pa.Array:
    """Return the value of each of the first keys, null where there is none: of so many that they come to some bytes.

    Args:
        transaction: of the environment.
        table: which.
        keys: fastest in the order of bytes.
        most_bytes: from which on there are enough, once there is one.
    """
    parts, size, start, count = [], 0, 0, _FEW
    with transaction.cursor(db=table) as cursor:
        while start < len(keys) and size < most_bytes:
            parts.append(_values(transaction, table, cursor, keys[start : start + count]))
            size += parts[-1].nbytes
            start += count
            # No more than come to that by what they were so far.
            count = max(1, min(_AT_A_TIME, 4 * count, (most_bytes - size) * start // size))
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def has(transaction: Any, table: Any, keys: pa.Array) -> pa.Array:
    """Return whether each key has a value."""
    with transaction.cursor(db=table) as cursor:
        return pa.array([cursor.set_key(spell(key)) for key in keys.to_pylist()], pa.bool_())


def _in_order(transaction: Any, table: Any, keys: pa.Array) -> pa.Array:
    with transaction.cursor(db=table) as cursor:
        parts = [
            _values(transaction, table, cursor, keys[start : start + _AT_A_TIME])
            for start in range(0, len(keys), _AT_A_TIME)
        ]
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def _values(transaction: Any, table: Any, cursor: Any, keys: pa.Array) -> pa.Array:
    part = keys.to_pylist()
    return pa.array(_get_spelt(transaction, table, part) if _spelt(part) else _get(cursor, part), pa.binary())


def between(transaction: Any, table: Any, first: bytes, stop: bytes, most: int | None = None) -> pa.RecordBatch:
    """Return ``key, value`` of the keys in ``[first, stop)``; both are no longer than what long keys keep in front.

    Of more than ``most`` the first ones.

    Neither the empty key nor, among long keys, any order is looked at: use it where keys begin with what bounds them.
    """
    keys: list[bytes] = []
    values: list[bytes] = []
    with transaction.cursor(db=table) as cursor:
        found = cursor.set_range(first)
        while found and cursor.key() < stop and len(keys) != most:
            key, value = cursor.item()
            if len(key) == SPELT_BYTES:
                key, value = read_spelt(value)
            keys.append(key)
            values.append(value)
            found = cursor.next()
    return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], ["key", "value"])


def firsts(transaction: Any, table: Any, starts: Iterable[bytes], stops: Iterable[bytes]) -> tuple[pa.Array, pa.Array]:
    """Return the first key of each range ``[start, stop)`` and its value, null where nothing lies in it.

    Neither empty nor long keys are looked at.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    with transaction.cursor(db=table) as cursor:
        for start, stop in zip(starts, stops, strict=True):
            there = cursor.set_range(start) and cursor.key() < stop
            keys.append(cursor.key() if there else None)
            values.append(cursor.value() if there else None)
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())


def any_in(transaction: Any, table: Any, starts: Iterable[bytes], stops: Iterable[bytes]) -> NDArray[np.bool_]:
    """Return whether anything lies in each range ``[start, stop)``; fastest where they come in the order of bytes.

    Neither empty nor long keys are looked at.
    """
    found: list[bool] = []
    with transaction.cursor(db=table) as cursor:
        at = last = b""
        there = False
        for start, stop in zip(starts, stops, strict=True):
            # What was found for an earlier range is the first key from this one's start on, too, unless it is below.
            if not there or at < start or start < last:
                there = cursor.set_range(start)
                at = cursor.key()
            last = start
            found.append(there and at < stop)
    return np.array(found, dtype=np.bool_)


def ranges(
    transaction: Any, table: Any, starts: Iterable[bytes], stops: Iterable[bytes]
) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """Return what lies in each range ``[start, stop)``: the number of each key's range, the keys, the values.

    Else as :func:`found_in`.
    """
    numbers, keys, _, values = found_in(transaction, table, starts, stops)
    assert values is not None, "all are wanted"
    return numbers, keys, values


def found_in(
    transaction: Any, table: Any, starts: Iterable[bytes], stops: Iterable[bytes], most_bytes: int | None = None
) -> tuple[NDArray[np.int64], pa.Array, NDArray[np.int64], pa.Array | None]:
    """Return what lies in each range ``[start, stop)``.

    The number of each key's range, the keys, how long their values are, and these; None if they come to more than
    ``most_bytes``.

    Fastest where ranges come in the order of bytes, for then a key that was found beyond one of them says that those
    in front of it are empty. They may overlap. The empty key is not looked at, and no bound may be a long one; long
    keys have no order.
    """
    keys: list[bytes] = []
    values: list[bytes] = []
    lengths: list[int] = []
    counts: list[int] = []
    size, most = 0, sys.maxsize if most_bytes is None else most_bytes
    with transaction.cursor(db=table) as cursor:
        at = last = b""
        there = False
        for start, stop in zip(starts, stops, strict=True):
            before = len(keys)
            if not there or at < start < stop or start < last:
                there = cursor.set_range(start)
                at = cursor.key()
            last = max(start, stop)
            while there and start <= at < stop:
                key, value = (at, cursor.value()) if len(at) < SPELT_BYTES else read_spelt(cursor.value())
                keys.append(key)
                values.append(value)
                size += len(value)
                if size > most:
                    # Too many: so from here on they are let go one by one.
                    lengths += map(len, values)
                    values.clear()
                    most = -1
                there = cursor.next()
                at = cursor.key()
            counts.append(len(keys) - before)
    numbers = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    if most < 0:
        return numbers, pa.array(keys, pa.binary()), np.array(lengths, dtype=np.int64), None
    kept = pa.array(values, pa.binary())
    return numbers, pa.array(keys, pa.binary()), pc.binary_length(kept).to_numpy().astype(np.int64), kept


def keys_beginning(transaction: Any, table: Any, beginnings: Iterable[bytes]) -> pa.Array:
    """Return the keys that begin with one of those bytes, long keys too; no beginning may be empty."""
    keys = []
    with transaction.cursor(db=table) as cursor:
        for beginning in beginnings:
            # As much of it as long keys keep in front.
            front = beginning[:PREFIX_BYTES]
            found = cursor.set_range(front)
            while found and (key := cursor.key()).startswith(front):
                if len(key) == SPELT_BYTES:
                    key, _ = read_spelt(cursor.value())
                if key.startswith(beginning):
                    keys.append(key)
                found = cursor.next()
    return pa.array(keys, pa.binary())


def drop_below(transaction: Any, table: Any, stop: bytes, most: int) -> None:
    """Remove keys below ``stop``, as :func:`between` sees them, from the first one on and no more than ``most``."""
    with transaction.cursor(db=table) as cursor:
        found = cursor.first()
        # Past the last one, where a delete leads to, there is no key.
        while found and most and b"" < cursor.key() < stop:
            found = cursor.delete()
            most -= 1


def ends(transaction: Any, table: Any, after_ms: int) -> list[int]:
    """Return the ends later than ``after_ms`` that keys begin with (``watermarks``), each once; one seek for each."""
    found = []
    with transaction.cursor(db=table) as cursor:
        while cursor.set_range(over(after_ms)):
            after_ms = end_of(cursor.key())
            found.append(after_ms)
            if after_ms >= LATEST:
                break
    return found


def first_key(transaction: Any, table: Any, first: bytes) -> bytes | None:
    """Return the first key from ``first`` on as it is stored, which of a long one is its front; None: there is none."""
    with transaction.cursor(db=table) as cursor:
        return bytes(cursor.key()) if cursor.set_range(first) else None


def last_key(transaction: Any, table: Any, stop: bytes) -> bytes | None:
    """Return the last key below ``stop`` as it is stored, which of a long one is its front; None if there is none."""
    with transaction.cursor(db=table) as cursor:
        found = cursor.prev() if cursor.set_range(stop) else cursor.last()
        return bytes(cursor.key()) if found else None


def put(transaction: Any, table: Any, keys: pa.Array, values: pa.Array) -> None:
    """Write each value under its key; null deletes."""
    with transaction.cursor(db=table) as cursor:
        for start in range(0, len(keys), _AT_A_TIME):
            some = keys[start : start + _AT_A_TIME].to_pylist(), values[start : start + _AT_A_TIME].to_pylist()
            _put(transaction, table, cursor, *some)


def _get(cursor: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    pairs = cursor.getmulti(keys)
    if len(pairs) == len(keys):
        return [value for _, value in pairs]
    known = dict(pairs)
    return [known.get(key) for key in keys]


def _get_spelt(transaction: Any, table: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    values = []
    for key in keys:
        stored = transaction.get(spell(key), db=table)
        plain = stored is None or 0 < len(key) < SPELT_BYTES
        values.append(stored if plain else read_spelt(stored)[1])
    return values


def _spelt(keys: Sequence[bytes]) -> bool:
    return b"" in keys or max(map(len, keys), default=0) >= SPELT_BYTES


def _put(transaction: Any, table: Any, cursor: Any, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
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
    cursor.putmulti(items)
