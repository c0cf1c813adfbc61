"""A start that a signal meets, at every point and at random ones: what is left, and how the program goes on."""

import contextlib
import functools
import os
import random
import signal
import threading
from types import SimpleNamespace

import pytest
from tests.waiting import LONG, wait_until

from sparkrelay import Json, KafkaStreams, StreamsBuilder
from sparkrelay.errors import StreamsException, WakeupException
from sparkrelay.runtime.instance import kafka_streams, parts
from sparkrelay.runtime.instance.starting import Beginning
from sparkrelay.runtime.process.context import RuntimeContext

pytestmark = pytest.mark.timeout(300)


class Processes:
    """An instance's processes without Spark: their thread ends when it is stopped, if it has been started."""

    def __init__(self, on_change):
        self.all, self.blocked, self.trouble = [], "", ""
        self.held = self.started = self.stopping = self.unstartable = False
        self.ended = threading.Event()
        self.on_change = on_change

    def build(self):
        self.held = True

    def start(self):
        if self.unstartable:
            raise RuntimeError("can't start new thread")
        self.started = True
        if self.stopping:
            self.stop()

    def stop(self):
        self.stopping = True
        if self.started and not self.ended.is_set():
            threading.Thread(target=self._end).start()

    def _end(self):
        self.ended.set()
        self.on_change()

    def tidy(self):
        self.held = self.held and not self.ended.is_set()
        return not self.held

    def discard(self):
        assert not self.started
        self.held = False
        self.stopping = False

    def give_up_unstarted(self):
        self.ended.set()


class Broker:
    """A broker in good order, and every client of it.

    Attributes:
        at_connect: called by who connects.
        interrupted: set once a client's waiting is to end.
        clients: how many are open.
    """

    def __init__(self):
        self.at_connect = lambda: None
        self.interrupted, self.clients = threading.Event(), 0
        self.interrupt = self.interrupted.set

    def open(self):
        self.clients += 1
        return self

    def close(self):
        self.clients -= 1


@pytest.fixture
def broker(monkeypatch):
    broker = Broker()
    topics = SimpleNamespace(check_broker=lambda: None, layout=lambda: None, check_source_changelogs=lambda: None)
    monkeypatch.setattr(RuntimeContext, "client", lambda *_: broker.open())
    monkeypatch.setattr(RuntimeContext, "connect", lambda *_, **__: broker.at_connect())
    monkeypatch.setattr(RuntimeContext, "topics", lambda *_: topics)
    return broker


@pytest.fixture
def make_streams(monkeypatch, broker):
    """`make_streams()` makes an instance whose broker and Spark are always in order."""
    monkeypatch.setattr(kafka_streams, "check_session", lambda spark: None)
    monkeypatch.setattr(parts, "make_processes", lambda *_, on_change, on_failure: Processes(on_change))

    def make():
        builder = StreamsBuilder()
        builder.stream("texts", value=Json("text string")).to("copies")
        config = {"application.id": "signalled", "bootstrap.servers": "broker:9092"}
        return KafkaStreams(builder.build(), config, spark=None, quiet=True)

    return make


STEPS = {
    "the handler": (kafka_streams, "exit_on_sigterm"),
    "begin": ("_life", "begin"),
    "console": ("_console", "start"),
    "endpoint": (None, "_open_endpoint"),
    "broker": ("_context", "connect"),
    "build": ("_processes", "build"),
    "begun": ("_life", "begun"),
    "start": ("_processes", "start"),
}


def patch(monkeypatch, streams, step, where, signalled):
    owner, name = STEPS[step]
    owner = streams if owner is None else getattr(streams, owner) if isinstance(owner, str) else owner
    real = getattr(owner, name)

    @functools.wraps(real)
    def patched(*args, **more):
        if where == "before":
            signalled()
        answer = real(*args, **more)
        if where == "after":
            signalled()
        return answer

    monkeypatch.setattr(owner, name, patched)


def threads_of(streams):
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("signalled")}


def check_ended(streams):
    """Nothing is left of a start, at once or once it is stopped; the program may go on."""
    assert streams.stop(LONG)
    assert streams.state == "NOT_RUNNING"
    assert not streams._processes.held
    wait_until(lambda: not threads_of(streams), "a thread goes on")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_signal_ends_a_start_at_every_step(make_streams, monkeypatch, step, where, number):
    if (step, where, number) == ("the handler", "before", signal.SIGTERM):
        pytest.skip("it is Python's own action still, which ends the program at once")
    streams = make_streams()
    patch(monkeypatch, streams, step, where, lambda: os.kill(os.getpid(), number))
    with pytest.raises(SystemExit if number == signal.SIGTERM else KeyboardInterrupt) as caught:
        streams.start()
    if number == signal.SIGTERM:
        assert caught.value.code == 143
    assert streams.state in {"CREATED", "PENDING_SHUTDOWN", "NOT_RUNNING"}
    check_ended(streams)


