"""The table that ``poll`` returns, put together without touching its rows.

A record batch does not know its topic and partition, so these two columns are added: constants. Writing them anew for
each response cost more than the rest of ``collect`` (6 ns a record), so they are kept and sliced; a slice costs the
same whatever its length. Refused: dictionary and run-end encoded columns, which Spark's source does not have and which
every reader would have to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay.records.columns import HEADERS_TYPE

if TYPE_CHECKING:
    from sparkrelay.types import TopicPartition

__all__ = ["TABLE_SCHEMA", "ConstantColumns"]

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
#: Kept columns, of topics and of partition numbers each; a consumer of more makes some of them again and again.
_MOST_KEPT: Final = 64


class ConstantColumns:
    """The topic and partition columns of any length."""

    def __init__(self) -> None:
        self._topics: dict[str, pa.Array] = {}
        self._numbers: dict[int, pa.Array] = {}

    def table_batch(self, partition: TopicPartition, decoded: pa.RecordBatch) -> pa.RecordBatch:
        """Add topic and partition to the columns of ``records.decode``."""
        topic, number = partition
        rows = decoded.num_rows
        topics = self._topics.get(topic)
        if topics is None or len(topics) < rows:
            topics = pa.repeat(pa.scalar(topic, pa.string()), _room(rows))
            _keep(self._topics, topic, topics)
        numbers = self._numbers.get(number)
        if numbers is None or len(numbers) < rows:
            numbers = pa.array(np.full(_room(rows), number, np.int32))
            _keep(self._numbers, number, numbers)
        key, value, *rest = decoded.columns
        columns = [key, value, topics.slice(0, rows), numbers.slice(0, rows), *rest]
        return pa.RecordBatch.from_arrays(columns, schema=TABLE_SCHEMA)


def _room(rows: int) -> int:
    return max(_LEAST_ROWS, rows + rows // 4)


def _keep(columns: dict[str, pa.Array] | dict[int, pa.Array], name: str | int, column: pa.Array) -> None:
    kept: dict[str | int, pa.Array] = columns  # type: ignore[assignment]
    kept.pop(name, None)
    if len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]
    kept[name] = column
