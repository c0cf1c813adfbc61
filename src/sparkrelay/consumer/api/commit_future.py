"""The future of ``commit_async``: a ``concurrent.futures.Future`` without a lock.

The network thread resolves it, and must never hang because a signal handler raised while the application thread held a
future's lock (see ``base.mailbox``). So the call answers everything. ``concurrent.futures.wait`` and ``as_completed``,
which use the locks of futures, are refused.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from sparkrelay.consumer.base.call import Call


class CommitFuture(Future[None]):
    """The future of one commit."""

    def __init__(self, call: Call) -> None:
        # Not the base class's __init__, which makes the lock.
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
        """Return False: it is either done or can be cancelled."""
        return False

    def cancelled(self) -> bool:
        """Whether it was cancelled before its outcome was known."""
        return self._call.done and isinstance(self._call.error, CancelledError)

    def cancel(self) -> bool:
        """Cancel the commit unless its request was sent; return False if the outcome is known."""
        self._call.fail(CancelledError())
        return self.cancelled()

    def result(self, timeout: float | None = None) -> None:
        """Wait for the outcome; raise its error."""
        self._await(timeout)
        self._call.result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome; return its error, if any."""
        self._await(timeout)
        if self.cancelled():
            raise CancelledError
        return self._call.error

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        """Call ``fn(future)`` in the network thread when the outcome is known, or now if it is."""
        self._call.when_done(lambda _: fn(self))

    def _await(self, timeout: float | None) -> None:
        if not self._call.wait(timeout):
            raise TimeoutError(f"{self._call.what} is not done after {timeout} s")
