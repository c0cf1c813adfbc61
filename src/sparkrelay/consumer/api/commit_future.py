"""The future that ``commit_async`` returns: a ``concurrent.futures.Future`` without a lock.

The network thread decides it, and must never hang because a signal handler raised while the application thread had the
lock of a future (see ``events.Call``). So all that a future offers is answered from the call. What looks into other
futures' locks, ``concurrent.futures.wait`` and ``as_completed``, is refused.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from sparkrelay.consumer.base.events import Call

__all__ = ["CommitFuture"]


class CommitFuture(Future[None]):
    """See the module.

    Args:
        call: the commit.
    """

    def __init__(self, call: Call) -> None:
        # Without that of the base class: it would make the lock.
        self._call = call

    def __repr__(self) -> str:
        return f"<CommitFuture {'pending' if not self.done() else 'cancelled' if self.cancelled() else 'done'}>"

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        raise ConfigException(
            "concurrent.futures.wait() and as_completed() cannot wait for commit_async(); call result() of each future"
        )

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._call.done

    def running(self) -> bool:
        """Return False: it is done or may be cancelled."""
        return False

    def cancelled(self) -> bool:
        """Whether it was cancelled before the outcome was known."""
        return self._call.done and isinstance(self._call.error, CancelledError)

    def cancel(self) -> bool:
        """Commit no more, if the request has not left yet; return False if the outcome is known."""
        self._call.fail(CancelledError())
        return self.cancelled()

    def result(self, timeout: float | None = None) -> None:
        """Wait for the outcome; raise the error if there is one."""
        self._await(timeout)
        self._call.result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome; return the error if there is one."""
        self._await(timeout)
        if self.cancelled():
            raise CancelledError
        return self._call.error

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        """Have ``fn(future)`` called in the network thread when the outcome is known, or now if it is."""
        self._call.when_done(lambda _: fn(self))

    def _await(self, timeout: float | None) -> None:
        if not self._call.wait(timeout):
            raise TimeoutError(f"{self._call.what} is not done after {timeout} s")
