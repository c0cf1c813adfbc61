"""Leaving a classic group: who says so, and what it waits for."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import HeartbeatResponse, LeaveGroupResponse
from tests.unit.consumer.classic_group import Group

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.events import Hold, JoinNeeded
from sparkrelay.consumer.group.heartbeats import HeartbeatManager
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import DisconnectException


@pytest.fixture
def group(driver):
    return Group(driver)


def test_an_answer_to_an_earlier_attempt_is_ignored(group, make_call):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    unsent = group.driver.find("JoinGroup")
    group.membership._name("m1")
    call = make_call()
    group.membership.leave(call, "closing")
    unsent.handle(group.joined(), None, 0.0)
    assert group.state is MemberState.LEAVING
    group.driver.waiting.clear()
    assert group.driver.poll() == ["LeaveGroup"]
    group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert call.done
    assert group.state is MemberState.LEAVING
    group.driver.poll()
    assert group.state is MemberState.UNSUBSCRIBED


def test_leaving_before_the_member_has_a_name_waits_for_it(group, make_call):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    group.driver.answer("JoinGroup", group.joined(ErrorCode.MEMBER_ID_REQUIRED, member="m7"))
    assert group.driver.poll() == ["LeaveGroup"]
    assert group.driver.find("LeaveGroup").request.members[0].member_id == "m7"


def test_subscribing_while_the_leave_is_under_way_joins_afterwards(group, make_call):
    """The application knows of the end of unsubscribe() before the membership's next turn."""
    group.become_stable()
    call = make_call()
    group.membership.leave(call, "unsubscribing")
    assert group.driver.poll() == ["LeaveGroup"]
    group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert call.done
    group.subscribe()
    group.driver.poll()
    assert group.state is MemberState.PREPARING
    assert group.step(JoinNeeded).hold is Hold.KEEP


@pytest.mark.parametrize("leave_sent", [False, True])
def test_the_answer_to_a_heartbeat_that_was_under_way_does_not_keep_a_member_from_leaving(
    group, make_call, make_state, leave_sent
):
    """Nor from joining again when the consumer subscribes anew."""
    group.become_stable()
    heartbeats = HeartbeatManager(group.membership, group.coordinator, session_timeout=45.0, state=make_state())
    group.driver.managers = (group.membership, heartbeats)
    group.driver.poll()
    assert group.driver.pass_time(3) == ["Heartbeat"]
    call = make_call()
    group.membership.leave(call, "unsubscribing")
    if leave_sent:
        assert group.driver.poll() == ["LeaveGroup"]
    group.driver.answer("Heartbeat", HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert group.driver.poll() == ([] if leave_sent else ["LeaveGroup"])
    group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert call.done
    assert not group.errors
    group.driver.poll()
    assert group.state is MemberState.UNSUBSCRIBED
    group.subscribe()
    assert group.state is MemberState.PREPARING


def test_leaving_without_a_coordinator_does_not_look_for_one(group, make_call):
    """KAFKA-19357, KAFKA-18569."""
    group.become_stable()
    group.coordinator.node = None
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    assert call.done


def test_leaving_is_done_though_the_broker_does_not_answer(group, make_call):
    group.become_stable()
    call = make_call()
    group.membership.leave(call, "closing")
    group.driver.poll()
    group.driver.answer("LeaveGroup", error=DisconnectException("gone"))
    assert call.result() is None


def test_static_members_do_not_say_good_bye(driver, make_call):
    group = Group(driver, group_instance_id="static")
    group.become_stable()
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    assert call.done


def test_static_members_do_not_wait_for_a_name_when_they_leave(driver, make_call):
    """There is nothing to say to the broker, so nothing to wait for."""
    group = Group(driver, group_instance_id="static")
    group.subscribe()
    group.prepare()
    assert group.driver.poll() == ["JoinGroup"]
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    assert call.done


@pytest.mark.parametrize("named", [True, False])
def test_static_members_that_go_for_good_leave_as_others_do(driver, make_call, named):
    """Else their partitions would wait for session.timeout.ms."""
    group = Group(driver, group_instance_id="static")
    if named:
        group.become_stable()
    else:
        group.subscribe()
        group.prepare()
        group.driver.poll()
    call = make_call()
    group.membership.leave(call, "closing", for_good=True)
    if not named:
        assert group.driver.poll() == []
        group.driver.answer("JoinGroup", group.joined())
    assert group.driver.poll() == ["LeaveGroup"]
    request = group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert request.members[0].member_id == "m1"
    assert call.done


def identity(group):
    """Whom LeaveGroup names, once it is answered."""
    [member] = group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0)).members
    return member.member_id, member.group_instance_id


