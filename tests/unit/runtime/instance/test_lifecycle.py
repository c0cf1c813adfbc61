"""The states of an instance, from any thread and in any order."""

import re
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.waiting import LONG

from sparkrelay.errors import IllegalTransitionException, StreamsException
from sparkrelay.runtime.instance.lifecycle import FOLLOWING, Life

PAGE = Path(__file__).parents[4] / "docs" / "watching.md"


@pytest.fixture
def life():
    return Life("app")


def received(life):
    reported = []
    life.listener = lambda new, old: reported.append((old, new))
    return reported


def test_a_life_from_start_to_stop(life):
    reported = received(life)
    life.begin()
    assert life.begun()
    life.note_tasks(lambda: True)
    life.note_tasks(lambda: True)
    life.note_tasks(lambda: False)
    life.ask_to_end()
    life.ask_to_end()
    assert not life.ended
    life.end()
    life.end()
    assert life.wait_for_end(0)
    states = ["CREATED", "REBALANCING", "RUNNING", "REBALANCING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert reported == list(pairwise(states))


def test_an_instance_starts_once(life):
    life.begin()
    with pytest.raises(StreamsException, match="being started"):
        life.begin()
    life.begun()
    with pytest.raises(StreamsException, match="REBALANCING"):
        life.begin()


def test_a_failed_start_may_be_repeated(life):
    life.begin()
    life.not_begun()
    life.begin()
    assert life.begun()


def test_without_a_start_there_is_no_end_to_wait_for(life):
    with pytest.raises(StreamsException, match=r"app is not started.*call start\(\) first"):
        life.wait_for_end(5)


def test_who_waits_learns_that_the_start_failed(life):
    life.begin()
    assert not life.wait_for_end(0)
    threading.Timer(0.05, life.not_begun).start()
    with pytest.raises(StreamsException, match="is not started"):
        life.wait_for_end(LONG)


def test_a_stop_before_the_start_ends_it_at_once(life):
    life.ask_to_end()
    assert life.state == "NOT_RUNNING"
    with pytest.raises(StreamsException, match="NOT_RUNNING"):
        life.begin()


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_during_the_start_waits_for_the_start_to_notice(life, fails):
    life.begin()
    life.ask_to_end()
    assert life.state == "PENDING_SHUTDOWN"
    if fails:
        life.not_begun()
    else:
        assert not life.begun()
        life.end()
    assert life.state == "NOT_RUNNING"


def test_the_first_cause_of_an_error_counts(life):
    life.begin()
    life.begun()
    first = RuntimeError("first")
    life.fail(first)
    life.fail(RuntimeError("second"))
    assert life.state == "PENDING_ERROR"
    life.ask_to_end()
    life.end()
    assert (life.state, life.cause) == ("ERROR", first)


def test_who_waits_for_the_end_waits_for_the_listener_too(life):
    may_return, reported = threading.Event(), []

    def listener(new, old):
        if new == "NOT_RUNNING":
            assert may_return.wait(LONG)
        reported.append(new)

    life.listener = listener
    life.begin()
    life.begun()
    life.ask_to_end()
    ending = threading.Thread(target=life.end)
    ending.start()
    assert not life.wait_for_end(0)
    may_return.set()
    assert life.wait_for_end(LONG)
    assert reported[-1] == "NOT_RUNNING"
    ending.join()


def test_a_listener_may_ask_for_the_end_and_wait_for_it(life):
    waited = []

    def listener(new, old):
        if new == "REBALANCING":
            life.ask_to_end()
            life.end()
            waited.append(life.wait_for_end(LONG))

    life.listener = listener
    life.begin()
    life.begun()
    assert waited == [True]
    assert life.wait_for_end(0)


@pytest.mark.parametrize("failure", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_listener_that_fails_hinders_nobody(life, caplog, failure):
    def listener(new, old):
        raise failure

    life.listener = listener
    thread = threading.Thread(target=life.ask_to_end)
    thread.start()
    thread.join()
    assert life.state == "NOT_RUNNING"
    assert "the state listener failed" in caplog.text


@pytest.mark.parametrize("failure", [SystemExit, KeyboardInterrupt])
def test_a_signal_while_the_listener_is_notified_ends_the_program_once_that_is_done(life, failure):
    reported = []

    def listener(new, old):
        reported.append(new)
        if new == "PENDING_SHUTDOWN":
            raise failure

    life.listener = listener
    with pytest.raises(failure):
        life.ask_to_end()
    assert reported == ["PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert life.wait_for_end(0)


def test_a_change_without_a_way_is_refused_with_what_came_before(life):
    life.begin()
    life.begun()
    with pytest.raises(
        IllegalTransitionException,
        match="instance app: everything is released .* is not allowed in state REBALANCING.*started: CREATED",
    ):
        life.end()
    assert life.state == "REBALANCING"


def test_the_table_for_users_is_the_one_that_is_enforced():
    rows = re.findall(r"^\| `([A-Z_]+)` \| .+ \|((?: [A-Z_]+,?)*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {state: frozenset(re.findall(r"\w+", following)) for state, following in rows} == FOLLOWING


CALLS = {
    "begin": lambda life: life.begin(),
    "begun": lambda life: life.begun(),
    "not begun": lambda life: life.not_begun(),
    "settled": lambda life: life.note_tasks(lambda: True),
    "unsettled": lambda life: life.note_tasks(lambda: False),
    "ask to end": lambda life: life.ask_to_end(),
    "fail": lambda life: life.fail(RuntimeError()),
}


@given(st.lists(st.sampled_from(sorted(CALLS)), max_size=12))
def test_no_order_of_calls_leaves_the_known_ways(calls):
    life = Life("app")
    reported = received(life)
    for call in calls:
        # The runtime says "begun" and "not begun" only after "begin".
        if "begun" in call and not life._starting:
            continue
        try:
            CALLS[call](life)
        except StreamsException:
            assert call == "begin"
    if life.state in {"PENDING_SHUTDOWN", "PENDING_ERROR"}:
        life.end()
    assert [new for _, new in reported[:-1]] == [old for old, _ in reported[1:]]
    assert not life._not_notified
