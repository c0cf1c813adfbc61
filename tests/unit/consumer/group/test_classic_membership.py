"""Single transitions of the classic membership: joining, leading, and rebalances that follow."""

from __future__ import annotations

import math

import pytest
from kafka.protocol.consumer import LeaveGroupResponse
from tests.unit.consumer.classic_group import T0, T1, Group

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.assignor import MemberAssignment, MemberSubscription
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Assigned, AssignNeeded, Hold, JoinNeeded, Prepared
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.consumer.group.wire import decode_subscription


@pytest.fixture
def group(driver):
    return Group(driver)


def test_the_way_of_a_follower(group):
    group.subscribe()
    assert group.state is MemberState.PREPARING
    assert group.driver.poll() == []  # the application prepares
    group.prepare(owned=[T1])
    assert group.driver.poll() == ["JoinGroup"]
    assert not group.membership.beats
    request = group.driver.answer("JoinGroup", group.joined(ErrorCode.MEMBER_ID_REQUIRED, member="m1"))
    assert decode_subscription(request.protocols[0].metadata) == MemberSubscription(
        frozenset({"t"}), frozenset({T1}), b"data"
    )
    assert group.driver.poll() == ["JoinGroup"]  # at once, under its name
    assert group.driver.answer("JoinGroup", group.joined()).member_id == "m1"
    assert group.driver.poll() == ["SyncGroup"]
    assert group.driver.answer("SyncGroup", group.synced([T0])).assignments == []
    step = group.step(AdoptNeeded)
    assert step.assignment.partitions == (T0,)
    assert (step.metadata.generation, step.metadata.member_id) == (1, "m1")
    assert group.membership.beats
    group.adopted(step)
    assert group.state is MemberState.STABLE