@pytest.mark.parametrize("where", ["never subscribed", "about to join", "the answer to JoinGroup was lost"])
def test_a_static_member_without_a_member_id_gives_up_its_name_for_good(driver, make_call, where):
    """A former run may have left its place in the group: it would last for session.timeout.ms (KIP-345)."""
    group = Group(driver, group_instance_id="static")
    if where != "never subscribed":
        group.subscribe()
    if "lost" in where:
        group.prepare()
        group.driver.poll()
        group.driver.answer("JoinGroup", error=DisconnectException("gone"))
    call = make_call()
    group.membership.leave(call, "removed", for_good=True)
    assert group.driver.poll() == ["LeaveGroup"]
    assert identity(group) == ("", "static")
    assert call.done
    group.driver.poll()
    assert group.state is MemberState.UNSUBSCRIBED


def test_a_static_member_that_goes_for_good_looks_for_its_coordinator(driver, make_call):
    group = Group(driver, group_instance_id="static")
    needed = []
    group.coordinator.node = None
    group.coordinator.need = lambda: needed.append(1) or group.coordinator.node
    call = make_call()
    group.membership.leave(call, "removed", for_good=True)
    assert group.driver.poll() == []
    assert needed
    assert not call.done
    group.coordinator.node = 1
    assert group.driver.poll() == ["LeaveGroup"]
    assert identity(group) == ("", "static")
    assert call.done


def test_the_search_for_a_coordinator_ends_with_the_time_for_leaving(driver, make_call):
    group = Group(driver, group_instance_id="static")
    group.coordinator.node = None
    call = make_call()
    group.membership.leave(call, "removed", for_good=True)
    assert group.driver.poll() == []
    call.expire(call.deadline)
    assert group.driver.poll() == []
    assert group.state is MemberState.UNSUBSCRIBED


def test_who_was_fenced_by_another_of_its_name_does_not_expel_that_one(driver, make_call):
    group = Group(driver, group_instance_id="static")
    group.become_stable()
    group.beat(ErrorCode.FENCED_INSTANCE_ID)
    assert group.state is MemberState.FATAL
    call = make_call()
    group.membership.leave(call, "removed", for_good=True)
    assert group.driver.poll() == []
    assert call.done


@pytest.mark.parametrize("settings", [{}, {"group_instance_id": "static"}])
def test_who_has_not_subscribed_says_nothing_unless_it_is_static_and_goes_for_good(driver, make_call, settings):
    group = Group(driver, **settings)
    call = make_call()
    group.membership.leave(call, "closing", for_good=not settings)
    assert call.done
    assert group.driver.poll() == []


def test_a_member_that_does_not_poll_leaves(group):
    group.become_stable()
    assert group.driver.pass_time(299) == []
    assert group.driver.pass_time(1) == ["LeaveGroup"]
    assert group.state is MemberState.STALE
    assert not group.membership.beats


def test_who_gives_up_leaves_so_that_others_need_not_wait_for_the_end_of_the_session(group, make_call):
    group.become_stable()
    group.beat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert group.state is MemberState.FATAL
    assert group.driver.poll() == ["LeaveGroup"]
    request = group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert request.members[0].member_id == "m1"
    assert "GROUP_AUTHORIZATION_FAILED" in request.members[0].reason
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    assert call.done


def test_who_was_given_an_assignor_that_it_does_not_have_leaves(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    answer = group.joined(member="m7")
    answer.protocol_name = "stranger"
    group.driver.answer("JoinGroup", answer)
    assert group.driver.poll() == ["LeaveGroup"]
    assert group.driver.find("LeaveGroup").request.members[0].member_id == "m7"
