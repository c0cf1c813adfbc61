"""How the application thread waits: ``Call``, an operation with an outcome, and ``Mailbox``, the one place to wait.

Neither has a lock. The locks of ``concurrent.futures.Future`` and ``threading.Condition`` are taken by Python code, so
a signal handler that raises in the application thread (Ctrl-C) may leave one taken for ever, and the network thread
would hang. Appending to a list or deque and popping from it cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.consumer.base.events import ErrorRaised, Step
from sparkrelay.errors import ConfigException, TimeoutException, WakeupException

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.consumer.base.events import BackgroundEvent

_log = logging.getLogger(__name__)
_this_thread = threading.local()

#: asyncio's timers are limited to a day on some systems.
_LONGEST_TIMER_SECONDS: Final = 86_400.0


class Call:
    """An operation that somebody waits for. It ends once: by its result, an error, or its deadline."""

    __slots__ = ("_listeners", "_outcomes", "deadline", "last_error", "what")

    def __init__(self, what: str, deadline: float) -> None:
        self.what = what  # the operation, for messages
        self.deadline = deadline  # monotonic time after which it fails with a TimeoutException
        self.last_error: Exception | None = None  # why it has not succeeded so far; the TimeoutException names it
        #: Result and error; the first one counts.
        self._outcomes: list[tuple[Any, BaseException | None]] = []
        self._listeners: deque[Callable[[Call], object]] = deque()

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return bool(self._outcomes)

    @property
    def error(self) -> BaseException | None:
        """The error of a call that is done, None if it has a result."""
        return self._outcomes[0][1]

    def result(self) -> Any:
        """Return the result of a call that is done, or raise its error."""
        result, error = self._outcomes[0]
        if error is not None:
            raise error
        return result

    def resolve(self, result: Any) -> None:
        """Set the result, unless there is an outcome already."""
        self._decide(result, None)

    def fail(self, error: BaseException) -> None:
        """Set an error, unless there is an outcome already."""
        self._decide(None, error)

    def expire(self, now: float) -> bool:
        """Fail if the deadline has passed; return whether the outcome is known."""
        if self._outcomes:
            self._notify()  # an interrupt may have kept whoever decided from it
        elif now >= self.deadline:
            self.fail(self.timed_out())
        return bool(self._outcomes)

    def when_done(self, listener: Callable[[Call], object]) -> None:
        """Call ``listener(call)`` once, in the thread that decides, or now if it is done; errors are logged."""
        self._listeners.append(listener)
        if self._outcomes:
            self._notify()

    def wait(self, timeout: float | None) -> bool:
        """Block until the outcome is known, at most ``timeout`` seconds; return whether it is."""
        if not self._outcomes:
            _may_wait()
            notified = threading.Lock()
            notified.acquire()
            self.when_done(lambda _: notified.release())
            notified.acquire(
                timeout=threading.TIMEOUT_MAX if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
            )
        return bool(self._outcomes)

    def _decide(self, result: Any, error: BaseException | None) -> None:
        if not self._outcomes:
            self._outcomes.append((result, error))
        self._notify()

    def _notify(self) -> None:
        while self._listeners:
            try:
                listener = self._listeners.popleft()
            except IndexError:
                return  # the other thread took it
            try:
                listener(self)
            except Exception:  # noqa: BLE001 - the other listeners must still be notified
                _log.exception("a listener of a call failed: %s", self.what)

    def timed_out(self) -> TimeoutException:
        """Return the error for an expired deadline."""
        because = f"; last error: {self.last_error}" if self.last_error is not None else ""
        return TimeoutException(f"{self.what} was not done in time{because}")


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of the application thread."""

    ready: Callable[[], object]  # ends the wait when true
    deadline: float  # monotonic time at which the wait ends in any case
    for_events: bool = True  # whether a background event ends it
    for_steps: bool = True  # whether rebalance steps count as such events
    for_wakeup: bool = True  # whether ``wakeup`` ends it

    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.deadline


def may_not_wait() -> None:
    """Mark this thread as a network thread: waiting for a call would mean waiting for itself."""
    _this_thread.may_not_wait = True


def _may_wait() -> None:
    if getattr(_this_thread, "may_not_wait", False):
        raise ConfigException(
            "a consumer's network thread cannot wait for a consumer: it would wait for itself. Callbacks of "
            "futures run there; use the callback argument of commit_async() instead, which is called inside poll()"
        )


