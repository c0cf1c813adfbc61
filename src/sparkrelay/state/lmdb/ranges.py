"""Reading one table in the order of its keys: rows in ranges, and where ranges begin and end.

Checksums are verified once a walk has ended, all at once; where a walk seeks by a key, that row's at once. A range that
is empty because its rows are missing is detected by the table's running sum (``running_sum``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.row_checksums import CHECKSUM_BYTES
from sparkrelay.state.lmdb.long_keys import PREFIX_BYTES
from sparkrelay.state.lmdb.rows import ascending, opened, take
from sparkrelay.state.lmdb.running_sum import Change, RunningSum
from sparkrelay.state.window_keys import LATEST, end_of, over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from sparkrelay.state.lmdb.table import Table

#: Bounds on the rows whose checksums are verified at once.
_MAX_ROWS: Final = 8192
_MAX_BYTES: Final = 8 << 20


class TableView:
    """One table within one transaction.

    Ranges are ``[start, stop)``. Unless a method says otherwise it ignores the empty key, and long keys (``long_keys``)
    with the same prefix come in no order. Passing ranges in the order of bytes is fastest.
    """

    def __init__(self, transaction: Any, table: Table) -> None:
        self._transaction = transaction
        self._table = table

    def _cursor(self) -> Any:
        return self._transaction.cursor(db=self._table.handle)

    def between(self, start: bytes, stop: bytes, most: int | None = None) -> pa.RecordBatch:
        """Return ``key, value`` of a range, of the first ``most`` keys; bounds are at most a long key's prefix."""
        keys: list[bytes] = []
        stored: list[bytes] = []
        with self._cursor() as cursor:
            found = cursor.set_range(start)
            while found and (key := cursor.key()) < stop and len(keys) != most:
                keys.append(key)
                stored.append(cursor.value())
                found = cursor.next()
        return pa.record_batch([*opened(self._table, keys, stored)], ["key", "value"])

    def firsts(self, starts: Iterable[bytes], stops: Iterable[bytes]) -> tuple[pa.Array, pa.Array]:
        """Return the first key of each range and its value, null where a range is empty; there may be no long keys."""
        keys: list[bytes | None] = []
        stored: list[bytes | None] = []
        with self._cursor() as cursor:
            for start, stop in zip(starts, stops, strict=True):
                there = cursor.set_range(start) and cursor.key() < stop
                keys.append(cursor.key() if there else None)
                stored.append(cursor.value() if there else None)
        names = pa.array(keys, pa.binary())
        return names, self._table.unseal_all(names, pa.array(stored, pa.binary()))

    def any_in(self, starts: Iterable[bytes], stops: Iterable[bytes]) -> NDArray[np.bool_]:
        """Return whether each range has a key; there may be no long keys."""
        found: list[bool] = []
        with self._cursor() as cursor:
            at = last = b""
            there = False
            for start, stop in zip(starts, stops, strict=True):
                # An earlier range's first key is also the first one from this start on, unless it is below it.
                if not there or at < start or start < last:
                    there = cursor.set_range(start)
                    at = _key(self._table, cursor) if there else b""
                last = start
                found.append(there and at < stop)
        return np.array(found, dtype=np.bool_)

    def ranges(self, starts: Iterable[bytes], stops: Iterable[bytes]) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
        """Return the rows of ranges: the number of each row's range, the keys, the values; as :meth:`found_in`."""
        numbers, keys, _, values = self.found_in(starts, stops)
        assert values is not None, "without a bound on their bytes"
        return numbers, keys, values

    def found_in(
        self, starts: Iterable[bytes], stops: Iterable[bytes], most_bytes: int | None = None
    ) -> tuple[NDArray[np.int64], pa.Array, NDArray[np.int64], pa.Array | None]:
        """Return the rows of ranges, which may overlap and whose bounds are not long keys.

        Returns:
            The number of each row's range, the keys, the lengths of the values, and the values: None if they exceed
            ``most_bytes``.
        """
        counts: list[int] = []
        walked = _Walked(self._table, most_bytes)
        with self._cursor() as cursor:
            at = last = b""
            there = False
            for start, stop in zip(starts, stops, strict=True):
                before = walked.rows
                # A key beyond an earlier range shows that the ranges before that key are empty.
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

    def keys_beginning(self, beginnings: Iterable[bytes]) -> pa.Array:
        """Return the keys, including long ones, that begin with one of these nonempty bytes."""
        wanted = [pa.array([], pa.binary())]
        with self._cursor() as cursor:
            for beginning in beginnings:
                prefix = beginning[:PREFIX_BYTES]
                walked = _Walked(self._table, 0)
                found = cursor.set_range(prefix)
                while found and (key := cursor.key()).startswith(prefix):
                    walked.add(key, cursor.value())
                    found = cursor.next()
                keys, _, _ = walked.finish()
                wanted.append(keys.filter(pc.starts_with(keys, beginning)))
        return pa.concat_arrays(wanted)

    def ends_after(self, after_ms: int) -> Iterator[int]:
        """Yield the distinct ends later than ``after_ms`` that keys begin with (``watermarks``), one seek each."""
        with self._cursor() as cursor:
            while after_ms < LATEST and cursor.set_range(over(after_ms)):
                after_ms = end_of(_key(self._table, cursor))
                yield after_ms

    def first_key(self, start: bytes) -> bytes | None:
        """Return the first stored key from ``start`` on, of a long key its prefix; None if there is none."""
        with self._cursor() as cursor:
            return _key(self._table, cursor) if cursor.set_range(start) else None

    def last_key(self, stop: bytes) -> bytes | None:
        """Return the last stored key below ``stop``, of a long key its prefix; None if there is none."""
        with self._cursor() as cursor:
            found = cursor.prev() if cursor.set_range(stop) else cursor.last()
            return _key(self._table, cursor) if found else None


