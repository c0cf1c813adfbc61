"""The consumer against a real broker: alone, committing, starting where it should."""

from __future__ import annotations

import time
import uuid

import pytest

from sparkrelay.consumer import Consumer
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def read(consumer, count, timeout_s=30):
    rows, deadline = [], time.monotonic() + timeout_s
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} records after {timeout_s} s"
        rows += consumer.poll(0.5).to_pylist()
    return rows


@pytest.fixture
def make_consumer(kafka):
    made = []

    def make(**config):
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest"}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        made.append(Consumer(settings))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def group():
    return f"group-{uuid.uuid4()}"


def test_subscribe_consume_commit_resume(make_consumer, make_topic, produce):
    topic, name = make_topic("consume", partitions=2), group()
    produce(topic, [{"value": str(i), "partition": i % 2} for i in range(100)])
    first = make_consumer(group_id=name, enable_auto_commit=False)
    first.subscribe([topic])
    rows = read(first, 100)
    assert sorted(int(row["value"]) for row in rows) == list(range(100))
    first.commit()
    assert first.committed(first.assignment()) == {TopicPartition(topic, p): 50 for p in range(2)}
    first.close()

    produce(topic, [{"value": "new", "partition": 1}])
    second = make_consumer(group_id=name, enable_auto_commit=False)
    second.subscribe([topic])
    assert [row["value"] for row in read(second, 1)] == [b"new"]


def test_assign_and_consume(make_consumer, make_topic, produce):
    topic = make_topic("consume")
    produce(topic, [("k", "v")] * 10)
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0)])
    assert len(read(consumer, 10)) == 10
    assert consumer.position(TopicPartition(topic, 0)) == 10
    consumer.seek(TopicPartition(topic, 0), 7)
    assert [row["offset"] for row in read(consumer, 3)] == [7, 8, 9]
