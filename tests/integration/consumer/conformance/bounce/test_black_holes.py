"""Requests that are never answered: closing does all it can in its time, and waits for nothing it does not need."""

from __future__ import annotations

import struct

import pytest
from tests.waiting import AVOIDED, within

pytestmark = pytest.mark.integration

OFFSET_COMMIT, FIND_COORDINATOR, LEAVE_GROUP, CONSUMER_GROUP_HEARTBEAT = 8, 10, 13, 68


def _is_leave(frame):
    """LeaveGroup, or the heartbeat of KIP-848 with an epoch of -1."""
    api_key, _, _, client_id_length = struct.unpack_from(">hhih", frame)
    if api_key != CONSUMER_GROUP_HEARTBEAT:
        return api_key == LEAVE_GROUP
    at = 10 + client_id_length + 1  # behind the header and its tagged fields
    for _ in range(2):  # group and member, short compact strings
        at += frame[at]
    return struct.unpack_from(">i", frame, at)[0] == -1


@pytest.mark.long
def test_dekaf_3387_a_lost_commit_does_not_eat_the_time_for_leaving(kafka, make_consumer, fill, read, topic, tp):
    """The coordinator does not answer the last commit: the member leaves all the same, and `close` returns."""
    fill(tp, 10)
    consumer = make_consumer(
        enable_auto_commit=True,
        session_timeout_ms=600_000,
        max_poll_interval_ms=600_000,
        request_timeout_ms=AVOIDED * 1000,
        default_api_timeout_ms=AVOIDED * 1000,
    )
    consumer.subscribe([topic])
    assert len(read(consumer, 10)) == 10
    kafka.proxy.lost = frozenset({OFFSET_COMMIT})
    with within():
        consumer.close(4)
    frames = kafka.proxy.frames
    commit = next(n for n, frame in enumerate(frames) if struct.unpack_from(">h", frame)[0] == OFFSET_COMMIT)
    assert any(_is_leave(frame) for frame in frames[commit:])


def test_kafka_19357_close_without_a_coordinator_does_not_hang(kafka, make_consumer, topic):
    """Nobody says who coordinates: a member that never joined has nothing to leave."""
    kafka.proxy.lost = frozenset({FIND_COORDINATOR})
    consumer = make_consumer(enable_auto_commit=True)
    consumer.subscribe([topic])
    consumer.poll(0.5)
    with within():
        consumer.close(AVOIDED)


def test_kafka_18569_close_looks_for_no_coordinator_that_it_does_not_need(kafka, make_consumer, fill, read, tp):
    fill(tp, 10)
    consumer = make_consumer(auto_offset_reset="earliest")
    # In one, as seen from the network thread: what has no position yet is looked up by the group's committed offsets.
    with consumer._session.subscription._lock:
        consumer.assign([tp])
        consumer.seek(tp, 0)
    assert len(read(consumer, 10)) == 10
    assert FIND_COORDINATOR not in kafka.proxy.seen
    kafka.proxy.frames.clear()
    consumer.close()
    assert FIND_COORDINATOR not in kafka.proxy.seen
    assert LEAVE_GROUP not in kafka.proxy.seen
