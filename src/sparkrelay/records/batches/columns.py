"""The decoder's types, without the decoder: its compiled loops take 100 MB and half a second to load.

A consumer that reads no records, such as a driver's, does not need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

KAFKA_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
"""The columns of Spark's Kafka source that a record batch has."""


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An entry of a Fetch response: the producer's records from here to its abort marker do not count."""

    producer_id: int
    first_offset: int
