"""How long what ends in several steps may still wait for brokers: not long any more once somebody wants out.

Whoever presses Ctrl-C or cancels a task while a consumer closes does not want to wait for all that was still to come.
What must be done (leaving the group) is done all the same, so a little time is left for it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HURRIED_SECONDS", "ClosingDeadline"]

#: What is left for everything else after an interrupt or a cancellation.
HURRIED_SECONDS: Final = 1.0


class ClosingDeadline:
    """See the module.

    Args:
        deadline: monotonic time.
        failures: of the steps so far; the list grows.
    """

    def __init__(self, deadline: float, failures: Sequence[BaseException]) -> None:
        self._deadline = deadline
        self._failures = failures
        self._hurried = False

    def until(self) -> float:
        """Return the monotonic time until which the next step may wait."""
        if not self._hurried and self.interrupted:
            self._hurried = True
            self._deadline = min(self._deadline, time.monotonic() + HURRIED_SECONDS)
        return self._deadline

    @property
    def interrupted(self) -> bool:
        """Whether one of the failures is an interrupt or a cancellation."""
        return any(not isinstance(failure, Exception) for failure in self._failures)
