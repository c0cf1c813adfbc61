"""One member of a classic group for tests, and shortcuts through its life."""

from __future__ import annotations

from kafka.protocol.consumer import HeartbeatResponse, JoinGroupResponse, SyncGroupResponse
from tests.unit.consumer.surroundings import Located, Member, Topics

from sparkrelay.client.backoff import Backoff
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, JoinNeeded, Prepared
from sparkrelay.consumer.base.requests import RequestState
from sparkrelay.consumer.group.classic_membership import ClassicMembership
from sparkrelay.consumer.group.classic_requests import MemberSettings
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.consumer.group.wire import encode_assignment, encode_subscription
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Group(Member):
    """One membership, and shortcuts through its life."""

    def __init__(self, driver, **settings):
        self.steps, self.errors, self.coordinator, self.topics = [], [], Located(), Topics()
        self.matched = []
        self.cluster = Metadata()
        self.cluster.partitions = lambda topic: (0, 1) if topic == "t" else None
        assignors = settings.pop("assignors", (("x", True),))
        self.membership = ClassicMembership(
            MemberSettings(group_id="g", assignors=assignors, **settings),
            coordinator=self.coordinator, topics=self.topics, cluster=self.cluster, on_step=self.steps.append,
            fail=self.errors.append, matched=self.matched.append, retry=RequestState(Backoff(0.1, 1.0, jitter=0.0)),
        )  # fmt: skip
        self.driver = driver(self.membership)

    def adopted(self, step, *, revoked=False):
        """The application took what it was given."""
        self.reply(Adopted(step.number, revoked, frozenset(step.assignment.partitions)))

    def beat(self, code=0):
        """A heartbeat is answered."""
        self.membership.heartbeat_answered(HeartbeatResponse(error_code=code))

    def subscribe(self, topics=("t",)):
        self.membership.subscribe(frozenset(topics), None, self.driver.now)

    def prepare(self, owned=()):
        step = self.step(JoinNeeded)
        self.reply(Prepared(step.number, frozenset(owned), {"x": b"data"}))
        return step

    def joined(self, code=0, member="m1", leader="m0", generation=1, members=(), stands=False):
        make = JoinGroupResponse.JoinGroupResponseMember
        return JoinGroupResponse(
            error_code=code, generation_id=generation, protocol_name="x", leader=leader, member_id=member,
            skip_assignment=stands,
            members=[
                make(member_id=m, group_instance_id=None, metadata=encode_subscription(said))
                for m, said in dict(members).items()
            ],
        )  # fmt: skip

    def synced(self, partitions=(), code=0):
        return SyncGroupResponse(error_code=code, assignment=encode_assignment(MemberAssignment(tuple(partitions))))

    def follow(self, partitions=(T0,), owned=(), generation=1):
        """From a step of preparation to ADOPTING, as a follower."""
        self.prepare(owned)
        self.driver.poll()
        self.driver.answer("JoinGroup", self.joined(generation=generation))
        self.driver.poll()
        self.driver.answer("SyncGroup", self.synced(partitions))
        return self.step(AdoptNeeded)

    def become_stable(self, partitions=(T0,), owned=()):
        self.subscribe()
        self.adopted(self.follow(partitions, owned))
        assert self.state is MemberState.STABLE
