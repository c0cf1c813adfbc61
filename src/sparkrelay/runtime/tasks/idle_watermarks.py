"""When watermarks of a task without input go on all the same, so that its last windows end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.runtime.contract.commands import StateReport

__all__ = ["IdleWatermarks"]


class IdleWatermarks:
    """Decides for one owner of a task. Pure; it is given monotonic times in seconds.

    Event time goes on by as much as the clock of the wall has while nothing came, so that windows of long ago, as in a
    backfill, end no sooner than those of today. It does so when a window is over by it, not before.

    Args:
        idle_seconds: for how long nothing must have come (``watermark.idle.ms``); 0: watermarks stay where they are.
        stores: those whose windows end.
    """

    def __init__(self, idle_seconds: float, stores: Iterable[str]) -> None:
        self._idle_seconds = idle_seconds
        self._since: float | None = None
        self._asked_at: float | None = None
        #: Store -> how far its watermark is from the end of its next window. A new owner does not know, and looks.
        self._left_ms: dict[str, float] = dict.fromkeys(stores, 0)

    def had_input(self, now: float) -> None:
        """Note that the task is not idle."""
        self._since, self._asked_at = now, None

    def due(self, now: float, unread_since: Iterable[float] = ()) -> int:
        """Return by how many milliseconds watermarks are to go on now; 0: they are not.

        Args:
            now: when this is asked.
            unread_since: since when what may become input has been unread upstream. What is unread for as long as an
                idle task waits is input, though it has not come yet; and what was there by then is waited for.
        """
        oldest = min(unread_since, default=math.inf)
        if self._since is None or oldest <= now - self._idle_seconds:
            self._since = now
        # What came after that is no older.
        until = min(now, oldest)
        if not self.may_be_due(until):
            return 0
        self._asked_at = until
        return round((until - self._since) * 1000)

    @property
    def counts(self) -> bool:
        """True if watermarks go on by silence at all."""
        return self._idle_seconds > 0

    def may_be_due(self, now: float) -> bool:
        """Return whether watermarks are to go on now if nothing is unread upstream."""
        if self._since is None or not self.counts:
            return False
        silence = now - self._since
        nearest = min(self._left_ms.values(), default=math.inf)
        return silence >= self._idle_seconds and silence * 1000 >= nearest

    def committed(self, states: Iterable[StateReport]) -> None:
        """Learn how stores are with a batch, which had input, or was due."""
        if self._asked_at is not None:
            self._since, self._asked_at = self._asked_at, None
            # What an idle batch does not reach is not waited for.
            self._left_ms = dict.fromkeys(self._left_ms, math.inf)
        for state in states:
            if state.store in self._left_ms:
                self._left_ms[state.store] = math.inf if state.left_ms is None else state.left_ms
