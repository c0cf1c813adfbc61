"""PlaintextConsumerFetchTest: positions that the log does not have, and records larger than the limits."""

from __future__ import annotations

import pytest
from tests.integration.consumer.conformance.protocols import without_members
from tests.waiting import LONG

from sparkrelay.errors import OffsetOutOfRangeException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration

LIMIT = 10 * 1024


@without_members
def test_fetch_invalid_offset(make_consumer, fill, tp):
    fill(tp, 2)
    consumer = make_consumer(auto_offset_reset="none")
    consumer.assign([tp])
    with pytest.raises(OffsetOutOfRangeException, match=f"no committed offset for {tp}"):
        consumer.poll(LONG)
    consumer.seek(tp, 3)
    with pytest.raises(OffsetOutOfRangeException, match=f"{tp}.*offset 3"):
        consumer.poll(LONG)


@without_members
def test_fetch_out_of_range_offset_reset_config_earliest(make_consumer, fill, expect_rows, tp):
    fill(tp, 10)
    consumer = make_consumer(auto_offset_reset="earliest", fetch_max_wait_ms=0)
    consumer.assign([tp])
    expect_rows(consumer, tp, 10)
    consumer.seek(tp, 11)
    expect_rows(consumer, tp, 10)


@without_members
def test_fetch_out_of_range_offset_reset_config_latest(make_consumer, fill, read, poll_until, tp):
    fill(tp, 10)
    consumer = make_consumer(auto_offset_reset="latest", fetch_max_wait_ms=0)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    assert [row["offset"] for row in read(consumer, 5, max_records=5)] == [0, 1, 2, 3, 4]
    consumer.seek(tp, 27)
    assert poll_until(consumer, lambda: consumer.position(tp) == 10, "not at the end") == []
    fill(tp, 10)
    assert read(consumer, 1)[0]["offset"] == 10


@without_members
@pytest.mark.parametrize("setting", ["fetch_max_bytes", "max_partition_fetch_bytes"])
def test_fetch_record_larger_than_limit(make_consumer, produce, read, tp, setting):
    """KIP-74: the first record comes whatever its size."""
    produce(tp.topic, [{"key": "key", "value": bytes(LIMIT + 1), "partition": 0}])
    consumer = make_consumer(**{setting: LIMIT})
    consumer.assign([tp])
    (row,) = read(consumer, 1)
    assert (row["topic"], row["partition"], row["offset"]) == (*tp, 0)
    assert (row["key"], row["value"]) == (b"key", bytes(LIMIT + 1))


@without_members
@pytest.mark.parametrize("setting", ["fetch_max_bytes", "max_partition_fetch_bytes"])
def test_fetch_honours_limit_if_large_record_not_first(make_consumer, produce, read, tp, setting):
    produce(tp.topic, [{"key": "small", "value": "value", "partition": 0}])
    produce(tp.topic, [{"key": "large", "value": bytes(LIMIT), "partition": 0}])
    consumer = make_consumer(**{setting: LIMIT})
    consumer.assign([tp])
    assert [(row["offset"], row["key"]) for row in read(consumer, 2)] == [(0, b"small"), (1, b"large")]
    # The large batch came alone: one response was as large as it, and none as large as both.
    assert LIMIT < consumer.metrics()["fetch-size-max"] < LIMIT + 100


def test_low_max_fetch_size_for_request_and_partition(make_consumer, make_topic, produce, await_assignment, read):
    """Every partition gets its turn although a request has room for few of them."""
    topics = [make_topic("conform", partitions=10) for _ in range(3)]
    partitions = [TopicPartition(topic, p) for topic in topics for p in range(10)]
    consumer = make_consumer(fetch_max_bytes=500, max_partition_fetch_bytes=100)
    consumer.subscribe(topics)
    await_assignment(consumer, partitions)
    for topic in topics:
        produce(topic, [{"key": f"{p}", "value": f"value {i}", "partition": p} for i in range(10) for p in range(10)])
    seen = {partition: [] for partition in partitions}
    for row in read(consumer, 300):
        seen[TopicPartition(row["topic"], row["partition"])].append(row["value"])
    assert all(values == [b"value %d" % i for i in range(10)] for values in seen.values())
