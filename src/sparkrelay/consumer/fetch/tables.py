"""The table that ``poll`` returns, assembled without touching its rows.

A record batch has no topic and partition, so these two columns are added as constants. Writing them for each response
cost more than the rest of ``collect`` (6 ns a record), so they are cached and sliced; a slice costs the same for any
length. Refused: dictionary and run-end encoded columns, which Spark's source does not have and every reader would have
to handle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.records.arrow_buffers import fixed_width
from sparkrelay.records.batches.columns import HEADERS_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

TABLE_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
"""What ``poll`` returns: the columns of Spark's own Kafka source."""

_LEAST_ROWS: Final = 1024
#: Cached columns, of topics and of partition numbers each.
_MOST_KEPT: Final = 64


class ConstantColumns:
    """Cached topic and partition columns of any length."""

    def __init__(self) -> None:
        self._topics: dict[str, pa.Array] = {}
        self._numbers: dict[int, pa.Array] = {}

    def table_batch(self, partition: TopicPartition, columns: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
        """Add topic and partition to the columns of ``records.batches.decode``."""
        topic, number = partition
        topics = self._topics.get(topic)
        if topics is None or len(topics) < rows:
            topics = _repeated(topic, _room(rows))
            _keep(self._topics, topic, topics)
        numbers = self._numbers.get(number)
        if numbers is None or len(numbers) < rows:
            numbers = fixed_width(pa.int32(), np.full(_room(rows), number, np.int32), _room(rows))
            _keep(self._numbers, number, numbers)
        key, value, *rest = columns.values()
        whole = [key, value, topics.slice(0, rows), numbers.slice(0, rows), *rest]
        return pa.RecordBatch.from_arrays(whole, schema=TABLE_SCHEMA)


def _repeated(text: str, rows: int) -> pa.Array:
    """Return a column of one text; ``pa.repeat`` needs a scalar, and making one imports pandas (``fixed_width``)."""
    data = text.encode()
    offsets = np.arange(0, (rows + 1) * len(data), len(data), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data * rows)])


def _room(rows: int) -> int:
    return max(_LEAST_ROWS, rows + rows // 4)


def _keep(columns: dict[Any, pa.Array], name: str | int, column: pa.Array) -> None:
    columns.pop(name, None)
    if len(columns) >= _MOST_KEPT:
        del columns[next(iter(columns))]
    columns[name] = column
