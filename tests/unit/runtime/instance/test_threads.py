"""What add_stream_thread() and remove_stream_thread() answer in which state. The processes are played."""

from types import SimpleNamespace

import pytest

from sparkrelay import KafkaStreams
from sparkrelay.runtime.instance.lifecycle import Life


class Processes:
    """Adds one thread and has one leave, which ends when the test says; another stays."""

    def __init__(self):
        self.added, self.waits = [], []
        self.leaving = SimpleNamespace(name="app-StreamThread-1", is_current=False, wait=self.wait)
        self.staying = SimpleNamespace(is_current=False)
        self.all = [SimpleNamespace(threads=(self.leaving, self.staying))]
        self.left = True

    def wait(self, timeout):
        self.waits.append(timeout)
        return self.left

    def add_thread(self):
        self.added.append("app-StreamThread-2")
        return self.added[-1]

    def remove_thread(self):
        return self.leaving


@pytest.fixture
def streams():
    made = object.__new__(KafkaStreams)
    made._config = SimpleNamespace(application_id="app")
    made._life, made._processes = Life("app"), Processes()
    made._life.begin()
    made._life.begun()
    return made


def test_the_names_of_threads_that_come_and_go(streams):
    assert streams.add_stream_thread() == "app-StreamThread-2"
    assert streams.remove_stream_thread() == "app-StreamThread-1"
    assert streams._processes.waits == [None]


@pytest.mark.parametrize("state", ["CREATED", "PENDING_SHUTDOWN", "PENDING_ERROR"])
def test_an_instance_that_is_not_alive_keeps_its_threads(streams, state, caplog):
    if state == "CREATED":
        streams._life = Life("app")
    elif state == "PENDING_SHUTDOWN":
        streams._life.ask_to_end()
    else:
        streams._life.fail(ValueError("user code"))
    streams._processes = None
    assert streams.add_stream_thread() is streams.remove_stream_thread() is None
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"no stream thread is {done}: app is {state}" for done in ("added", "removed")
    ]


def test_who_takes_longer_goes_on_to_leave(streams, caplog):
    streams._processes.left = False
    assert streams.remove_stream_thread(0.5) is None
    assert streams._processes.waits == [0.5]
    assert "app-StreamThread-1 has not left within 0.5 s" in caplog.text


@pytest.mark.parametrize("caller", ["leaving", "staying"])
def test_a_callback_waits_for_no_threads_end(streams, caller):
    """Neither for its own, nor for that of one whose callback may be removing this one."""
    getattr(streams._processes, caller).is_current = True
    assert streams.remove_stream_thread() == "app-StreamThread-1"
    assert streams._processes.waits == []


def test_a_state_listener_waits_for_no_threads_end(streams):
    removed = []
    streams._life.listener = lambda new, old: removed.append(streams.remove_stream_thread())
    streams._life.note_tasks(lambda: True)
    assert removed == ["app-StreamThread-1"]
    assert streams._processes.waits == []


def test_there_may_be_none_to_remove(streams):
    streams._processes.leaving = None
    assert streams.remove_stream_thread() is None


def test_an_error_of_a_new_thread_is_raised_to_who_adds_it(streams):
    def fail():
        raise TimeoutError("no broker")

    streams._processes.add_thread = fail
    with pytest.raises(TimeoutError):
        streams.add_stream_thread()


@pytest.mark.parametrize(
    ("threads", "state"),
    [([], "RUNNING"), ([(True, False)], "RUNNING"), ([(False, False)], "REBALANCING"), ([(True, True)], "REBALANCING")],
    ids=["all removed", "running", "not yet", "dead"],
)
def test_an_instance_without_threads_waits_for_nothing(streams, threads, state):
    made = tuple(SimpleNamespace(running=running, ended=ended) for running, ended in threads)
    streams._processes = SimpleNamespace(tidy=lambda: False, all=[SimpleNamespace(threads=made)])
    streams._changed()
    assert streams.state == state


def test_without_a_process_it_waits_for_one(streams):
    streams._processes = SimpleNamespace(tidy=lambda: False, all=[])
    streams._changed()
    assert streams.state == "REBALANCING"
