"""Groups of members against a simulated coordinator, in whatever order events may come.

Hypothesis plays network, broker and applications: it delays, loses, expels, closes. At every moment no partition is
held by two members that the coordinator counts as such; when everything calms down, every partition is held by one.
"""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from kafka.protocol.consumer import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from tests.examples import examples
from tests.unit.consumer.group.groups_machine import SOMEBODY, GroupsMachine, counted
from tests.unit.consumer.surroundings import Located

from sparkrelay.client.backoff import Backoff
from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.api.exchanges import blocking
from sparkrelay.consumer.api.rebalance import RebalanceSteps
from sparkrelay.consumer.assignors.built_in import CooperativeStickyAssignor, RangeAssignor
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.events import AssignNeeded, ErrorRaised, JoinNeeded
from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.requests import RequestState
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.group.classic_membership import ClassicMembership
from sparkrelay.consumer.group.classic_requests import MemberSettings
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import DisconnectException

PARTITIONS = 5


class Coordinator:
    """The classic group's broker side, as far as members see it."""

    def __init__(self):
        self.members, self.pending, self.numbers = {}, set(), itertools.count(1)
        self.state, self.generation, self.leader, self.protocol = "empty", 0, None, ""

    def join(self, request, reply):
        member = request.member_id
        if not member:
            member = f"m{next(self.numbers)}"
            self.pending.add(member)
            return reply(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member))
        if member not in self.members and member not in self.pending:
            return reply(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member))
        metadata = request.protocols[0].metadata
        known = self.members.get(member)
        unchanged = known is not None and known["metadata"] == metadata
        if unchanged and (self.state == "completing" or (self.state == "stable" and member != self.leader)):
            return reply(self._joined(member))
        self.pending.discard(member)
        self.protocol = request.protocols[0].name
        self.members[member] = {"metadata": metadata, "join": reply, "sync": None, "assignment": b""}
        self._rebalance()
        return None

    def sync(self, request, reply):
        member = self.members.get(request.member_id)
        if member is None:
            return reply(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if request.generation_id != self.generation:
            return reply(SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
        if self.state == "preparing":
            return reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member["sync"] = reply
        if self.state == "completing" and request.member_id == self.leader:
            self.state = "stable"
            for item in request.assignments:
                if item.member_id in self.members:
                    self.members[item.member_id]["assignment"] = item.assignment
        if self.state == "stable":
            for one in self.members.values():
                answer, one["sync"] = one["sync"], None
                if answer is not None:
                    answer(SyncGroupResponse(error_code=0, assignment=one["assignment"]))
        return None

    def heartbeat(self, member, generation):
        if member not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state == "preparing" else 0

    def remove(self, member):
        self.pending.discard(member)
        one = self.members.pop(member, None)
        if one is None:
            return
        if one["join"] is not None:
            one["join"](JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member))
        if one["sync"] is not None:
            one["sync"](SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        self._rebalance()

    def wait_no_longer(self):
        """max.poll.interval.ms is over: go on without those that did not join."""
        for member in [m for m, one in self.members.items() if one["join"] is None]:
            del self.members[member]
        self._complete()

    def _rebalance(self):
        self.state = "preparing"
        for one in self.members.values():
            answer, one["sync"] = one["sync"], None
            if answer is not None:
                answer(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        self._complete()

    def _complete(self):
        if not self.members:
            self.state, self.leader = "empty", None
        elif all(one["join"] is not None for one in self.members.values()):
            self.generation += 1
            self.state = "completing"
            if self.leader not in self.members:
                self.leader = next(iter(self.members))
            for member, one in self.members.items():
                answer, one["join"], one["assignment"] = one["join"], None, b""
                answer(self._joined(member))

    def _joined(self, member):
        make = JoinGroupResponse.JoinGroupResponseMember
        listed = [
            make(member_id=m, group_instance_id=None, metadata=one["metadata"]) for m, one in self.members.items()
        ]
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_name=self.protocol,
            leader=self.leader,
            skip_assignment=False,
            member_id=member,
            members=listed if member == self.leader else [],
        )


class KnownTopics:
    def ask(self, topics, done):
        done()


class Member:
    def __init__(self, coordinator, metadata, assignor):
        self.coordinator, self.assignor = coordinator, assignor
        self.mailbox, self.subscription = Mailbox(), SubscriptionState()
        self.steps = RebalanceSteps(self, self.subscription, [assignor], before_revoking=lambda: None)
        self.membership = ClassicMembership(
            MemberSettings(group_id="g", assignors=((assignor.name, assignor.supports_cooperative),)),
            coordinator=Located(),
            topics=KnownTopics(),
            cluster=metadata,
            on_step=self.mailbox.put,
            fail=lambda error: self.mailbox.put(ErrorRaised(error)),
            matched=self.subscription.match,
            retry=RequestState(Backoff(0.0, 0.0, jitter=0.0)),
        )
        self.network = deque()  # what is on its way: callables
        self.closed = False

    def send(self, now):
        for unsent in self.membership.poll(now).requests:
            self._to_broker(unsent, now)

    def _to_broker(self, unsent, now):
        kind = type(unsent.request).__name__
        answered = []

        def reply(message):
            if not answered:
                answered.append(message)
                self.network.append(lambda: unsent.handle(message, None, now))

        def lose():
            answered.append(None)
            unsent.handle(None, DisconnectException("lost"), now)

        if kind == "JoinGroupRequest":
            self.network.append(lambda: self.coordinator.join(unsent.request, reply))
        elif kind == "SyncGroupRequest":
            self.network.append(lambda: self.coordinator.sync(unsent.request, reply))
        else:

            def leave():
                self.coordinator.remove(unsent.request.members[0].member_id)
                reply(LeaveGroupResponse(error_code=0))

            self.network.append(leave)
        self.lose = lose

    def heartbeat(self, now):
        place = self.membership.metadata
        if self.membership.beats:
            code = self.coordinator.heartbeat(place.member_id, place.generation)
            if code:
                self.membership.heartbeat_answered(HeartbeatResponse(error_code=code))
        return HeartbeatResponse

    def serve(self, now):
        event = self.mailbox.take()
        if event is None:
            return False
        answer = lambda reply: self.membership.answered(reply, now)  # noqa: E731
        assert not isinstance(event, ErrorRaised), repr(event.error)
        if isinstance(event, JoinNeeded):
            error = blocking(self.steps.prepare(event, answer), self.mailbox)
        elif isinstance(event, AssignNeeded):
            error = self.steps.assign(event, answer)
        else:
            error = blocking(self.steps.adopt(event, answer), self.mailbox)
        assert error is None, repr(error)
        return True

    @property
    def counted(self):
        return counted(self.coordinator, self.membership)

    def deliver(self):
        if not self.network:
            return False
        self.network.popleft()()
        return True

    def lose_connection(self, _):
        if self.membership.retry.in_flight:
            self.lose()
            self.network.clear()

    def close(self):
        self.closed = True
        self.mailbox.discard_steps()
        self.subscription.clear()
        self.membership.leave(Call("leaving", 1e9), "closing")


class Groups(GroupsMachine):
    assignor = CooperativeStickyAssignor

    def __init__(self):
        super().__init__(Coordinator())
        self.metadata = Metadata()
        self.metadata.partitions = lambda topic: tuple(range(PARTITIONS)) if topic == "t" else None

    @precondition(lambda self: len(self.members) < 4)
    @rule()
    def start(self):
        member = Member(self.coordinator, self.metadata, self.assignor())
        self.members.append(member)
        member.subscription.subscribe(["t"])
        member.membership.subscribe(frozenset({"t"}), None, self.now)

    def turn(self, member):
        """One round of a member whose network and application are quick; return whether anything happened."""
        busy = False
        member.send(self.now)
        while member.deliver():
            busy = True
        if not member.closed:
            member.membership.polled(self.now)
            busy |= member.serve(self.now)
        before = member.membership.state
        member.heartbeat(self.now)
        return busy or before is not member.membership.state

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def beat(self, index):
        self.member(index).heartbeat(self.now)

    @rule()
    def the_broker_waits_no_longer(self):
        if self.coordinator.state == "preparing":
            self.coordinator.wait_no_longer()

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def ask_for_a_rebalance(self, index):
        self.member(index).membership.rejoin("asked")

    def teardown(self):
        """Everything is delivered and answered from now on: the group comes to rest, with everything shared out."""
        alive = [m for m in self.members if not m.closed]
        for _ in range(400):
            self.now += 0.01
            busy = False
            for member in self.members:
                busy |= self.turn(member)
            self.nothing_is_held_twice()
            if not busy and self.coordinator.state == "preparing":
                self.coordinator.wait_no_longer()
                busy = True
            resting = all(m.membership.state is MemberState.STABLE and not m.membership._again for m in alive)
            if not busy and resting:
                break
        assert [m.membership.state for m in alive] == [MemberState.STABLE] * len(alive)
        held = sorted(p for m in alive for p in m.subscription.assigned)
        assert len(held) == (PARTITIONS if alive else 0)
        assert len(set(held)) == len(held)
        for member in self.members:
            if member.closed:
                assert member.membership.state is MemberState.UNSUBSCRIBED


class EagerGroups(Groups):
    assignor = RangeAssignor


LIMITS = settings(
    max_examples=examples(80), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("machine", [Groups, EagerGroups])
def test_groups_come_to_rest_and_own_nothing_twice(machine):
    run_state_machine_as_test(machine, settings=LIMITS)
