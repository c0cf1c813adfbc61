"""Members of a classic group that are expelled, at each stage, and answers that come too late."""

from __future__ import annotations

import pytest
from tests.unit.consumer.classic_group import T0, Group

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.events import Adopted, Assigned, Hold, JoinNeeded, Prepared
from sparkrelay.consumer.group.membership import MemberState


@pytest.fixture
def group(driver):
    return Group(driver)


@pytest.mark.parametrize(("code", "kept"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m1")])
def test_an_expelled_member_loses_everything_and_joins_anew(group, code, kept):
    group.become_stable()
    group.beat(code)
    assert group.membership.metadata.generation == -1
    assert group.membership.metadata.member_id == kept
    assert group.step(JoinNeeded).hold is Hold.LOSE


def test_expelled_while_preparing_loses_what_the_application_still_holds(group):
    group.become_stable()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    step = group.step(JoinNeeded)
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    group.reply(Prepared(step.number, frozenset({T0})))
    assert group.step(JoinNeeded).hold is Hold.LOSE


def test_the_log_distinguishes_a_silent_member_from_one_that_kept_a_rebalance_waiting(group, caplog):
    group.become_stable()
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert "it was silent for session.timeout.ms=" in caplog.text
    group.become_stable()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    caplog.clear()
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert "kept a rebalance waiting for max.poll.interval.ms=" in caplog.text
    assert "session.timeout.ms" not in caplog.text


def test_answers_to_heartbeats_of_an_earlier_life_mean_nothing_though_the_generation_is_the_same(driver):
    """A static member that joins a stable group again gets its old generation."""
    group = Group(driver, group_instance_id="static")
    group.become_stable()
    first = group.membership.life
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.membership.life != first
    outside = group.membership.life
    group.adopted(group.follow())
    assert group.membership.metadata.generation == 1
    assert group.membership.life not in {first, outside}


def joining_again(group):
    group.become_stable()
    group.membership.rejoin("asked")
    group.driver.poll()
    group.prepare(owned=[T0])


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_what_was_sent_in_the_old_generation_does_not_expel_a_member_whose_join_is_under_way(group, code):
    """As a commit: the broker has begun the new generation, and its answer to our join comes next."""
    joining_again(group)
    group.driver.poll()
    group.membership.fenced(code)
    assert group.membership.metadata.generation == 1
    assert not group.steps
    group.driver.answer("JoinGroup", group.joined(generation=2))
    assert group.state is MemberState.SYNCING
    assert group.membership.metadata.generation == 2


def test_expelled_before_joining_again_loses_everything(group):
    joining_again(group)
    group.coordinator.node = None
    group.driver.poll()
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.step(JoinNeeded).hold is Hold.LOSE
    assert group.membership.metadata.member_id == ""


def test_expelled_in_a_callback_clears_the_generation_and_joins_anew_afterwards(group):
    """KAFKA-16933: fenced in a callback."""
    group.subscribe()
    step = group.follow()
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.membership.metadata.generation == -1
    assert step.cancelled  # the callback runs to its end, but what it was given is not taken any more
    assert group.step(JoinNeeded).hold is Hold.LOSE
    group.adopted(step)
    assert group.state is MemberState.PREPARING


def test_delayed_answers_are_ignored_after_the_member_went_on(group):
    """KAFKA-16375: in all three stages."""
    group.become_stable()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    old = group.step(JoinNeeded)
    group.membership.polled(group.driver.now)
    group.driver.pass_time(301)  # expelled for not polling, then back
    assert old.cancelled
    group.membership.polled(group.driver.now)
    copy_of = group.step(JoinNeeded)
    for late in (Prepared(old.number), Assigned(old.number), Adopted(old.number)):
        group.reply(late)
        assert group.state is MemberState.PREPARING
    group.reply(Prepared(copy_of.number))
    assert group.state is MemberState.JOINING
