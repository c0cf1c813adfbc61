import logging
from types import SimpleNamespace

import pytest

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.client.messages import HeartbeatRequest, JoinGroupRequest
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Assigned, AssignNeeded, Hold, JoinNeeded, Prepared
from sparkrelay.consumer.base.metrics import ConsumerMetrics
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.group.rebalance_log import RebalanceLog
from sparkrelay.types import TopicPartition

P = [TopicPartition("t", n) for n in range(6)]


@pytest.fixture
def logged(caplog):
    held = set()
    place = GroupMetadata("g", 3, "m", None)
    metrics = ConsumerMetrics()
    story = RebalanceLog(lambda: place, lambda: frozenset(held), metrics)
    caplog.set_level(logging.DEBUG, logger="sparkrelay.consumer.rebalance")
    return SimpleNamespace(story=story, held=held, metrics=metrics, log=caplog)


def totals(logged, now=100.0):
    values = logged.metrics.snapshot(SubscriptionState(), now)
    return values["rebalance-total"], values["failed-rebalance-total"], values["rebalance-latency-total"]


def test_a_rebalance_is_one_line_at_info_and_each_step_one_at_debug(logged):
    story = logged.story
    logged.held.update(P[:3])
    story.on_step(JoinNeeded(1, Hold.KEEP, frozenset({"t"}), frozenset()), "the group is rebalancing", 10.0)
    story.answered(Prepared(1, frozenset(P[:3])), 10.5)
    story.received(JoinGroupRequest(), SimpleNamespace(error_code=79), None, sent_at=10.5, now=10.6)
    story.received(JoinGroupRequest(), SimpleNamespace(error_code=0), None, sent_at=10.6, now=12.0)
    story.on_step(AssignNeeded(2, "range", None, {"m": None, "n": None}), "", 12.0)
    story.answered(Assigned(2), 12.25)
    assignment = MemberAssignment((P[1], P[2], P[4], P[5]))
    story.on_step(AdoptNeeded(3, "range", assignment, None), "", 13.0)
    logged.held.clear()
    logged.held.update(assignment.partitions)
    story.answered(Adopted(3, revoked=True), 43.0)

    lines = [record.getMessage() for record in logged.log.records]
    assert [record.levelname for record in logged.log.records] == ["DEBUG"] * 8 + ["INFO"]
    assert all(line.startswith("group g member m generation 3: ") for line in lines)
    assert "the group is rebalancing; partitions: keep, 3 held, topics t" in lines[0]
    assert "gave up nothing in 0.500 s, keeps 3" in lines[1]
    assert "JoinGroupRequest: MEMBER_ID_REQUIRED after 0.100 s" in lines[2]
    assert "JoinGroupRequest: granted after 1.400 s" in lines[3]
    assert "leads 2 members: assignor 'range' runs" in lines[4]
    assert "the assignor took 0.250 s" in lines[5]
    assert "is given t 1-2, 4-5" in lines[6]
    assert "its callbacks took 30.000 s" in lines[7]
    assert "rebalanced in 33.000 s (the group is rebalancing): given t 4-5; taken t 0; 4 held" in lines[8]
    assert totals(logged) == (1, 0, 33_000)


def test_a_rebalance_that_begins_anew_has_failed_and_is_logged_as_one(logged):
    logged.held.update(P[:2])
    logged.story.on_step(JoinNeeded(1, Hold.KEEP, frozenset({"t"}), frozenset()), "new partitions", 1.0)
    logged.held.clear()
    logged.story.on_step(JoinNeeded(2, Hold.LOSE, frozenset({"t"}), frozenset()), "the member was expelled", 3.0)
    logged.story.on_step(AdoptNeeded(3, "range", MemberAssignment(()), None), "", 4.0)
    logged.story.answered(Adopted(3), 5.0)
    assert "it begins anew after 2.000 s: the member was expelled" in logged.log.records[1].getMessage()
    assert (
        "rebalanced in 2.000 s (the member was expelled): given nothing; taken t 0-1"
        in logged.log.records[-1].getMessage()
    )
    assert totals(logged) == (1, 1, 2000)


