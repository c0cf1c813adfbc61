"""What a query wrote, as a reader sees it who wants only committed records."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from bench.children import BenchError

if TYPE_CHECKING:
    from bench.workload import Totals

__all__ = ["check_totals", "committed_reader", "last_rows"]

_READ_TIMEOUT_S = 120.0


def committed_reader(bootstrap_servers: str, topic: str) -> Consumer:
    """Return a consumer of all partitions of a topic from its beginning, ``read_committed``."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    return consumer


def last_rows(bootstrap_servers: str, topic: str) -> tuple[Totals, int]:
    """Read a result topic to its end.

    Returns:
        The last row of each user, and how many rows there are in all.
    """
    consumer = committed_reader(bootstrap_servers, topic)
    rows: Totals = {}
    count = 0
    try:
        open_ends = {place.partition for place in consumer.assignment()}
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while open_ends:
            if time.monotonic() > deadline:
                raise BenchError(f"partitions {sorted(open_ends)} of {topic} did not end within {_READ_TIMEOUT_S:g} s")
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    row = json.loads(message.value() or b"")
                    rows[row["user"]] = (row["orders"], row["total"])
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public spelling
                    open_ends.discard(message.partition())
                else:
                    raise BenchError(f"reading {topic}: {error}")
    finally:
        consumer.close()
    return rows, count


def check_totals(name: str, expected: Totals, found: Totals) -> None:
    """Compare a result with what it must be.

    Raises:
        BenchError: it differs; names some users.
    """
    wrong = [user for user in expected.keys() | found.keys() if expected.get(user) != found.get(user)]
    if wrong:
        some = ", ".join(f"{u}: {found.get(u)} instead of {expected.get(u)}" for u in sorted(wrong)[:3])
        raise BenchError(f"{name} is not exact: {len(wrong)} of {len(expected)} users differ ({some})")
