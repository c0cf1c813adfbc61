"""Stream threads that come and go while the process runs, without Spark and without a broker (KIP-663)."""

import threading
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
from tests.waiting import LONG

from sparkrelay.errors import StreamsException, TimeoutException, WakeupException
from sparkrelay.runtime.process.driver_process import DriverProcess
from sparkrelay.runtime.process.process_threads import ProcessThreads
from sparkrelay.runtime.process.processes import ExecutorProcesses
from sparkrelay.runtime.tasks.task_state import TaskState

pytestmark = pytest.mark.timeout(120)


class Thread:
    """A stream thread that notes its calls."""

    def __init__(self, number, *, beside=False):
        self.number, self.beside = number, beside
        self.name = f"app-StreamThread-{number + 1}"
        self.started = self.removed = self.ended = self.is_current = self.discarded = self.stopped = False
        self.expecting = 0
        self.states = []
        self.progress = SimpleNamespace(end=lambda: None, committed=False)
        self.tasks = SimpleNamespace(all=lambda: [SimpleNamespace(state=state) for state in self.states])

    def start(self):
        self.started = True

    def resume(self):
        pass

    def stop(self):
        self.stopped = True

    def remove(self):
        self.removed = True
        self.stop()

    def discard(self):
        self.discarded = True

    def expect_rebalance(self):
        self.expecting += 1


class Client:
    """A connection."""

    def __init__(self, close):
        self.close = close


class Process(ProcessThreads):
    """Makes threads of its own; ``while_making`` is what happens meanwhile."""

    def __init__(self, count):
        self.target = SimpleNamespace(lost=False)
        self.changes = threading.Semaphore(0)
        self._context = SimpleNamespace(
            paused=False,
            plans=lambda target: f"legs {next(self.plans)}",
            callbacks=SimpleNamespace(on_change=self.changes.release),
        )
        self.plans = iter(range(count, 100))
        self._plans = {number: f"legs {number}" for number in range(count)}
        self._deaths, self._stopping = Counter(), threading.Event()
        self._lock, self._adding = threading.Lock(), threading.Lock()
        self._connecting, self._clients = set(), defaultdict(list)
        self._global, self._released = None, False
        self.while_making = lambda: None
        self.made = []
        self.threads = tuple(map(Thread, range(count)))
        self.start()

    def _thread(self, number, *, beside=False):
        self._clients[number].append(Client(lambda: self.closed.append(number)))
        self.closed = []
        self.while_making()
        self.made.append(Thread(number, beside=beside))
        return self.made[-1]

    def end(self, number):
        """Have a thread end by itself, as one does that was asked to."""
        (thread,) = (thread for thread in self.threads if thread.number == number)
        thread.ended = True
        self.take_out_removed()

    @property
    def numbers(self):
        return [thread.number + 1 for thread in self.threads]


@pytest.fixture
def process():
    return Process(2)


def test_a_thread_is_added_beside_those_at_work(process):
    process.threads[0].states = [TaskState.RUNNING]
    assert process.add_thread() == "app-StreamThread-3"
    assert process.numbers == [1, 2, 3]
    (made,) = process.made
    assert made.started
    assert made.beside, "the others go on with their tasks until its legs are compiled"
    assert process._plans[2] == "legs 2", "of its own"


def test_where_nobody_runs_tasks_a_new_thread_need_not_wait_to_join(process):
    process.add_thread()
    assert not process.made[0].beside


def test_the_newest_is_removed_and_the_lowest_free_number_comes_again(process):
    process.add_thread()
    thread = process.remove_thread()
    assert (thread.number, thread.removed, thread.stopped) == (2, True, True)
    assert process.numbers == [1, 2, 3], "it has yet to end"
    process.end(2)
    assert process.numbers == [1, 2]
    assert 2 not in process._plans
    assert process.closed == [2]
    assert [thread.expecting for thread in process.threads] == [1, 1], "they take its tasks over"
    assert process.add_thread() == "app-StreamThread-3"


def test_a_number_is_not_free_before_its_thread_has_left(process):
    process.remove_thread()
    assert process.add_thread() == "app-StreamThread-3"
    process.end(1)
    assert process.numbers == [1, 3]
    assert process.add_thread() == "app-StreamThread-2"
    assert process.numbers == [1, 2, 3]


