"""The pause between follow-up rebalances that members request. Pure: the time is an argument."""

from __future__ import annotations

import math
from typing import Final

_SHORTEST_PAUSE_S: Final = 1.0


class FollowUpPause:
    """A member's pause from an assignment to its next request. All members see the same assignments.

    It grows up to ``longest_s`` seconds; twice as long without an assignment resets it.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._pause_s = self._shortest_s = min(_SHORTEST_PAUSE_S, longest_s)
        self._assigned_at = -math.inf
        #: When the next request is allowed.
        self.over_at = -math.inf

    def assigned(self, now: float) -> None:
        """Record an assignment."""
        quiet_s = now - self._assigned_at
        if quiet_s >= self._longest_s * 2:
            self._pause_s = self._shortest_s
        elif quiet_s >= self._shortest_s:
            # Sooner is the second half of the same hand-over.
            self._pause_s = min(self._pause_s * 2, self._longest_s)
        self._assigned_at = now
        self.asked(now)

    def asked(self, now: float) -> None:
        """Record a request, whose rebalance may take a while."""
        self.over_at = now + self._pause_s