def test_the_leader_assigns_with_fresh_metadata(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    said = {"m1": MemberSubscription(frozenset({"t"})), "m2": MemberSubscription(frozenset({"t", "absent"}))}
    group.driver.answer("JoinGroup", group.joined(leader="m1", members=said))
    assert group.state is MemberState.ASSIGNING
    assert group.steps == []
    assert group.topics.asked[0][0] == {"t", "absent"}
    group.topics.answer()
    step = group.step(AssignNeeded)
    assert dict(step.cluster.partitions) == {"t": (0, 1)}
    assert dict(step.members) == said
    assert group.membership.beats
    group.reply(Assigned(step.number, {"m1": MemberAssignment((T0,)), "m2": MemberAssignment((T1,), b"u")}))
    group.driver.poll()
    request = group.driver.answer("SyncGroup", group.synced([T0]))
    assert [item.member_id for item in request.assignments] == ["m1", "m2"]


def test_a_static_leader_that_returns_sees_partitions_that_are_added_once_it_has_its_own(group, metadata_message):
    """KIP-814: it compares with what it knew when it synced, however long the answer about its topics took."""
    group.subscribe()
    group.prepare()
    group.driver.poll()
    said = {"m1": MemberSubscription(frozenset({"t"}))}
    group.driver.answer("JoinGroup", group.joined(leader="m1", members=said, stands=True))
    assert group.state is MemberState.ASSIGNING
    assert group.driver.poll() == []
    group.topics.answer()
    assert group.driver.poll() == ["SyncGroup"]
    assert group.driver.answer("SyncGroup", group.synced([T0, T1])).assignments == []
    group.adopted(group.step(AdoptNeeded))
    group.driver.poll()
    assert group.state is MemberState.STABLE
    group.cluster.partitions = lambda topic: (0, 1, 2) if topic == "t" else None
    group.cluster.update(metadata_message({"t": 3}), requested={"t"})
    group.driver.poll()
    assert group.step(JoinNeeded).hold is Hold.KEEP
    assert group.membership.reason == "partitions changed of t"


def test_a_leader_whose_assignor_fails_leaves_and_joins_when_polled(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    group.driver.answer("JoinGroup", group.joined(leader="m1", members={"m1": MemberSubscription(frozenset({"t"}))}))
    group.topics.answer()
    group.reply(Assigned(group.step(AssignNeeded).number, error=ValueError("bad")))
    assert group.state is MemberState.STALE
    assert group.driver.poll() == ["LeaveGroup"]
    group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert group.driver.pass_time(10) == []
    group.membership.polled(group.driver.now)
    assert group.step(JoinNeeded).hold is Hold.LOSE


def test_a_member_whose_poll_came_too_late_leaves_and_joins_again_by_that_poll(group):
    """The process was stopped, so nobody noticed in time: its partitions may be others' by now."""
    group.become_stable()
    group.membership.poll_missed()
    assert group.membership.metadata.generation == -1
    group.membership.polled(group.driver.now)
    assert group.step(JoinNeeded).hold is Hold.LOSE
    assert group.driver.poll() == ["LeaveGroup"]
    group.membership.leave(Call("leave", math.inf), "enough")
    group.membership.poll_missed()  # it has left
    assert group.state is not MemberState.STALE


def test_a_heartbeats_news_begin_a_rebalance_and_cooperative_members_keep_what_they_have(group):
    group.become_stable()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert group.step(JoinNeeded).hold is Hold.KEEP
    assert group.membership.beats  # while the application prepares
    assert group.membership.metadata.generation == 1


def test_eager_members_revoke_everything_first(driver):
    group = Group(driver, assignors=(("x", False), ("y", True)))
    group.become_stable()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert group.step(JoinNeeded).hold is Hold.REVOKE


def test_whoever_gave_something_up_joins_again(group):
    group.subscribe()
    group.adopted(group.follow([T0], owned=[T0, T1]), revoked=True)
    group.driver.poll()
    assert group.step(JoinNeeded).hold is Hold.KEEP


def test_whoever_was_interrupted_before_it_took_its_partitions_joins_again(group):
    """Otherwise nobody would read them: the group thinks that they are ours."""
    group.subscribe()
    group.reply(Adopted(group.follow([T0, T1], owned=[T0]).number, owned=frozenset({T0})))
    assert group.state is MemberState.STABLE
    group.driver.poll()
    assert group.step(JoinNeeded).hold is Hold.KEEP


# -- rebalances that follow --------------------------------------------------------------------------------------------


def test_a_rebalance_that_begins_anew_while_syncing(group):
    group.become_stable()
    group.membership.rejoin("asked")
    group.driver.poll()
    group.prepare([T0])
    group.driver.poll()
    group.driver.answer("JoinGroup", group.joined(generation=2))
    group.driver.poll()
    group.driver.answer("SyncGroup", group.synced(code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert group.step(JoinNeeded).hold is Hold.KEEP
    assert group.membership.metadata.generation == 2


def test_a_request_during_a_rebalance_is_done_after_it(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    group.membership.rejoin("a warm-up is warm")
    group.driver.answer("JoinGroup", group.joined())
    group.driver.poll()
    group.driver.answer("SyncGroup", group.synced([T0]))
    group.adopted(group.step(AdoptNeeded))
    group.driver.poll()
    group.prepare([T0])
    group.driver.poll()
    assert group.driver.find("JoinGroup").request.reason == "a warm-up is warm"


def test_a_subscription_that_changes_before_joining_goes_along_and_is_no_reason_for_another_rebalance(group):
    group.subscribe(["t"])
    first = group.step(JoinNeeded)
    group.subscribe(["t", "u"])
    assert first.cancelled
    group.reply(Prepared(first.number, frozenset(), {"x": b"for t only"}))
    assert group.state is MemberState.PREPARING
    assert group.steps[0].topics == {"t", "u"}
    group.adopted(group.follow())
    assert group.driver.poll() == []
    assert group.state is MemberState.STABLE
    assert group.steps == []


def test_a_changed_subscription_keeps_what_is_known_of_the_rebalance_that_begins(group):
    group.become_stable()
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    group.membership.rejoin("asked")
    group.subscribe(["u"])
    group.subscribe(["u"])
    assert [step.cancelled for step in group.steps] == [True, False]
    group.steps.pop(0)
    assert group.steps[0].hold is Hold.LOSE
    group.adopted(group.follow())
    group.driver.poll()
    group.prepare([T0])
    group.driver.poll()
    assert group.driver.find("JoinGroup").request.reason == "asked"


def test_topics_no_longer_wanted_are_named(group):
    group.subscribe(["t", "old"])
    group.adopted(group.follow())
    group.subscribe(["t"])
    group.driver.poll()
    assert group.step(JoinNeeded).dropped == {"old"}
