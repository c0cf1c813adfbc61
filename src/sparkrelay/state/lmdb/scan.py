"""Reading a table in order, batch by batch, without keeping a transaction open in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.state.lmdb import rows
from sparkrelay.state.lmdb.long_keys import PREFIX_BYTES, SPELT_BYTES, read_spelt, spell
from sparkrelay.state.window_keys import END_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkrelay.state.lmdb.environment import Environment
    from sparkrelay.state.lmdb.table import Table

_BATCH_ROWS: Final = 50_000
_BATCH_BYTES: Final = 32 << 20

_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def scan(
    environment: Environment,
    table: Table,
    start: bytes | None,
    stop: bytes | None,
    *,
    check: Callable[[Any], object] = lambda _: None,
    kind: bytes = b"",
) -> Iterator[pa.RecordBatch]:
    """Yield ``key, value`` of the keys in ``[start, stop)``; see :meth:`TaskStore.scan`.

    Args:
        environment: of the table.
        table: to read.
        start: None for the first key.
        stop: None for no bound.
        check: called with each transaction; its error ends the scan.
        kind: a byte; of keys that begin with an end (``watermarks``), only those whose next byte is this or higher.
    """
    start = start or b""
    empty = spell(b"")
    if not start and stop != b"":
        # The empty key is the first one, but its spelling is not.
        stored = environment.read(lambda t: t.get(empty, db=table.handle))
        if stored is not None:
            yield pa.record_batch([[b""], [read_spelt(table.unseal(empty, stored))[1]]], schema=_SCHEMA)
    # Bounds of stored keys, which only keep a prefix of a long key: keys with the prefix of a long bound are all read,
    # and filtered below.
    at, inclusive = start[:PREFIX_BYTES], True
    beyond = stop
    if stop is not None and len(stop) > PREFIX_BYTES:
        beyond = stop[:PREFIX_BYTES].ljust(SPELT_BYTES + 1, b"\xff")
    while True:

        def page(
            transaction: Any, at: bytes = at, inclusive: bool = inclusive
        ) -> tuple[list[bytes], list[bytes], bool]:
            check(transaction)
            with transaction.cursor(db=table.handle) as cursor:
                items = _items(cursor, at, inclusive, beyond, kind)
                names, values = rows.take(items, _BATCH_ROWS, _BATCH_BYTES)
                return names, values, next(items, None) is not None

        names, sealed, unfinished = environment.read(page)
        keys, values = [], []
        for key, value in zip(*(column.to_pylist() for column in rows.opened(table, names, sealed)), strict=True):
            if key and key >= start and (stop is None or key < stop):
                keys.append(key)
                values.append(value)
        if keys:
            yield pa.record_batch([keys, values], schema=_SCHEMA)
        if not unfinished:
            return
        at, inclusive = names[-1], False


def _items(cursor: Any, at: bytes, inclusive: bool, beyond: bytes | None, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield stored keys and values from ``at`` on, below ``beyond``."""
    found = cursor.set_range(at) if at else cursor.first()
    if found and not inclusive and cursor.key() == at:
        found = cursor.next()
    while found:
        key, value = cursor.item()
        if beyond is not None and key >= beyond:
            return
        if kind and key[END_BYTES : END_BYTES + 1] < kind:
            found = cursor.set_range(key[:END_BYTES] + kind)
            continue
        yield key, value
        found = cursor.next()
