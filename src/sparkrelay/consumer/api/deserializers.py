"""Deserialisers: from the bytes of keys and values to typed columns, a whole column at a time.

A deserialiser maps a binary Arrow column to a column of the same length. Records before an unreadable one are returned
first; then an error names the record, and the position stays at it (as Kafka's ``RecordDeserializationException``,
KIP-334), so that the application may seek past it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from sparkrelay.consumer.fetch.fetch_buffer import TABLE_SCHEMA
from sparkrelay.errors import ConfigException, RecordDeserializationException
from sparkrelay.records.formats import Boolean, Double, Float, Integer, Json, Long, OneColumn, Raw, Short, String, Uuid
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from sparkrelay.records.bad_record import BadRecord

Deserializer: TypeAlias = Callable[[pa.Array], pa.Array]

_COLUMNS: Final = ("key", "value")


class _UnreadableRow(Exception):  # noqa: N818 - a message between two functions
    """A row of a column cannot be read."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class Deserializers:
    """The deserialisers of one consumer; None leaves the bytes.

    Attributes:
        empty: a table without rows, of the types that ``read`` returns.
    """

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._readers = {c: reader for c, reader in zip(_COLUMNS, (key, value), strict=True) if reader is not None}
        schema = TABLE_SCHEMA
        for column, reader in self._readers.items():
            schema = schema.set(schema.get_field_index(column), pa.field(column, _type_of(column, reader)))
        self._schema = schema
        # Not ``empty_table()``: that imports pandas.
        self.empty: pa.Table = pa.Table.from_batches([], schema)

    @classmethod
    def of(
        cls, config: Mapping[str, object], key: object | None, value: object | None
    ) -> tuple[Deserializers, dict[str, object]]:
        """Make them from the arguments, or else from the settings; return the other settings too."""
        rest, readers = dict(config), []
        for column, argument in zip(_COLUMNS, (key, value), strict=True):
            setting = rest.pop(f"{column}.deserializer", None)
            readers.append(_reader(column, setting if argument is None else argument))
        return cls(*readers), rest

    def read(self, table: pa.Table) -> tuple[pa.Table, RecordDeserializationException | None]:
        """Return the rows before the first unreadable one, and its error."""
        if not self._readers:
            return table, None
        error: RecordDeserializationException | None = None
        columns = {}
        for column, reader in self._readers.items():
            chunks = []
            row = 0
            for chunk in table.column(column).chunks:
                read, problem = _read(reader, chunk)
                chunks.append(self._checked(column, read))
                row += len(read)
                if problem is not None:
                    error = _error(table, column, row, problem)
                    table = table.slice(0, row)
                    break
            columns[column] = pa.chunked_array(chunks, self._schema.field(column).type)
        for column, data in columns.items():
            at = self._schema.get_field_index(column)
            table = table.set_column(at, self._schema.field(at), data.slice(0, table.num_rows))
        return table, error

    def _checked(self, column: str, read: pa.Array) -> pa.Array:
        kind = self._schema.field(column).type
        if read.type != kind:
            raise ConfigException(
                f"the {column} deserialiser returned a column of {read.type}, but of {kind} for no rows; its type must "
                "never change"
            )
        return read


def first_offsets(table: pa.Table) -> dict[TopicPartition, int]:
    """Return the first offset of each partition in a table."""
    found: dict[TopicPartition, int] = {}
    for batch in table.select(["topic", "partition", "offset"]).to_batches():
        if batch.num_rows:  # each batch is of one partition
            topic, partition, offset = (column[0].as_py() for column in batch.columns)
            found.setdefault(TopicPartition(topic, partition), offset)
    return found


