"""PlaintextConsumerTest, without its metrics: records, positions, pausing, lookups, groups or none."""

from __future__ import annotations

import threading
import time

import pytest
from tests.integration.consumer.conformance.protocols import without_members
from tests.waiting import LONG

from sparkrelay.errors import ConfigException, KafkaException, TimeoutException, WakeupException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


@without_members
def test_headers(make_consumer, produce, read, tp):
    produce(tp.topic, [{"key": "k", "value": "v", "partition": 0, "headers": [("headerKey", b"headerValue")]}])
    consumer = make_consumer()
    assert consumer.assignment() == frozenset()
    consumer.assign([tp])
    assert consumer.assignment() == {tp}
    consumer.seek(tp, 0)
    (row,) = read(consumer, 1)
    assert row["headers"] == [{"key": "headerKey", "value": b"headerValue"}]


@without_members
def test_headers_serializer_deserializer(make_consumer, produce, read, tp):
    """A deserialiser reads a whole column; headers come beside it, untouched."""
    headers = [("content-type", b"application/octet-stream")]
    produce(tp.topic, [{"value": f"value {i}", "partition": 0, "headers": headers} for i in range(3)])
    consumer = make_consumer(value_deserializer="string")
    consumer.assign([tp])
    rows = read(consumer, 3)
    assert [row["value"] for row in rows] == ["value 0", "value 1", "value 2"]
    assert all(row["headers"] == [{"key": name, "value": value} for name, value in headers] for row in rows)


@without_members
def test_auto_offset_reset(make_consumer, fill, expect_rows, tp):
    fill(tp, 1)
    consumer = make_consumer()
    consumer.assign([tp])
    expect_rows(consumer, tp, 1)


def test_group_consumption(make_consumer, fill, expect_rows, topic, tp):
    fill(tp, 10)
    consumer = make_consumer()
    consumer.subscribe([topic])
    expect_rows(consumer, tp, 10)


@without_members
def test_partitions_for(make_consumer, topic):
    assert make_consumer().partitions_for(topic) == (0, 1)


@without_members
def test_partitions_for_absent_topic_does_not_create_it(make_consumer, kafka_admin, topic):
    """Kafka's own consumer may create a topic by asking for it; ours never does."""
    absent = f"{topic}-absent"
    assert make_consumer().partitions_for(absent) == ()
    assert absent not in kafka_admin.list_topics(timeout=LONG).topics


@without_members
def test_partitions_for_invalid_topic(make_consumer):
    with pytest.raises(KafkaException, match="INVALID_TOPIC_EXCEPTION.*17"):
        make_consumer().partitions_for(";3# ads,{234")


@without_members
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_seek(make_consumer, fill, expect_rows, tp, compression):
    fill(tp, 50, compression_type=compression)
    consumer = make_consumer()
    consumer.assign([tp])
    consumer.seek_to_end([tp])
    assert consumer.position(tp) == 50
    assert consumer.poll(0.05).num_rows == 0
    consumer.seek_to_beginning([tp])
    assert consumer.position(tp) == 0
    expect_rows(consumer, tp, 1)
    consumer.seek(tp, 25)
    assert consumer.position(tp) == 25
    expect_rows(consumer, tp, 1, offset=25)


@without_members
def test_partition_pause_and_resume(make_consumer, fill, expect_rows, tp):
    fill(tp, 5)
    consumer = make_consumer()
    consumer.assign([tp])
    expect_rows(consumer, tp, 5)
    consumer.pause([tp])
    fill(tp, 5)
    assert consumer.poll(0.1).num_rows == 0
    consumer.resume([tp])
    expect_rows(consumer, tp, 5, offset=5, index=0)


@without_members
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_consume_messages_with_create_time(make_consumer, fill, expect_rows, tp, compression):
    fill(tp, 50, compression_type=compression)
    consumer = make_consumer()
    consumer.assign([tp])
    expect_rows(consumer, tp, 50)


@without_members
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_consume_messages_with_log_append_time(make_consumer, make_topic, fill, expect_rows, start_ms, compression):
    tp = TopicPartition(make_topic("conform", config={"message.timestamp.type": "LogAppendTime"}), 0)
    fill(tp, 50, compression_type=compression)
    consumer = make_consumer()
    consumer.assign([tp])
    rows = expect_rows(consumer, tp, 50, timestamp_type=1)
    assert all(start_ms <= row["timestamp"].timestamp() * 1000 <= time.time() * 1000 + 1000 for row in rows)


@without_members
def test_list_topics(make_consumer, make_topic):
    topics = {make_topic("conform", partitions=2) for _ in range(3)}
    consumer = make_consumer()
    assert topics <= consumer.topics()
    assert {consumer.partitions_for(topic) for topic in topics} == {(0, 1)}


def test_pause_state_not_preserved_by_rebalance(
    make_consumer, make_topic, fill, expect_rows, await_assignment, partitions_of, topic, tp
):
    """What was paused, given up and assigned again is not paused any more."""
    other = make_topic("conform")
    fill(tp, 5)
    consumer = make_consumer()
    consumer.subscribe([topic])
    expect_rows(consumer, tp, 5)
    consumer.pause([tp])
    consumer.subscribe([other])
    await_assignment(consumer, partitions_of(other, 1))
    consumer.subscribe([topic])
    assert consumer.paused() == frozenset()
    # Nothing was committed, so it starts again at the beginning.
    expect_rows(consumer, tp, 5)


