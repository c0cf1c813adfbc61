"""Signals while a script waits for its instance: who handles them, and who gets its handler back."""

import gc
import signal
import threading
import weakref

import pytest
from tests.waiting import LONG

from sparkrelay.runtime.instance.termination import default_sigterm, exit_on_sigterm, on_termination


@pytest.fixture
def pysparks():
    """A handler that says it is PySpark's, as a SparkContext sets one."""

    def signal_handler(number, frame):
        raise AssertionError("every job was cancelled")

    signal_handler.__module__ = "pyspark.core.context"
    signal.signal(signal.SIGINT, signal_handler)
    return signal_handler


def test_sigterm_stops_on_a_thread_of_its_own_and_the_wait_goes_on():
    stopped, calls = threading.Event(), []

    def stop(timeout):
        calls.append((timeout, threading.current_thread() is threading.main_thread()))
        stopped.set()

    with on_termination(stop):
        signal.raise_signal(signal.SIGTERM)
        stopped.wait()
    assert calls == [(0, False)]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_ctrl_c_stops_and_then_ends_the_program(pysparks):
    calls = []
    with pytest.raises(KeyboardInterrupt) as caught, on_termination(calls.append):
        signal.raise_signal(signal.SIGINT)
    assert calls == [None]
    assert caught.value.__suppress_context__
    assert signal.getsignal(signal.SIGINT) is pysparks


def test_ctrl_c_without_a_handler_of_pysparks_does_the_same():
    calls = []
    with pytest.raises(KeyboardInterrupt), on_termination(calls.append):
        signal.raise_signal(signal.SIGINT)
    assert calls == [None]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_breaks_the_stop_off(pysparks):
    calls = []

    def stop(timeout):
        calls.append("begun")
        signal.raise_signal(signal.SIGINT)
        calls.append("ended")

    with pytest.raises(KeyboardInterrupt), on_termination(stop):
        signal.raise_signal(signal.SIGINT)
    assert calls == ["begun"]
    assert signal.getsignal(signal.SIGINT) is pysparks


def test_without_a_signal_pysparks_handler_comes_back(pysparks):
    with on_termination(pytest.fail):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is pysparks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_of_the_program_is_left_in_place(number):
    seen = []

    def mine(number, frame):
        seen.append(number)

    signal.signal(number, mine)
    with on_termination(pytest.fail):
        signal.raise_signal(number)
    assert seen == [number]
    assert signal.getsignal(number) is mine


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ignored_signals_stay_ignored(number):
    signal.signal(number, signal.SIG_IGN)
    with on_termination(pytest.fail):
        signal.raise_signal(number)
    assert signal.getsignal(number) == signal.SIG_IGN


def test_other_threads_touch_no_handler(pysparks):
    seen = []

    def wait():
        with on_termination(pytest.fail):
            seen.extend([signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)])

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert seen == [pysparks, signal.SIG_DFL]


class Instance:
    """Notes how it is stopped."""

    def __init__(self):
        self.stopped = threading.Event()

    def stop(self, timeout):
        assert timeout == 0
        self.stopped.set()


def test_sigterm_ends_a_program_that_does_not_wait_yet():
    one, other = Instance(), Instance()
    exit_on_sigterm(one.stop)
    exit_on_sigterm(other.stop)
    with pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143
    assert one.stopped.wait(LONG)
    assert other.stopped.wait(LONG)
    signal.raise_signal(signal.SIGTERM)  # it breaks nothing off
    default_sigterm(one.stop)
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    default_sigterm(other.stop)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_sigterm_stops_in_a_wait_after_a_start():
    instance = Instance()
    exit_on_sigterm(instance.stop)
    before = signal.getsignal(signal.SIGTERM)
    with on_termination(instance.stop):
        signal.raise_signal(signal.SIGTERM)
        assert instance.stopped.wait(LONG)
    assert signal.getsignal(signal.SIGTERM) is before
    default_sigterm(instance.stop)


def test_an_instance_that_nobody_holds_is_not_kept():
    instance = Instance()
    exit_on_sigterm(instance.stop)
    gone = weakref.ref(instance)
    del instance
    gc.collect()
    assert gone() is None
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    default_sigterm(Instance().stop)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_start_leaves_a_handler_of_the_program_in_place():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    instance = Instance()
    exit_on_sigterm(instance.stop)
    default_sigterm(instance.stop)
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
