"""Reading and writing many keys of one table, in LMDB's order where that pays, some thousands at a time.

A key and its value are Python objects only while LMDB takes or gives them: those of a whole batch would be made, passed
by and freed one after the other, each time through memory that no cache holds any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StateStoreException
from sparkrelay.state.lmdb.long_keys import SPELT_BYTES, read_spelt, spell, spelt_value
from sparkrelay.state.lmdb.running_sum import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.lmdb.table import Table

__all__ = [
    "SortedKeys",
    "as_binary",
    "ascending",
    "get",
    "get_some",
    "has",
    "latest",
    "may_be_spelt",
    "opened",
    "put",
    "stored",
    "write",
]

_AT_A_TIME: Final = 8192
#: Of values, which are in memory three times while they are written.
_BYTES_AT_A_TIME: Final = 16 << 20
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


def get(transaction: Any, table: Table, keys: pa.Array) -> pa.Array:
    """Return the value of each key, null where there is none."""
    if len(keys) < _WORTH_SORTING or ascending(keys):
        return _in_order(transaction, table, keys)
    # The next key mostly lies on the page of the one before: half the time, be it one key of ten that is asked for.
    order = pc.array_sort_indices(keys)
    return _in_order(transaction, table, keys.take(order)).take(_way_back(order))


def get_some(transaction: Any, table: Table, keys: pa.Array, most_bytes: int) -> pa.Array:
    """Return the value of each of the first keys, null where there is none: of so many that they come to some bytes.

    Args:
        transaction: of the environment.
        table: which.
        keys: fastest in the order of bytes.
        most_bytes: from which on there are enough, once there is one.
    """
    parts, size, start, count = [], 0, 0, _FEW
    with transaction.cursor(db=table.handle) as cursor:
        while start < len(keys) and size < most_bytes:
            parts.append(_values(transaction, table, cursor, keys[start : start + count]))
            size += parts[-1].nbytes
            start += count
            # No more than come to that by what they were so far.
            count = max(1, min(_AT_A_TIME, 4 * count, (most_bytes - size) * start // size))
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def has(transaction: Any, table: Table, keys: pa.Array) -> pa.Array:
    """Return whether each key has a value."""
    with transaction.cursor(db=table.handle) as cursor:
        return pa.array([cursor.set_key(spell(key)) for key in keys.to_pylist()], pa.bool_())


def _in_order(transaction: Any, table: Table, keys: pa.Array) -> pa.Array:
    with transaction.cursor(db=table.handle) as cursor:
        parts = [
            _values(transaction, table, cursor, keys[start : start + _AT_A_TIME])
            for start in range(0, len(keys), _AT_A_TIME)
        ]
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def _values(transaction: Any, table: Table, cursor: Any, keys: pa.Array) -> pa.Array:
    if not may_be_spelt(keys):
        return table.unseal_all(keys, pa.array(stored(cursor, keys.to_pylist()), pa.binary()))
    names = [spell(key) for key in keys.to_pylist()]
    found = [transaction.get(name, db=table.handle) for name in names]
    values = table.unseal_all(pa.array(names, pa.binary()), pa.array(found, pa.binary())).to_pylist()
    pairs = zip(names, values, strict=True)
    contents = [read_spelt(value)[1] if value and len(name) == SPELT_BYTES else value for name, value in pairs]
    return pa.array(contents, pa.binary())


def opened(table: Table, keys: Sequence[bytes], stored: Sequence[bytes]) -> tuple[pa.Array, pa.Array]:
    """Return keys and values of rows as they are stored.

    Raises:
        StoreCorruptedException: one is not what was written.
    """
    names = pa.array(keys, pa.binary())
    values = table.unseal_all(names, pa.array(stored, pa.binary()))
    if max(map(len, keys), default=0) < SPELT_BYTES:
        return names, values
    pairs = [
        read_spelt(value) if len(name) == SPELT_BYTES else (name, value)
        for name, value in zip(keys, values.to_pylist(), strict=True)
    ]
    return pa.array([key for key, _ in pairs], pa.binary()), pa.array([value for _, value in pairs], pa.binary())


def put(  # noqa: PLR0917 - a write has these
    transaction: Any,
    table: Table,
    keys: pa.Array,
    values: pa.Array,
    old: pa.Array | None = None,
    passed: bytes = b"",
) -> Change:
    """Write each value under its key; null deletes. Return what that does to the table.

    Args:
        transaction: of the environment.
        table: which.
        keys: distinct ones, fastest in the order of bytes.
        values: what is to be there.
        old: what is there, null where nothing is; None to have it read.
        passed: the last key that a scrub has passed.
    """
    count = total = below = 0
    step = max(1, min(_AT_A_TIME, len(keys) * _BYTES_AT_A_TIME // (values.nbytes + 1)))
    with transaction.cursor(db=table.handle) as cursor:
        for start in range(0, len(keys), step):
            names, contents, there = _as_stored(
                keys[start : start + step],
                values[start : start + step],
                old if old is None else old[start : start + step],
            )
            sealed, sums = table.seal_all(names, contents)
            change = sums.astype(np.int64)
            if there is None:
                went, replaced = _replace(transaction, table, cursor, names, sealed)
                change -= replaced
            else:
                went = len(there) - there.null_count
                change -= table.checksums(names, there)
                write(transaction, table, cursor, names.to_pylist(), sealed.to_pylist())
            count += len(sealed) - sealed.null_count - went
            total += int(change.sum())
            if passed:
                below += int(change[pc.less_equal(names, pa.scalar(passed, pa.binary())).to_numpy(False)].sum())
    return Change(count, total, below)


def _as_stored(keys: pa.Array, *columns: pa.Array | None) -> Iterable[Any]:
    """Return keys and their values as LMDB has them, but for checksums."""
    if not may_be_spelt(keys):
        return keys, *columns
    names = keys.to_pylist()

    def stored(values: pa.Array | None) -> pa.Array | None:
        if values is None:
            return None
        pairs = zip(names, values.to_pylist(), strict=True)
        return pa.array(
            [v if v is None or 0 < len(k) < SPELT_BYTES else spelt_value(k, v) for k, v in pairs], pa.binary()
        )

    return pa.array(map(spell, names), pa.binary()), *map(stored, columns)


def _replace(
    transaction: Any, table: Table, cursor: Any, names: pa.Array, sealed: pa.Array
) -> tuple[int, NDArray[np.int64]]:
    """Write stored values under stored keys, null to delete; return how many were there, and their checksums, or 0."""
    found = np.zeros(len(names), np.int64)
    if _nothing_between(cursor, names):
        write(transaction, table, cursor, names.to_pylist(), sealed.to_pylist())
        return 0, found
    if sealed.null_count:
        before = pa.array(stored(cursor, names.to_pylist()), pa.binary())
        write(transaction, table, cursor, names.to_pylist(), sealed.to_pylist())
    else:
        # Little more than to put them, and half of what it takes to read them first.
        before = pa.array(list(map(cursor.replace, names.to_pylist(), sealed.to_pylist())), pa.binary())
    if before.null_count < len(before):
        found[before.is_valid().to_numpy(zero_copy_only=False)] = table.checksums_behind(before.drop_null())
    return len(before) - before.null_count, found


def _nothing_between(cursor: Any, names: pa.Array) -> bool:
    """Return whether the keys come in order and the table has none from the first to the last of them."""
    return ascending(names) and not (cursor.set_range(names[0].as_py()) and cursor.key() <= names[-1].as_py())


def may_be_spelt(keys: pa.Array) -> bool:
    """Return whether LMDB may have another name for a key (``long_keys``)."""
    lengths = pc.min_max(pc.binary_length(keys))
    return len(keys) > 0 and (lengths["min"].as_py() == 0 or lengths["max"].as_py() >= SPELT_BYTES)


def stored(cursor: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return what LMDB has under keys, with its checksum; None where it has none."""
    pairs = cursor.getmulti(keys)
    if len(pairs) == len(keys):
        return [value for _, value in pairs]
    known = dict(pairs)
    return [known.get(key) for key in keys]


def write(transaction: Any, table: Table, cursor: Any, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
    """Put values with their checksums under LMDB's keys; None deletes."""
    items: Iterable[tuple[bytes, bytes | None]]
    if None in values:
        gone = [key for key, value in zip(keys, values, strict=True) if value is None]
        for key in gone:
            transaction.delete(key, db=table.handle)
        items = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    else:
        # Not made into a list: zip uses its pair again and again, and the garbage collector has nothing to look at.
        items = zip(keys, values, strict=True)
    cursor.putmulti(items)
