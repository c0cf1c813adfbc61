"""Fetched data for the buffer's tests, and what is looked at afterwards."""

from __future__ import annotations

import struct

import pyarrow as pa

from sparkrelay.consumer.fetch.fetch_buffer import TABLE_SCHEMA
from sparkrelay.records.batches.encode import encode
from sparkrelay.types import TopicPartition

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


def records(values, base=0, epoch=0, compression="none"):
    values = pa.array([v.encode() for v in values], pa.binary())
    (batch,) = encode(None, values, timestamps=0, compression=compression)
    data = bytearray(batch.data)
    struct.pack_into(">q", data, 0, base)  # outside of the checksum, like the epoch
    struct.pack_into(">i", data, 12, epoch)
    return memoryview(bytes(data))


def joined(*parts):
    return memoryview(b"".join(bytes(part) for part in parts))


def positions(subscription):
    return {partition: place.offset for partition, place in subscription.committable().items()}


def rows(table):
    assert table.schema == TABLE_SCHEMA
    return [(r["partition"], r["offset"], r["value"]) for r in table.to_pylist()]
