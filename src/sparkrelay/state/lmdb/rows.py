"""Reading and writing many keys of one table, in LMDB's order where that pays, some thousands at a time.

Keys and values are Python objects only while LMDB takes or returns them: creating those of a whole batch, using them
and freeing them would each miss the processor's caches.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StateStoreException
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.state.lmdb.long_keys import SPELT_BYTES, read_spelt, spell, spelt_value
from sparkrelay.state.lmdb.running_sum import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.lmdb.table import Table

_AT_A_TIME: Final = 8192
#: Of values, which are in memory three times while they are written.
_BYTES_AT_A_TIME: Final = 16 << 20
#: The first step of reads whose values may be large.
_FEW: Final = 64
#: From this number of keys on, sorting them first saves time.
_WORTH_SORTING: Final = 1024


def as_binary(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return bytes-like values as one flat binary array."""
    if isinstance(array, pa.ChunkedArray):
        array = whole(array)
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def ascending(keys: pa.Array) -> bool:
    """Return whether keys are distinct, not null, and in LMDB's order, which is that of bytes."""
    return not keys.null_count and (len(keys) < 2 or bool(pc.all(pc.greater(keys[1:], keys[:-1])).as_py()))


def latest(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the distinct keys in LMDB's order, and the last value of each."""
    if ascending(keys):
        return keys, values
    # A stable sort keeps equal keys in the order in which they were written.
    order = pc.array_sort_indices(keys)
    ordered = keys.take(order)
    last = pa.concat_arrays([pc.not_equal(ordered[1:], ordered[:-1]), pa.array([True])])
    if not pc.all(last).as_py():
        order, ordered = order.filter(last), ordered.filter(last)
    return ordered, values.take(order)


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """Distinct keys in LMDB's order, and the permutations there and back; both None if they came in that order."""

    keys: pa.Array
    order: pa.Array | None = None
    back: pa.Array | None = None

    @classmethod
    def of(cls, keys: pa.Array) -> SortedKeys:
        """Sort ``keys``.

        Raises:
            StateStoreException: a key is null or repeated.
        """
        if keys.null_count:
            raise StateStoreException(f"{keys.null_count} keys of a batch are null; keys of a store cannot be")
        if ascending(keys):
            return cls(keys)
        order = pc.array_sort_indices(keys)
        ordered = keys.take(order)
        twice = pc.equal(ordered[1:], ordered[:-1])
        if pc.any(twice).as_py():
            key = ordered[pc.index(twice, value=True).as_py()].as_py()
            raise StateStoreException(f"duplicate key {key!r} in one batch: aggregate the batch before merging it")
        return cls(ordered, order, way_back(order))

    def as_stored(self, values: pa.Array) -> pa.Array:
        """Return values in the order of the sorted keys."""
        return values if self.order is None else values.take(self.order)

    def as_given(self, values: pa.Array) -> pa.Array:
        """Return the values of the sorted keys in the order of the given ones."""
        return values if self.back is None else values.take(self.back)


def way_back(order: pa.Array) -> pa.Array:
    """Return the inverse of a permutation."""
    back = np.empty(len(order), dtype=np.int64)
    back[order.to_numpy(zero_copy_only=False)] = np.arange(len(order))
    return pa.array(back)


def get(transaction: Any, table: Table, keys: pa.Array) -> pa.Array:
    """Return the value of each key, null where there is none."""
    if len(keys) < _WORTH_SORTING or ascending(keys):
        return _in_order(transaction, table, keys)
    # The next key is mostly on the same page: that halves the time, even if only every tenth key is read.
    order = pc.array_sort_indices(keys)
    return _in_order(transaction, table, keys.take(order)).take(way_back(order))


def get_some(transaction: Any, table: Table, keys: pa.Array, most_bytes: int) -> pa.Array:
    """Return the values of the first keys, null where there is none, until they reach ``most_bytes``.

    Keys in the order of bytes are fastest.
    """
    parts, size, start, count = [], 0, 0, _FEW
    with transaction.cursor(db=table.handle) as cursor:
        while start < len(keys) and size < most_bytes:
            parts.append(_values(transaction, table, cursor, keys[start : start + count]))
            size += parts[-1].nbytes
            start += count
            # As many as should reach the bound, by the average so far.
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
    """Return the keys and values of stored rows."""
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
    """Write each value under its key; null deletes.

    Args:
        transaction: of the environment.
        table: to write to.
        keys: distinct, fastest in the order of bytes.
        values: the new values.
        old: the present values, null where there is none; None to read them.
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
    """Return keys and their values as LMDB stores them, without checksums."""
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
    """Write or (null) delete stored values; return the number of old values, and their checksums, 0 where none."""
    found = np.zeros(len(names), np.int64)
    if _nothing_between(cursor, names):
        write(transaction, table, cursor, names.to_pylist(), sealed.to_pylist())
        return 0, found
    if sealed.null_count:
        before = pa.array(stored(cursor, names.to_pylist()), pa.binary())
        write(transaction, table, cursor, names.to_pylist(), sealed.to_pylist())
    else:
        # Costs little more than a put, and half of reading them first.
        before = pa.array(list(map(cursor.replace, names.to_pylist(), sealed.to_pylist())), pa.binary())
    if before.null_count < len(before):
        found[before.is_valid().to_numpy(zero_copy_only=False)] = table.checksums_behind(before.drop_null())
    return len(before) - before.null_count, found


def _nothing_between(cursor: Any, names: pa.Array) -> bool:
    """Return whether the keys are in order and the table has none between the first and the last of them."""
    return ascending(names) and not (cursor.set_range(names[0].as_py()) and cursor.key() <= names[-1].as_py())


def may_be_spelt(keys: pa.Array) -> bool:
    """Return whether a key may be stored under another name (``long_keys``)."""
    lengths = pc.min_max(pc.binary_length(keys))
    return len(keys) > 0 and (lengths["min"].as_py() == 0 or lengths["max"].as_py() >= SPELT_BYTES)


def take(items: Iterator[tuple[bytes, bytes]], most_rows: int, most_bytes: int) -> tuple[list[bytes], list[bytes]]:
    """Return the next keys and values, until they reach a number of rows or of bytes."""
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for key, value in itertools.islice(items, most_rows):
        keys.append(key)
        values.append(value)
        size += len(key) + len(value)
        if size >= most_bytes:
            break
    return keys, values


def stored(cursor: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return the stored values, with their checksums; None where there is none."""
    pairs = cursor.getmulti(keys)
    if len(pairs) == len(keys):
        return [value for _, value in pairs]
    known = dict(pairs)
    return [known.get(key) for key in keys]


def write(transaction: Any, table: Table, cursor: Any, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
    """Put stored values under stored keys; None deletes."""
    # Not a list: zip reuses its pair, and the garbage collector has nothing to examine.
    items: Iterable[tuple[bytes, bytes | None]] = zip(keys, values, strict=True)
    if None in values:
        pairs = list(items)
        for key, value in pairs:
            if value is None:
                transaction.delete(key, db=table.handle)
        items = [pair for pair in pairs if pair[1] is not None]
    cursor.putmulti(items)