def _read(reader: Deserializer, chunk: pa.Array) -> tuple[pa.Array, Exception | None]:
    """Read up to the first unreadable row; return its error."""
    try:
        return _call(reader, chunk), None
    except ConfigException:
        raise
    except _UnreadableRow as problem:
        return _call(reader, chunk.slice(0, problem.index)), problem
    except Exception as problem:  # noqa: BLE001 - the application's error is reported
        # The error does not identify the row: bisect.
        good, bad, found = 0, len(chunk), problem
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                reader(chunk.slice(0, middle))
                good = middle
            except Exception as again:  # noqa: BLE001 - see above
                bad, found = middle, again
        return _call(reader, chunk.slice(0, good)), found


def _call(reader: Deserializer, chunk: pa.Array) -> pa.Array:
    read = reader(chunk)
    if isinstance(read, pa.ChunkedArray):
        read = pa.concat_arrays(read.chunks) if read.num_chunks else pa.array([], read.type)
    if not isinstance(read, pa.Array) or len(read) != len(chunk):
        shape = f"{len(read)} rows" if isinstance(read, pa.Array) else f"{type(read).__name__}"
        raise ConfigException(
            f"a deserialiser must return a pyarrow column of as many rows: for {len(chunk)} it returned {shape}"
        )
    return read


def _error(table: pa.Table, column: str, row: int, problem: Exception) -> RecordDeserializationException:
    topic, partition, offset = (table.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    error = RecordDeserializationException(
        f"{topic}-{partition}: the {column} of the record at offset {offset} cannot be read: {problem}; seek() to "
        f"{offset + 1} to skip it, or read it without a deserialiser",
        topic=topic,
        partition=partition,
        offset=offset,
        column=column,
    )
    error.__cause__ = problem
    return error


def _type_of(column: str, reader: Deserializer) -> pa.DataType:
    try:
        return _call(reader, pa.array([], pa.binary())).type
    except ConfigException:
        raise
    except Exception as error:
        raise ConfigException(
            f"the {column} deserialiser {reader!r} failed on a column without rows, which determines its type: "
            f"{error!r}"
        ) from error


def _plain(form: type[OneColumn]) -> Deserializer:
    def read(values: pa.Array) -> pa.Array:
        from sparkrelay.records.plain import plain_to_column  # noqa: PLC0415 - it loads compiled loops

        column, bad = plain_to_column(values, form)
        _raise_first(bad)
        return column

    return read


def _json(schema: pa.Schema) -> Deserializer:
    """Read one JSON object per record, to a column of structs."""

    def read(values: pa.Array) -> pa.Array:
        from sparkrelay.records.json.reader import json_to_columns  # noqa: PLC0415 - it loads compiled loops

        batch, bad = json_to_columns(values, schema)
        _raise_first(bad)
        missing = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(batch.columns, fields=list(schema), mask=missing)

    return read


def _raise_first(bad: list[BadRecord]) -> None:
    if bad:
        raise _UnreadableRow(bad[0].index, bad[0].reason)


_BUILT_IN: Final[Mapping[str, Deserializer | None]] = {
    **dict.fromkeys(("bytes", "bytearray", "raw")),
    **{kind.__name__.lower(): _plain(kind) for kind in (String, Integer, Long, Short, Float, Double, Boolean, Uuid)},
}


def _reader(column: str, given: Any) -> Deserializer | None:
    match given:
        case None | Raw():
            return None
        case str():
            # Kafka's settings name Java classes, such as org.apache.kafka.common.serialization.LongDeserializer.
            name = given.rpartition(".")[2].removesuffix("Deserializer").lower()
            if name in _BUILT_IN:
                return _BUILT_IN[name]
        case OneColumn():
            return _BUILT_IN[type(given).__name__.lower()]
        case Json(schema=pa.Schema() as schema):
            return _json(schema)
        case Json():
            raise ConfigException(f"{column}.deserializer={given!r}: the consumer needs Json(pyarrow.schema([...]))")
        case _ if callable(given) and not isinstance(given, type):
            reader: Deserializer = given
            return reader
    raise ConfigException(
        f"{column}.deserializer={given!r} must be one of {', '.join(_BUILT_IN)}, Json(pyarrow.schema([...])), or a "
        "function from a binary pyarrow column to another column"
    )
