"""Reading a table in order, batch by batch, without holding a transaction open in between."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.state.long_keys import PREFIX_BYTES, SPELT_BYTES, read_spelt, spell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.state.environment import Environment

__all__ = ["scan"]

_BATCH_ROWS: Final = 50_000

_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def scan(
    environment: Environment, table: Any, start: bytes | None, stop: bytes | None, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the keys in ``[start, stop)`` with their values; see :meth:`TaskStore.scan`."""
    left = limit if limit is not None else -1
    empty = spell(b"")
    if not start and stop != b"" and left != 0:
        # The empty key comes first among keys, but is spelt as something that does not.
        stored = environment.read(lambda t: t.get(empty, db=table))
        if stored is not None:
            yield pa.record_batch([[b""], [read_spelt(stored)[1]]], schema=_SCHEMA)
            left -= 1
    # Bounds in terms of stored keys, of which a long one keeps its first bytes only: a superset, sifted below.
    at, inclusive = (start or b"")[:PREFIX_BYTES], True
    beyond = None if stop is None else stop[:PREFIX_BYTES]
    while left != 0:
        pairs, following = environment.read(functools.partial(_page, table, at, inclusive, beyond))
        keys, values = [], []
        for stored_key, stored in pairs:
            if len(stored_key) == SPELT_BYTES:
                key, value = read_spelt(stored)
            else:
                key, value = stored_key, stored
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


def _page(
    table: Any, at: bytes, inclusive: bool, beyond: bytes | None, transaction: Any
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Return the next rows, and the key after which to go on, or None at the end."""
    pairs: list[tuple[bytes, bytes]] = []
    with transaction.cursor(db=table) as cursor:
        found = cursor.set_range(at) if at else cursor.first()
        if found and not inclusive and cursor.key() == at:
            found = cursor.next()
        if not found:
            return pairs, None
        for key, value in cursor.iternext():
            if beyond is not None and key[: len(beyond)] > beyond:
                return pairs, None
            pairs.append((key, value))
            if len(pairs) == _BATCH_ROWS:
                return pairs, key
    return pairs, None
