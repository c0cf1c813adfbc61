"""Keys of a table that somebody asks for: their bytes in the changelog, and the partitions that have them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import ConfigException
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.runtime.queries.store_keys import StoreKeys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkrelay.datasources.options import Options
    from sparkrelay.operators.table.layout import TableLayout

__all__ = ["WantedKeys", "key_texts", "message_keys", "partition_of"]

_MOST_KEYS: Final = 1_000


def key_texts(options: Options, columns: Sequence[str]) -> list[str] | None:
    """Return the keys that options name, as paths of ``/stores`` spell them; None for all rows.

    Args:
        options: ``key`` is one key; ``keys`` is a JSON array of them.
        columns: of the store's key.

    Raises:
        ConfigException: both are given, ``keys`` is no array, or it has more than 1,000 keys.
    """
    one, several = options.optional("key"), options.optional("keys")
    if several is None:
        return None if one is None else [one]
    if one is not None:
        raise ConfigException('give option("key", ...) for one key, or option("keys", ...) for several, and not both')
    try:
        listed = json.loads(several)
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST_KEYS:
        raise ConfigException(
            f"keys={several[:200]!r} must be a JSON array of 1 to {_MOST_KEYS:,} keys, such as "
            f'["ada", "bob"], or [["north", 1], ["south", 2]] for a key of two columns; this key has '
            f"{', '.join(columns)}. For more of them read all rows and use where(...)"
        )
    alone = len(columns) == 1
    return [key if alone and isinstance(key, str) else json.dumps(key) for key in listed]


class WantedKeys:
    """Some keys of a table, whose other rows are left out. It is sent to executors."""

    def __init__(self, table: TableLayout, texts: Sequence[str]) -> None:
        """Take keys as :func:`key_texts` returns them.

        Raises:
            SerializationException: one has other columns than the store's key, or other types.
        """
        keys = StoreKeys(table)
        (self._rows,) = pa.Table.from_batches([keys.from_text(text) for text in texts]).combine_chunks().to_batches()
        self._columns = keys.schema.names
        #: As message keys of the changelog have them, if it has no windows.
        self.encoded = _encoded(self._rows, self._columns)

    def partitions(self, table: TableLayout, count: int) -> set[int] | None:
        """Return the partitions that have them; None if these may be any, see :func:`partition_of`."""
        by = table.repartitioned_by
        if not by or not set(by) <= set(self._columns):
            return None
        found = set(murmur2_partitions(_encoded(self._rows, by), count).tolist())
        # A null is in any.
        return None if -1 in found else found

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that have one of the keys."""
        for batch in batches:
            yield batch.filter(pc.is_in(_encoded(batch, self._columns), value_set=self.encoded))


def message_keys(table: TableLayout, values: Mapping[str, Any]) -> pa.Array | None:
    """Return the message key of a row with such values; None unless each column of the key has one.

    Args:
        table: how its rows lie in the store.
        values: column -> its value. One of a type that may be spelt in several ways has None made of it.
    """
    return _of_values(table, table.keys.names, values)


def partition_of(table: TableLayout, values: Mapping[str, Any], partitions: int) -> int | None:
    """Return the one partition that has rows with such values; None if it may be any.

    Rows behind a repartition topic are where its columns say. Whoever produces a topic of the user's may have a
    partitioner of his own.
    """
    if not table.repartitioned_by or not set(table.repartitioned_by) <= set(table.keys.names):
        return None
    keys = _of_values(table, table.repartitioned_by, values)
    return None if keys is None else int(murmur2_partitions(keys, partitions)[0])


def _of_values(table: TableLayout, columns: Sequence[str], values: Mapping[str, Any]) -> pa.Array | None:
    wanted = [values.get(name) for name in columns]
    kinds = [table.columns.field(name).type for name in columns]
    if None in wanted or not all(map(_spelt_once, kinds)):
        return None
    return key_bytes([pa.array([value], kind) for value, kind in zip(wanted, kinds, strict=True)]).cast(pa.binary())


def _encoded(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    return key_bytes([rows.column(name) for name in columns]).cast(pa.binary())


def _spelt_once(kind: pa.DataType) -> bool:
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_boolean)
    return any(is_kind(kind) for is_kind in plain)
