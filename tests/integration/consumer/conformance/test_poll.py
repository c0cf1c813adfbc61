"""PlaintextConsumerPollTest: limits of a poll, the poll interval, and members that fall silent."""

from __future__ import annotations

import time

import pytest
from tests.integration.consumer.conformance.protocols import without_members

from sparkrelay.errors import OffsetOutOfRangeException

pytestmark = pytest.mark.integration


@without_members
def test_max_poll_records(make_consumer, fill, wait_until, tp):
    fill(tp, 1000)
    consumer = make_consumer(max_poll_records=100)
    consumer.assign([tp])
    offsets = []

    def polled():
        offsets.append(consumer.poll(1)["offset"].to_pylist())
        return sum(map(len, offsets)) == 1000

    wait_until(polled, "not all records came")
    assert max(map(len, offsets)) == 100
    assert [offset for some in offsets for offset in some] == list(range(1000))


def test_max_poll_interval_ms(make_consumer, await_assignment, poll_until, partitions_of, topic, story):
    """Who does not poll loses its partitions to others, learns of it at its next poll, and is a member again."""
    consumer = make_consumer(max_poll_interval_ms=4000)
    consumer.subscribe([topic], **story.callbacks())
    await_assignment(consumer, partitions_of(topic))
    assert (story.count("assigned"), story.count("revoked"), story.count("lost")) == (1, 0, 0)
    other = make_consumer()
    other.subscribe([topic])
    await_assignment(other, partitions_of(topic))
    other.close()
    poll_until(consumer, lambda: story.count("assigned") == 2, "the member did not come back")
    assert (story.count("revoked"), story.count("lost")) == (0, 1)
    assert consumer.assignment() == partitions_of(topic)


@pytest.mark.long
def test_max_poll_interval_ms_delay_in_revocation(
    make_consumer, make_topic, await_assignment, short_session, topic, tp, tp2
):
    """A callback that takes longer than the session keeps its member in the group: its commit counts."""
    other, committed = make_topic("conform", partitions=1), []

    def revoked(consumer, partitions):
        if tp in partitions:
            time.sleep(short_session + 5)
            consumer.commit({tp: consumer.position(tp)})
            committed.append(consumer.committed([tp])[tp])

    consumer = make_consumer(max_poll_interval_ms=60_000, session_timeout_ms=short_session * 1000)
    consumer.subscribe([topic], on_revoked=revoked)
    await_assignment(consumer, {tp, tp2})
    consumer.position(tp)
    consumer.subscribe([other], on_revoked=revoked)
    await_assignment(consumer, {tp._replace(topic=other)})
    assert committed == [0]


@pytest.mark.long
def test_max_poll_interval_ms_delay_in_assignment(make_consumer, poll_until, short_session, topic, tp, story):
    """So does a callback of new partitions."""
    callbacks = story.callbacks()

    def assigned(consumer, partitions):
        time.sleep(short_session + 5)
        callbacks["on_assigned"](consumer, partitions)

    consumer = make_consumer(max_poll_interval_ms=60_000, session_timeout_ms=short_session * 1000)
    consumer.subscribe([topic], **callbacks | {"on_assigned": assigned})
    poll_until(consumer, lambda: story.count("assigned"), "no assignment")
    # Only a member of the present generation can commit.
    consumer.commit({tp: 0})
    consumer.poll(0.1)
    assert story.kinds() == ["assigned"]


@pytest.mark.long
def test_max_poll_interval_ms_shorter_than_poll_timeout(make_consumer, await_assignment, topic, tp, tp2, story):
    consumer = make_consumer(max_poll_interval_ms=6000)
    consumer.subscribe([topic], **story.callbacks())
    await_assignment(consumer, {tp, tp2})
    assert consumer.poll(8).num_rows == 0
    consumer.poll(0.5)
    consumer.commit({tp: 0})
    assert story.kinds() == ["assigned"]


@pytest.mark.parametrize("closing", [False, True], ids=["stop-polling", "close"])
def test_multi_consumer_session_timeout(make_consumer, make_topic, members, wait_until, partitions_of, topic, closing):
    """A member that stops polling, or closes, leaves its partitions to the others."""
    second = make_topic("conform", partitions=6)
    everything = partitions_of(topic) | partitions_of(second, 6)
    stays = [members([topic, second]) for _ in range(2)]
    goes = members([topic, second], **{} if closing else {"max_poll_interval_ms": 1500})
    three = [*stays, goes]
    wait_until(lambda: _shared(everything, three), "not shared among three")
    goes.stop(leave=closing)
    wait_until(lambda: _shared(everything, stays), "not shared among two")
    if closing:
        assert members.owners.clashes == []


def _shared(partitions, members):
    shares = [set(member.held) for member in members]
    return all(shares) and sum(map(len, shares)) == len(partitions) and set().union(*shares) == partitions


def test_poll_eventually_returns_records_with_zero_timeout(make_consumer, fill, wait_until, topic, tp):
    fill(tp, 100)
    consumer, counts = make_consumer(), []
    consumer.subscribe([topic])

    def polled():
        counts.append(consumer.poll(0).num_rows)
        return counts[-1]

    wait_until(polled, "no records")
    assert counts[-1] == 100


@without_members
def test_no_offset_for_partition_exception_on_poll_zero(make_consumer, wait_until, tp):
    consumer, caught = make_consumer(auto_offset_reset="none"), []
    consumer.assign([tp])

    def polled():
        try:
            consumer.poll(0)
        except OffsetOutOfRangeException as error:
            caught.append(str(error))
        return caught

    wait_until(polled, "no error")
    assert f"no committed offset for {tp}" in caught[0]


@pytest.mark.long
def test_consumer_recovery_on_poll_after_delayed_rebalance(
    make_consumer, make_topic, fill, read, poll_until, topic, tp
):
    """A callback that outlasts max.poll.interval.ms costs the membership; the next polls win it back."""
    other, revoked = make_topic("conform"), []
    fill(tp, 10)
    fill(tp._replace(topic=other), 10)

    def slow(consumer, partitions):
        if tp in partitions:
            time.sleep(5)
            revoked.append(partitions)

    consumer = make_consumer(max_poll_interval_ms=4000)
    consumer.subscribe([topic], on_revoked=slow)
    assert len(read(consumer, 10)) == 10
    consumer.subscribe([other], on_revoked=slow)
    rows = poll_until(consumer, lambda: revoked, "no callback")
    rows += read(consumer, 10 - len(rows)) if len(rows) < 10 else []
    assert [row["topic"] for row in rows] == [other] * 10