@without_members
def test_consuming_with_null_group_id(make_consumer, fill, read, tp):
    fill(tp, 3)
    earliest = make_consumer(group_id=None)
    latest = make_consumer(group_id=None, auto_offset_reset="latest")
    sought = make_consumer(group_id=None)
    for consumer in (earliest, latest, sought):
        consumer.assign([tp])
    sought.seek(tp, 1)
    assert len(read(earliest, 3)) == 3
    with pytest.raises(ConfigException, match=r"commit\(\) needs a group: set group.id"):
        earliest.commit()
    with pytest.raises(ConfigException, match=r"committed\(\) needs a group: set group.id"):
        latest.committed([tp])
    assert latest.position(tp) == 3
    assert latest.poll(0.2).num_rows == 0
    assert len(read(sought, 2)) == 2
    for consumer in (earliest, latest, sought):
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        consumer.close()


@without_members
def test_null_group_id_not_supported_if_committing(make_consumer, tp):
    consumer = make_consumer(group_id=None)
    consumer.assign([tp])
    for commit in (consumer.commit, consumer.commit_async):
        with pytest.raises(ConfigException, match="needs a group: set group.id"):
            commit()


def test_static_consumer_detects_new_partition_created_after_restart(
    make_consumer, make_topic, kafka_admin, await_assignment, partitions_of
):
    from confluent_kafka.admin import NewPartitions

    topic = make_topic("conform")
    first = make_consumer(group_instance_id="my-instance-id")
    first.subscribe([topic])
    await_assignment(first, partitions_of(topic, 1))
    first.close()
    second = make_consumer(group_instance_id="my-instance-id")
    second.subscribe([topic])
    await_assignment(second, partitions_of(topic, 1))
    kafka_admin.create_partitions([NewPartitions(topic, 2)])[topic].result(LONG)
    await_assignment(second, partitions_of(topic, 2))


def test_end_offsets(make_consumer, fill, await_assignment, topic, tp, tp2):
    fill(tp, 1000)
    consumer = make_consumer()
    consumer.subscribe([topic])
    await_assignment(consumer, {tp, tp2})
    assert consumer.end_offsets([tp]) == {tp: 1000}


@without_members
def test_seek_throws_if_partitions_not_assigned(make_consumer, tp):
    consumer = make_consumer()
    for seek in (consumer.seek_to_end, consumer.seek_to_beginning, lambda partitions: consumer.seek(partitions[0], 1)):
        with pytest.raises(ConfigException, match=f"{tp} is not assigned"):
            seek([tp])


@without_members
def test_fetch_offsets_for_time(make_consumer, fill, start_ms, tp, tp2):
    fill(tp, 100)
    fill(tp2, 100)
    consumer = make_consumer()
    with pytest.raises(ConfigException, match=f"-1.*{tp}"):
        consumer.offsets_for_times({tp: -1})
    found = consumer.offsets_for_times({tp: start_ms, tp2: start_ms + 20})
    assert found == {tp: 0, tp2: 20}
    assert consumer.offsets_for_times({tp: start_ms + 100}) == {tp: None}


@without_members
def test_kafka_16427_position_respects_timeout(make_consumer, tp):
    absent = tp._replace(partition=15)
    consumer = make_consumer()
    consumer.assign([absent])
    with pytest.raises(TimeoutException, match=f"position of {absent}"):
        consumer.position(absent, timeout=1)


@without_members
def test_kafka_16659_position_respects_wakeup(make_consumer, tp):
    absent = tp._replace(partition=15)
    consumer = make_consumer()
    consumer.assign([absent])
    threading.Timer(0.3, consumer.wakeup).start()
    with pytest.raises(WakeupException):
        consumer.position(absent, timeout=LONG)


@without_members
def test_position_with_error_connection_respects_wakeup(make_consumer, tp):
    consumer = make_consumer(bootstrap_servers="127.0.0.1:1")
    consumer.assign([tp])
    threading.Timer(0.3, consumer.wakeup).start()
    with pytest.raises(WakeupException):
        consumer.position(tp, timeout=LONG)


@without_members
def test_offset_related_when_timeout_zero(make_consumer, tp):
    """No time is a TimeoutException: an empty answer would look like a topic without records."""
    consumer = make_consumer()
    for ask in (
        consumer.beginning_offsets,
        consumer.end_offsets,
        lambda p, timeout: consumer.offsets_for_times({p[0]: 0}, timeout=timeout),
    ):
        with pytest.raises(TimeoutException, match=f"listing offsets of {tp}"):
            ask([tp], timeout=0)
    assert consumer.end_offsets([tp]) == {tp: 0}


def test_kafka_19259_stall_between_poll(make_consumer, make_topic, produce, await_assignment, partitions_of, polls_of):
    """A trickle of records, each while a poll waits: none waits to its end for a record that is there."""
    topic = make_topic("conform", partitions=6)
    consumer = make_consumer()
    consumer.subscribe([topic])
    await_assignment(consumer, partitions_of(topic, 6))
    polls = polls_of(consumer)
    for i in range(12):
        produce(topic, [{"value": f"{i}", "partition": i % 6}])
        assert polls.get(timeout=LONG)["value"].to_pylist() == [b"%d" % i]
