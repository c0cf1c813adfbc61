"""When a member requests the next rebalance, by the leader's assignment. Pure: the time is an argument.

KIP-924, "followupRebalanceDeadline": a deadline lasts until the next rebalance, whoever causes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkrelay.client.backoff import Backoff
from sparkrelay.protocol import NO_REBALANCE_SCHEDULED

#: A hand-over takes two rebalances, or three if tasks move in between.
_AT_ONCE_WITHOUT_PAUSE = 3
_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 10_000


@dataclass(slots=True)
class ScheduledRebalance:
    """The next rebalance that this member requests.

    An assignor that cannot decide now (TaskAssignmentException) asks for one at once, every time. After a few in a row
    the pauses grow up to 10 s, so that a group in trouble does more than rebalance.
    """

    due_ms: int = NO_REBALANCE_SCHEDULED
    _in_a_row: int = 0

    def on_assignment(self, next_rebalance_ms: int, now_ms: int) -> None:
        """Take an assignment's ``next_rebalance_ms``: ms since the epoch, 0 for at once, 2**63 - 1 for never."""
        if next_rebalance_ms > now_ms:
            self._in_a_row, self.due_ms = 0, next_rebalance_ms
            return
        self._in_a_row += 1
        beyond = self._in_a_row - _AT_ONCE_WITHOUT_PAUSE
        backoff = Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS, jitter=0, failures=beyond - 1)
        self.due_ms = now_ms + (round(backoff.next()) if beyond > 0 else 0)

    def due(self, now_ms: int) -> bool:
        """Return whether to request now; True only once."""
        if now_ms < self.due_ms:
            return False
        self.due_ms = NO_REBALANCE_SCHEDULED
        return True
