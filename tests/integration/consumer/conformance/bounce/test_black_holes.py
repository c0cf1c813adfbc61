"""Requests that are never answered: closing does all it can in its time, and waits for nothing it does not need."""

from __future__ import annotations

import time

import pytest

pytestmark = pytest.mark.integration

OFFSET_COMMIT, FIND_COORDINATOR, LEAVE_GROUP = 8, 10, 13


def test_dekaf_3387_a_lost_commit_does_not_eat_the_time_for_leaving(
    kafka, make_consumer, fill, read, await_assignment, partitions_of, topic, tp
):
    """The session lasts 45 s or more: only a farewell frees the partitions sooner."""
    fill(tp, 10)
    consumer = make_consumer(enable_auto_commit=True, session_timeout_ms=600_000, max_poll_interval_ms=600_000)
    consumer.subscribe([topic])
    assert len(read(consumer, 10)) == 10
    kafka.proxy.lost = frozenset({OFFSET_COMMIT})
    started = time.monotonic()
    consumer.close(4)
    assert time.monotonic() - started < 20
    assert OFFSET_COMMIT in kafka.proxy.seen
    other = make_consumer()
    other.subscribe([topic])
    closed = time.monotonic()
    await_assignment(other, partitions_of(topic))
    assert time.monotonic() - closed < 30


def test_kafka_19357_close_without_a_coordinator_does_not_hang(kafka, make_consumer, topic):
    """Nobody says who coordinates: a member that never joined has nothing to leave."""
    kafka.proxy.lost = frozenset({FIND_COORDINATOR})
    consumer = make_consumer(enable_auto_commit=True)
    consumer.subscribe([topic])
    consumer.poll(0.5)
    started = time.monotonic()
    consumer.close()
    assert time.monotonic() - started < 10


def test_kafka_18569_close_looks_for_no_coordinator_that_it_does_not_need(kafka, make_consumer, fill, read, tp):
    fill(tp, 10)
    consumer = make_consumer(auto_offset_reset="earliest")
    consumer.assign([tp])
    consumer.seek(tp, 0)
    assert len(read(consumer, 10)) == 10
    kafka.proxy.seen.clear()
    consumer.close()
    assert FIND_COORDINATOR not in kafka.proxy.seen
    assert LEAVE_GROUP not in kafka.proxy.seen