class _Walked:
    """The rows of a walk, with their values as long as these do not exceed a number of bytes."""

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
        if len(self._keys) == _MAX_ROWS or self._bytes >= _MAX_BYTES:
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


def drop_below(transaction: Any, table: Table, stop: bytes, most: int, passed: bytes) -> Change:
    """Remove the first keys below ``stop``, at most ``most``; ``passed`` is the last key that a scrub has passed."""
    count = total = below = 0
    with transaction.cursor(db=table.handle) as cursor:
        found = cursor.first()
        while found and most and (key := _key(table, cursor)) < stop:
            sum_ = int.from_bytes(cursor.value()[-CHECKSUM_BYTES:], "little")
            count -= 1
            total -= sum_
            below -= sum_ if key <= passed else 0
            # Deleting the last key leads past it, where there is no key.
            found = cursor.delete() and cursor.key() != b""
            most -= 1
    return Change(count, total, below)


def scrub(transaction: Any, table: Table, sums: RunningSum, most: int) -> RunningSum:
    """Continue a table's scrub by at most ``most`` rows; at the end of the table, compare the sums and start over."""
    with transaction.cursor(db=table.handle) as cursor:
        found = cursor.set_range(sums.scrubbed_to) if sums.scrubbed_to else cursor.first()
        if found and cursor.key() == sums.scrubbed_to:
            found = cursor.next()
        rest = iter(cursor) if found else iter(())
        keys, stored = take(rest, most, _MAX_BYTES)
        unfinished = next(rest, None) is not None
    # A walk moves from page to page, a search follows the pages above. Searching from both neighbours, at the first key
    # of a page and at its last, shows whether both agree.
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
    if unfinished:
        return sums
    if sums.scrubbed != sums.total:
        raise table.was_misread(f"rows of table {table.name!r} are missing, or have reverted to an earlier state")
    return sums.from_the_first()


def _key(table: Table, cursor: Any) -> bytes:
    """Return the key at a cursor, after verifying the row's checksum."""
    key, stored = cursor.item()
    table.unseal(key, stored)
    return bytes(key)
