"""The application's side with managers of the test's own: in which order it asks, and what it waits for."""

from __future__ import annotations

import contextlib
import math
import sys

import pytest
from tests.unit.consumer.silent_group import LeavingCore, sessions
from tests.waiting import wait_until, within

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer.api.exchanges import blocking
from sparkrelay.consumer.api.rebalance import RebalanceSteps
from sparkrelay.consumer.api.session import Session
from sparkrelay.consumer.assignors.built_in import offered
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.base.events import (
    Adopted,
    AdoptNeeded,
    Commit,
    ErrorRaised,
    Hold,
    JoinNeeded,
    Leave,
    Polled,
    Subscribe,
)
from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.metrics import ConsumerMetrics
from sparkrelay.consumer.base.requests import PollResult
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.network.core import ConsumerCore
from sparkrelay.errors import ConfigException
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Core(LeavingCore):
    """Answers commits a few turns after it was asked, and notes the order of things."""

    def __init__(self):
        super().__init__()
        self.story, self.commits = [], []

    def process(self, event, now):
        match event:
            case Commit():
                self.commits.append((event.call, 5))
            case Leave():
                self.story.append("left")
        super().process(event, now)

    def poll(self, now):
        waiting, self.commits = self.commits, []
        for call, turns in waiting:
            if turns:
                self.commits.append((call, turns - 1))
            else:
                self.story.append("committed")
                call.resolve(None)
        return PollResult(wait=0.01 if self.commits else math.inf)


@pytest.fixture
def make_session():
    with sessions(Core) as make:
        yield lambda **config: make(**{"enable_auto_commit": False, **config})


def run(session, exchange):
    return blocking(exchange, session.mailbox)


def become_member(session, **callbacks):
    hooks = [callbacks.get(name) for name in ("on_assigned", "on_revoked", "on_lost")]
    run(session, session.subscribe(["t"], *hooks))
    session.subscription.assign_from_group([T0])
    session.subscription.release()
    session.subscription.seek(T0, 7)


@pytest.mark.parametrize("holding", [True, False])
@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_what_was_committed_without_waiting_is_decided_before_the_member_leaves(make_session, end, holding):
    """Else the broker refuses it: it comes from nobody that it knows."""
    session = make_session()
    become_member(session)
    if not holding:
        session.subscription.assign_from_group([])
    received = []
    session.commit_async({T0: 7}, lambda *_: received.append("received"))
    run(session, session.close(20) if end == "close" else session.unsubscribe())
    assert session.network.core.story == ["committed", "left"]
    assert received == ["received"]


def test_a_commit_of_on_revoked_is_decided_before_the_partitions_are_given_up(make_session):
    """It would go out with the next generation, and take the next owner back."""
    session = make_session()
    become_member(session, on_revoked=lambda *_: session.commit_async({T0: 7}, None))
    failures = []
    run(session, session._rebalance.revoke([T0], failures))
    assert failures == []
    assert session.network.core.story == ["committed"]


def test_a_commit_that_nobody_decides_does_not_use_up_the_time_for_leaving(make_session):
    session = make_session()
    become_member(session)
    session.network.core.poll = lambda now: PollResult()
    future = session.commit_async({T0: 7}, None)
    with within():
        run(session, session.close(1))
    assert session.network.core.story == ["left"]
    assert future.done()


def test_the_automatic_commit_before_leaving_is_marked_so(make_session):
    session = make_session(enable_auto_commit=True)
    become_member(session)
    run(session, session.close(20))
    commits = [event for event in session.network.core.events if isinstance(event, Commit)]
    assert [(commit.retry, commit.automatic) for commit in commits] == [(True, True)]


def adopt_needed(*partitions, number=1):
    return AdoptNeeded(number, "range", MemberAssignment(partitions), GroupMetadata("g", 5, "m"))


def test_only_what_made_the_member_give_up_is_raised_by_every_poll(make_session):
    """Other errors may come while it is given up, and before the application knows of it."""
    session = make_session()
    become_member(session)
    session.network.core.given_up = True
    session.mailbox.put(ErrorRaised(ValueError("of a partition")))
    session.mailbox.put(ErrorRaised(KeyError("of the group"), fatal=True))
    session.mailbox.put(ErrorRaised(ValueError("of another")))
    with pytest.raises(ValueError, match="of a partition"):
        run(session, session.poll(0, None, None))
    for _ in range(2):
        with pytest.raises(KeyError, match="of the group"):
            run(session, session.poll(0, None, None))


