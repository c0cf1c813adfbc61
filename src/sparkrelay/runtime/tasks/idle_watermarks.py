"""When watermarks of a task without input go on all the same, so that its last windows end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.runtime.contract.commands import StateReport

__all__ = ["IdleWatermarks"]


class IdleWatermarks:
    """Decides for one task. Pure; it is given monotonic times in seconds.

    Event time goes on by as much as the clock of the wall has while nothing came, so that windows of long ago, as in a
    backfill, end no sooner than those of today.

    Args:
        idle_seconds: for how long nothing must have come (``watermark.idle.ms``); 0: watermarks stay where they are.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._since: float | None = None
        self._asked_at = 0.0
        #: A new owner does not know, and looks.
        self._open = True

    def had_input(self, now: float) -> None:
        """Note that the task is not idle."""
        self._since, self._open = now, True

    def due(self, now: float) -> int:
        """Return by how many milliseconds watermarks are to go on now; 0: they are not."""
        if self._since is None:
            self._since = now
        silence = now - self._since
        if not self._open or self._idle_seconds <= 0 or silence < self._idle_seconds:
            return 0
        self._asked_at = now
        return round(silence * 1000)

    def moved(self, states: Iterable[StateReport]) -> None:
        """Note that they have gone on as :meth:`due` said, and how the stores are since."""
        self._since = self._asked_at
        self._open = any(state.watermark is not None and state.watermark < state.last_end for state in states)
