"""Records of partitions that others may have by now are not returned."""

from __future__ import annotations

import pytest

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.group.membership import LostPartitions
from sparkrelay.types import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def subscription():
    state = SubscriptionState()
    state.subscribe(["t"])
    state.assign_from_group([T0])
    state.release()
    state.seek(T0, 5)
    return state


def test_a_member_may_return_what_it_holds(subscription):
    LostPartitions(lambda: GroupMetadata("g", 3, "m"), subscription).poll(0.0)
    assert subscription.may_return(T0)


def test_kafka_20321_who_has_no_generation_any_more_may_not(subscription):
    guard = LostPartitions(lambda: GroupMetadata("g", -1, "m"), subscription)
    guard.poll(0.0)
    assert not subscription.may_return(T0)
    subscription.release()  # a callback that was under way has returned
    assert not subscription.may_return(T0)
    assert not subscription.fetchable()


def test_what_is_given_again_after_it_was_dropped_may_be_returned(subscription):
    LostPartitions(lambda: GroupMetadata("g", -1, "m"), subscription).poll(0.0)
    subscription.give_up([T0])
    subscription.drop([T0])
    subscription.assign_from_group([T0])
    subscription.release()
    subscription.seek(T0, 5)
    assert subscription.may_return(T0)


def test_partitions_assigned_by_hand_are_nobody_elses(subscription):
    LostPartitions(lambda: None, subscription).poll(0.0)
    assert subscription.may_return(T0)


def test_what_was_being_decoded_when_it_was_lost_is_not_returned(subscription):
    assert subscription.may_return(T0)
    LostPartitions(lambda: GroupMetadata("g", -1, "m"), subscription).poll(0.0)
    assert not subscription.advance(T0, 5, 9)
