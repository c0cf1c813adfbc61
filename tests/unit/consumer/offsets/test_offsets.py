"""Offsets that leaders are asked for."""

from __future__ import annotations

import pytest
from tests.unit.consumer.broker_answers import listed

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.leader_requests import LATEST
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_end_offsets_are_one_round_trip_to_each_leader(listing, make_call):
    call = make_call()
    listing.ask(call, {T0: LATEST, T1: LATEST}, read_committed=True)
    assert listing.driver.poll() == ["ListOffsets", "ListOffsets"]
    assert listing.driver.answer("ListOffsets", listed((0, 0, 10))).isolation_level == 1
    assert not call.done
    listing.driver.answer("ListOffsets", listed((1, 0, 20)))
    assert call.result() == {T0: 10, T1: 20}


def test_a_partition_that_is_not_there_is_the_reason_that_its_offsets_take_too_long(listing, make_call):
    call = make_call()
    listing.ask(call, {TopicPartition("t", 7): LATEST}, read_committed=True)
    assert listing.driver.poll() == []
    assert listing.stale_ == ["t"]
    assert str(call.last_error).startswith("t-7: topic 't' has 2 partitions: UNKNOWN_TOPIC_OR_PARTITION (3)")


def test_only_partitions_that_moved_are_asked_for_again(listing, make_call):
    call = make_call()
    listing.ask(call, {T0: LATEST, T1: LATEST}, read_committed=False)
    listing.driver.poll()
    listing.driver.answer("ListOffsets", listed((0, 0, 10)))
    listing.driver.answer("ListOffsets", listed((1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)))
    assert listing.stale_ == ["t"]
    assert listing.driver.poll() == []
    assert listing.driver.pass_time(0.1) == ["ListOffsets"]
    listing.driver.answer("ListOffsets", listed((1, 0, 20)))
    assert call.result() == {T0: 10, T1: 20}


def test_an_unknown_topic_says_so_when_time_runs_out(listing, make_call):
    call = make_call("listing offsets", deadline=5.0)
    listing.metadata._errors["missing"] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    listing.ask(call, {TopicPartition("missing", 0): LATEST}, read_committed=True)
    assert listing.driver.poll() == []
    assert "missing" in listing.stale_
    call.expire(6.0)
    with pytest.raises(Exception, match="not done in time.*'missing'.*UNKNOWN_TOPIC_OR_PARTITION"):
        call.result()


def test_a_refusal_ends_the_question(listing, make_call):
    call = make_call()
    listing.ask(call, {T0: LATEST}, read_committed=True)
    listing.driver.poll()
    listing.driver.answer("ListOffsets", listed((0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)))
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        call.result()
    assert listing.driver.pass_time(10) == []
