"""When a task must run although nothing has come: a timer of processing time is due, or something expires."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.runtime.contract.commands import StateReport

__all__ = ["DueTimes"]


class DueTimes:
    """Decides for one owner of a task. Pure; it is given the clock of the wall, in milliseconds since 1970.

    Args:
        topics: store -> the topics that its step reads, of steps that go by processing time.
    """

    def __init__(self, topics: Mapping[str, frozenset[str]]) -> None:
        self._topics = topics
        # A new owner does not know, and looks.
        self._due: dict[str, float] = dict.fromkeys(topics, -math.inf)

    @property
    def next_ms(self) -> float:
        """When the first of the stores is due; infinity: never, as far as is known."""
        return min(self._due.values(), default=math.inf)

    def due(self, clock_ms: int) -> frozenset[str]:
        """Return the topics of the steps of which something is due."""
        return frozenset().union(*(self._topics[store] for store, ms in self._due.items() if ms <= clock_ms))

    def committed(self, states: Iterable[StateReport], clock_ms: int) -> None:
        """Learn how stores are with a batch, which was chosen then.

        A store's time does not go back, and may be that of another machine, whose clock is ahead of this one's.
        """
        for state in states:
            if state.store in self._due:
                now_ms = clock_ms if state.expired is None else max(clock_ms, state.expired)
                self._due[state.store] = math.inf if state.left_ms is None else now_ms + state.left_ms
