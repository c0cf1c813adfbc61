"""When a dead stream thread gets its successor, without Spark and without a broker."""

import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from sparkrelay.errors import TimeoutException, UnsupportedVersionException
from sparkrelay.runtime.process_threads import ProcessThreads


class Process(ProcessThreads):
    """A process of one thread; notes each pause instead of making it, and fails to make threads as it is told."""

    def __init__(self):
        self.place = SimpleNamespace(lost=False)
        self.threads = [made_thread()]
        self.pauses, self.troubles, self.begun = [], [], []
        self._deaths, self._stopping = Counter(), threading.Event()

    def _rest(self, seconds):
        self.pauses.append(seconds)
        return super()._rest(0.0)

    def _disconnect(self, number):
        pass

    def _thread(self, number):
        if self.troubles:
            raise self.troubles.pop(0)
        return made_thread()

    def _begin(self, thread):
        self.begun.append(thread)

    def die(self, *, committed=False):
        (thread,) = self.threads
        thread.progress.committed = committed
        self.replace(thread)


def made_thread():
    return SimpleNamespace(name="app-StreamThread-1", progress=SimpleNamespace(committed=False, trouble=print))


@pytest.fixture
def process():
    return Process()


def test_threads_that_do_no_good_follow_each_other_ever_more_slowly(process):
    for _ in range(9):
        process.die()
    assert process.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert process.begun[-1] is process.threads[0]
    process.die(committed=True)
    process.die()
    assert process.pauses[-2:] == [0.5, 1]


def test_a_broker_that_is_away_is_waited_for(process):
    process.troubles = [TimeoutException("no broker answers")] * 2
    process.die()
    assert process.pauses == [0.5, 1, 2]
    assert process.begun == process.threads


def test_what_waiting_does_not_mend_is_raised(process):
    process.troubles = [UnsupportedVersionException("the broker is too old")]
    with pytest.raises(UnsupportedVersionException):
        process.die()
    assert process.begun == []


@pytest.mark.parametrize("why", ["stopping", "executor gone"])
def test_a_process_that_ends_gets_no_successor(process, why):
    (thread,) = process.threads
    if why == "stopping":
        process._stopping.set()
    else:
        process.place.lost = True
    process.die()
    assert (process.threads, process.begun) == ([thread], [])
