"""One member of a KIP-848 group with its heartbeats for tests, and shortcuts through its life."""

from __future__ import annotations

import uuid

from tests.unit.consumer.surroundings import Located, Member, Topics

from sparkrelay.client.backoff import Backoff
from sparkrelay.client.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Hold, JoinNeeded, Prepared
from sparkrelay.consumer.base.requests import RequestState
from sparkrelay.consumer.group.classic_requests import MemberSettings
from sparkrelay.consumer.group.consumer_membership import ConsumerMembership
from sparkrelay.consumer.group.heartbeats import HeartbeatManager
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.types import TopicPartition

T, U = uuid.UUID(int=1), uuid.UUID(int=2)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": T, "u": U}
NAME = "ConsumerGroupHeartbeat"


class Group(Member):
    """One membership with its heartbeats, and shortcuts through its life."""

    def __init__(self, driver, **settings):
        self.steps, self.errors, self.coordinator, self.topics = [], [], Located(), Topics()
        self.cluster, self.names = Metadata(), {T: "t", U: "u"}
        self.cluster.topic_name = self.names.get
        self.membership = ConsumerMembership(
            MemberSettings(group_id="g", **settings), coordinator=self.coordinator, topics=self.topics,
            cluster=self.cluster, on_step=self.steps.append, fail=self.errors.append,
        )  # fmt: skip
        heartbeats = HeartbeatManager(
            self.membership,
            self.coordinator,
            session_timeout=float("inf"),
            state=RequestState(Backoff(0.1, 1.0, jitter=0.0)),
        )
        self.driver = driver(self.membership, heartbeats)

    @property
    def epoch(self):
        return self.membership.metadata.generation

    def subscribe(self, topics=("t",), pattern=None):
        self.membership.subscribe(frozenset(topics), pattern, self.driver.now)

    def beat(self, partitions=None, epoch=1, *, code=0, text=None, interval=3000, wait=0.0):
        """Have the next heartbeat leave and answer it; return it."""
        if not any(type(u.request) is ConsumerGroupHeartbeatRequest for u in self.driver.waiting):
            assert self.driver.pass_time(wait) == [NAME]
        return self.driver.answer(NAME, response(partitions, epoch, code=code, text=text, interval=interval))

    def adopt(self, partitions, **fields):
        """The application does what it is asked."""
        self.driver.poll()
        step = self.step(AdoptNeeded)
        assert set(step.assignment.partitions) == set(partitions)
        self.reply(Adopted(step.number, owned=frozenset(partitions), **fields))
        return step

    def become_stable(self, partitions=(T0,), epoch=1):
        self.subscribe({p.topic for p in partitions} or ("t",))
        self.beat(partitions, epoch)
        self.adopt(partitions)
        request = self.beat(epoch=epoch)
        assert self.state is MemberState.STABLE
        return request

    def lose(self):
        """The application drops what it holds."""
        step = self.step(JoinNeeded)
        assert step.hold is Hold.LOSE
        self.reply(Prepared(step.number))


def response(partitions=None, epoch=1, *, code=0, text=None, interval=3000):
    assignment = None
    if partitions is not None:
        make, by_topic = ConsumerGroupHeartbeatResponse.Assignment, {}
        for partition in partitions:
            by_topic.setdefault(IDS[partition.topic], []).append(partition.partition)
        assignment = make(
            topic_partitions=[make.TopicPartitions(topic_id=i, partitions=p) for i, p in by_topic.items()]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=text, member_id=None, member_epoch=epoch,
        heartbeat_interval_ms=0 if code else interval, assignment=assignment,
    )  # fmt: skip


def said(request):
    return None if request.topic_partitions is None else {t.topic_id: t.partitions for t in request.topic_partitions}
