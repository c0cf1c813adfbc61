"""Single records, for programs that prefer them: a view of the table that ``poll`` returns.

Columns are converted to Python objects one by one and filled into all records at once, in C: three times as fast as a
constructor call per record.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        timestamp: milliseconds since 1970, -1 if it has none.
        timestamp_type: 0 for the producer's time, 1 for the broker's.
        key: bytes, or the key deserialiser's value; None if there is none.
        value: bytes, or the value deserialiser's value; None for a tombstone.
        headers: pairs of name and bytes, in order; names may repeat.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's partition."""
        return TopicPartition(self.topic, self.partition)


#: The fields that are named differently in tables.
_COLUMN_OF: Final = {"timestamp_type": "timestampType"}
_NO_TIMESTAMP: Final = -1
#: Set fields although the class is frozen: nobody else has these records yet.
_SETTERS: Final = {field.name: getattr(Record, field.name).__set__ for field in fields(Record)}


def to_records(table: pa.Table) -> list[Record]:
    """Return a table's rows as records."""
    records = [Record.__new__(Record) for _ in range(table.num_rows)]
    for field, setter in _SETTERS.items():
        name = _COLUMN_OF.get(field, field)
        deque(map(setter, records, _values(name, table.column(name))), 0)
    return records


def _values(name: str, column: pa.ChunkedArray) -> Iterable[Any]:
    # By name, not by type: deserialisers may return any type.
    match name:
        case "topic":
            return _topics(column)
        case "headers":
            return (headers for chunk in column.chunks for headers in _headers(chunk))
        case "timestamp":
            column = column.cast(pa.int64()).fill_null(_NO_TIMESTAMP)
    if column.num_chunks and _is_plain(column):
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    values: list[Any] = column.to_pylist()
    return values


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Return whether NumPy converts a column to the same Python objects as Arrow, which it does faster."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return True
    return not column.null_count and bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _topics(column: pa.ChunkedArray) -> Iterable[str]:
    """Return a topic for each row; all rows of a chunk are of one topic and share one string."""
    return itertools.chain.from_iterable(
        itertools.repeat(chunk[0].as_py(), len(chunk)) for chunk in column.chunks if len(chunk)
    )


def _headers(chunk: pa.ListArray) -> Iterable[tuple[tuple[str, bytes | None], ...]]:
    if not len(chunk.flatten()):
        return [()] * len(chunk)
    return (tuple((h["key"], h["value"]) for h in headers or ()) for headers in chunk.to_pylist())
