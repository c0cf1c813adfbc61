"""What the consumers read: values of 100 bytes, in batches of 100 kB, in four partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer as ConfluentProducer

from bench.children import BenchError
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer
from sparkrelay.devkafka.topics import create_topic
from sparkrelay.records.batches.encode import encode
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PARTITIONS", "VALUE_BYTES", "fill", "stamped", "values"]

PARTITIONS = 4
VALUE_BYTES = 100
_BATCH_BYTES = 100_000
_SEED = 20_26
_CHUNK = 500_000
_TIMEOUT_S = 120.0
_PERIOD_S = 0.001


def values(count: int, first: int = 0) -> pa.Array:
    """Return values of 100 bytes: half of each is random digits, so that they compress about as JSON does."""
    random = np.random.default_rng(_SEED + first)
    rows = np.full((count, VALUE_BYTES), ord("."), np.uint8)
    rows[:, : VALUE_BYTES // 2] = random.integers(ord("0"), ord("9") + 1, (count, VALUE_BYTES // 2), np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * VALUE_BYTES
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())])


def fill(servers: str, topic: str, records: int, codec: str) -> Mapping[str, Any]:
    """Make a topic and write so many records, equally many to each partition.

    Returns:
        ``records``, ``bytes`` (of batches, as sent) and ``seconds``.
    """
    if records % PARTITIONS:
        raise BenchError(f"records={records} must be a multiple of {PARTITIONS}")
    create_topic(servers, topic, partitions=PARTITIONS, config={"retention.ms": "-1"})
    began, size, each = time.perf_counter(), 0, records // PARTITIONS
    with KafkaClient(ClientConfig.from_dict({"bootstrap.servers": servers, "client.id": "bench-loader"})) as client:
        client.bootstrap(30.0)
        producer = Producer(client)
        for first in range(0, each, _CHUNK):
            chunk = values(min(_CHUNK, each - first), first)
            now = int(time.time() * 1000)
            batches = list(encode(None, chunk, timestamps=now, compression=codec, max_batch_bytes=_BATCH_BYTES))
            for partition in range(PARTITIONS):
                for batch in batches:
                    size += len(batch.data)
                    producer.send(TopicPartition(topic, partition), batch.data, transactional_id=None)
            producer.flush(_TIMEOUT_S)
    return {"topic": topic, "records": records, "bytes": size, "seconds": round(time.perf_counter() - began, 2)}


def stamped(servers: str, topic: str, *, rate: int, seconds: float) -> int:
    """Send so many records a second, each with the time it was sent (``time.monotonic``); return how many.

    Raises:
        BenchError: one was not acknowledged.
    """
    producer = ConfluentProducer({"bootstrap.servers": servers, "linger.ms": 0, "acks": 1})
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        del message
        if error is not None:
            failed.append(str(error))

    rest = b"." * (VALUE_BYTES - 8)
    # Connected before the clock runs.
    partitions = len(producer.list_topics(topic, timeout=30).topics[topic].partitions)
    began, sent = time.monotonic(), 0
    while (now := time.monotonic()) - began < seconds:
        if sent < (now - began) * rate:
            stamp = np.float64(time.monotonic()).tobytes()
            producer.produce(topic, value=stamp + rest, partition=sent % partitions, on_delivery=delivered)
            sent += 1
        else:
            producer.poll(_PERIOD_S)
    left = producer.flush(30)
    if left or failed:
        raise BenchError(f"{left} records were not acknowledged within 30 s; errors: {failed[:3]}")
    return sent
