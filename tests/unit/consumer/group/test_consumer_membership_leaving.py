"""Leaving under KIP-848: from every state, and for not polling."""

from __future__ import annotations

import math

import pytest
from tests.unit.consumer.consumer_group import NAME, T0, T1, Group, response

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import DisconnectException


@pytest.fixture
def group(driver):
    return Group(driver)


@pytest.mark.parametrize(
    ("instance", "for_good", "epoch"), [(None, False, -1), (None, True, -1), ("i", False, -2), ("i", True, -1)]
)
@pytest.mark.parametrize(
    "state", [MemberState.JOINING, MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE]
)
def test_a_member_leaves_from_every_state(driver, make_call, state, instance, for_good, epoch):
    group = Group(driver, group_instance_id=instance)
    group.subscribe()
    group.driver.poll()
    if state is not MemberState.JOINING:
        group.beat([T0])
        group.driver.poll()
    if state in {MemberState.ACKNOWLEDGING, MemberState.STABLE}:
        group.reply(Adopted(group.step(AdoptNeeded).number, owned=frozenset([T0])))
    if state is MemberState.STABLE:
        group.beat()
    assert group.state is state
    group.driver.waiting.clear()
    call = make_call()
    group.membership.leave(call, "closing", for_good=for_good)
    assert group.epoch == -1
    assert group.driver.poll() == [NAME]
    assert group.state is MemberState.UNSUBSCRIBED
    assert not call.done
    leave = group.driver.answer(NAME, response(epoch=epoch))
    assert (leave.member_epoch, leave.instance_id) == (epoch, instance)
    assert leave.member_id
    assert call.done
    assert group.driver.pass_time(100) == []


def test_the_leave_goes_out_although_a_heartbeat_is_under_way(group, make_call):
    group.become_stable()
    group.driver.pass_time(3)
    group.membership.leave(make_call(), "closing")
    assert group.driver.poll() == [NAME]
    group.driver.answer(NAME, response([T1], 8))  # of the heartbeat
    assert group.state is MemberState.UNSUBSCRIBED
    assert group.epoch == -1


@pytest.mark.parametrize("failure", [DisconnectException("gone"), None])
def test_a_leave_that_fails_holds_nobody_up(group, make_call, failure):
    group.become_stable()
    call = make_call()
    group.membership.leave(call, "closing")
    group.driver.poll()
    refusal = None if failure else response(code=ErrorCode.UNKNOWN_MEMBER_ID)
    group.driver.answer(NAME, refusal, failure)
    assert call.done
    assert call.result() is None


@pytest.mark.parametrize("why", ["nobody knows of it", "no coordinator", "expelled", "not subscribed", "twice"])
def test_nothing_is_said_where_there_is_nothing_to_leave(group, make_call, why):
    """KAFKA-19357, KAFKA-18569: no coordinator is waited or looked for."""
    if why == "nobody knows of it":
        group.subscribe()
    elif why != "not subscribed":
        group.become_stable()
    if why == "no coordinator":
        group.coordinator.node = None
    elif why == "expelled":
        group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    elif why == "twice":
        group.membership.leave(make_call(), "closing")
        group.driver.poll()
        group.driver.waiting.clear()
    call = make_call()
    group.membership.leave(call, "closing")
    assert call.done
    assert group.driver.pass_time(1) == []
    assert group.state is MemberState.UNSUBSCRIBED
    assert not group.membership.subscribed


def test_whoever_subscribes_again_at_once_leaves_first(group, make_call):
    group.become_stable()
    group.membership.leave(make_call(), "unsubscribed")
    group.subscribe()
    assert group.driver.poll() == [NAME, NAME]
    assert group.driver.answer(NAME, response(epoch=-1)).member_epoch == -1
    assert group.state is MemberState.JOINING
    assert group.driver.answer(NAME, response([], 3)).member_epoch == 0
    assert group.state is MemberState.RECONCILING


# -- not polling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_that_does_not_poll_leaves_and_returns_when_polled(driver, instance, epoch):
    group = Group(driver, group_instance_id=instance, max_poll_interval=10.0)
    group.become_stable([T0])
    for _ in range(3):
        group.beat(wait=3)
    assert group.beat(wait=1).member_epoch == epoch
    assert group.state is MemberState.STALE
    assert group.membership.awaits_poll
    assert group.membership.subscribed
    assert group.driver.pass_time(100) == []
    group.membership.polled(group.driver.now)
    assert group.state is MemberState.STALE  # the partitions are still held
    group.lose()
    assert group.state is MemberState.JOINING
    assert group.beat([T1], 9).member_epoch == 0


def test_a_member_whose_poll_came_too_late_leaves_and_joins_again_by_that_poll(driver):
    """The process was stopped, so nobody noticed in time: its partitions may be others' by now."""
    group = Group(driver)
    group.become_stable([T0])
    group.membership.poll_missed()
    group.membership.polled(group.driver.now)
    assert group.beat().member_epoch == -1
    group.lose()
    assert group.state is MemberState.JOINING
    group.membership.leave(Call("leave", math.inf), "enough")
    group.membership.poll_missed()  # it has left
    assert group.state is not MemberState.STALE


def test_a_stale_member_that_dropped_its_partitions_waits_for_poll(driver):
    group = Group(driver, max_poll_interval=2.0)
    group.become_stable([T0])
    group.driver.pass_time(2)
    group.lose()
    assert group.state is MemberState.STALE
    group.membership.polled(group.driver.now)
    assert group.state is MemberState.JOINING


def test_a_callback_that_takes_too_long_leaves_the_group(driver):
    group = Group(driver, max_poll_interval=2.0)
    group.subscribe()
    group.beat([T0])
    group.driver.poll()
    step = group.step(AdoptNeeded)
    group.driver.pass_time(2)
    assert group.state is MemberState.STALE
    assert step.cancelled
    group.reply(Adopted(step.number, owned=frozenset([T0])))
    assert group.state is MemberState.STALE
    group.lose()
