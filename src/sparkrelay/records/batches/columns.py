"""What the decoder takes and gives, without the decoder: its compiled loops take 100 MB and half a second to load.

A consumer that never meets a record, such as a driver's, does without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

__all__ = ["HEADERS_TYPE", "KAFKA_SCHEMA", "AbortedTransaction"]

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
"""What decode() returns: the columns of Spark's Kafka source that a record batch knows."""


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One entry of a Fetch response's list: this producer's records from here to its abort marker do not count."""

    producer_id: int
    first_offset: int
