"""The application's part in a rebalance that is under way, as a membership sees it: one numbered step at a time.

A step that was overtaken is cancelled, and answers to any other than the present one are ignored (KAFKA-16375).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.consumer.base.events import AdoptNeeded, AssignNeeded, JoinNeeded

__all__ = ["Steps"]


class Steps:
    """See the module. Used by the network thread only.

    Args:
        tell: takes steps for the application.

    Attributes:
        current: the step that is not answered yet, None if there is none.
    """

    def __init__(self, tell: Callable[[JoinNeeded | AssignNeeded | AdoptNeeded], None]) -> None:
        self._tell = tell
        self._count = 0
        self.current: JoinNeeded | AssignNeeded | AdoptNeeded | None = None

    def number(self) -> int:
        """Return the number for a new step."""
        self._count += 1
        return self._count

    def announce(self, step: JoinNeeded | AssignNeeded | AdoptNeeded) -> None:
        """Ask the application for a step."""
        self.current = step
        self._tell(step)

    def answered(self, number: int) -> JoinNeeded | AssignNeeded | AdoptNeeded | None:
        """Return the step that an answer ends, None if it was overtaken."""
        step = self.current
        if step is None or step.number != number:
            return None
        self.current = None
        return step

    def cancel(self) -> None:
        """Make the answer to the present step meaningless."""
        if self.current is not None:
            self.current.cancelled = True
            self.current = None
