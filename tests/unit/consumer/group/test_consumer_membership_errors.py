"""What ends a membership under KIP-848, and what is only reported."""

from __future__ import annotations

import re

import pytest
from tests.unit.consumer.consumer_group import NAME, Group, response

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import AuthorizationException, UnsupportedVersionException


@pytest.fixture
def group(driver):
    return Group(driver)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, r"group\.instance\.id='i'.*UNRELEASED_INSTANCE_ID"),
        (ErrorCode.FENCED_INSTANCE_ID, r"group\.instance\.id='i'.*FENCED_INSTANCE_ID"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, r"group\.remote\.assignor='best'.*UNSUPPORTED_ASSIGNOR"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, r"pattern='\(\?=x\)'.*INVALID_REGULAR_EXPRESSION"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, r"group\.id='g'.*GROUP_AUTHORIZATION_FAILED"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, r"GROUP_MAX_SIZE_REACHED.*group\.max\.size"),
        (ErrorCode.INVALID_REQUEST, r"the broker says why.*INVALID_REQUEST"),
        (ErrorCode.GROUP_ID_NOT_FOUND, r"group\.id='g'.*GROUP_ID_NOT_FOUND"),
        (ErrorCode.UNSUPPORTED_VERSION, r"group\.protocol='consumer'.*group\.version=1.*group\.protocol='classic'"),
    ],
)
def test_errors_that_joining_again_does_not_change_name_the_setting(driver, code, names):
    group = Group(driver, group_instance_id="i", remote_assignor="best")
    group.subscribe((), re.compile("(?=x)"))
    group.beat(code=code, text="the broker says why")
    assert group.state is MemberState.FATAL
    assert group.membership.given_up
    assert re.search(names, str(group.errors[0])), group.errors[0]
    assert group.driver.pass_time(100) == []
    group.subscribe(["t"])
    assert group.driver.pass_time(100) == []  # not before unsubscribe()


@pytest.mark.parametrize(
    ("code", "leaves"), [(ErrorCode.GROUP_AUTHORIZATION_FAILED, [NAME]), (ErrorCode.FENCED_INSTANCE_ID, [])]
)
def test_who_gives_up_leaves_unless_it_is_no_member(driver, make_call, code, leaves):
    group = Group(driver, group_instance_id="i")
    group.become_stable()
    group.beat(code=code, wait=3)
    assert group.state is MemberState.FATAL
    assert group.driver.poll() == leaves
    if leaves:
        assert group.driver.answer(NAME, response(epoch=-2)).member_epoch == -2
    call = make_call()
    group.membership.leave(call, "closing")
    assert call.done
    assert group.driver.pass_time(100) == []


def test_a_broker_that_does_not_know_the_message_is_named(group):
    group.subscribe()
    group.driver.poll()
    group.driver.answer(NAME, error=UnsupportedVersionException("broker 1 is too old"))
    assert group.state is MemberState.FATAL
    assert re.search(r"group\.protocol='classic' until then \(broker 1 is too old\)", str(group.errors[0]))


def test_missing_rights_for_a_topic_are_reported_and_the_member_asks_again(group):
    group.subscribe()
    group.beat(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(group.errors[0], AuthorizationException)
    assert group.state is MemberState.JOINING
    assert group.beat([], wait=0.1).member_epoch == 0


def test_after_a_fatal_error_and_unsubscribe_the_consumer_may_start_again(group, make_call):
    group.subscribe()
    group.beat(code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    call = make_call()
    group.membership.leave(call, "unsubscribed")
    assert call.done
    group.subscribe()
    assert group.state is MemberState.JOINING


def test_errors_of_the_coordinator_search_end_the_membership(group):
    group.become_stable()
    group.membership.refused(AuthorizationException("no"))
    assert group.state is MemberState.FATAL
    assert not group.membership.active
