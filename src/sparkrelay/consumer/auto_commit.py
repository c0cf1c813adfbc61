"""Commits that nobody waits for: the automatic ones, and those of ``commit_async``."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from sparkrelay.consumer.calls import wait_for
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from sparkrelay.consumer.calls import Calls
    from sparkrelay.consumer.events import Mailbox

__all__ = ["AutoCommit"]

_log = logging.getLogger(__name__)


class AutoCommit:
    """Commits positions now and then. Only the application thread uses it.

    It runs at the start of ``poll``, so it covers what earlier calls returned and nothing else (KAFKA-18641).

    Args:
        calls: submits commits.
        mailbox: where the application waits.
        enabled: whether anything is committed automatically.
        interval: seconds between automatic commits.
    """

    def __init__(self, calls: Calls, mailbox: Mailbox, *, enabled: bool, interval: float) -> None:
        self._calls = calls
        self._mailbox = mailbox
        self.enabled = enabled
        self._interval = interval
        self._due = time.monotonic() + interval
        self._automatic: Future[None] | None = None
        self._pending: list[Future[None]] = []

    def note(self, future: Future[None]) -> None:
        """Remember an asynchronous commit, so that ``close`` waits for it."""
        self._pending = [one for one in self._pending if not one.done()]
        self._pending.append(future)

    def when_due(self) -> None:
        """Commit all positions if it is time; at most one such commit is under way."""
        now = time.monotonic()
        if self.enabled and now >= self._due and (self._automatic is None or self._automatic.done()):
            self._due = now + self._interval
            self.soon()

    def soon(self) -> None:
        """Commit all positions without waiting."""
        if self.enabled:
            self._automatic = self._calls.commit(None, self._calls.deadline(), retry=False).future
            self.note(self._automatic)

    def now(self, deadline: float) -> None:
        """Commit all positions and wait; a failure is logged only: others will read the records again."""
        if not self.enabled:
            return
        try:
            wait_for(self._calls.commit(None, deadline, retry=True), self._mailbox, interruptible=False)
        except SparkRelayError as error:
            _log.warning("automatic commit failed: %s", error)

    def await_pending(self, deadline: float) -> None:
        """Wait until everything that was committed asynchronously is decided, or the deadline."""
        for future in self._pending:
            future.add_done_callback(self._mailbox.notify)
            self._mailbox.wait(future.done, deadline, for_events=False, for_wakeup=False)
