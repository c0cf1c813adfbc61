"""Records one by one, for programs that want them so: a view of the table that ``poll`` returns.

Columns are turned into Python objects one after another and filled into all records at once, in C; that is three times
as fast as calling a constructor for each record.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Record", "to_records"]


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        topic: its topic.
        partition: number of the partition.
        offset: place in the partition.
        timestamp: milliseconds since 1970.
        timestamp_type: 0 for the producer's time, 1 for the broker's.
        key: bytes, or what the key's deserialiser made of them; None if there is none.
        value: bytes, or what the value's deserialiser made of them; None for a tombstone.
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
        """The partition that it is from."""
        return TopicPartition(self.topic, self.partition)


_COLUMNS: Final = (
    ("topic", "topic"),
    ("partition", "partition"),
    ("offset", "offset"),
    ("timestamp", "timestamp"),
    ("timestamp_type", "timestampType"),
    ("key", "key"),
    ("value", "value"),
    ("headers", "headers"),
)
#: Set a field although the class is frozen: these records are not anybody's yet.
_SETTERS: Final = {field: getattr(Record, field).__set__ for field, _ in _COLUMNS}


def to_records(table: pa.Table) -> list[Record]:
    """Return a table's rows as records."""
    records = [Record.__new__(Record) for _ in range(table.num_rows)]
    for field, column in _COLUMNS:
        values = _topics(table.column(column)) if column == "topic" else _values(table.column(column))
        deque(map(_SETTERS[field], records, values), 0)
    return records


def _values(column: pa.ChunkedArray) -> Iterable[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz)).cast(pa.int64())
    elif pa.types.is_list(kind):
        return (headers for chunk in column.chunks for headers in _headers(chunk))
    elif pa.types.is_nested(kind) or (column.null_count and not _is_bytes(kind)):
        values: list[Any] = column.to_pylist()
        return values
    return column.to_numpy().tolist() if column.num_chunks else ()


def _is_bytes(kind: pa.DataType) -> bool:
    """Tell whether nulls are None in an array of NumPy."""
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


def _topics(column: pa.ChunkedArray) -> Iterable[str]:
    """Return a topic for each row; one string serves all rows of a chunk, which are of one topic."""
    return itertools.chain.from_iterable(
        itertools.repeat(chunk[0].as_py(), len(chunk)) for chunk in column.chunks if len(chunk)
    )


def _headers(chunk: pa.ListArray) -> Iterable[tuple[tuple[str, bytes | None], ...]]:
    if not len(chunk.flatten()):
        return [()] * len(chunk)
    return (tuple((h["key"], h["value"]) for h in headers or ()) for headers in chunk.to_pylist())
