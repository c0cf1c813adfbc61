"""The pause between follow-up rebalances that members ask for. Pure: it is told the time."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["FollowUpPause"]

_SHORTEST_PAUSE_S: Final = 1.0


class FollowUpPause:
    """How long a member waits after an assignment before it asks for the next. All members see the same assignments.

    Args:
        longest_s: seconds to which the pause grows; after twice that without an assignment it is short again.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._pause_s = self._shortest_s = min(_SHORTEST_PAUSE_S, longest_s)
        self._assigned_at = -math.inf
        #: When asking is allowed again.
        self.over_at = -math.inf

    def assigned(self, now: float) -> None:
        """Note that an assignment has come."""
        quiet_s = now - self._assigned_at
        if quiet_s >= self._longest_s * 2:
            self._pause_s = self._shortest_s
        elif quiet_s >= self._shortest_s:
            # Sooner is the second half of the same rebalance, in which is taken what was given up in the first.
            self._pause_s = min(self._pause_s * 2, self._longest_s)
        self._assigned_at = now
        self.asked(now)

    def asked(self, now: float) -> None:
        """Note that the next assignment was asked for; it may take a while."""
        self.over_at = now + self._pause_s
