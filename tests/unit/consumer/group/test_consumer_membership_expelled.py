"""Members that the broker expelled under KIP-848, and static members that free their names."""

from __future__ import annotations

import pytest
from tests.unit.consumer.consumer_group import NAME, T0, T1, Group, T, response, said

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, JoinNeeded, Prepared
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import DisconnectException


@pytest.fixture
def group(driver):
    return Group(driver)


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_an_expelled_member_loses_everything_and_joins_anew(group, code):
    group.become_stable([T0], 4)
    member = group.membership.metadata.member_id
    group.beat(code=code, wait=3)
    assert group.state is MemberState.FENCED
    assert group.epoch == -1
    assert group.driver.pass_time(10) == []  # until the application has dropped its partitions
    group.lose()
    assert group.state is MemberState.JOINING
    join = group.beat([T1], 6, wait=1)
    assert (join.member_id, join.member_epoch, said(join)) == (member, 0, {})
    group.adopt([T1])


@pytest.mark.parametrize("stage", ["before the step", "during the step", "before the acknowledgement"])
def test_results_of_before_being_expelled_are_ignored(group, stage):
    """KAFKA-16375."""
    group.subscribe()
    group.beat([T0])
    step = None
    if stage != "before the step":
        group.driver.poll()
        step = group.step(AdoptNeeded)
    if stage == "before the acknowledgement":
        group.reply(Adopted(step.number, owned=frozenset([T0])))
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    if stage == "during the step":
        assert step.cancelled
        group.reply(Adopted(step.number, owned=frozenset([T0])))
    assert group.state is MemberState.FENCED
    group.lose()
    assert said(group.beat([T1], 7)) == {}
    assert group.state is MemberState.RECONCILING
    if stage == "during the step":
        group.reply(Adopted(step.number, owned=frozenset([T0])))
    assert group.state is MemberState.RECONCILING
    group.adopt([T1])
    assert said(group.beat(epoch=7)) == {T: [1]}


def test_an_answer_to_a_heartbeat_of_an_earlier_life_is_ignored(group):
    group.become_stable([T0])
    group.driver.pass_time(3)
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    group.lose()
    group.driver.answer(NAME, response([T1], 9))
    assert group.state is MemberState.JOINING
    assert group.epoch == -1
    assert group.beat([]).member_epoch == 0


def test_a_member_refused_while_joining_tries_ever_more_slowly(group):
    group.subscribe()
    group.beat(code=ErrorCode.FENCED_MEMBER_EPOCH)
    group.lose()
    assert group.driver.pass_time(0.05) == []
    group.beat(code=ErrorCode.FENCED_MEMBER_EPOCH, wait=0.06)
    group.lose()
    assert group.driver.pass_time(0.15) == []
    assert group.driver.pass_time(0.06) == [NAME]


def test_losing_that_was_interrupted_is_done_again(group):
    group.become_stable()
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    group.reply(Prepared(group.step(JoinNeeded).number, error=KeyboardInterrupt()))
    assert group.state is MemberState.FENCED
    group.lose()
    assert group.state is MemberState.JOINING


def test_a_commit_may_bring_the_news_first(group):
    group.become_stable()
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.state is MemberState.FENCED
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    assert len(group.steps) == 1


# -- static members ----------------------------------------------------------------------------------------------------


def leave_then_join(group, code=0):
    """What a static member does that may be in the group already: it frees its name, then joins."""
    assert group.driver.answer(NAME, response(epoch=-2, code=code)).member_epoch == -2
    assert group.driver.find(NAME).request.member_epoch == 0


def test_a_static_member_that_is_fenced_frees_its_name_before_it_joins_again(driver):
    """Otherwise its own name is refused to it: the broker has it with an epoch that is not -2."""
    group = Group(driver, group_instance_id="i")
    group.become_stable([T0])
    group.beat(code=ErrorCode.FENCED_MEMBER_EPOCH, wait=3)
    group.lose()
    assert group.driver.pass_time(1) == [NAME, NAME]
    leave_then_join(group)
    group.beat([T0], 5)
    assert group.epoch == 5
    group.adopt([T0])
    group.beat(epoch=5)
    assert group.driver.pass_time(1) == []


def test_a_static_member_whose_first_heartbeat_was_not_answered_frees_its_name(driver):
    group = Group(driver, group_instance_id="i")
    group.subscribe()
    assert group.driver.poll() == [NAME]
    group.driver.answer(NAME, error=DisconnectException("gone"))
    group.coordinator.node = None
    assert group.driver.pass_time(1) == []
    group.coordinator.node = 2
    assert group.driver.poll() == [NAME, NAME]
    leave_then_join(group)
    # The broker dealt with the first one last: its connection was another one.
    group.driver.answer(NAME, response(code=ErrorCode.UNRELEASED_INSTANCE_ID))
    assert group.state is MemberState.JOINING
    assert group.driver.pass_time(1) == [NAME, NAME]
    leave_then_join(group)
    group.beat([T0], 5)
    assert group.state is MemberState.RECONCILING
    assert group.errors == []


def test_a_name_that_another_member_has_is_refused_also_after_a_heartbeat_without_an_answer(driver):
    group = Group(driver, group_instance_id="i")
    group.subscribe()
    group.driver.poll()
    group.driver.answer(NAME, error=DisconnectException("gone"))
    assert group.driver.pass_time(1) == [NAME, NAME]
    leave_then_join(group, code=ErrorCode.FENCED_INSTANCE_ID)
    group.driver.answer(NAME, response(code=ErrorCode.UNRELEASED_INSTANCE_ID))
    assert group.state is MemberState.FATAL


@pytest.mark.parametrize("instance", [None, "i"])
def test_who_joins_for_the_first_time_or_has_no_name_frees_none(driver, instance):
    group = Group(driver, group_instance_id=instance)
    group.subscribe()
    assert group.driver.poll() == [NAME]
    if instance is None:
        group.driver.answer(NAME, error=DisconnectException("gone"))
        assert group.driver.pass_time(1) == [NAME]
    assert group.driver.find(NAME).request.member_epoch == 0
