"""Where a partition is read from: the committed offset, the reset, or what a seek says."""

from __future__ import annotations

from tests.unit.consumer.broker_answers import fetched, listed

from sparkrelay.client.leader_requests import LATEST
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.offsets.positions import PositionsManager
from sparkrelay.errors import AuthenticationException, OffsetOutOfRangeException
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def positions(listing, committing, reset):
    failures, subscription = [], SubscriptionState()
    manager = PositionsManager(
        subscription,
        commits=committing.manager if committing else None,
        offsets=listing,
        reset_timestamp=lambda: reset,
        read_committed=True,
        fail=failures.append,
        notify=lambda: None,
    )
    managers = [manager, *([committing.manager] if committing else []), listing]
    return manager, subscription, failures, listing.driver.__class__(*managers)


def positions_of(subscription):
    standings = {partition: subscription.get(partition) for partition in subscription.assigned}
    return {p: standing.position for p, standing in standings.items() if standing.position is not None}


def test_a_position_is_the_committed_offset_else_the_reset(listing, committing):
    _, subscription, failures, driver = positions(listing, committing, LATEST)
    subscription.assign_from_group([T0, T1])
    assert driver.poll() == ["OffsetFetch"]
    driver.answer("OffsetFetch", fetched(offset=7))
    assert driver.poll() == ["ListOffsets"]
    driver.answer("ListOffsets", listed((1, 0, 20)))
    assert positions_of(subscription) == {T0: 7, T1: 20}
    assert failures == []


def test_a_seek_wins_over_a_position_that_is_being_looked_up(listing):
    _, subscription, _, driver = positions(listing, None, LATEST)
    subscription.assign_by_hand([T0])
    driver.poll()
    subscription.seek(T0, 3)
    driver.answer("ListOffsets", listed((0, 0, 20)))
    assert positions_of(subscription) == {T0: 3}


def test_a_partition_that_was_given_up_gets_no_position(listing):
    _, subscription, _, driver = positions(listing, None, LATEST)
    subscription.assign_by_hand([T0])
    driver.poll()
    subscription.clear()
    driver.answer("ListOffsets", listed((0, 0, 20)))
    assert positions_of(subscription) == {}


def test_without_offset_and_reset_there_is_one_error(listing):
    _, subscription, failures, driver = positions(listing, None, None)
    subscription.assign_by_hand([T0])
    assert driver.poll() == []
    assert driver.pass_time(10) == []
    assert len(failures) == 1
    assert isinstance(failures[0], OffsetOutOfRangeException)
    subscription.seek(T0, 5)
    assert positions_of(subscription) == {T0: 5}


def test_a_refused_lookup_is_raised_and_repeated_after_a_pause(listing):
    _, subscription, failures, driver = positions(listing, None, LATEST)
    subscription.assign_by_hand([T0])
    driver.poll()
    driver.answer("ListOffsets", error=AuthenticationException("who are you"))
    assert len(failures) == 1
    assert driver.poll() == []
    assert driver.pass_time(1.0) == ["ListOffsets"]
