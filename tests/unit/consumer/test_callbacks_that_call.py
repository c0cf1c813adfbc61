"""Rebalance callbacks that call the consumer they are called by: each ends, and each partition is given up once."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.consumer.silent_group import LeavingCore
from tests.waiting import wait_until

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer import AsyncConsumer, Consumer
from sparkrelay.consumer.api import session
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.consumer.base.events import AdoptNeeded, ErrorRaised, Hold, JoinNeeded
from sparkrelay.errors import DisconnectException
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Program:
    """A program around either face. Its callbacks note what they get, and make the calls that the test wants."""

    def __init__(self, kind, runner):
        self.kind, self.runner, self.story = kind, runner, []
        settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.commit": False}
        self.consumer = kind(settings)
        self.session = self.consumer._session

    def run(self, name, *args):
        if self.kind is Consumer:
            return getattr(self.consumer, name)(*args)

        async def main():
            return await getattr(self.consumer, name)(*args)

        return self.runner.run(main())

    def callback(self, name, calls):
        def plain(consumer, partitions):
            self.story.append((name, list(partitions)))
            for method, *args in calls:
                getattr(consumer, method)(*args)

        async def awaiting(consumer, partitions):
            self.story.append((name, list(partitions)))
            for method, *args in calls:
                await getattr(consumer, method)(*args)

        return plain if self.kind is Consumer else awaiting

    def join(self, *partitions, **calls):
        """Hold partitions; `revoked=[("close",)]` makes `on_revoked` call close()."""
        callbacks = {f"on_{n}": self.callback(n, calls.get(n, ())) for n in ("assigned", "revoked", "lost")}
        if self.kind is Consumer:
            self.consumer.subscribe(["t"], **callbacks)
        else:
            self.runner.run(self.consumer.subscribe(["t"], **callbacks))
        self.session.subscription.assign_from_group(partitions)
        self.session.subscription.release()
        for partition in partitions:
            self.session.subscription.seek(partition, 7)

    def must(self, event):
        self.session.mailbox.put(event)

    def answers(self, count):
        """The steps that were answered, as the network thread gets them."""

        def numbers():
            return [event.number for event in self.session.network.core.events if hasattr(event, "number")]

        wait_until(lambda: len(numbers()) >= count, f"not {count} answers")
        return numbers()


@pytest.fixture(params=[Consumer, AsyncConsumer], ids=["blocking", "awaiting"])
def program(request, monkeypatch):
    monkeypatch.setattr(session, "ConsumerCore", lambda *_, **__: LeavingCore())
    with asyncio.Runner() as runner:
        program = Program(request.param, runner)
        yield program
        program.run("close", 0)


def prepare(hold, number=1):
    return JoinNeeded(number, hold, frozenset({"t"}), frozenset())


def adopt(*partitions, number=1):
    return AdoptNeeded(number, "range", MemberAssignment(partitions), GroupMetadata("g", 5, "m"))


@pytest.mark.parametrize("inner", ["unsubscribe", "close"])
@pytest.mark.parametrize("outer", ["unsubscribe", "close"])
def test_a_revocation_on_leaving_that_leaves_again_ends(program, outer, inner):
    program.join(T0, T1, revoked=[(inner,)])
    program.run(outer)
    assert program.story == [("revoked", [T0, T1])]
    assert program.session.subscription.assigned == frozenset()
    assert program.session.closed == ("close" in {outer, inner})


@pytest.mark.parametrize("inner", ["unsubscribe", "close"])
@pytest.mark.parametrize(("hold", "name"), [(Hold.REVOKE, "revoked"), (Hold.LOSE, "lost")], ids=["revoked", "lost"])
def test_a_callback_of_poll_that_leaves_ends_and_poll_goes_on(program, hold, name, inner):
    program.join(T0, T1, **{name: [(inner,)]})
    program.must(prepare(hold))
    if inner == "close":
        with pytest.raises(DisconnectException, match="the consumer is closed"):
            program.run("poll", 0)
    else:
        assert program.run("poll", 30).num_rows == 0  # not after 30 s: there is nothing to wait for
    assert program.story == [(name, [T0, T1])]
    assert program.session.subscription.assigned == frozenset()


@pytest.mark.parametrize("inner", ["unsubscribe", "close"])
def test_what_a_callback_keeps_is_given_up_once_when_it_leaves(program, inner):
    program.join(T0, T1, revoked=[(inner,)])
    program.must(adopt(T0))
    if inner == "close":
        with pytest.raises(DisconnectException, match="the consumer is closed"):
            program.run("poll", 0)
    else:
        program.run("poll", 0)
    assert program.story == [("revoked", [T1]), ("revoked", [T0])]
    assert program.session.subscription.assigned == frozenset()


@pytest.mark.parametrize("inner", ["unsubscribe", "close"])
def test_new_partitions_are_given_up_by_a_callback_that_leaves(program, inner):
    program.join(T0, assigned=[(inner,)])
    program.must(adopt(T0, T1))
    if inner == "close":
        with pytest.raises(DisconnectException, match="the consumer is closed"):
            program.run("poll", 0)
    else:
        program.run("poll", 0)
    assert program.story == [("assigned", [T1]), ("revoked", [T0, T1])]
    assert program.session.subscription.assigned == frozenset()


def test_a_member_that_was_expelled_loses_once_although_on_lost_leaves(program):
    program.join(T0, lost=[("unsubscribe",)])
    program.session.network.core.group_metadata = GroupMetadata("g", -1, "")
    program.run("unsubscribe")
    assert program.story == [("lost", [T0])]


def test_what_a_callback_takes_by_hand_is_its_own(program):
    """The step that is under way must not take it back."""
    program.join(T0, T1, revoked=[("unsubscribe",), ("assign", [T0])])
    program.must(adopt())
    program.run("poll", 0)
    assert program.story == [("revoked", [T0, T1])]
    assert program.session.subscription.assigned == {T0}
    assert program.session.subscription.get(T0).held_back is False


def test_what_a_callback_takes_by_hand_is_not_introduced_although_it_fails(program):
    program.join(T0, assigned=[("unsubscribe",), ("assign", [T1]), ("seek", ("u", 0), 0)])
    program.must(adopt(T0, T1))
    with pytest.raises(ValueError, match="u-0 is not assigned"):
        program.run("poll", 0)
    program.run("poll", 0)
    assert program.story == [("assigned", [T1]), ("revoked", [T0, T1])]
    assert program.session.subscription.assigned == {T1}


def test_a_poll_within_a_callback_serves_no_rebalance(program):
    program.join(T0, assigned=[("poll", 0)], revoked=[("poll", 0)], lost=[("poll", 0)])
    program.must(adopt(T1))
    program.run("poll", 0)
    assert program.story == [("revoked", [T0]), ("assigned", [T1])]
    assert program.answers(1) == [1]


def test_steps_that_come_during_a_callback_wait_for_its_end(program):
    """A callback is not called while another runs, but by unsubscribe and close."""
    program.join(T0, assigned=[("poll", 0.01)])
    program.must(adopt(T0, T1, number=1))
    program.must(prepare(Hold.LOSE, number=2))
    program.run("poll", 0)
    assert program.story == [("assigned", [T1]), ("lost", [T0, T1])]
    assert program.answers(2) == [1, 2]


def test_an_error_comes_out_of_a_poll_within_a_callback(program):
    program.join(T0, assigned=[("poll", 30)])
    program.must(adopt(T0, T1))
    program.must(ErrorRaised(ValueError("of a partition")))
    with pytest.raises(ValueError, match="of a partition"):
        program.run("poll", 0)


def test_a_callback_that_failed_may_poll_when_it_is_called_again(program):
    program.join(T0, assigned=[("seek", ("u", 0), 0)])
    program.must(adopt(T0, T1))
    with pytest.raises(ValueError, match="u-0 is not assigned"):
        program.run("poll", 0)
    program.session._rebalance.set_callbacks(program.callback("again", [("poll", 0)]), None, None)
    program.run("poll", 0)
    assert program.story == [("assigned", [T1]), ("again", [T1])]
