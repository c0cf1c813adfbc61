"""Groups of KIP-848 members against a simulated coordinator, in whatever order events may come.

Hypothesis plays network, broker and applications: it delays, loses, expels, closes, and lets things happen in the
middle of callbacks. At every moment no partition is held by two members that the coordinator counts as such, and
callbacks say the truth; when everything calms down, every partition is held by one.
"""

from __future__ import annotations

import uuid
from collections import deque

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from tests.examples import examples
from tests.unit.consumer.group.groups_machine import SOMEBODY, GroupsMachine, counted
from tests.unit.consumer.kip848_coordinator import Coordinator
from tests.unit.consumer.surroundings import Located

from sparkrelay.client.backoff import Backoff
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.api.exchanges import blocking
from sparkrelay.consumer.api.rebalance import RebalanceSteps
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.events import ErrorRaised, JoinNeeded
from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.requests import RequestState
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.group.classic_requests import MemberSettings
from sparkrelay.consumer.group.consumer_membership import ConsumerMembership
from sparkrelay.consumer.group.heartbeats import HeartbeatManager
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import DisconnectException

T, U = uuid.UUID(int=1), uuid.UUID(int=2)
NAMES = {T: "t", U: "u"}
SUBSCRIPTIONS = [frozenset("t"), frozenset("u"), frozenset("tu")]


class Member:
    def __init__(self, coordinator):
        self.coordinator = coordinator
        self.mailbox, self.subscription = Mailbox(), SubscriptionState()
        self.steps = RebalanceSteps(self, self.subscription, [], before_revoking=lambda: None)
        self.steps.set_callbacks(self._assigned, self._given_up, self._given_up)
        self.known, self.asks = {}, []
        cluster = Metadata()
        cluster.topic_name = self.known.get
        settings = MemberSettings(group_id="g")
        self.membership = ConsumerMembership(
            settings,
            coordinator=Located(),
            topics=self,
            cluster=cluster,
            on_step=self.mailbox.put,
            fail=lambda error: self.mailbox.put(ErrorRaised(error)),
        )
        self.heartbeats = HeartbeatManager(
            self.membership, Located(), session_timeout=1e9, state=RequestState(Backoff(0.0, 0.0, jitter=0.0))
        )
        self.network = deque()  # what is on its way: callables
        self.outstanding = []
        self.answers = deque()  # of the application, on their way to the network thread
        self.reported = set()  # what callbacks say we hold
        self.in_callback = deque()  # what happens during the next callbacks
        self.closed = self.lost_something = False

    # -- the application

    def _assigned(self, _, partitions):
        assert not self.reported & set(partitions), "assigned what it had"
        self.reported |= set(partitions)
        assert self.reported == self.subscription.assigned
        self._interrupt()

    def _given_up(self, _, partitions):
        assert partitions
        assert set(partitions) <= self.reported, "revoked what it did not have"
        self._interrupt()
        self.reported -= set(partitions)

    def _interrupt(self):
        if self.in_callback:
            self.in_callback.popleft()()

    def serve(self, _):
        event = self.mailbox.take()
        if event is None:
            return False
        assert not isinstance(event, ErrorRaised), repr(event.error)
        assert event is self.membership.step, "the mailbox gave a step that was overtaken"
        step = self.steps.prepare if isinstance(event, JoinNeeded) else self.steps.adopt
        error = blocking(step(event, self.answers.append), self.mailbox)
        assert error is None, repr(error)
        assert self.reported == self.subscription.assigned
        return True

    def take_answer(self, now):
        """The network thread takes an answer of the application."""
        if not self.answers:
            return False
        answer = self.answers.popleft()
        step, state = self.membership.step, self.membership.state
        self.membership.answered(answer, now)
        if step is None or step.number != answer.number:
            assert self.membership.state is state, "an overtaken answer changed something"
        return True

    def close(self):
        self.closed = True
        self.mailbox.discard_steps()
        self.reported.clear()
        self.subscription.clear()
        self.call = Call("leaving", 1e9)
        # The queue of events keeps its order.
        while self.take_answer(0.0):
            pass
        inside = self.membership.active and self.membership.state is not MemberState.FENCED
        self.must_leave = inside and self.membership._introduced
        self.membership.leave(self.call, "closing")

    # -- the network

    def ask(self, topics, done):
        self.asks.append((topics, done))

    def look_up(self):
        asks, self.asks = self.asks, []
        for _, done in asks:
            self.known.update(NAMES)
            done()
        return bool(asks)

    def send(self, now):
        for manager in (self.membership, self.heartbeats):
            for unsent in manager.poll(now).requests:
                self._to_broker(unsent, now)

    def _to_broker(self, unsent, now):
        self.outstanding.append(unsent)

        def reply(message):
            if unsent in self.outstanding:
                self.outstanding.remove(unsent)
                unsent.handle(message, None, now)

        def arrive():
            message = self.coordinator.heartbeat(unsent.request)
            self.network.append(lambda: reply(message))

        self.network.append(arrive)

    def deliver(self):
        if not self.network:
            return False
        self.network.popleft()()
        return True

    def lose_connection(self, now):
        """What is under way is lost; the broker may have acted on it."""
        self.network.clear()
        lost, self.outstanding = self.outstanding, []
        for unsent in lost:
            self.lost_something = True
            unsent.handle(None, DisconnectException("lost"), now)

    @property
    def counted(self):
        return counted(self.coordinator, self.membership)


