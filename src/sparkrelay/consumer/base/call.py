"""Operations that somebody waits for, without locks.

The locks of ``concurrent.futures.Future`` and ``threading.Condition`` are taken by Python code, so a signal handler
that raises in the application thread (Ctrl-C) may leave one taken for ever, and the network thread would hang.
Appending to a list or deque and popping from it cannot be interrupted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from sparkrelay.errors import ConfigException, TimeoutException

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
_this_thread = threading.local()


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
            require_may_wait()
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


def may_not_wait() -> None:
    """Mark this thread as a network thread: waiting for a call would mean waiting for itself."""
    _this_thread.may_not_wait = True


def require_may_wait() -> None:
    """Raise ConfigException in a network thread."""
    if getattr(_this_thread, "may_not_wait", False):
        raise ConfigException(
            "a consumer's network thread cannot wait for a consumer: it would wait for itself. Callbacks of "
            "futures run there; use the callback argument of commit_async() instead, which is called inside poll()"
        )
