"""A signal handler that raises in the application thread must not take the network thread with it."""

from __future__ import annotations

import contextlib
import linecache
import sys
import threading
import time

import pytest
from tests.waiting import LONG, wait_until

from sparkrelay.consumer.api.access import AccessControl
from sparkrelay.consumer.api.exchanges import blocking
from sparkrelay.consumer.api.session import Session
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.events import Commit, Leave, ListOffsets
from sparkrelay.consumer.base.requests import NOTHING
from sparkrelay.consumer.network.network_thread import NetworkThread
from sparkrelay.types import TopicPartition

T0 = TopicPartition("t", 0)


class InterruptError(Exception):
    """What the handler raises."""


class Interrupter:
    """Raises at one line of Python code or at one return of a function, whose ever it is, as a signal handler may."""

    def __init__(self, after):
        self.left, self.struck = after, False

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, event, _):
        if frame.f_code is Interrupter.__exit__.__code__:
            return None
        # Not at the end of a with block, where only a tracer can strike: CPython takes and releases a lock of C in one.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event in ("line", "return") and not self.struck and not (event == "line" and text.startswith("with ")):
            self.left -= 1
            if self.left < 0:
                self.struck = True
                raise InterruptError
        return self.trace


class Core:
    """Answers everything in the turn after it was asked."""

    awaits_poll = given_up = False

    def __init__(self):
        self.managers, self.now, self.asked, self.group_metadata = (self,), 0.0, [], None

    def process(self, event, now):
        if isinstance(event, Commit | Leave | ListOffsets):
            self.asked.append(event.call)

    def poll(self, now):
        waiting, self.asked = self.asked, []
        for call in waiting:
            call.resolve({})
        return NOTHING

    def last_requests(self):
        return ()


class Face:
    """What callbacks are given."""


FACE = Face()


class Consumers(Session):
    """A session whose managers are the test's, on a real network thread."""

    def _make_core(self, client):
        del client
        return Core()


def make_session(network=None, **settings):
    common = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.commit": False}
    return Consumers(
        FACE,
        common | settings,
        AccessControl(),
        assignors=(),
        key_deserializer=None,
        value_deserializer=None,
        fetching=True,
        network=network,
    )


def run(session, exchange):
    return blocking(exchange, session.mailbox)


def commit_without_waiting(session):
    session.commit_async({T0: 1}, lambda *_: None)


def commit_and_look_at_the_future(session):
    future = session.commit_async({T0: 1}, None)
    future.add_done_callback(lambda _: None)
    future.done()
    future.result(LONG)


def commit_and_wait(session):
    run(session, session.commit({T0: 1}, LONG))


def poll_with_automatic_commits(session):
    session._commits._due = 0.0
    run(session, session.poll(0, None, None))
    run(session, session.poll(0, None, None))


def ask_for_the_lag(session):
    session.lag(T0)


@pytest.mark.parametrize(
    "action",
    [
        commit_without_waiting,
        commit_and_look_at_the_future,
        commit_and_wait,
        poll_with_automatic_commits,
        ask_for_the_lag,
    ],
)
def test_an_interrupt_anywhere_leaves_the_network_thread_alive(action):
    """Also inside of the standard library's locks that are written in Python, had it any part in this."""
    session = make_session(**{"enable.auto.commit": True, "auto.commit.interval.ms": 600_000})
    run(session, session.assign([T0]))
    session.subscription.seek(T0, 7)
    after = 0
    try:
        while True:
            interrupter = Interrupter(after)
            with contextlib.suppress(InterruptError), interrupter:
                action(session)
            if not interrupter.struck:
                break
            call = Call("committing", time.monotonic() + 60)
            session.network.submit(Commit(call, {}, retry=True), call)
            assert call.wait(LONG), f"the network thread hangs after an interrupt at {after}"
            after += 1
        assert after > 10
        run(session, session.commit({T0: 1}, LONG))
        run(session, session.poll(0, None, None))
    finally:
        run(session, session.close(LONG))
    assert session.network.dead
    wait_until(lambda: not session.network.thread._thread.is_alive(), "its thread goes on")


def test_an_interrupt_while_a_consumer_is_made_leaves_a_shared_thread_alive():
    with NetworkThread() as network:
        first = make_session(network)
        after = 0
        while True:
            interrupter = Interrupter(after)
            with contextlib.suppress(InterruptError), interrupter:
                handle = network.attach(first.config, first.mailbox, first._make_core)
            if not interrupter.struck:
                break
            call = Call("committing", time.monotonic() + 60)
            first.network.submit(Commit(call, {}, retry=True), call)
            assert call.wait(LONG), f"the network thread hangs after an interrupt at {after}"
            after += 1
        assert after > 10
        handle.stop(LONG)
        run(first, first.close(LONG))

    def ended():
        return not any(thread.name == "consumer-network" for thread in threading.enumerate())

    wait_until(ended, "a network thread is left")  # consumers of tests before may have been closed without waiting