class Mailbox:
    """Background events, and the only place where the application thread waits.

    Any thread and any signal handler may call ``put``, ``notify`` and ``wakeup``: there is no lock that the interrupted
    thread could hold, and no gap between looking and waiting in which a wakeup is lost. Each wait first registers a
    waiter, then looks, then waits; a notified waiter stays notified.
    """

    def __init__(self) -> None:
        self._events: deque[BackgroundEvent] = deque()
        #: The event that ``take`` returned last, until the application has handled it.
        self.taken: BackgroundEvent | None = None
        self._waiters: list[Callable[[], object]] = []
        self._woken = False
        self._deaf = False

    def put(self, event: BackgroundEvent) -> None:
        """Add an event and end the wait for it. An error equal to a waiting one is dropped: it is reported once."""
        if isinstance(event, ErrorRaised) and any(_alike(event, waiting) for waiting in self._events.copy()):
            return
        self._events.append(event)
        self.notify()

    def take(self, *, steps: bool = True) -> BackgroundEvent | None:
        """Return the oldest event, but a step only with ``steps``; None without any. Cancelled steps are dropped."""
        while self.has_events(steps=steps):
            # Before it is removed: a Ctrl-C may come between any two instructions.
            event = self.taken = self._events[0]
            self._events.popleft()
            if not (isinstance(event, Step) and event.cancelled):
                return event
        self.taken = None
        return None

    def has_events(self, *, steps: bool = True) -> bool:
        """Return whether ``take`` may find something."""
        try:
            event = self._events[0]
        except IndexError:
            return False
        return steps or not isinstance(event, Step) or event.cancelled

    def put_back(self) -> None:
        """Put the event that ``take`` returned last back in first place: it was not handled."""
        event, self.taken = self.taken, None
        if event is not None and not (self._events and self._events[0] is event):
            self._events.appendleft(event)

    def discard_steps(self) -> None:
        """Drop all rebalance steps; errors stay."""
        self.taken = None
        errors = []
        while self._events:
            event = self._events.popleft()
            if isinstance(event, ErrorRaised):
                errors.append(event)
        self._events.extendleft(reversed(errors))

    def clear(self) -> None:
        """Drop all events."""
        self.taken = None
        self._events.clear()

    def notify(self, _: object = None) -> None:
        """Make all waiters look again."""
        for notify in self._waiters.copy():
            notify()

    def wakeup(self) -> None:
        """End the present wait, or the next one."""
        self._woken = True
        self.notify()

    def take_wakeup(self) -> bool:
        """Return whether ``wakeup`` was called since the last time."""
        if self._deaf or not self._woken:
            return False
        self._woken = False
        return True

    def ignore_wakeups(self) -> None:
        """Ignore all wakeups from now on, including one under way in another thread."""
        self._deaf = True

    def raise_if_woken(self) -> None:
        """Raise WakeupException if ``wakeup`` was called since the last time."""
        if self.take_wakeup():
            raise WakeupException("wakeup() was called")

    def wait_for(self, wait: Wait) -> None:
        """Block this thread until a wait ends. A network thread gets a ConfigException."""
        _may_wait()
        notified = threading.Lock()
        notified.acquire()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # already notified
                notified.release()

        self._waiters.append(notify)
        try:
            while not self._is_over(wait) and (left := wait.deadline - time.monotonic()) > 0:
                notified.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            self._waiters.remove(notify)

    async def awaited(self, wait: Wait) -> None:
        """Await the end of a wait, in a task of the running event loop."""
        loop, notified = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(notified.set)

        self._waiters.append(notify)
        try:
            while not self._is_over(wait) and (left := wait.deadline - time.monotonic()) > 0:
                # Set anew each time: some loops count in whole milliseconds, and a timer may fire early.
                timer = loop.call_later(min(left, _LONGEST_TIMER_SECONDS), notified.set)
                try:
                    await notified.wait()
                finally:
                    timer.cancel()
                notified.clear()
        finally:
            self._waiters.remove(notify)

    def _is_over(self, wait: Wait) -> bool:
        return bool(
            wait.ready()
            or (wait.for_wakeup and self._woken and not self._deaf)
            or (wait.for_events and self.has_events(steps=wait.for_steps))
        )


def _alike(error: ErrorRaised, event: BackgroundEvent) -> bool:
    """Return whether an event is an error equal to another in type, arguments and attributes."""
    if not isinstance(event, ErrorRaised) or replace(event, error=error.error) != error:
        return False
    one, other = error.error, event.error
    return type(one) is type(other) and one.args == other.args and vars(one) == vars(other)