class Groups(GroupsMachine):
    ROUND_SECONDS = 1.0

    def __init__(self):
        super().__init__(Coordinator({T: (T, "t", 4), U: (U, "u", 2)}))

    @precondition(lambda self: len(self.members) < 4)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS))
    def start(self, topics):
        member = Member(self.coordinator)
        self.members.append(member)
        member.subscription.subscribe(topics)
        member.membership.subscribe(topics, None, self.now)

    def turn(self, member):
        """One round of a member whose network and application are quick; return whether anything happened."""
        member.send(self.now)
        busy = False
        while member.deliver():
            busy = True
        busy |= member.look_up()
        if not member.closed:
            member.membership.polled(self.now)
            busy |= member.serve(self.now)
        return member.take_answer(self.now) or busy

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def the_application_is_faster_than_the_network(self, index):
        member = self.member(index)
        for _ in range(3):
            self.now += 3.0
            member.send(self.now)
            if not member.closed:
                member.serve(self.now)
            member.take_answer(self.now)

    @SOMEBODY
    @rule(index=st.integers(0, 3), moves=st.booleans())
    def the_network_is_faster_than_the_application(self, index, moves):
        member = self.member(index)
        if moves:
            self.coordinator.rebalance()
        for _ in range(3):
            self.now += 3.0
            member.send(self.now)
            while member.deliver():
                pass
            member.look_up()

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def pass_time(self, seconds):
        self.now += seconds

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def look_up(self, index):
        self.member(index).look_up()

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def take_answer(self, index):
        self.member(index).take_answer(self.now)

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def confuse_the_epoch(self, index):
        """The coordinator restarts with an older state: the member is fenced although it is known."""
        seat = self.coordinator.members.get(self.member(index).membership.metadata.member_id)
        if seat is not None and seat.epoch > 2:
            seat.epoch = seat.previous = 1

    @SOMEBODY
    @rule(index=st.integers(0, 3), topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, index, topics):
        member = self.member(index)
        if not member.closed:
            member.subscription.subscribe(topics)
            member.membership.subscribe(topics, None, self.now)

    @rule()
    def partitions_are_added(self):
        topic_id, name, count = self.coordinator.topics[U]
        if count < 4:
            self.coordinator.topics[U] = topic_id, name, count + 1
            self.coordinator.rebalance()

    @rule()
    def everything_moves(self):
        self.coordinator.rebalance()

    @SOMEBODY
    @rule(index=st.integers(0, 3), what=st.sampled_from(["round trips", "expelled", "connection lost", "left behind"]))
    def something_will_happen_in_a_callback(self, index, what):
        member = self.member(index)

        def happen():
            if what == "expelled":
                self.coordinator.remove(member.membership.metadata.member_id)
            elif what == "connection lost":
                member.lose_connection(self.now)
            elif what == "left behind":
                member.membership._polled_at = self.now - 301
            for _ in range(3):
                self.now += 3.0
                member.send(self.now)
                while member.deliver():
                    pass
                for other in self.members:
                    if other is not member:
                        other.send(self.now)
                        while other.deliver():
                            pass

        member.in_callback.append(happen)

    def teardown(self):
        """Everything is delivered and answered from now on: the group comes to rest, with everything shared out."""
        alive = [m for m in self.members if not m.closed]
        for member in self.members:
            member.in_callback.clear()
        quiet = 0
        for _ in range(400):
            self.now += 3.0
            for member in self.members:
                self.turn(member)
                self.nothing_is_held_twice()
            resting = all(m.membership.state is MemberState.STABLE and not m.answers for m in alive)
            calm = all(
                s.epoch == self.coordinator.epoch and not s.revoking and not s.waiting
                for s in self.coordinator.members.values()
            )
            # A member that died without a word is expelled by the broker after a while.
            ids = {m.membership.metadata.member_id for m in alive}
            for member in set(self.coordinator.members) - ids:
                self.coordinator.remove(member)
            quiet = quiet + 1 if resting and calm else 0
            if quiet == 3:
                break
        assert [m.membership.state for m in alive] == [MemberState.STABLE] * len(alive)
        wanted = {
            (name, p)
            for _, name, count in self.coordinator.topics.values()
            for p in range(count)
            if any(name in m.membership._topics for m in alive)
        }
        held = [(p.topic, p.partition) for m in alive for p in m.subscription.assigned]
        assert len(held) == len(set(held))
        assert set(held) == wanted
        for member in self.members:
            if member.closed:
                assert member.membership.state is MemberState.UNSUBSCRIBED
                assert member.call.done
                said = member.membership.metadata.member_id in self.coordinator.leaves
                assert said or member.lost_something or not member.must_leave


def test_groups_come_to_rest_and_own_nothing_twice():
    limits = settings(
        max_examples=examples(300), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Groups, settings=limits)
