"""Reading one table in order: what lies in ranges of keys, and where ranges begin and end.

Rows are compared with their checksums once a walk is over, all at once; where a walk goes on by a key, that row at
once. A range that is empty because its rows are missing is found by the table's running sum (``running_sum``).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.row_checksums import CHECKSUM_BYTES
from sparkrelay.state.lmdb.long_keys import PREFIX_BYTES
from sparkrelay.state.lmdb.rows import ascending, opened
from sparkrelay.state.lmdb.running_sum import Change, RunningSum
from sparkrelay.state.watermarks import LATEST, end_of, over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from sparkrelay.state.lmdb.table import Table

__all__ = [
    "any_in",
    "between",
    "drop_below",
    "ends",
    "first_key",
    "firsts",
    "found_in",
    "keys_beginning",
    "last_key",
    "ranges",
    "scrub",
]

#: Rows that are compared with their checksums at once, and of how many bytes.
_AT_A_TIME: Final = 8192
_BYTES_AT_A_TIME: Final = 8 << 20


def between(transaction: Any, table: Table, first: bytes, stop: bytes, most: int | None = None) -> pa.RecordBatch:
    """Return ``key, value`` of the keys in ``[first, stop)``; both are no longer than what long keys keep in front.

    Of more than ``most`` the first ones.

    Neither the empty key nor, among long keys, any order is looked at: use it where keys begin with what bounds them.
    """
    keys: list[bytes] = []
    stored: list[bytes] = []
    with transaction.cursor(db=table.handle) as cursor:
        found = cursor.set_range(first)
        while found and (key := cursor.key()) < stop and len(keys) != most:
            keys.append(key)
            stored.append(cursor.value())
            found = cursor.next()
    return pa.record_batch([*opened(table, keys, stored)], ["key", "value"])


def firsts(
    transaction: Any, table: Table, starts: Iterable[bytes], stops: Iterable[bytes]
) -> tuple[pa.Array, pa.Array]:
    """Return the first key of each range ``[start, stop)`` and its value, null where nothing lies in it.

    Neither empty nor long keys are looked at.
    """
    keys: list[bytes | None] = []
    stored: list[bytes | None] = []
    with transaction.cursor(db=table.handle) as cursor:
        for start, stop in zip(starts, stops, strict=True):
            there = cursor.set_range(start) and cursor.key() < stop
            keys.append(cursor.key() if there else None)
            stored.append(cursor.value() if there else None)
    names = pa.array(keys, pa.binary())
    return names, table.unseal_all(names, pa.array(stored, pa.binary()))


def any_in(transaction: Any, table: Table, starts: Iterable[bytes], stops: Iterable[bytes]) -> NDArray[np.bool_]:
    """Return whether anything lies in each range ``[start, stop)``; fastest where they come in the order of bytes.

    Neither empty nor long keys are looked at.
    """
    found: list[bool] = []
    with transaction.cursor(db=table.handle) as cursor:
        at = last = b""
        there = False
        for start, stop in zip(starts, stops, strict=True):
            # What was found for an earlier range is the first key from this one's start on, too, unless it is below.
            if not there or at < start or start < last:
                there = cursor.set_range(start)
                at = _key(table, cursor) if there else b""
            last = start
            found.append(there and at < stop)
    return np.array(found, dtype=np.bool_)


def ranges(
    transaction: Any, table: Table, starts: Iterable[bytes], stops: Iterable[bytes]
) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """Return what lies in each range ``[start, stop)``: the number of each key's range, the keys, the values.

    Else as :func:`found_in`.
    """
    numbers, keys, _, values = found_in(transaction, table, starts, stops)
    assert values is not None, "all are wanted"
    return numbers, keys, values


def found_in(
    transaction: Any, table: Table, starts: Iterable[bytes], stops: Iterable[bytes], most_bytes: int | None = None
) -> tuple[NDArray[np.int64], pa.Array, NDArray[np.int64], pa.Array | None]:
    """Return what lies in each range ``[start, stop)``.

    The number of each key's range, the keys, how long their values are, and these; None if they come to more than
    ``most_bytes``.

    Fastest where ranges come in the order of bytes, for then a key that was found beyond one of them says that those
    in front of it are empty. They may overlap. The empty key is not looked at, and no bound may be a long one; long
    keys have no order.
    """
    counts: list[int] = []
    walked = _Walked(table, most_bytes)
    with transaction.cursor(db=table.handle) as cursor:
        at = last = b""
        there = False
        for start, stop in zip(starts, stops, strict=True):
            before = walked.rows
            if not there or at < start < stop or start < last:
                there = cursor.set_range(start)
                at = cursor.key()
            last = max(start, stop)
            while there and start <= at < stop:
                walked.add(at, cursor.value())
                there = cursor.next()
                at = cursor.key()
            counts.append(walked.rows - before)
    numbers = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return numbers, *walked.finish()


class _Walked:
    """The rows of a walk; their values only as long as they come to no more than some bytes."""

    def __init__(self, table: Table, most_bytes: int | None) -> None:
        self.rows = 0
        self._table = table
        self._left = most_bytes
        self._keys: list[bytes] = []
        self._stored: list[bytes] = []
        self._bytes = 0
        self._parts: list[tuple[pa.Array, NDArray[np.int64]]] = []
        self._values: list[pa.Array] | None = []

    def add(self, key: bytes, stored: bytes) -> None:
        self.rows += 1
        self._keys.append(key)
        self._stored.append(stored)
        self._bytes += len(stored)
        if len(self._keys) == _AT_A_TIME or self._bytes >= _BYTES_AT_A_TIME:
            self._open()

    def finish(self) -> tuple[pa.Array, NDArray[np.int64], pa.Array | None]:
        self._open()
        keys = pa.concat_arrays([keys for keys, _ in self._parts])
        lengths = np.concatenate([lengths for _, lengths in self._parts])
        return keys, lengths, None if self._values is None else pa.concat_arrays(self._values)

    def _open(self) -> None:
        keys, values = opened(self._table, self._keys, self._stored)
        self._keys, self._stored, self._bytes = [], [], 0
        lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
        self._parts.append((keys, lengths))
        if self._left is not None and self._values is not None:
            self._left -= int(lengths.sum())
            if self._left < 0:
                self._values = None
        if self._values is not None:
            self._values.append(values)


def keys_beginning(transaction: Any, table: Table, beginnings: Iterable[bytes]) -> pa.Array:
    """Return the keys that begin with one of those bytes, long keys too; no beginning may be empty."""
    wanted = []
    with transaction.cursor(db=table.handle) as cursor:
        for beginning in beginnings:
            # As much of it as long keys keep in front.
            front = beginning[:PREFIX_BYTES]
            walked = _Walked(table, 0)
            found = cursor.set_range(front)
            while found and (key := cursor.key()).startswith(front):
                walked.add(key, cursor.value())
                found = cursor.next()
            keys, _, _ = walked.finish()
            wanted.append(keys.filter(pc.starts_with(keys, beginning)))
    return pa.concat_arrays(wanted) if wanted else pa.array([], pa.binary())


def drop_below(transaction: Any, table: Table, stop: bytes, most: int, passed: bytes) -> Change:
    """Remove keys below ``stop``, as :func:`between` sees them, from the first one on and no more than ``most``.

    Returns:
        What that does to the table; ``passed`` is the last key that a scrub has passed.
    """
    count = total = below = 0
    with transaction.cursor(db=table.handle) as cursor:
        found = cursor.first()
        while found and most and (key := _key(table, cursor)) < stop:
            sum_ = int.from_bytes(cursor.value()[-CHECKSUM_BYTES:], "little")
            count -= 1
            total -= sum_
            below -= sum_ if key <= passed else 0
            # Past the last one, where a delete leads to, there is no key.
            found = cursor.delete() and cursor.key() != b""
            most -= 1
    return Change(count, total, below)


def ends(transaction: Any, table: Table, after_ms: int) -> Iterator[int]:
    """Yield the ends later than ``after_ms`` that keys begin with (``watermarks``), each once; one seek for each."""
    with transaction.cursor(db=table.handle) as cursor:
        while after_ms < LATEST and cursor.set_range(over(after_ms)):
            after_ms = end_of(_key(table, cursor))
            yield after_ms


def first_key(transaction: Any, table: Table, first: bytes) -> bytes | None:
    """Return the first key from ``first`` on as it is stored, which of a long one is its front; None: there is none."""
    with transaction.cursor(db=table.handle) as cursor:
        return _key(table, cursor) if cursor.set_range(first) else None


def last_key(transaction: Any, table: Table, stop: bytes) -> bytes | None:
    """Return the last key below ``stop`` as it is stored, which of a long one is its front; None if there is none."""
    with transaction.cursor(db=table.handle) as cursor:
        found = cursor.prev() if cursor.set_range(stop) else cursor.last()
        return _key(table, cursor) if found else None


def scrub(transaction: Any, table: Table, sums: RunningSum, most: int) -> RunningSum:
    """Go on with a table's scrub for some rows; at the end of the table compare, and begin again.

    Args:
        transaction: of the environment.
        table: which.
        sums: the table's, as of this transaction.
        most: how many rows.

    Raises:
        StoreCorruptedException: a row is not what was written, is missing, or is back from before.
    """
    keys: list[bytes] = []
    stored: list[bytes] = []
    size = 0
    with transaction.cursor(db=table.handle) as cursor:
        found = cursor.set_range(sums.scrubbed_to) if sums.scrubbed_to else cursor.first()
        if found and cursor.key() == sums.scrubbed_to:
            found = cursor.next()
        rest = iter(cursor) if found else iter(())
        for key, value in itertools.islice(rest, most):
            keys.append(key)
            stored.append(value)
            size += len(value)
            if size >= _BYTES_AT_A_TIME:
                break
        found = next(rest, None) is not None
    # A walk goes from page to page. Whoever looks for a key goes by what pages above say, which is found at the first
    # key of a page, coming from its neighbour, and at the last one.
    for order in (keys, keys[::-1]):
        with transaction.cursor(db=table.handle) as cursor:
            if len(cursor.getmulti(order)) != len(keys):
                raise table.was_misread(f"keys of table {table.name!r} are not found where they are")
    if keys:
        names, sealed = pa.array(keys, pa.binary()), pa.array(stored, pa.binary())
        table.unseal_all(names, sealed)
        if keys[0] <= sums.scrubbed_to or not ascending(names):
            raise table.was_misread(f"keys of table {table.name!r} are out of order")
        sums = sums.passed(keys[-1], int(table.checksums_behind(sealed).sum(dtype=np.uint64)))
    if found:
        return sums
    if sums.scrubbed != sums.total:
        raise table.was_misread(
            f"rows of table {table.name!r} are missing, or are there as they were before they changed"
        )
    return sums.from_the_first()


def _key(table: Table, cursor: Any) -> bytes:
    """Return the key of the row that a cursor is at, once the row has been compared with its checksum."""
    key, stored = cursor.item()
    table.unseal(key, stored)
    return bytes(key)
