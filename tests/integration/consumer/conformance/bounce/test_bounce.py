"""ConsumerBounceTest: brokers that die and come back, closing without them, and groups that are full.

Kafka has three brokers here and kills some; ours is one that dies altogether, which leaves a consumer less.
"""

from __future__ import annotations

import random
import threading

import pytest
from tests.integration.consumer.conformance.protocols import without_members
from tests.waiting import AVOIDED, LONG, within

from sparkrelay.errors import KafkaException

pytestmark = pytest.mark.integration

#: Longer than a restart of the broker takes.
SESSION_MS = 45_000


@pytest.fixture
def make_consumer(make_consumer):
    def make(**config):
        return make_consumer(**{"session_timeout_ms": SESSION_MS, "reconnect_backoff_max_ms": 200} | config)

    return make


@pytest.mark.long
def test_consumption_with_broker_failures(kafka, make_consumer, fill, topic, tp):
    """Every record in its order, each batch committed, while the broker dies twice."""
    fill(tp, 100)
    consumer = make_consumer()
    consumer.subscribe([topic])
    expected = 0
    for _ in range(2):
        rounds, bouncing = 0, None
        while bouncing is None or bouncing.is_alive() or rounds < 3:
            offsets = consumer.poll(0.1, max_records=30)["offset"].to_pylist()
            assert offsets == list(range(expected, expected + len(offsets)))
            if not offsets:
                continue
            expected += len(offsets)
            consumer.commit()
            assert consumer.committed([tp]) == {tp: expected}
            if consumer.position(tp) == 100:
                consumer.seek_to_beginning()
                expected, rounds = 0, rounds + 1
            if bouncing is None:
                bouncing, rounds = kafka.bounce(), 0


@pytest.mark.long
@without_members
def test_seek_and_commit_with_broker_failures(kafka, make_consumer, fill, tp):
    fill(tp, 100)
    consumer, coins = make_consumer(), random.Random(5)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    bouncing, after = kafka.bounce(), 0
    while bouncing.is_alive() or after < 10:
        after += not bouncing.is_alive()
        match coins.randrange(3):
            case 0:
                consumer.seek_to_end()
                assert consumer.position(tp) == 100
            case 1:
                offset = coins.randrange(100)
                consumer.seek(tp, offset)
                assert consumer.position(tp) == offset
            case _:
                consumer.commit()
                assert consumer.committed([tp]) == {tp: consumer.position(tp)}


@pytest.mark.long
def test_subscribe_when_topic_unavailable(kafka, make_consumer, kafka_admin, produce, read, wait_until, topic):
    from confluent_kafka.admin import NewTopic

    late = f"{topic}-late"
    consumer = make_consumer()
    consumer.subscribe([late])
    assert consumer.poll(0).num_rows == 0
    kafka_admin.create_topics([NewTopic(late, num_partitions=1)])[late].result(LONG)
    wait_until(lambda: late in kafka_admin.list_topics(timeout=LONG).topics, "no topic")
    produce(late, [{"value": f"{i}"} for i in range(50)])
    assert [row["offset"] for row in read(consumer, 50)] == list(range(50))
    bouncing = kafka.bounce()
    while bouncing.is_alive():
        consumer.poll(0.1)
    produce(late, [{"value": f"{i}"} for i in range(50)])
    assert [row["offset"] for row in read(consumer, 50)] == list(range(50, 100))


@pytest.mark.long
def test_close(kafka, make_consumer, fill, read, await_assignment, partitions_of, topic, tp, group):
    fill(tp, 10)

    # All is well: what was read is committed, the place in the group is free at once.
    consumer = make_consumer(enable_auto_commit=True)
    consumer.subscribe([topic])
    assert len(read(consumer, 10)) == 10
    consumer.close()
    other = make_consumer()
    other.subscribe([topic])
    await_assignment(other, partitions_of(topic))
    assert other.committed([tp]) == {tp: 10}
    other.close()

    # The coordinator, and here every broker, is gone: closing gives up in time, although a request may take minutes.
    patient = {"request_timeout_ms": AVOIDED * 1000, "default_api_timeout_ms": AVOIDED * 1000}
    member = make_consumer(group_id=f"{group}-member", enable_auto_commit=True, **patient)
    member.subscribe([topic])
    by_hand = make_consumer(group_id=f"{group}-by-hand", enable_auto_commit=True, **patient)
    by_hand.assign([tp])
    assert len(read(member, 10)) == len(read(by_hand, 10)) == 10
    kafka.kill()
    with within():
        member.close(2)
        by_hand.close(2)


@pytest.mark.long
def test_consumer_receives_fatal_exception_when_group_passes_max_size(
    make_consumer, members, make_topic, produce, wait_until, partitions_of
):
    topic = make_topic("conform", partitions=3)
    group = [members([topic], enable_auto_commit=True, auto_commit_interval_ms=0) for _ in range(3)]
    wait_until(lambda: all(len(member.held) == 1 for member in group), "the group is not full")
    extra = members([topic])
    wait_until(lambda: extra.errors, "the member too many was not refused")
    assert isinstance(extra.errors[0], KafkaException)
    assert "GROUP_MAX_SIZE_REACHED" in str(extra.errors[0])
    # The others go on.
    produce(topic, [{"value": f"{p}", "partition": p} for p in range(3)])
    other, everything = make_consumer(), partitions_of(topic, 3)
    wait_until(lambda: other.committed(everything) == dict.fromkeys(everything, 1), "the group stands still")
    assert members.owners.clashes == []


@pytest.mark.long
def test_close_during_rebalance(kafka, make_consumer, make_topic, wait_until, await_assignment, partitions_of):
    topic = make_topic("conform", partitions=10)
    everything = partitions_of(topic, 10)
    first, second, third = (make_consumer() for _ in range(3))

    def share(*consumers):
        for consumer in consumers:
            consumer.poll(0.1)
        shares = [consumer.assignment() for consumer in consumers]
        return all(shares) and sum(map(len, shares)) == 10 and frozenset().union(*shares) == everything

    first.subscribe([topic])
    await_assignment(first, everything)
    second.subscribe([topic])
    wait_until(lambda: share(first, second), "not shared")

    # A third member waits for the two others, which do not poll: one of them closes.
    third.subscribe([topic])
    third.poll(0.5)
    assert third.assignment() == frozenset()
    with within():
        first.close(AVOIDED)
    wait_until(lambda: share(second, third), "the rebalance does not end")

    # Another rebalance begins, and the broker dies.
    waiting = make_consumer()
    waiting.subscribe([topic])
    waiting.poll(0.5)
    kafka.kill()
    closing = [threading.Thread(target=consumer.close, args=(2,)) for consumer in (second, third, waiting)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(LONG)
        assert not thread.is_alive()
