"""Reading a table in order, batch by batch, without holding a transaction open in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.state.lmdb import rows
from sparkrelay.state.lmdb.long_keys import PREFIX_BYTES, SPELT_BYTES, read_spelt, spell
from sparkrelay.state.watermarks import END_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkrelay.state.lmdb.environment import Environment
    from sparkrelay.state.lmdb.table import Table

__all__ = ["scan"]

_BATCH_ROWS: Final = 50_000
#: Of keys and values, from which on a batch is full.
_BATCH_BYTES: Final = 32 << 20

_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def scan(
    environment: Environment,
    table: Table,
    start: bytes | None,
    stop: bytes | None,
    limit: int | None = None,
    *,
    check: Callable[[Any], object] | None = None,
    kind: bytes = b"",
) -> Iterator[pa.RecordBatch]:
    """Yield the keys in ``[start, stop)`` with their values; see :meth:`TaskStore.scan`.

    Args:
        environment: where the table is.
        table: which.
        start: None for the first key.
        stop: None for all the others.
        limit: on the number of keys.
        check: called with each transaction that is read in; what it raises ends the scan.
        kind: a byte; of keys that begin with an end (``watermarks``), only those that go on with it or a higher one.
    """
    left = limit if limit is not None else -1
    empty = spell(b"")
    if not start and stop != b"" and left != 0:
        # The empty key comes first among keys, but is spelt as something that does not.
        stored = environment.read(lambda t: t.get(empty, db=table.handle))
        if stored is not None:
            yield pa.record_batch([[b""], [read_spelt(table.unseal(empty, stored))[1]]], schema=_SCHEMA)
            left -= 1
    # Bounds in terms of stored keys, of which a long one keeps its first bytes only: of keys that begin as a long bound
    # does all are read, and sifted below.
    at, inclusive = (start or b"")[:PREFIX_BYTES], True
    beyond = stop
    if stop is not None and len(stop) > PREFIX_BYTES:
        beyond = stop[:PREFIX_BYTES].ljust(SPELT_BYTES + 1, b"\xff")
    while left != 0:

        def page(
            transaction: Any, at: bytes = at, inclusive: bool = inclusive
        ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
            if check is not None:
                check(transaction)
            return _page(transaction, table, at, inclusive, beyond, kind)

        pairs, following = environment.read(page)
        keys, values = [], []
        found = rows.opened(table, [key for key, _ in pairs], [stored for _, stored in pairs])
        for key, value in zip(*(column.to_pylist() for column in found), strict=True):
            if key and key >= (start or b"") and (stop is None or key < stop):
                keys.append(key)
                values.append(value)
        if left > 0:
            keys, values = keys[:left], values[:left]
            left -= len(keys)
        if keys:
            yield pa.record_batch([keys, values], schema=_SCHEMA)
        if following is None:
            return
        at, inclusive = following, False


def _page(  # noqa: PLR0917 - as of scan
    transaction: Any, table: Table, at: bytes, inclusive: bool, beyond: bytes | None, kind: bytes
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Return the next rows, and the key after which to go on, or None at the end."""
    pairs: list[tuple[bytes, bytes]] = []
    size = 0
    with transaction.cursor(db=table.handle) as cursor:
        found = cursor.set_range(at) if at else cursor.first()
        if found and not inclusive and cursor.key() == at:
            found = cursor.next()
        while found:
            key = cursor.key()
            if beyond is not None and key >= beyond:
                break
            if kind and key[END_BYTES : END_BYTES + 1] < kind:
                found = cursor.set_range(key[:END_BYTES] + kind)
                continue
            value = cursor.value()
            pairs.append((key, value))
            size += len(key) + len(value)
            if len(pairs) == _BATCH_ROWS or size >= _BATCH_BYTES:
                return pairs, key
            found = cursor.next()
    return pairs, None
