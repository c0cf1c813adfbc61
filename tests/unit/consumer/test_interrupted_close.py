"""Whoever interrupts a close wants out: little is waited for any more, but the member leaves."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from tests.unit.consumer.silent_group import SilentCore, sessions

from sparkrelay.consumer.api.exchanges import HURRIED_SECONDS, ClosingDeadline, blocking
from sparkrelay.consumer.base.events import Hold, JoinNeeded, Leave
from sparkrelay.types import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def make_member():
    with sessions(SilentCore) as make_session:

        def make(on_revoked=None, **config):
            session = make_session(**{"enable_auto_commit": True, **config})
            blocking(session.subscribe(["t"], None, on_revoked, None), session.mailbox)
            session.subscription.assign_from_group([T0])
            session.subscription.release()
            session.subscription.seek(T0, 7)
            return session

        yield make


class Waits:
    """Notes how long each wait may last, and interrupts one of them. A note for each that came after.

    `at` is the time of the interrupt, and `first` the deadline of the first wait after it.
    """

    def __init__(self, session, interrupted, interrupt=KeyboardInterrupt):
        self.wait_for = session.mailbox.wait_for
        self.left, self.interrupt, self.after = interrupted, interrupt, None
        self.at = self.first = None
        session.mailbox.wait_for = self

    def __call__(self, wait):
        if self.after is not None:
            self.first = wait.deadline if self.first is None else self.first
            self.after.append(wait.deadline - time.monotonic())
        elif self.left == 0:
            self.after, self.at = [], time.monotonic()
            raise self.interrupt
        self.left -= 1
        self.wait_for(wait)


#: A call that the network thread did not end is not believed in any more so long after its deadline.
GRACE = 5.0


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("interrupted", range(2))
def test_after_an_interrupt_little_is_waited_for_and_the_member_leaves(make_member, interrupted, interrupt):
    session = make_member()
    session.commit_async({T0: 7}, None)
    waits = Waits(session, interrupted, interrupt)
    if interrupted:  # the automatic commit takes half of the time otherwise
        waits.left, session._commits.enabled = 0, False
    with pytest.raises(interrupt):
        blocking(session.close(1000), session.mailbox)
    assert waits.after
    assert max(waits.after) <= HURRIED_SECONDS + GRACE
    assert any(isinstance(event, Leave) for event in session.network.core.events)
    assert session.closed


def test_an_interrupted_leave_still_has_a_moment_to_arrive(make_member):
    session = make_member(enable_auto_commit=False)
    waits = Waits(session, 0)  # nothing else is waited for
    with pytest.raises(KeyboardInterrupt):
        blocking(session.close(1000), session.mailbox)
    assert len(waits.after) >= 2
    assert waits.at < waits.first
    assert waits.after[0] <= HURRIED_SECONDS
    assert max(waits.after) <= HURRIED_SECONDS + GRACE


def test_a_callback_that_is_interrupted_hurries_too(make_member):
    def interrupted(*_):
        waits.left = -1
        waits.after = []
        raise KeyboardInterrupt

    session = make_member(on_revoked=interrupted, enable_auto_commit=False)
    waits = Waits(session, -1)
    session.commit_async({T0: 7}, None)
    with pytest.raises(KeyboardInterrupt):
        blocking(session.close(1000), session.mailbox)
    assert len(waits.after) >= 3
    assert max(waits.after) <= HURRIED_SECONDS + GRACE


def test_the_deadline_is_shortened_once():
    failures = [ValueError()]
    closing = ClosingDeadline(time.monotonic() + 1000, failures)
    assert closing.until() - time.monotonic() > 900
    failures.append(KeyboardInterrupt())
    until = closing.until()
    assert until - time.monotonic() <= HURRIED_SECONDS
    assert closing.until() == until
    assert ClosingDeadline(5.0, failures).until() == 5.0


def test_a_commit_before_revoking_ends_before_the_rebalance_does(make_member, caplog):
    session = make_member(max_poll_interval_ms=400, session_timeout_ms=300, heartbeat_interval_ms=100)
    waits = Waits(session, -1)
    waits.after = []
    session.mailbox.put(JoinNeeded(1, Hold.REVOKE, frozenset({"t"}), frozenset()))
    blocking(session.poll(0, None, None), session.mailbox)
    assert waits.after
    assert max(waits.after) <= 0.2 + GRACE
    (warning,) = [r.getMessage() for r in caplog.records if "automatic commit" in r.getMessage()]
    assert "not committed: t-0 at 7" in warning


def test_a_commit_that_is_undecided_when_partitions_go_is_not_sent_later(make_member):
    """It would go out with the next generation, and take the next owner back."""
    received = []
    session = make_member(
        on_revoked=lambda *_: session.commit_async({T0: 7}, lambda *said: received.append(said)),
        enable_auto_commit=False,
        max_poll_interval_ms=400,
        session_timeout_ms=300,
        heartbeat_interval_ms=100,
    )
    session.mailbox.put(JoinNeeded(1, Hold.REVOKE, frozenset({"t"}), frozenset()))
    with contextlib.suppress(KeyboardInterrupt):
        blocking(session.poll(0, None, None), session.mailbox)
    session.subscription.assign_from_group([T0])
    blocking(session.poll(0, None, None), session.mailbox)
    ((offsets, error),) = received
    assert offsets == {T0: 7}
    assert "t-0" in str(error)
