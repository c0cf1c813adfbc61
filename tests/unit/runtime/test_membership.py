"""A stream thread's membership: what it makes of the group's callbacks. The consumer is played."""

from __future__ import annotations

import types
import uuid

import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor
from sparkrelay.config import StreamsConfig
from sparkrelay.consumer.assignor import GroupMetadata, MemberAssignment
from sparkrelay.protocol import AssignmentInfo
from sparkrelay.runtime import membership
from sparkrelay.runtime.rebalance_story import RebalanceStory
from sparkrelay.topology import StreamsBuilder
from sparkrelay.types import ProcessId, TopicPartition

ASSIGNMENT = MemberAssignment(user_data=AssignmentInfo().encode())


class Consumer:
    """Keeps the callbacks, for the test to call."""

    def __init__(self, settings, *, assignors, fetching):
        (self.assignor,) = assignors

    def subscribe(self, topics, *, on_assigned, on_revoked, on_lost):
        self.on_lost = on_lost


@pytest.fixture
def member(monkeypatch):
    monkeypatch.setattr(membership, "Consumer", Consumer)
    builder = StreamsBuilder()
    builder.stream("flights").to("copies")
    made = membership.Membership(
        config=StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "localhost:1"}),
        topology=builder.build(),
        source_topics=["flights"],
        process_id=ProcessId(uuid.UUID(int=1)),
        topics=None,
        assignor=HighAvailabilityTaskAssignor(),
        load=None,
        settings={},
        story=RebalanceStory("app", lambda _: None),
    )
    made.start(types.SimpleNamespace(follow=lambda active, standby: None, lose=lambda partitions: None))
    return made


def test_a_member_is_stable_while_it_has_an_assignment(member):
    consumer = member._consumer
    seen = [member.stable]
    consumer.assignor.on_assignment(ASSIGNMENT, GroupMetadata("app", 1, "me"))
    seen.append(member.stable)
    consumer.on_lost(consumer, [TopicPartition("flights", 0)])
    seen.append(member.stable)
    consumer.assignor.on_assignment(ASSIGNMENT, GroupMetadata("app", 2, "me"))
    seen.append(member.stable)
    assert seen == [False, True, False, True]
