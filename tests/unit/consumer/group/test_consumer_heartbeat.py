"""What the heartbeats of KIP-848 say."""

from __future__ import annotations

import re

import pytest
from tests.unit.consumer.consumer_group import NAME, T0, T1, Group, T, response, said

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import DisconnectException


@pytest.fixture
def group(driver):
    return Group(driver)


def test_after_a_failure_everything_is_said_again(group):
    group.become_stable([T0])
    group.driver.pass_time(3)
    group.driver.answer(NAME, error=DisconnectException("gone"))
    assert len(group.coordinator.losses) == 1
    request = group.beat([T0], wait=0.1)
    assert (request.subscribed_topic_names, said(request)) == (["t"], {T: [0]})
    assert (request.rebalance_timeout_ms, request.member_epoch) == (300_000, 1)
    assert said(group.beat(wait=3)) is None


@pytest.mark.parametrize(
    ("code", "losses"),
    [
        (ErrorCode.NOT_COORDINATOR, 1),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 1),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0),
    ],
)
def test_a_coordinator_that_moves_or_loads_is_asked_again(group, code, losses):
    group.become_stable([T0])
    group.beat(code=code, wait=3)
    assert len(group.coordinator.losses) == losses
    assert group.state is MemberState.STABLE
    assert said(group.beat(wait=0.1)) == {T: [0]}


def test_no_step_begins_while_a_heartbeat_that_says_what_is_held_is_unanswered(group):
    """The broker may be giving to others what that heartbeat leaves out."""
    group.become_stable([T0])
    group.driver.pass_time(3)
    group.driver.answer(NAME, error=DisconnectException("gone"))
    group.driver.pass_time(0.1)  # everything again, on its way
    group.membership._take_target({T: frozenset([0, 1])})
    group.driver.poll()
    assert group.steps == []
    group.beat([T0])
    group.driver.poll()
    assert group.steps == []
    assert said(group.beat()) == {T: [0]}  # the target came and went


def test_while_a_step_is_under_way_its_partitions_are_held_too(group):
    group.become_stable([T0])
    group.beat([T1], 2, wait=3)
    group.driver.poll()
    step = group.step(AdoptNeeded)
    group.driver.pass_time(3)
    group.driver.answer(NAME, error=DisconnectException("gone"))
    assert said(group.beat([T1], 2, wait=0.1)) == {T: [0, 1]}
    group.reply(Adopted(step.number, owned=frozenset([T1])))
    assert said(group.beat(epoch=2)) == {T: [1]}


def test_a_changed_subscription_is_sent_at_once(group):
    group.become_stable([T0])
    group.subscribe(["t", "u"])
    request = group.beat()
    assert request.subscribed_topic_names == ["t", "u"]
    assert said(request) is None
    assert group.driver.poll() == []


def test_patterns_are_for_the_broker(group):
    group.subscribe((), re.compile("t.*"))
    join = group.beat([T0])
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ([], "t.*")
    assert join._min_version == 1
    group.adopt([T0])
    assert group.beat().subscribed_topic_regex is None
    group.subscribe((), re.compile("u.*", re.IGNORECASE))
    assert group.beat().subscribed_topic_regex == "(?i:u.*)"
    group.subscribe(["t"])
    request = group.beat()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")
    group.driver.pass_time(3)
    group.driver.answer(NAME, error=DisconnectException("gone"))
    assert group.beat(wait=0.1).subscribed_topic_regex is None


def test_a_first_version_broker_gives_the_member_its_id(group):
    group.subscribe()
    group.driver.poll()
    message = response([])
    message.member_id = "theirs"
    group.driver.answer(NAME, message)
    assert group.membership.metadata.member_id == "theirs"
