"""When watermarks of a task without input advance, so that its last windows close."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.runtime.contract.commands import StateReport


class IdleWatermarks:
    """Tracked for one owner of a task. Pure; times are monotonic seconds.

    Event time advances by as much as the clock did without input, so windows of a backfill close no sooner than current
    ones. It advances only when that closes a window.

    Args:
        idle_seconds: idle time required (``watermark.idle.ms``); 0: watermarks never advance.
        stores: stores with windows that close.
    """

    def __init__(self, idle_seconds: float, stores: Iterable[str]) -> None:
        self._idle_seconds = idle_seconds
        self._since: float | None = None
        self._asked_at: float | None = None
        #: Store -> milliseconds from its watermark to the end of its next window; 0 if unknown, for a new owner.
        self._left_ms: dict[str, float] = dict.fromkeys(stores, 0)

    def had_input(self, now: float) -> None:
        """Record that the task is not idle."""
        self._since, self._asked_at = now, None

    def due(self, now: float, unread_since: Iterable[float] = ()) -> int:
        """Return how far to advance watermarks now, in milliseconds; 0: not at all.

        ``unread_since`` are the times since which possible input has been unread upstream. What is unread for the idle
        time counts as input on its way, and earlier input is awaited.
        """
        oldest = min(unread_since, default=math.inf)
        if self._since is None or oldest <= now - self._idle_seconds:
            self._since = now
        # Later input has later times.
        until = min(now, oldest)
        if not self.may_be_due(until):
            return 0
        self._asked_at = until
        return round((until - self._since) * 1000)

    @property
    def counts(self) -> bool:
        """True if watermarks may advance without input."""
        return self._idle_seconds > 0

    def may_be_due(self, now: float) -> bool:
        """Return whether watermarks advance now if nothing is unread upstream."""
        if self._since is None or not self.counts:
            return False
        silence = now - self._since
        nearest = min(self._left_ms.values(), default=math.inf)
        return silence >= self._idle_seconds and silence * 1000 >= nearest

    def committed(self, states: Iterable[StateReport]) -> None:
        """Update from a committed batch, which had input or was due."""
        if self._asked_at is not None:
            self._since, self._asked_at = self._asked_at, None
            # A window that an idle batch did not reach is not awaited.
            self._left_ms = dict.fromkeys(self._left_ms, math.inf)
        for state in states:
            if state.store in self._left_ms:
                self._left_ms[state.store] = math.inf if state.left_ms is None else state.left_ms
