"""When a dead stream thread gets its successor, without Spark and without a broker."""

import threading
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
from tests.waiting import LONG

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import TimeoutException, UnsupportedVersionException, WakeupException
from sparkrelay.runtime.batch.progress import ProgressLog
from sparkrelay.runtime.process.process_threads import ProcessThreads
from sparkrelay.runtime.process.thread_factory import ThreadFactory
from sparkrelay.runtime.tasks.task_state import TaskState


class Process(ProcessThreads):
    """A process of one thread; notes each pause instead of making it, and fails to make threads as the test says."""

    def __init__(self):
        self.target = SimpleNamespace(lost=False)
        self.threads = (Thread(),)
        self.pauses, self.troubles, self.begun = [], [], []
        self._deaths, self._stopping = Counter(), threading.Event()
        self._lock, self._connecting, self._clients = threading.Lock(), set(), defaultdict(list)
        self._adding, self._global, self._reviving = threading.Lock(), None, threading.Lock()

    def _rest(self, number, seconds):
        self.pauses.append(seconds)
        return super()._rest(number, 0.0)

    def _disconnect(self, number):
        pass

    def _thread(self, number):
        if self.troubles:
            raise self.troubles.pop(0)
        return Thread()

    def _begin(self, thread):
        self.begun.append(thread)

    def die(self, *, committed=False):
        (thread,) = self.threads
        thread.progress.committed = committed
        self.replace(thread)


class Thread:
    """A stream thread that notes its calls."""

    number, removed, started, ended = 0, False, True, False

    def __init__(self):
        self.name = "app-StreamThread-1"
        self.calls = []
        self.progress = SimpleNamespace(
            committed=False, trouble=print, end=lambda: self.calls.append("left out of the log")
        )

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")

    def remove(self):
        self.removed = True

    @property
    def is_current(self):
        return False

    def discard(self):
        self.calls.append("discard")


def test_of_threads_that_could_not_be_started_nothing_is_waited_for():
    process = Process()
    process.threads = (Thread(), Thread())
    process.threads[0].started, process.threads[1].started = True, False
    process.give_up_unstarted()
    assert [thread.calls for thread in process.threads] == [[], ["discard", "left out of the log"]]


def test_global_tables_end_with_their_executor():
    process = Process()
    process._global, process.target.lose = Thread(), lambda: setattr(process.target, "lost", True)
    process._global.ended = process.threads[0].ended = True
    process.lose()
    assert process._global.calls == ["stop"]
    assert process.ended
    process._global.ended = False
    assert not process.ended, "it may be using its stores"


class Client:
    """A client of a broker that is silent: it connects for as long as nobody interrupts it."""

    def __init__(self):
        self.connecting, self.interrupted = threading.Event(), threading.Event()

    def interrupt(self):
        self.interrupted.set()

    def bootstrap(self):
        self.connecting.set()
        assert self.interrupted.wait(LONG)
        raise WakeupException("interrupted")


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
    assert tuple(process.begun) == process.threads


def test_what_waiting_does_not_mend_is_raised(process):
    process.troubles = [UnsupportedVersionException("the broker is too old")]
    with pytest.raises(UnsupportedVersionException):
        process.die()
    assert process.begun == []


@pytest.mark.parametrize("why", ["stopping", "leaving", "executor gone"])
def test_a_process_that_ends_gets_no_successor(process, why):
    (thread,) = process.threads
    if why == "stopping":
        process._stopping.set()
    elif why == "leaving":
        thread.removed = True
    else:
        process.target.lost = True
    process.die()
    assert (process.threads, process.begun) == ((thread,), [])


@pytest.mark.parametrize("asked", ["stop", "remove_thread"])
def test_who_stops_or_removes_does_not_wait_for_a_successor_that_connects(process, asked):
    client = Client()
    process._context = SimpleNamespace(client=lambda client_id: client, connect=Client.bootstrap)
    process._thread = lambda number: process._connect(number, "app")
    replacing = threading.Thread(target=process.die)
    replacing.start()
    assert client.connecting.wait(LONG)
    getattr(process, asked)()
    assert client.interrupted.is_set()
    replacing.join(LONG)
    assert not replacing.is_alive()
    assert (process.begun, process._connecting) == ([], set())


@pytest.mark.parametrize("asked", ["stop", "remove_thread"])
def test_a_successor_that_comes_after_the_stop_is_not_started(process, asked):
    (thread,) = process.threads
    late = Thread()

    def make(number):
        getattr(process, asked)()
        return late

    process._thread = make
    process.die()
    assert (process.threads, process.begun) == ((thread,), [])
    assert late.calls == ["discard", "left out of the log"]


@pytest.mark.parametrize("connected", range(4))
def test_a_thread_that_could_not_be_made_is_not_in_the_progress(connected):
    """Its ends and copies would be asked for ever after."""
    made = Process()
    left = [connected]

    def connect(client):
        left[0] -= 1
        if left[0] < 0:
            raise TimeoutException("no broker answers")

    progress = ProgressLog("app")
    made._context = SimpleNamespace(
        client=lambda client_id: object(), connect=connect, topics=lambda client: SimpleNamespace(), progress=progress
    )
    config = StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "h:1"})
    slot = SimpleNamespace(process_id="a" * 36)
    made._factory = ThreadFactory(made._context, config, made.target, slot, cleaner=None)
    with pytest.raises(TimeoutException):
        ProcessThreads._thread(made, 0)
    assert progress._threads == ()


def test_what_other_threads_open_or_run_is_known(process):
    def having(number, **states):
        tasks = [SimpleNamespace(id=id_, state=TaskState(state)) for id_, state in states.items()]
        return SimpleNamespace(number=number, tasks=SimpleNamespace(all=lambda: tasks))

    process.threads = having(0, a="running", b="standby"), having(2, c="created", d="restoring"), having(5)
    assert [process._active_beside(number) for number in (0, 2, 5)] == [{"c", "d"}, {"a"}, {"a", "c", "d"}]
