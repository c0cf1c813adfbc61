"""When a task runs although nothing has come, by the clock of the wall."""

import math

from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.tasks.due_times import DueTimes

TOPICS = {"timers": frozenset({"a", "b"}), "others": frozenset({"c"})}


def test_a_new_owner_looks_at_once():
    due = DueTimes(TOPICS)
    assert due.due(0) == {"a", "b", "c"}
    assert due.next_ms == -math.inf


def test_a_store_is_due_when_its_first_timer_is():
    due = DueTimes(TOPICS)
    due.committed([StateReport("timers", 1, left_ms=500), StateReport("others", 0), StateReport("else", 1)], 1000)
    assert due.next_ms == 1500
    assert due.due(1499) == frozenset()
    assert due.due(1500) == {"a", "b"}
    due.committed([StateReport("timers", 1, left_ms=None)], 1500)
    assert due.next_ms == math.inf
    assert due.due(1 << 60) == frozenset()


def test_a_batch_without_the_store_says_nothing_of_it():
    due = DueTimes(TOPICS)
    due.committed([StateReport("timers", 1, left_ms=1)], 10)
    assert due.due(10) == {"c"}


def test_a_store_whose_time_is_ahead_of_the_clock_is_waited_for():
    due = DueTimes({"timers": frozenset({"a"})})
    due.committed([StateReport("timers", 1, expired=5000, left_ms=1)], 1000)
    assert due.next_ms == 5001


def test_where_nothing_goes_by_the_clock_nothing_is_due():
    assert DueTimes({}).due(1 << 60) == frozenset()
    assert DueTimes({}).next_ms == math.inf