def test_a_number_is_not_free_while_its_connections_are_being_closed(process):
    """Else a thread that is added meanwhile loses its legs and connections to the one before."""
    added = []
    process._clients[1].append(Client(lambda: added.append(process.add_thread())))
    process.remove_thread()
    process.end(1)
    assert added == ["app-StreamThread-3"]
    assert process.numbers == [1, 3]
    assert set(process._plans) == {0, 2}
    assert process.add_thread() == "app-StreamThread-2"


def test_who_is_leaving_is_not_removed_again(process):
    assert process.remove_thread().number == 1
    assert process.remove_thread().number == 0
    assert process.remove_thread() is None


def test_who_asks_is_removed_only_if_it_is_alone(process):
    process.threads[1].is_current = True
    assert process.remove_thread().number == 0
    assert process.remove_thread().number == 1


def test_a_process_goes_on_without_threads_until_it_is_stopped(process):
    for number in (1, 0):
        process.remove_thread()
        process.end(number)
        assert not process.ended
    assert process.threads == ()
    assert process.remove_thread() is None
    assert process.add_thread() == "app-StreamThread-1"
    process.remove_thread()
    process.end(0)
    process.stop()
    assert process.changes.acquire(timeout=LONG), "nobody else is there to say so"
    assert process.ended


@pytest.mark.parametrize("stopped", ["before", "while it connects", "at the last moment"])
def test_a_process_that_ends_gets_no_further_thread(process, stopped):
    """And whoever waits for its end is notified, though all else may have ended before."""

    def stop():
        process.stop()
        for thread in process.threads:
            thread.ended = True
        assert process.ended is (stopped == "before"), "a thread is being made, on connections that would be closed"
        if stopped == "while it connects":
            raise WakeupException("interrupted")

    if stopped == "before":
        stop()
    else:
        process.while_making = stop
    assert process.add_thread() is None
    assert all(thread.discarded and not thread.started for thread in process.made)
    assert process.numbers == [1, 2]
    assert process.ended
    assert process.changes.acquire(timeout=LONG)
    assert set(process._plans) == {0, 1}


def test_of_a_thread_that_cannot_be_made_nothing_is_left(process):
    def fail():
        raise TimeoutException("no broker answers")

    process.while_making = fail
    with pytest.raises(TimeoutException):
        process.add_thread()
    assert process.numbers == [1, 2]
    assert (set(process._plans), process.closed) == ({0, 1}, [2])
    process.while_making = lambda: None
    assert process.add_thread() == "app-StreamThread-3"


def test_of_a_thread_that_cannot_be_started_nothing_is_left(process, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", start)
    with pytest.raises(RuntimeError):
        process.add_thread()
    assert process.numbers == [1, 2]
    assert process.made[0].discarded


def test_what_is_left_of_a_thread_that_goes_with_its_process_is_released_with_it(process):
    process.remove_thread()
    process.stop()
    process.end(1)
    assert process.numbers == [1, 2]
    process.threads[0].ended = True
    assert process.ended


def test_the_process_of_the_driver_lets_go_of_those_that_have_left(process):
    driver = object.__new__(DriverProcess)
    driver.all, driver._tidying = [process], threading.Lock()
    assert driver.remove_thread() is process.threads[1]
    process.threads[1].ended = True
    assert not driver.tidy()
    assert process.numbers == [1]
    assert driver.add_thread() == "app-StreamThread-2"


@pytest.mark.parametrize(
    ("name", "way_out"),
    [("add", "start another instance .* larger num.stream.threads"), ("remove", "a smaller num.stream.threads")],
)
def test_on_executors_it_is_refused_with_a_way_out(name, way_out):
    processes = object.__new__(ExecutorProcesses)
    processes._context = SimpleNamespace(config=SimpleNamespace(num_stream_threads=2))
    with pytest.raises(StreamsException, match=rf"{name}_stream_thread\(\) is for local .*threads=2 .*{way_out}"):
        getattr(processes, f"{name}_thread")()
