"""What ends the membership of a classic group, and what is tried again after a pause."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import SyncGroupResponse
from tests.unit.consumer.classic_group import T0, Group

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.assignor import MemberSubscription
from sparkrelay.consumer.base.events import Assigned, AssignNeeded
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import SerializationException

NULL_TOPICS = b"\x00\x01" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00"


@pytest.fixture
def group(driver):
    return Group(driver)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED]
)
def test_what_joining_again_does_not_change_is_final(group, code):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    group.driver.answer("JoinGroup", group.joined(code))
    assert group.state is MemberState.FATAL
    assert ErrorCode(code).name in str(group.errors[0])
    group.membership.polled(0.0)
    assert group.driver.pass_time(10) == []


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS]
)
def test_joining_is_repeated_after_a_pause(group, code):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    group.driver.answer("JoinGroup", group.joined(code))
    assert group.driver.poll() == []
    assert group.driver.pass_time(0.1) == ["JoinGroup"]
    assert len(group.coordinator.losses) == (code == ErrorCode.NOT_COORDINATOR)


def test_an_assignor_that_goes_on_failing_is_tried_ever_more_slowly(group):
    """Each try costs the group a rebalance."""
    said = {"m1": MemberSubscription(frozenset({"t"}))}
    group.subscribe()
    pauses = []
    for _ in range(3):
        group.prepare()
        began = group.driver.now
        while group.driver.poll() != ["JoinGroup"]:
            group.driver.now += 0.05
        pauses.append(round(group.driver.now - began, 2))
        group.driver.answer("JoinGroup", group.joined(ErrorCode.MEMBER_ID_REQUIRED))
        assert group.driver.poll() == ["JoinGroup"]
        group.driver.answer("JoinGroup", group.joined(leader="m1", members=said))
        group.topics.answer()
        group.reply(Assigned(group.step(AssignNeeded).number, error=ValueError("bad")))
        assert group.driver.poll() == ["LeaveGroup"]
        group.membership.polled(group.driver.now)
    assert pauses[0] == 0
    assert 0 < pauses[1] < pauses[2]


def test_subscriptions_that_cannot_be_read_are_not_asked_for_at_once_again(group):
    group.subscribe()
    group.prepare()
    group.driver.pass_time(10)  # long after the application polled
    answer = group.joined(leader="m1", members={"m1": MemberSubscription(frozenset({"t"}))})
    answer.members[0].metadata = b""
    group.driver.answer("JoinGroup", answer)
    group.membership.polled(group.driver.now)
    group.prepare()
    assert group.driver.poll() == ["LeaveGroup"]
    assert group.driver.pass_time(0.05) == []
    assert group.driver.pass_time(0.05) == ["JoinGroup"]


@pytest.mark.parametrize("where", ["join", "sync", "heartbeat"])
def test_a_name_that_another_took_over_is_fatal_and_named(driver, where):
    group = Group(driver, group_instance_id="me")
    group.subscribe()
    group.prepare()
    group.driver.poll()
    if where == "join":
        group.driver.answer("JoinGroup", group.joined(code=ErrorCode.FENCED_INSTANCE_ID))
    else:
        group.driver.answer("JoinGroup", group.joined())
        group.driver.poll()
        code = ErrorCode.FENCED_INSTANCE_ID if where == "sync" else 0
        group.driver.answer("SyncGroup", group.synced([T0], code))
        if where == "heartbeat":
            group.beat(ErrorCode.FENCED_INSTANCE_ID)
    assert group.state is MemberState.FATAL
    assert "group.instance.id='me'" in str(group.errors[0])


@pytest.mark.parametrize("leads", [False, True])
def test_data_of_members_that_cannot_be_read_end_the_rebalance_with_a_named_error(group, leads):
    """Null arrays: what some clients write for nothing at all."""
    group.subscribe()
    group.prepare()
    group.driver.poll()
    answer = group.joined(leader="m1", members={"m1": MemberSubscription(frozenset({"t"}))} if leads else {})
    if leads:
        answer.members[0].metadata = NULL_TOPICS
        group.driver.answer("JoinGroup", answer)
        assert group.state is MemberState.STALE
    else:
        group.driver.answer("JoinGroup", group.joined())
        group.driver.poll()
        group.driver.answer("SyncGroup", SyncGroupResponse(error_code=0, assignment=NULL_TOPICS))
        assert group.state is MemberState.FATAL
    assert isinstance(group.errors[0], SerializationException)


def test_an_assignor_that_was_not_offered_is_refused(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    answer = group.joined()
    answer.protocol_name = "stranger"
    group.driver.answer("JoinGroup", answer)
    assert group.state is MemberState.FATAL
    assert "partition.assignment.strategy=x" in str(group.errors[0])
