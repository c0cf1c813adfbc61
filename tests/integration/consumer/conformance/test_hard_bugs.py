"""Bugs that cost Kafka's own consumer dearly, as tests of ours on a real broker. The names have their numbers.

Others of them are tested elsewhere: the second table of `INVENTORY.md` has all.
"""

from __future__ import annotations

import threading

import pytest
from tests.waiting import LONG

from sparkrelay.errors import DisconnectException, WakeupException

pytestmark = pytest.mark.integration


@pytest.mark.long
def test_kafka_20332_no_records_of_partitions_that_were_revoked(make_consumer, fill, wait_until, topic, tp, tp2):
    """What `on_revoked` commits is all that was returned: between two members each record comes exactly once."""
    fill(tp, 200)
    fill(tp2, 200)
    rows, gone = [], set()

    def revoked(consumer, partitions):
        consumer.commit()
        gone.update(partitions)

    first, second = make_consumer(max_poll_records=5), make_consumer()
    first.subscribe([topic], on_revoked=revoked, on_assigned=lambda _, partitions: gone.difference_update(partitions))

    def poll(consumer):
        new = [(tp._replace(partition=row["partition"]), row["offset"]) for row in consumer.poll(0.1).to_pylist()]
        assert consumer is second or not gone & {partition for partition, _ in new}
        rows.extend(new)

    wait_until(lambda: poll(first) or len(rows) >= 20, "no records")
    second.subscribe([topic])

    def share():
        poll(first)
        poll(second)
        return len(first.assignment()) == len(second.assignment()) == 1 and len(rows) >= 400

    wait_until(share, "not all records came")
    assert sorted(rows) == [(partition, offset) for partition in (tp, tp2) for offset in range(200)]


def test_kafka_20780_an_empty_answer_to_a_fetch_lets_the_next_one_go_at_once(
    make_consumer, produce, await_assignment, wait_until, topic, tp, tp2
):
    """One call of `poll` goes on asking while there is nothing; what comes then ends it."""
    consumer = make_consumer(fetch_max_wait_ms=20)
    consumer.subscribe([topic])
    await_assignment(consumer, {tp, tp2})
    returned = []
    waiting = threading.Thread(target=lambda: returned.append(consumer.poll(120).num_rows))

    def answers():
        return consumer.metrics()["fetch-total"]

    before = answers()
    waiting.start()
    wait_until(lambda: answers() >= before + 10, "after an empty answer nothing is asked for")
    assert returned == []
    produce(topic, [{"value": "x", "partition": 0}])
    waiting.join(LONG)
    assert returned == [1]


@pytest.mark.long
def test_kafka_20321_no_records_of_partitions_that_were_lost(
    make_consumer, fill, await_assignment, wait_until, topic, tp, tp2, story
):
    """Fetched, but others have the partition by now: such records never come."""
    fill(tp, 200)
    fill(tp2, 200)
    silent = make_consumer(max_poll_interval_ms=4000, max_poll_records=1)
    silent.subscribe([topic], **story.callbacks())
    wait_until(lambda: silent.poll(0.1).num_rows, "no records")
    other = make_consumer()
    other.subscribe([topic])
    await_assignment(other, {tp, tp2})
    before = []

    def back():
        count = silent.poll(0.1).num_rows
        other.poll(0.1)
        if story.count("assigned") == 2:
            return True
        before.append(count)
        return False

    wait_until(back, "the member did not come back")
    assert sum(before) == 0
    assert story.kinds() == ["assigned", "lost", "assigned"]


@pytest.mark.parametrize("trouble", ["error", "wakeup"])
def test_kafka_18160_trouble_in_a_callback_does_not_stop_the_rebalance(
    make_consumer, await_assignment, wait_until, topic, tp, tp2, trouble
):
    caught = []

    def revoked(consumer, _):
        if trouble == "error":
            raise ValueError("in the callback")
        consumer.wakeup()
        consumer.commit()

    first, second = make_consumer(), make_consumer()
    first.subscribe([topic], on_revoked=revoked)
    await_assignment(first, {tp, tp2})
    second.subscribe([topic])

    def share():
        second.poll(0.1)
        try:
            first.poll(0.1)
        except (ValueError, WakeupException) as error:
            caught.append(type(error))
        return len(first.assignment()) == len(second.assignment()) == 1

    wait_until(share, "the rebalance does not end")
    assert caught == [ValueError if trouble == "error" else WakeupException]
    first.subscribe([topic])


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_kafka_16933_the_group_is_left_although_the_callback_fails(
    make_consumer, await_assignment, topic, tp, tp2, end
):
    """The session lasts minutes: only leaving frees the partitions sooner."""

    def revoked(*_):
        raise ValueError("in the callback")

    consumer = make_consumer(session_timeout_ms=600_000, max_poll_interval_ms=600_000)
    consumer.subscribe([topic], on_revoked=revoked)
    await_assignment(consumer, {tp, tp2})
    with pytest.raises(ValueError, match="in the callback"):
        getattr(consumer, end)()
    other = make_consumer()
    other.subscribe([topic])
    await_assignment(other, {tp, tp2})


class Broken:
    """A manager with an error in it."""

    def poll(self, now):
        raise ZeroDivisionError("broken manager")


def test_kafka_18812_a_dead_network_thread_is_reported_to_whoever_waits(
    make_consumer, await_assignment, topic, tp, tp2
):
    consumer = make_consumer()
    consumer.subscribe([topic])
    await_assignment(consumer, {tp, tp2})
    caught = []

    def wait():
        try:
            while True:
                consumer.poll(LONG)
        except DisconnectException as error:
            caught.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    consumer._network.core.managers = (Broken(),)
    consumer._network.wake()
    waiting.join(LONG)
    assert not waiting.is_alive()
    assert "broken manager" in caught[0]
    for call in (
        lambda: consumer.poll(LONG),
        lambda: consumer.commit({tp: 1}),
        lambda: consumer.committed([tp]),
        lambda: consumer.end_offsets([tp]),
        lambda: consumer.partitions_for(topic),
    ):
        with pytest.raises(DisconnectException, match="broken manager"):
            call()
    consumer.close()
