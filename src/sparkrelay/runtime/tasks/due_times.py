"""When a task must run without input: a processing-time timer is due, or something expires."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.runtime.contract.commands import StateReport


class DueTimes:
    """Tracked for one owner of a task. Pure; times are wall-clock milliseconds since 1970.

    Args:
        topics: store -> topics read by its step, for steps that depend on processing time.
    """

    def __init__(self, topics: Mapping[str, frozenset[str]]) -> None:
        self._topics = topics
        # Unknown to a new owner: due at once.
        self._due: dict[str, float] = dict.fromkeys(topics, -math.inf)

    @property
    def next_ms(self) -> float:
        """When the first store is due; infinity: never, as far as known."""
        return min(self._due.values(), default=math.inf)

    def due(self, clock_ms: int) -> frozenset[str]:
        """Return the topics of the steps that are due."""
        return frozenset().union(*(self._topics[store] for store, ms in self._due.items() if ms <= clock_ms))

    def committed(self, states: Iterable[StateReport], clock_ms: int) -> None:
        """Update from a batch chosen at ``clock_ms``; the store's time may be ahead, from another machine."""
        for state in states:
            if state.store in self._due:
                now_ms = clock_ms if state.expired is None else max(clock_ms, state.expired)
                self._due[state.store] = math.inf if state.left_ms is None else now_ms + state.left_ms
