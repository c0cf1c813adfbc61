"""Keys of a table that a user asks for: their bytes in the changelog, and the partitions that have them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import ConfigException
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.runtime.queries.store_keys import StoreKeys, value_example

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkrelay.datasources.options import Options
    from sparkrelay.operators.table.layout import TableLayout

_MOST_KEYS: Final = 1_000
_TRUTH: Final = {"true": True, "false": False}


def key_texts(options: Options, columns: Sequence[str]) -> list[str] | None:
    """Return the keys of the options ``key`` or ``keys``, spelt as in paths of ``/stores``; None for all rows.

    Raises:
        ConfigException: both are given, or ``keys`` is not an array of 1 to 1,000 keys.
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
            f"{', '.join(columns)}. For more keys, read all rows and use where(...)"
        )
    alone = len(columns) == 1
    return [key if alone and isinstance(key, str) else json.dumps(key) for key in listed]


class WantedKeys:
    """Values of key columns; rows with other values are left out. Sent to executors."""

    def __init__(self, table: TableLayout, values: pa.RecordBatch) -> None:
        """Encode values of some or all columns of the table's key."""
        self._columns = values.schema.names
        self._encoded = _encoded(values, self._columns)
        by = table.repartitioned_by
        #: Keys that decide the partition. The producer of a user's topic may have its own partitioner.
        self._partitioned = _encoded(values, by) if by and set(by) <= set(self._columns) else None
        #: As the changelog's message keys have them, if the table has no windows; None for a part of the key.
        self.message_keys = self._encoded if set(self._columns) == set(table.keys.names) else None

    @classmethod
    def of_texts(cls, table: TableLayout, texts: Sequence[str]) -> Self:
        """Parse keys as :func:`key_texts` returns them; raises as ``StoreKeys.from_text``."""
        keys = StoreKeys(table)
        (rows,) = pa.Table.from_batches([keys.from_text(text) for text in texts]).combine_chunks().to_batches()
        return cls(table, rows)

    @classmethod
    def of_values(cls, table: TableLayout, values: Mapping[str, Any]) -> Self:
        """Take the values of some or all columns of one key."""
        schema = pa.schema([field for field in table.keys if field.name in values])
        return cls(
            table, pa.RecordBatch.from_arrays([pa.array([values[f.name]], f.type) for f in schema], schema=schema)
        )

    def partitions(self, count: int) -> set[int] | None:
        """Return the partitions that have the rows; None if any may."""
        if self._partitioned is None:
            return None
        found = set(murmur2_partitions(self._partitioned, count).tolist())
        # A null may be in any.
        return None if -1 in found else found

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that have one of the values."""
        for batch in batches:
            yield batch.filter(pc.is_in(_encoded(batch, self._columns), value_set=self._encoded))


def key_of(table: TableLayout, texts: Sequence[str]) -> dict[str, Any]:
    """Parse the values of the first columns of a table's key, as typed on a command line.

    Raises:
        ConfigException: there are more values than columns, or one does not fit its column.
    """
    names = table.keys.names
    if not 0 < len(texts) <= len(names):
        examples = " ".join(_example(field.type) for field in table.keys)
        raise ConfigException(
            f"{len(texts)} values for the key of store {table.store!r}, which has the columns {', '.join(names)}: "
            f"write 1 to {len(names)} values, such as {examples}"
        )
    return {field.name: _value(field.name, field.type, text) for field, text in zip(table.keys, texts, strict=False)}


def _value(name: str, kind: pa.DataType, text: str) -> Any:
    try:
        if pa.types.is_boolean(kind):
            return _TRUTH[text.lower()]
        if pa.types.is_binary(kind):
            return bytes.fromhex(text)
        if pa.types.is_struct(kind):
            said = json.loads(text)
            return {field.name: _value(field.name, field.type, str(said[field.name])) for field in kind}
        return pa.scalar(text).cast(kind).as_py()
    except (pa.ArrowException, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigException(
            f"{text!r} is not a value of the key's column {name!r}, {kind}: write it like {_example(kind)}"
        ) from error


def _example(kind: pa.DataType) -> str:
    """Return an example for a command line, quoted for the shell where needed."""
    if pa.types.is_binary(kind):
        return "4e4c0a (hexadecimal)"
    value = value_example(kind)
    return f"'{json.dumps(value)}'" if isinstance(value, dict | list) else str(value).replace("True", "true")


def _encoded(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    return key_bytes([rows.column(name) for name in columns]).cast(pa.binary())