def test_leaving_in_the_middle_is_a_failed_rebalance(logged):
    logged.story.on_step(JoinNeeded(1, Hold.KEEP, frozenset({"t"}), frozenset()), "the consumer subscribed", 1.0)
    logged.story.ended("the consumer is being closed", 2.0)
    logged.story.answered(Adopted(1), 3.0)
    assert "leaves: the consumer is being closed" in logged.log.records[-1].getMessage()
    assert totals(logged) == (0, 1, 0)


def test_an_assignment_that_nobody_asked_for_is_logged_too(logged):
    # KIP-848: the coordinator gives, without a step before.
    logged.story.on_step(AdoptNeeded(1, "uniform", MemberAssignment((P[0],)), None), "", 1.0)
    logged.held.add(P[0])
    logged.story.answered(Adopted(1), 1.5)
    assert "rebalanced in 0.500 s (the coordinator assigned): given t 0" in logged.log.records[-1].getMessage()


def test_heartbeats_are_logged_only_if_they_have_news(logged):
    logged.story.received(HeartbeatRequest(), SimpleNamespace(error_code=0), None, sent_at=1.0, now=1.1)
    assert not logged.log.records
    logged.story.received(HeartbeatRequest(), SimpleNamespace(error_code=27), None, sent_at=1.0, now=1.1)
    logged.story.received(HeartbeatRequest(), None, RuntimeError("connection lost"), sent_at=1.0, now=1.1)
    assert [r.getMessage().partition("3: ")[2] for r in logged.log.records] == [
        "HeartbeatRequest: REBALANCE_IN_PROGRESS",
        "HeartbeatRequest: connection lost",
    ]


def test_a_late_answer_to_a_step_that_was_overtaken_ends_nothing(logged):
    logged.story.on_step(AdoptNeeded(1, "range", MemberAssignment((P[0],)), None), "the consumer subscribed", 1.0)
    logged.story.on_step(JoinNeeded(2, Hold.LOSE, frozenset({"t"}), frozenset()), "the member was expelled", 2.0)
    lines = len(logged.log.records)
    logged.story.answered(Adopted(1), 3.0)
    assert len(logged.log.records) == lines
    logged.story.answered(Prepared(2), 4.0)
    assert "gave up nothing in 2.000 s" in logged.log.records[-1].getMessage()
    logged.story.on_step(AdoptNeeded(3, "range", MemberAssignment(()), None), "", 5.0)
    logged.story.answered(Adopted(3), 6.0)
    assert totals(logged) == (1, 1, 4000)


def test_an_answer_to_a_step_that_was_cancelled_ends_nothing(logged):
    step = AdoptNeeded(1, "range", MemberAssignment((P[0],)), None)
    logged.story.on_step(step, "the consumer subscribed", 1.0)
    step.cancelled = True
    logged.story.answered(Adopted(1), 2.0)
    assert totals(logged) == (0, 0, 0)


def test_the_time_away_is_no_part_of_a_rebalance(logged):
    """A member that did not poll has left; what it does when it is polled again is another rebalance."""
    logged.held.add(P[0])
    logged.story.on_step(JoinNeeded(1, Hold.LOSE, frozenset({"t"}), frozenset()), "", 1.0, away=True)
    logged.story.returned(1000.0)
    logged.story.returned(1000.5)  # the next poll
    logged.held.clear()
    logged.story.answered(Prepared(1), 1000.75)
    logged.story.on_step(AdoptNeeded(2, "uniform", MemberAssignment(()), None), "", 1001.0)
    logged.story.answered(Adopted(2), 1002.0)
    assert totals(logged, 1003.0) == (1, 0, 2000)
