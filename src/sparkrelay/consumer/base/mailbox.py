"""The events for the application thread, and its waits. There is no lock here, for the reason in ``call``."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sparkrelay.consumer.base.call import require_may_wait
from sparkrelay.consumer.base.events import ErrorRaised, Step
from sparkrelay.errors import WakeupException

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.consumer.base.events import BackgroundEvent

#: asyncio's timers are limited to a day on some systems.
_LONGEST_TIMER_SECONDS: Final = 86_400.0


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
        require_may_wait()
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