def test_the_core_marks_what_made_the_member_give_up(cluster):
    mailbox = Mailbox()
    config = ConsumerConfig.from_dict({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    core = ConsumerCore(
        config,
        cluster({"t": 1}),
        mailbox=mailbox,
        subscription=SubscriptionState(),
        assignors=offered((), ("range",)),
        buffer=None,
    )
    core.fail(ValueError("of a partition"))
    core.membership.subscribe(frozenset({"t"}), None, 0.0)
    core.membership.refused(KeyError("of the group"))
    core.fail(ValueError("of another"))
    events = []
    while (event := mailbox.take()) is not None:
        events.append(event)
    assert [event.fatal for event in events if isinstance(event, ErrorRaised)] == [False, True, False]


def test_a_poll_whose_callbacks_took_long_counts_from_their_end(make_session):
    """The member may have left meanwhile: it comes back when it sees that the application lives."""
    received = []
    session = make_session()
    become_member(session, on_assigned=lambda *_: received.append(session.network.polled_at))
    session.mailbox.put(adopt_needed(T0, T1))
    run(session, session.poll(0, None, None))
    assert session.network.polled_at > received[0]


def test_a_poll_that_comes_too_late_holds_back_what_others_may_have(make_session):
    """Also if the network thread did not notice, because the whole process was stopped: KAFKA-20321."""
    session = make_session()
    become_member(session)
    run(session, session.poll(0, None, None))
    assert session.subscription.may_return(T0)
    session.network.polled_at -= session.config.max_poll_interval_ms / 1000
    run(session, session.poll(0, None, None))
    assert not session.subscription.may_return(T0)
    session.network.wake()
    polls = lambda: [event for event in session.network.core.events if isinstance(event, Polled)]  # noqa: E731
    wait_until(lambda: any(event.missed for event in polls()), "the membership was not asked to leave")
    run(session, session.poll(0, None, None))
    session.network.wake()
    wait_until(lambda: not polls()[-1].missed, "one miss counts twice")


def test_a_group_waits_for_polls_from_the_moment_of_the_subscription(make_session):
    session = make_session()
    become_member(session)
    run(session, session.poll(0, None, None))
    run(session, session.unsubscribe())
    session.network.polled_at -= session.config.max_poll_interval_ms / 1000
    become_member(session)
    run(session, session.poll(0, None, None))
    assert session.subscription.may_return(T0)


class Interrupt:
    """Raises KeyboardInterrupt at the n-th instruction of some functions, as Ctrl-C may at any of them."""

    def __init__(self, number, *functions):
        self.left, self.codes, self.fired = number, {function.__code__ for function in functions}, False

    def __enter__(self):
        self.before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at it only when tracing begins
        sys.settrace(self.trace)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, event, _):
        if frame.f_code not in self.codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.fired:
            self.left -= 1
            if self.left < 0:
                self.fired = True
                raise KeyboardInterrupt
        return self.trace


@pytest.mark.parametrize("lands_in", [(Session._serve, Mailbox.take), (RebalanceSteps.prepare,)])
def test_an_interrupt_between_two_instructions_loses_no_step(make_session, lands_in):
    """The member would wait for the answer for ever."""
    session, number = make_session(), 0
    become_member(session)
    answers = []
    session.network.submit = answers.append
    while True:
        answers.clear()
        session.mailbox.put(JoinNeeded(number, Hold.KEEP, frozenset({"t"}), frozenset()))
        interrupt = Interrupt(number, *lands_in)
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            run(session, session.poll(0, None, None))
        with contextlib.suppress(KeyboardInterrupt):
            run(session, session.poll(0, None, None))
        if not interrupt.fired:
            break
        assert any(answer.number == number for answer in answers), number
        assert session.mailbox.take() is None
        number += 1
    assert number > 20


def test_a_poll_within_a_callback_does_not_run_its_step_again(make_session):
    session = make_session()
    calls = []

    def assigned(*_):
        calls.append("assigned")
        session.mailbox.put(ErrorRaised(ValueError("no")))
        with pytest.raises(ValueError, match="no"):
            run(session, session.poll(0, None, None))

    become_member(session, on_assigned=assigned)
    session.mailbox.put(adopt_needed(T0, T1))
    run(session, session.poll(0, None, None))
    run(session, session.poll(0, None, None))
    assert calls == ["assigned"]


def test_the_core_logs_the_story_when_a_member_that_was_away_is_polled(cluster):
    metrics = ConsumerMetrics()
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.protocol": "consumer"}
    core = ConsumerCore(
        ConsumerConfig.from_dict(config),
        cluster({"t": 1}),
        mailbox=Mailbox(),
        subscription=SubscriptionState(),
        assignors=(),
        buffer=None,
        metrics=metrics,
    )
    core.process(Subscribe(frozenset({"t"}), None), 0.0)
    core.now = 300.0
    core.membership.poll(300.0)
    assert core.awaits_poll
    core.process(Polled(1000.0), 1000.0)
    core.now = 1001.0
    core._on_step(adopt_needed(T0, number=7))
    core.process(Adopted(7), 1002.0)
    assert metrics.snapshot(SubscriptionState(), 1002.0)["rebalance-latency-total"] == 2000


def test_a_rebalance_needs_a_group(make_session):
    session = make_session(group_id=None)
    with pytest.raises(ConfigException, match=r"enforce_rebalance\(\) needs a group"):
        session.enforce_rebalance("please")