@pytest.mark.parametrize("step", ["console", "broker", "build", "begun"])
def test_after_ctrl_c_the_start_may_be_repeated_if_it_had_not_begun(make_streams, monkeypatch, step):
    streams = make_streams()
    with monkeypatch.context() as context:
        patch(context, streams, step, "before", lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            streams.start()
    if streams.state == "CREATED":
        streams.start()
        assert streams.state == "REBALANCING"
    check_ended(streams)


class Mine(BaseException):
    """What a program's own handler raises."""


# It may come in a callback of a weak reference, where Python drops it.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_of_any_handler_at_any_moment_ends_the_start(make_streams):
    armed = False

    def raises(number, frame):
        # Python may see a signal of the timer's only once the timer is off.
        if armed:
            raise Mine

    signal.signal(signal.SIGALRM, raises)
    chosen = random.Random(0)
    rounds = met = 0
    # On a fast machine more starts are over before the signal.
    while rounds < 300 or met <= 30:
        rounds += 1
        assert rounds < 30_000, f"only {met} starts met the signal"
        streams = make_streams()
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, chosen.uniform(1e-6, 1.2e-3))
            try:
                streams.start()
            finally:
                armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Mine:
            met += 1
            # The last: the start had ended, and it came on the way back here.
            assert streams.state in {"CREATED", "NOT_RUNNING", "REBALANCING"}
        check_ended(streams)


def test_a_signal_breaks_the_wait_for_the_broker_off(make_streams, broker):
    streams, waiting = make_streams(), threading.Event()
    broker.at_connect = lambda: (waiting.set(), broker.interrupted.wait())
    threading.Thread(target=lambda: (waiting.wait(), os.kill(os.getpid(), signal.SIGTERM))).start()
    with pytest.raises(SystemExit):
        streams.start()
    check_ended(streams)
    assert not broker.clients


def test_a_stop_breaks_a_start_off_and_start_returns(make_streams, broker):
    streams = make_streams()
    broker.at_connect = lambda: (threading.Thread(target=streams.stop).start(), broker.interrupted.wait())
    streams.start()
    check_ended(streams)
    assert not broker.clients


def test_a_second_ctrl_c_does_not_wait_for_what_cannot_be_broken_off(make_streams, monkeypatch):
    streams, building, done = make_streams(), threading.Event(), threading.Event()
    monkeypatch.setattr(streams._processes, "build", lambda: (building.set(), done.wait()))

    def press():
        building.wait()
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: streams._processes.stopping, "the first one is not noticed")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt), streams:
        streams.start()
    assert not done.is_set()
    done.set()
    check_ended(streams)


def test_a_start_that_fails_is_undone_and_may_be_repeated(make_streams, monkeypatch):
    streams = make_streams()

    def refuse(*_):
        raise StreamsException("no")

    with monkeypatch.context() as context:
        context.setattr(streams._processes, "build", refuse)
        with pytest.raises(StreamsException, match="no"):
            streams.start()
    assert streams.state == "CREATED"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    streams.start()
    with pytest.raises(StreamsException, match="REBALANCING"):
        streams.start()
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    check_ended(streams)


def test_threads_that_cannot_be_started_end_the_instance(make_streams):
    streams = make_streams()
    streams._processes.unstartable = True
    with pytest.raises(RuntimeError, match="new thread"):
        streams.start()
    assert streams.stop(LONG)
    assert streams.state == "ERROR"
    assert not streams._processes.held


def test_a_start_withdrawn_before_its_thread_came_to_it_never_happens():
    done = []
    beginning = Beginning(lambda _: done.append(1), name="start")
    assert not beginning.withdraw()
    beginning._run()
    assert not done


def test_breaking_off_ends_at_the_next_point():
    steps = []
    beginning = Beginning(lambda _: None, name="start")
    with contextlib.suppress(WakeupException), beginning.breakable(lambda: steps.append("interrupted")):
        beginning.break_off()
        steps.append("goes on to the end of the block")
    assert steps == ["interrupted", "goes on to the end of the block"]
    with pytest.raises(WakeupException):
        beginning.check()
    with pytest.raises(WakeupException), beginning.breakable(steps.clear):
        steps.append("never")
    assert steps[-1] != "never"
