"""The two drivers of exchanges, and the mailbox in which they wait."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest
from tests.waiting import LONG

from sparkrelay.consumer.api.exchanges import Promise, attempt, awaiting, blocking, outcome
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.events import ErrorRaised, Hold, JoinNeeded
from sparkrelay.consumer.base.mailbox import Mailbox, Wait
from sparkrelay.errors import ConfigException, TimeoutException, WakeupException

FAR = float("inf")


@pytest.fixture
def mailbox():
    return Mailbox()


@pytest.fixture(params=["blocking", "awaiting"])
def run(request, mailbox):
    """Run an exchange with either driver."""
    if request.param == "blocking":
        return lambda exchange: blocking(exchange, mailbox)
    return lambda exchange: asyncio.run(awaiting(exchange, mailbox))


def soon(action, *args):
    threading.Timer(0.05, action, args).start()


def test_a_flow_that_waits_for_nothing_returns(run):
    def exchange():
        return 7
        yield

    assert run(exchange()) == 7


def test_a_call_is_waited_for(run, mailbox):
    call = Call("x", FAR)
    soon(call.resolve, "done")
    assert run(outcome(call, mailbox, interruptible=True)) == "done"


def test_the_error_of_a_call_is_raised(run, mailbox):
    call = Call("x", FAR)
    soon(call.fail, ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        run(outcome(call, mailbox, interruptible=True))


def test_a_wakeup_ends_the_wait_for_a_call_and_one_before_it_does_too(run, mailbox):
    call = Call("doing x", FAR)
    soon(mailbox.wakeup)
    with pytest.raises(WakeupException, match="while doing x"):
        run(outcome(call, mailbox, interruptible=True))
    mailbox.wakeup()
    with pytest.raises(WakeupException):
        run(outcome(call, mailbox, interruptible=True))


def test_a_wakeup_waits_where_it_must(run, mailbox):
    call = Call("x", FAR)
    mailbox.wakeup()
    soon(call.resolve, None)
    run(outcome(call, mailbox, interruptible=False))
    with pytest.raises(WakeupException):
        mailbox.raise_if_woken()
    mailbox.raise_if_woken()


def test_wakeups_can_be_ignored_for_good(run, mailbox):
    call = Call("x", FAR)
    mailbox.wakeup()
    mailbox.ignore_wakeups()
    mailbox.wakeup()
    soon(call.resolve, 1)
    assert run(outcome(call, mailbox, interruptible=True)) == 1
    mailbox.raise_if_woken()


def test_a_call_that_nobody_fails_fails_by_itself(run, mailbox):
    call = Call("doing x", time.monotonic() - 10)
    with pytest.raises(TimeoutException, match="doing x was not done in time"):
        run(outcome(call, mailbox, interruptible=True))


def test_events_end_a_wait_if_asked_for(run, mailbox):
    def exchange(for_events):
        yield Wait(lambda: False, time.monotonic() + (60 if for_events else 0.1), for_events=for_events)
        return mailbox.take()

    mailbox.put(ErrorRaised(ValueError()))
    assert run(exchange(for_events=False)) is not None
    soon(mailbox.put, ErrorRaised(ValueError()))
    assert isinstance(run(exchange(for_events=True)), ErrorRaised)


def test_a_deadline_that_has_passed_ends_a_wait(run):
    def exchange():
        yield Wait(lambda: False, time.monotonic() - 1)
        yield Wait(lambda: False, time.monotonic() + 0.05)

    run(exchange())


def test_what_is_thrown_while_it_waits_is_raised_in_the_flow(run):
    story = []

    def ready():
        raise KeyError("from the wait")

    def exchange():
        try:
            yield Wait(ready, FAR)
        except KeyError:
            story.append("in the exchange")
            raise

    with pytest.raises(KeyError):
        run(exchange())
    assert story == ["in the exchange"]


def test_cancelling_is_raised_in_the_exchange_and_unregisters_its_waiter(mailbox):
    story = []

    def exchange():
        try:
            yield Wait(lambda: False, FAR)
        finally:
            story.append("ended")

    async def main():
        task = asyncio.create_task(awaiting(exchange(), mailbox))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert story == ["ended"]
    assert mailbox._waiters == []


def test_awaitables_of_callbacks_are_awaited_in_the_same_task(mailbox):
    tasks, failures = [], []

    async def callback():
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())

    async def main():
        tasks.append(asyncio.current_task())
        await awaiting(attempt(failures, callback), mailbox)

    asyncio.run(main())
    assert failures == []
    assert len(set(tasks)) == 1


def test_a_blocking_consumer_refuses_awaitables_and_says_what_to_do(mailbox):
    async def callback():
        raise AssertionError("never runs")

    failures = []
    blocking(attempt(failures, callback), mailbox)
    assert isinstance(failures[0], ConfigException)
    assert "AsyncConsumer" in str(failures[0])
    assert "run_coroutine_threadsafe" in str(failures[0])

    async def main():  # a future of the very loop that is blocked: it would never be done
        blocking(attempt(failures, lambda: asyncio.get_running_loop().create_future()), mailbox)

    asyncio.run(main())
    assert isinstance(failures[1], ConfigException)
    assert "blocks its thread, and with it the event loop" in str(failures[1])


def test_attempts_keep_errors_interrupts_and_cancellations_but_not_the_end_of_the_flow(mailbox):
    failures = []

    def interrupted():
        raise KeyboardInterrupt

    blocking(attempt(failures, interrupted), mailbox)
    assert [type(f) for f in failures] == [KeyboardInterrupt]
    exchange = attempt(failures, lambda: (x for x in [Wait(lambda: False, FAR)]))
    next(exchange)
    exchange.close()
    assert len(failures) == 1


def test_a_promise_that_fails_is_raised_in_the_flow(mailbox):
    async def bad():
        raise ValueError("bad")

    def exchange():
        try:
            yield Promise(bad())
        except ValueError as error:
            return str(error)

    assert asyncio.run(awaiting(exchange(), mailbox)) == "bad"


def test_the_mailbox_drops_steps_that_are_overtaken_and_keeps_errors(mailbox):
    first, second = (JoinNeeded(n, Hold.KEEP, frozenset(), frozenset()) for n in (1, 2))
    error = ErrorRaised(ValueError())
    for event in (first, error, second):
        mailbox.put(event)
    first.cancelled = True
    assert mailbox.take() is error
    mailbox.put(error)
    mailbox.discard_steps()
    assert mailbox.take() is error
    assert mailbox.take() is None


def test_a_signal_handler_may_wake_the_thread_that_waits(mailbox):
    """Nothing falls between looking and waiting, though the handler runs in the thread that waits."""
    before = signal.signal(signal.SIGUSR1, lambda *_: mailbox.wakeup())
    stop = threading.Event()

    def fire():
        main = threading.main_thread().ident
        while not stop.wait(0.0005):
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=fire)
    thread.start()
    try:
        for _ in range(1000):
            mailbox.wait_for(Wait(lambda: False, FAR))
            assert mailbox.take_wakeup()
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_one_signal_is_enough_whenever_it_comes(mailbox):
    """A wakeup inside ready() comes after the look at the flag of wakeups, or before it: never in vain."""

    def ready():
        if not fired:
            fired.append(1)
            signal.raise_signal(signal.SIGUSR1)
        return False

    before = signal.signal(signal.SIGUSR1, lambda *_: mailbox.wakeup())
    try:
        fired = []
        mailbox.wait_for(Wait(ready, FAR))
        assert mailbox.take_wakeup()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_many_threads_wake_an_event_loop(mailbox):
    async def main():
        for _ in range(200):
            threading.Thread(target=mailbox.wakeup).start()
            await mailbox.awaited(Wait(lambda: False, FAR))
            mailbox.take_wakeup()

    asyncio.run(main())


def test_rings_after_the_loop_is_closed_are_harmless(mailbox):
    loop = asyncio.new_event_loop()
    task = loop.create_task(mailbox.awaited(Wait(lambda: False, FAR)))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    mailbox.wakeup()
    task._log_destroy_pending = False


class Early(asyncio.SelectorEventLoop):
    """A loop whose timers go off a little too soon, as those of uvloop do."""

    def call_later(self, delay, callback, *args, **more):
        return super().call_later(delay * 0.9, callback, *args, **more)


def test_a_deadline_holds_although_the_timer_fires_too_soon(mailbox):
    rescue = threading.Timer(LONG, mailbox.wakeup)
    rescue.start()
    began = time.monotonic()
    with asyncio.Runner(loop_factory=Early) as runner:
        runner.run(mailbox.awaited(Wait(lambda: False, began + 0.05)))
    rescue.cancel()
    assert not mailbox.take_wakeup()
    assert time.monotonic() >= began + 0.05
