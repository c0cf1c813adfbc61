"""PlaintextConsumerCommitTest: automatic, waiting and asynchronous commits."""

from __future__ import annotations

import pytest
from tests.integration.consumer.conformance.protocols import without_members
from tests.waiting import LONG, wait_until

from sparkrelay.consumer import OffsetAndMetadata
from sparkrelay.errors import ConfigException, KafkaException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def _pause(consumer, partitions):
    consumer.pause(partitions)


@pytest.mark.parametrize("woken", [False, True])
def test_auto_commit_on_close(make_consumer, fill, await_assignment, topic, tp, tp2, woken):
    """A position that was sought counts, and a wakeup just before `close` does not keep it from committing."""
    fill(tp, 1000)
    consumer = make_consumer(enable_auto_commit=True)
    consumer.subscribe([topic])
    await_assignment(consumer, {tp, tp2})
    consumer.seek(tp, 300)
    consumer.seek(tp2, 500)
    if woken:
        consumer.wakeup()
    consumer.close()
    assert make_consumer().committed([tp, tp2]) == {tp: 300, tp2: 500}


@without_members
def test_commit_metadata(make_consumer, tp):
    consumer = make_consumer()
    consumer.assign([tp])
    waited, asynchronous = OffsetAndMetadata(5, "foo", leader_epoch=15), OffsetAndMetadata(10, "bar")
    consumer.commit({tp: waited})
    assert consumer.committed([tp], with_metadata=True) == {tp: waited}
    consumer.commit_async({tp: asynchronous}).result(LONG)
    assert consumer.committed([tp], with_metadata=True) == {tp: asynchronous}
    consumer.commit({tp: OffsetAndMetadata(5)})
    assert consumer.committed([tp], with_metadata=True) == {tp: OffsetAndMetadata(5, "")}


@without_members
def test_async_commit(make_consumer, poll_until, tp):
    consumer = make_consumer()
    consumer.assign([tp])
    received = []
    futures = [
        consumer.commit_async({tp: i}, callback=lambda offsets, error: received.append((offsets, error)))
        for i in range(1, 6)
    ]
    poll_until(consumer, lambda: len(received) == 5, "the callbacks did not run")
    assert received == [({tp: i}, None) for i in range(1, 6)]
    assert [future.result(0) for future in futures] == [None] * 5
    assert consumer.committed([tp]) == {tp: 5}


@without_members
def test_commit_specified_offsets(make_consumer, fill, tp, tp2):
    fill(tp, 5)
    fill(tp2, 7)
    consumer = make_consumer()
    consumer.assign([tp, tp2])
    before = consumer.position(tp), consumer.position(tp2)
    consumer.commit({tp: 3})
    assert consumer.committed([tp, tp2]) == {tp: 3, tp2: None}
    assert (consumer.position(tp), consumer.position(tp2)) == before
    consumer.commit({tp2: 5})
    assert consumer.committed([tp, tp2]) == {tp: 3, tp2: 5}
    consumer.commit_async({tp2: 7}).result(LONG)
    assert consumer.committed([tp2]) == {tp2: 7}


def test_auto_commit_on_rebalance(
    make_consumer, make_topic, fill, await_assignment, wait_until, partitions_of, topic, tp, tp2
):
    """Also when all partitions stay where they are, as under KIP-848; then nothing waits for the commit."""
    other = make_topic("conform", partitions=2)
    fill(tp, 1000)
    consumer = make_consumer(enable_auto_commit=True, auto_commit_interval_ms=300_000)
    consumer.subscribe([topic], on_assigned=_pause)
    await_assignment(consumer, {tp, tp2})
    consumer.seek(tp, 300)
    consumer.seek(tp2, 500)
    consumer.subscribe([topic, other], on_assigned=_pause)
    await_assignment(consumer, {tp, tp2} | partitions_of(other))
    wait_until(lambda: consumer.committed([tp, tp2]) == {tp: 300, tp2: 500}, "not committed")


def test_subscribe_and_commit_sync(make_consumer, await_assignment, topic, tp, tp2):
    """The member's id and epoch go along with the commit."""
    consumer = make_consumer()
    assert consumer.assignment() == frozenset()
    consumer.subscribe([topic])
    await_assignment(consumer, {tp, tp2})
    consumer.seek(tp, 0)
    consumer.commit()
    assert consumer.committed([tp])[tp] == 0
    assert consumer.group_metadata().member_id


@without_members
def test_position_and_commit(make_consumer, fill, expect_rows, tp):
    fill(tp, 5)
    absent = TopicPartition(tp.topic, 15)
    consumer, other = make_consumer(), make_consumer()
    assert consumer.committed([absent]) == {absent: None}
    with pytest.raises(ConfigException, match=f"{absent} is not assigned"):
        consumer.position(absent)
    consumer.assign([tp])
    assert consumer.position(tp) == 0
    consumer.commit()
    assert consumer.committed([tp]) == {tp: 0}
    expect_rows(consumer, tp, 5)
    assert consumer.position(tp) == 5
    consumer.commit()
    assert consumer.committed([tp]) == {tp: 5}
    fill(tp, 1)
    other.assign([tp])
    expect_rows(other, tp, 1, offset=5, index=0)


def test_commit_async_fails_when_coordinator_unavailable_during_close(make_consumer, tp):
    consumer = make_consumer(bootstrap_servers="127.0.0.1:1")
    consumer.assign([tp])
    future = consumer.commit_async({tp: 1})
    consumer.close(0.5)
    assert future.done()
    with pytest.raises(KafkaException):
        future.result(0)


def test_commit_async_completed_before_consumer_closes(make_consumer, tp, tp2):
    """Also when the coordinator is not known yet, and `close` itself has nothing to commit."""
    consumer = make_consumer()
    consumer.assign([tp, tp2])
    futures = [consumer.commit_async({tp: 1}), consumer.commit_async({tp2: 1})]
    consumer.close()
    assert [future.done() and future.result(0) for future in futures] == [None, None]
    assert make_consumer().committed([tp, tp2]) == {tp: 1, tp2: 1}


@without_members
def test_commit_async_completed_before_commit_sync_returns(make_consumer, tp, tp2):
    consumer = make_consumer()
    consumer.assign([tp, tp2])
    # First without a coordinator, then with one; a waiting commit of something, then of nothing.
    for number, awaited in ((1, {}), (2, {tp2: 2}), (3, {})):
        future = consumer.commit_async({tp: number})
        consumer.commit(awaited)
        assert future.done()
        assert future.exception() is None
        assert consumer.committed([tp]) == {tp: number}
    assert consumer.committed([tp2]) == {tp2: 2}


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_async_commit_before_leaving_a_group_with_others(make_consumer, topic, tp, tp2, end):
    """Not one of Kafka's. Others are members still, so the broker takes no commit of one that has left."""
    leaver, stayer = make_consumer(), make_consumer()
    for consumer in (leaver, stayer):
        consumer.subscribe([topic])

    def shared():
        leaver.poll(0.1)
        stayer.poll(0.1)
        return len(leaver.assignment()) == len(stayer.assignment()) == 1

    wait_until(shared, "the partitions were not shared out")
    [mine] = leaver.assignment()
    future = leaver.commit_async({mine: 7})
    getattr(leaver, end)()
    assert future.result(0) is None
    assert stayer.committed([tp, tp2])[mine] == 7
