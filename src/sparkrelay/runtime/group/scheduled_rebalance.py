"""When a member is to ask for the next rebalance, as the leader's assignment says. Pure: the time is an argument.

KIP-924, "followupRebalanceDeadline": a wish lasts until the next rebalance, whoever causes it; each assignment brings
its own or none.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkrelay.client.backoff import Backoff
from sparkrelay.protocol import NO_REBALANCE_SCHEDULED

__all__ = ["ScheduledRebalance"]

#: A hand-over takes two rebalances, one more if tasks move on meanwhile.
_AT_ONCE_WITHOUT_PAUSE = 3
_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 10_000


@dataclass(slots=True)
class ScheduledRebalance:
    """The next rebalance that this member asks for.

    "At once" may come again and again: an assignor that cannot decide now (TaskAssignmentException) asks for it each
    time. After a few in a row there are growing pauses, up to 10 s, so that a group in trouble is not kept busy with
    rebalances alone.
    """

    due_ms: int = NO_REBALANCE_SCHEDULED
    _in_a_row: int = 0

    def on_assignment(self, next_rebalance_ms: int, now_ms: int) -> None:
        """Take what an assignment says; it replaces what an earlier one said.

        Args:
            next_rebalance_ms: Milliseconds since the epoch, 0 for at once, 2**63 - 1 for never.
            now_ms: The time.
        """
        if next_rebalance_ms > now_ms:
            self._in_a_row, self.due_ms = 0, next_rebalance_ms
            return
        self._in_a_row += 1
        beyond = self._in_a_row - _AT_ONCE_WITHOUT_PAUSE
        backoff = Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS, jitter=0, failures=beyond - 1)
        self.due_ms = now_ms + (round(backoff.next()) if beyond > 0 else 0)

    def due(self, now_ms: int) -> bool:
        """Return whether to ask now; asked once, it is over."""
        if now_ms < self.due_ms:
            return False
        self.due_ms = NO_REBALANCE_SCHEDULED
        return True
