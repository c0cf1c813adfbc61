"""Cleaning up on another host, which is a Spark job that may wait for a core."""

import threading
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay.runtime.slot.executor_cleaner import ExecutorCleaner
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.types import TaskId

A, B = TaskId(0, 0), TaskId(0, 1)


class Slot:
    """A slot whose job waits for a core until it gets one or is cancelled."""

    path = Path("/state/app/0")

    def __init__(self):
        self.commands = []
        self.began, self.core = threading.Semaphore(0), threading.Semaphore(0)
        self.cancelled = False

    def remove_obsolete(self, kept, before, abandoned_before):
        self.commands.append((kept, before))
        self.began.release()
        assert self.core.acquire(timeout=LONG)
        if self.cancelled:
            self.cancelled = False
            raise JobFailed("cancelled")
        return []

    def cancel_removal(self):
        self.cancelled = True
        self.core.release()


@pytest.fixture
def slot():
    return Slot()


@pytest.fixture
def cleaner(slot):
    cleaner = ExecutorCleaner(slot, delay_seconds=600, now=0.0)
    yield cleaner
    cleaner.close()


def test_a_look_holds_nobody_up(cleaner, slot):
    assert cleaner.turn("one", [A], 1000.0) == []
    assert slot.began.acquire(timeout=LONG)
    # Nothing of this waits for the job, which has no core.
    cleaner.assigned("two", [B])
    assert cleaner.held() == {A, B}
    cleaner.turn("one", [A], 2000.0)
    assert slot.commands == [(frozenset({A}), 400.0)], "one at a time"


def test_a_report_of_the_copies_to_the_group_ends_the_look(cleaner, slot):
    cleaner.turn("one", [A], 1000.0)
    assert slot.began.acquire(timeout=LONG)
    cleaner.reported("two")
    assert not cleaner._removal.is_alive()
    cleaner.turn("one", [A], 2000.0)
    assert len(slot.commands) == 1, "nothing is removed until the assignment is followed"
    cleaner.assigned("two", [B])
    cleaner.turn("one", [A], 3000.0)
    assert slot.began.acquire(timeout=LONG)


def test_closing_ends_the_look(cleaner, slot):
    cleaner.turn("one", [A], 1000.0)
    assert slot.began.acquire(timeout=LONG)
    cleaner.close()
    assert not cleaner._removal.is_alive()


def test_closing_without_a_look_cancels_nothing(cleaner, slot):
    cleaner.close()
    assert (slot.commands, slot.cancelled) == ([], False)
