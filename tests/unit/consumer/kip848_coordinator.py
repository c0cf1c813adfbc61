"""The broker's side of a KIP-848 group, as far as members see it; modelled on Kafka's GroupMetadataManager.

What matters for safety: partitions that a member is to give up stay its own until a heartbeat that names what it holds
leaves them out; a heartbeat that names nothing holds on to everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import ConsumerGroupHeartbeatResponse

Assignment = ConsumerGroupHeartbeatResponse.Assignment


@dataclass
class Seat:
    """One member, as the coordinator knows it."""

    epoch: int = 0
    previous: int = 0
    topics: frozenset = frozenset()
    assigned: frozenset = frozenset()
    revoking: frozenset = frozenset()
    waiting: bool = False  # for partitions that others have not released


@dataclass
class Coordinator:
    """`topics`: (id, name, number of partitions)."""

    topics: dict
    members: dict = field(default_factory=dict)
    epoch: int = 0
    targets: dict = field(default_factory=dict)
    leaves: list = field(default_factory=list)

    def heartbeat(self, request):
        member = request.member_id
        if request.member_epoch < 0:
            self.leaves.append(member)
            if member not in self.members:
                return answer(ErrorCode.UNKNOWN_MEMBER_ID)
            self.remove(member)
            return answer(epoch=request.member_epoch)
        owned = None
        if request.topic_partitions is not None:
            owned = {(t.topic_id, p) for t in request.topic_partitions for p in t.partitions}
        joins = request.member_epoch == 0
        if joins:
            assert owned == set(), "a member that joins holds nothing"
            assert request.rebalance_timeout_ms > 0
            assert request.subscribed_topic_names is not None
            self.members.setdefault(member, Seat())
        seat = self.members.get(member)
        if seat is None:
            return answer(ErrorCode.UNKNOWN_MEMBER_ID)
        if not joins:
            known = seat.epoch, (seat.previous if owned is not None and owned <= seat.assigned else seat.epoch)
            if request.member_epoch not in known:
                return answer(ErrorCode.FENCED_MEMBER_EPOCH)
        if request.subscribed_topic_names is not None and frozenset(request.subscribed_topic_names) != seat.topics:
            seat.topics = frozenset(request.subscribed_topic_names)
            self.rebalance()
        before = seat.assigned
        self._move(member, seat, owned)
        full = joins or (request.rebalance_timeout_ms != -1 and owned is not None)
        assignment = seat.assigned if full or seat.assigned != before else None
        return answer(epoch=seat.epoch, assignment=assignment)

    def remove(self, member):
        if self.members.pop(member, None) is not None:
            self.rebalance()

    def rebalance(self):
        """Compute everybody's target anew: round robin, so that as much as possible moves."""
        self.epoch += 1
        self.targets = {member: set() for member in self.members}
        for topic_id, name, count in self.topics.values():
            wanting = sorted(m for m, seat in self.members.items() if name in seat.topics)
            for partition in range(count) if wanting else ():
                self.targets[wanting[(partition + self.epoch) % len(wanting)]].add((topic_id, partition))

    def _move(self, member, seat, owned):
        """Take a member a step towards its target, as Kafka's CurrentAssignmentBuilder does."""
        if seat.revoking:
            if owned is None or owned & seat.revoking:
                return
            seat.revoking = frozenset()
            self._next(member, seat, owned, seat.epoch + 1)
        elif seat.waiting or seat.epoch != self.epoch:
            self._next(member, seat, owned, seat.epoch)

    def _next(self, member, seat, owned, epoch):
        target = self.targets.get(member, set())
        keeps = seat.assigned & target
        gives = seat.assigned - keeps
        taken = {p for m, s in self.members.items() if m != member for p in s.assigned | s.revoking}
        gets = target - keeps - taken
        seat.waiting = bool(target - keeps - gets)
        if gives and (owned is None or owned & gives):
            seat.revoking, seat.assigned = frozenset(gives), frozenset(keeps)
            self._set(seat, epoch)
        else:
            seat.revoking, seat.assigned = frozenset(), frozenset(keeps | gets)
            self._set(seat, self.epoch)

    @staticmethod
    def _set(seat, epoch):
        seat.previous, seat.epoch = seat.epoch, epoch


def answer(code=0, epoch=0, assignment=None):
    listed = None
    if assignment is not None:
        by_topic = {}
        for topic_id, partition in sorted(assignment):
            by_topic.setdefault(topic_id, []).append(partition)
        listed = Assignment(
            topic_partitions=[Assignment.TopicPartitions(topic_id=t, partitions=p) for t, p in by_topic.items()]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        error_message=None,
        member_id=None,
        member_epoch=epoch,
        heartbeat_interval_ms=0 if code else 3000,
        assignment=listed,
    )
