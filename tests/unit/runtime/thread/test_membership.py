"""A stream thread's membership: what it makes of the group's callbacks. The consumer is played."""

from __future__ import annotations

import types
import uuid

import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor
from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.config import StreamsConfig
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.errors import TimeoutException, WakeupException
from sparkrelay.protocol import AssignmentInfo
from sparkrelay.runtime.group.assignment_log import AssignmentLog, Notice
from sparkrelay.runtime.group.group_assignor import encode_answer
from sparkrelay.runtime.thread import membership
from sparkrelay.topology import StreamsBuilder
from sparkrelay.types import ProcessId, TaskId, TopicPartition

pytestmark = pytest.mark.usefixtures("spark")

ASSIGNMENT = MemberAssignment(user_data=encode_answer(AssignmentInfo(), Notice()))


class Consumer:
    """Keeps the callbacks, for the test to call."""

    def __init__(self, settings, *, assignors, fetching):
        (self.assignor,) = assignors

    generation = -1

    def group_metadata(self):
        return GroupMetadata("app", self.generation, "me")

    def assign(self, generation, assignment=ASSIGNMENT):
        self.generation = generation
        self.assignor.on_assignment(assignment, self.group_metadata())

    def poll(self, timeout):
        pass

    def subscribe(self, topics, *, on_assigned, on_revoked, on_lost):
        self.on_lost = on_lost


class Tasks:
    """Follows at once; an input partition for each task."""

    def __init__(self):
        self.active, self.lost, self.members = [], [], []
        self.while_following = lambda: None

    def joined(self, member):
        self.members.append(member)

    def follow(self, active, standby):
        assert self.members, "batches under way are committed as that member"
        self.while_following()
        self.active = [
            types.SimpleNamespace(id=id_, inputs=(TopicPartition("flights", id_.partition),)) for id_ in active
        ]

    def all(self):
        return self.active

    def lose(self, partitions):
        self.lost += sorted(partitions)
        self.active = [task for task in self.active if not set(task.inputs).intersection(partitions)]

    def offset_sums(self):
        return {}

    def standby_lags(self):
        return {}

    def running(self):
        return []


class Topics:
    """Knows the client ids of the group's members."""

    def __init__(self, *clients):
        self.clients = clients

    def group_clients(self):
        if isinstance(self.clients[0], Exception):
            raise self.clients[0]
        return frozenset(filter(None, self.clients))


@pytest.fixture
def member(monkeypatch):
    monkeypatch.setattr(membership, "Consumer", Consumer)
    builder = StreamsBuilder()
    builder.stream("flights").to("copies")
    made = membership.StreamsMembership(
        config=StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "localhost:1"}),
        topology=builder.build(),
        source_topics=["flights"],
        process_id=ProcessId(uuid.UUID(int=1)),
        topics=None,
        assignor=HighAvailabilityTaskAssignor(),
        load=None,
        settings={},
        story=AssignmentLog("app", lambda _: None),
    )
    made.start(Tasks())
    return made


@pytest.mark.parametrize(
    ("clients", "alone"),
    [
        ([""], True),
        # Another thread of this process, or one that was killed and whose slot we have.
        (["app-00000000-StreamThread-2"], True),
        (["app-00000000-StreamThread-2", "app-00000001-StreamThread-1"], False),
        ([TimeoutException("no broker")], False),
        ([WakeupException("stop")], False),
    ],
)
def test_a_member_knows_whether_others_are_in_the_group(member, clients, alone):
    member._topics = Topics(*clients)
    assert member.nobody_else() is alone


def test_a_member_is_stable_while_it_has_an_assignment(member):
    consumer = member._consumer
    seen = [member.stable]
    consumer.assign(1)
    seen.append(member.stable)
    consumer.on_lost(consumer, [TopicPartition("flights", 0)])
    seen.append(member.stable)
    consumer.assign(2)
    seen.append(member.stable)
    assert seen == [False, True, False, True]


@pytest.mark.parametrize("noticed", ["poll", "join"])
def test_what_was_given_to_a_member_while_it_was_expelled_is_lost(member, noticed):
    """The consumer never held it, so on_lost does not name it; another may have it."""
    consumer, tasks = member._consumer, member._tasks
    tasks.while_following = lambda: setattr(consumer, "generation", -1)
    given = AssignmentInfo(active_tasks=[TaskId(0, 0), TaskId(0, 1)])
    consumer.assign(1, MemberAssignment(user_data=encode_answer(given, Notice())))
    assert len(tasks.active) == 2
    if noticed == "poll":
        member.poll(0)
    else:
        consumer.assignor.subscription_user_data(frozenset())
    assert not member.stable
    assert (tasks.active, tasks.lost) == ([], [TopicPartition("flights", 0), TopicPartition("flights", 1)])


def test_an_assignment_that_could_not_be_followed_is_over_for_who_is_expelled(member):
    consumer, tasks = member._consumer, member._tasks
    tasks.while_following = _away
    given = AssignmentInfo(active_tasks=[TaskId(0, 0)])
    with pytest.raises(TimeoutException):
        consumer.assign(1, MemberAssignment(user_data=encode_answer(given, Notice())))
    assert not member.stable, "there is nothing that it follows"
    tasks.while_following = lambda: None
    consumer.generation = -1
    member.poll(0)
    assert tasks.active == []
    consumer.assign(2, MemberAssignment(user_data=encode_answer(given, Notice())))
    assert [task.id for task in tasks.active] == [TaskId(0, 0)]


def _away():
    raise TimeoutException("the broker does not answer")
