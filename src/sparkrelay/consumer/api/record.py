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
        timestamp: milliseconds since 1970, -1 if it has none.
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
_NO_TIMESTAMP: Final = -1
#: Set a field although the class is frozen: these records are not anybody's yet.
_SETTERS: Final = {field: getattr(Record, field).__set__ for field, _ in _COLUMNS}


def to_records(table: pa.Table) -> list[Record]:
    """Return a table's rows as records."""
    records = [Record.__new__(Record) for _ in range(table.num_rows)]
    for field, name in _COLUMNS:
        deque(map(_SETTERS[field], records, _values(name, table.column(name))), 0)
    return records


def _values(name: str, column: pa.ChunkedArray) -> Iterable[Any]:
    # By the name, not by the type: keys and values are of whatever type their deserialisers return.
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
    """Return whether NumPy makes the same Python objects of a column as Arrow does, which it does faster."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return True
    return not column.null_count and bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _topics(column: pa.ChunkedArray) -> Iterable[str]:
    """Return a topic for each row; one string serves all rows of a chunk, which are of one topic."""
    return itertools.chain.from_iterable(
        itertools.repeat(chunk[0].as_py(), len(chunk)) for chunk in column.chunks if len(chunk)
    )


def _headers(chunk: pa.ListArray) -> Iterable[tuple[tuple[str, bytes | None], ...]]:
    if not len(chunk.flatten()):
        return [()] * len(chunk)
    return (tuple((h["key"], h["value"]) for h in headers or ()) for headers in chunk.to_pylist())
