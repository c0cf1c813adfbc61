"""Single transitions of KIP-848 membership: joining, reconciling, and topics that have no name yet."""

from __future__ import annotations

import logging
import re

import pytest
from tests.unit.consumer.consumer_group import NAME, T0, T1, U0, Group, T, U, said

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded
from sparkrelay.consumer.group.membership import MemberState


@pytest.fixture
def group(driver):
    return Group(driver)


def test_the_way_into_a_group(group):
    group.subscribe(["t", "u"])
    assert group.state is MemberState.JOINING
    assert group.epoch == -1
    join = group.beat([T0, T1], 5)
    assert (join.group_id, join.member_epoch, join.rebalance_timeout_ms) == ("g", 0, 300_000)
    assert join.member_id == group.membership.metadata.member_id != ""
    assert (join.subscribed_topic_names, said(join)) == (["t", "u"], {})
    assert (join.instance_id, join.server_assignor, join.rack_id) == (None, None, None)
    assert group.state is MemberState.RECONCILING
    assert group.epoch == 5
    step = group.adopt([T0, T1])
    assert step.metadata.generation == 5
    assert group.state is MemberState.ACKNOWLEDGING
    acknowledgement = group.beat(epoch=5)  # at once, without waiting for the interval
    assert (acknowledgement.member_epoch, said(acknowledgement)) == (5, {T: [0, 1]})
    assert acknowledgement.subscribed_topic_names is None
    assert acknowledgement.rebalance_timeout_ms == -1
    assert group.state is MemberState.STABLE
    assert group.driver.poll() == []


def test_a_joining_member_sends_all_its_settings(driver):
    group = Group(driver, group_instance_id="i", rack="r", remote_assignor="range", max_poll_interval=7.0)
    join = group.subscribe() or group.beat([])
    assert (join.instance_id, join.rack_id, join.server_assignor) == ("i", "r", "range")
    assert join.rebalance_timeout_ms == 7000


def test_an_empty_assignment_is_given_to_the_application_as_well(group):
    group.subscribe()
    group.beat([])
    group.adopt([])
    assert said(group.beat()) == {}
    assert group.state is MemberState.STABLE


def test_the_broker_says_how_often_heartbeats_come(group):
    group.become_stable()
    assert group.driver.pass_time(2.9) == []
    request = group.beat(wait=0.1, interval=10_000)
    assert said(request) is None
    group.beat(wait=3, interval=10_000)
    assert group.driver.pass_time(9.9) == []
    assert group.driver.pass_time(0.1) == [NAME]


def test_what_goes_to_others_is_given_up_and_acknowledged_before_more_is_taken(group):
    group.become_stable([T0])
    group.beat([T1], 2, wait=3)
    assert group.state is MemberState.RECONCILING
    group.adopt([T1])
    assert said(group.beat(epoch=2)) == {T: [1]}
    assert group.state is MemberState.STABLE


def test_one_reconciliation_at_a_time_the_next_target_follows(group):
    group.become_stable([T0])
    group.beat([T0, T1], 2, wait=3)
    group.driver.poll()
    step = group.step(AdoptNeeded)
    group.beat([T1], 3, wait=3)
    assert group.steps == []
    group.reply(Adopted(step.number, owned=frozenset([T0, T1])))
    assert said(group.beat(epoch=3)) == {T: [0, 1]}  # the truth
    assert group.state is MemberState.RECONCILING
    group.adopt([T1])
    assert said(group.beat(epoch=3)) == {T: [1]}
    assert group.state is MemberState.STABLE


def test_an_assignment_taken_back_before_it_was_adopted_is_acknowledged_without_callbacks(group):
    group.become_stable([T0])
    group.names.pop(U)
    group.beat([T0, U0], 2, wait=3)
    group.driver.poll()
    assert said(group.beat(epoch=2)) == {T: [0]}
    assert group.state is MemberState.RECONCILING  # the other topic has no name yet
    group.beat([T0], 3, wait=3)
    group.driver.poll()
    assert said(group.beat(epoch=3)) == {T: [0]}
    assert group.state is MemberState.STABLE
    assert group.steps == []


def test_the_same_assignment_again_is_no_news(group):
    group.become_stable([T0])
    group.beat([T0], 2, wait=3)
    assert group.state is MemberState.STABLE
    assert group.epoch == 2


def test_an_interrupted_step_is_acknowledged_as_it_ended_and_tried_again(group):
    group.become_stable([T0])
    group.beat([T1], 2, wait=3)
    group.driver.poll()
    group.reply(Adopted(group.step(AdoptNeeded).number, owned=frozenset([T0])))
    assert said(group.beat(epoch=2)) == {T: [0]}
    assert group.state is MemberState.RECONCILING
    group.adopt([T1])
    assert said(group.beat(epoch=2)) == {T: [1]}


# -- topic ids ---------------------------------------------------------------------------------------------------------


def test_topics_without_names_wait_and_are_looked_up(group):
    group.names.pop(U)
    group.subscribe(["t", "u"])
    group.beat([T0, U0])
    group.adopt([T0])
    assert group.topics.asked[0][0] == {"t", "u"}
    group.beat()
    assert group.state is MemberState.RECONCILING
    group.topics.asked.pop(0)[1]()
    group.driver.pass_time(0.9)
    assert group.topics.asked == []
    group.driver.pass_time(0.2)
    assert len(group.topics.asked) == 1  # once a second
    group.names[U] = "u"
    group.adopt([T0, U0])
    assert said(group.beat()) == {T: [0], U: [0]}
    assert group.state is MemberState.STABLE


def test_nothing_is_adopted_while_no_topic_has_a_name(group):
    group.names.clear()
    group.subscribe(pattern=re.compile("t.*"), topics=())
    group.beat([T0])
    group.driver.poll()
    assert group.steps == []
    assert group.topics.asked[0][0] is None  # the broker matched: it may be any topic
    group.names[T] = "t"
    group.adopt([T0])


def test_a_name_once_known_is_remembered_while_the_topic_is_held(group):
    group.become_stable([T0])
    group.names.clear()
    group.beat([T0, T1], 2, wait=3)
    group.adopt([T0, T1])


def test_an_answer_to_a_look_up_of_an_earlier_life_means_nothing(group):
    group.names.clear()
    group.subscribe()
    group.beat([T0])
    group.driver.poll()
    known = group.topics.asked.pop()[1]
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    group.lose()
    group.beat([T0])
    group.driver.poll()
    before = group.membership._look_up_at
    known()
    assert group.membership._look_up_at == before


# -- small things ------------------------------------------------------------------------------------------------------


def test_asking_for_a_rebalance_has_no_effect_and_says_so(group, caplog):
    group.become_stable()
    with caplog.at_level(logging.WARNING):
        group.membership.rejoin("I want to")
    assert "I want to" in caplog.text
    assert "only the broker" in caplog.text
    assert group.driver.poll() == []
