"""Which topics that a task has read to their end hold its watermarks back: those that were not silent for long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.runtime.contract.commands import StateReport

__all__ = ["IdleTopics"]


class IdleTopics:
    """Decides for one owner of a task. Pure; it is given monotonic times in seconds.

    What counts are rows that reach the stateful step: a topic of which all are filtered away in front of it is silent,
    or windows would never end. Kafka Streams looks at the topics themselves (``PartitionGroup.readyToProcess``).

    Args:
        idle_seconds: store -> for how long a topic is waited for (``max.task.idle.ms``, ``join.idle.ms``); 0: none is.
        topics: store -> the topics that its step reads, of steps with a watermark that read several.
    """

    def __init__(self, idle_seconds: Mapping[str, float], topics: Mapping[str, frozenset[str]]) -> None:
        self._idle_seconds = idle_seconds
        self._topics = {store: read for store, read in topics.items() if idle_seconds[store] > 0}
        #: Store and topic -> when the topic was last not silent.
        self._since: dict[tuple[str, str], float] = {}
        #: Those of which something had been unread upstream for long by the last look.
        self._had_backlog: set[tuple[str, str]] = set()
        #: Store -> the topics that held its watermark in the last batch.
        self._holding = dict(self._topics)
        #: Whether a window is open only because a topic holds it. A new owner does not know, and looks.
        self._held = dict.fromkeys(self._topics, True)

    def look(
        self, behind: Collection[str], now: float, unread_since: Mapping[str, float] | None = None
    ) -> dict[str, frozenset[str]]:
        """Return the topics that are waited for, by store.

        Args:
            behind: those that have more than the batch takes.
            now: when this is asked.
            unread_since: topic -> since when what may become rows of it has been unread upstream. What is unread for as
                long as a silent topic is waited for is a backlog: rows, though they have not come yet. What has come
                since, as there always is something in a steady flow, is none; all of it may be filtered away.
        """
        awaited = {store: set[str]() for store in self._topics}
        for store, topics in self._topics.items():
            idle = self._idle_seconds[store]
            for topic in topics:
                one = store, topic
                unread = math.inf if unread_since is None else unread_since.get(topic, math.inf)
                # What has come of a backlog may show only by the look behind the one that finds it gone.
                backlog, had_backlog = unread <= now - idle, one in self._had_backlog
                if topic in behind or one not in self._since or backlog or had_backlog:
                    self._since[one] = now
                if backlog:
                    self._had_backlog.add(one)
                else:
                    self._had_backlog.discard(one)
                over = self._since[one] + idle
                # What was there by then is waited for.
                if now < over or unread <= over:
                    awaited[store].add(topic)
        return {store: frozenset(topics) for store, topics in awaited.items()}

    @property
    def counts(self) -> bool:
        """True if a topic is waited for that comes silent."""
        return bool(self._topics)

    def may_be_due(self, now: float) -> bool:
        """Return whether a topic may be let go now that holds a window, if nothing is unread upstream."""
        return any(
            self._since.get((store, topic), now) + self._idle_seconds[store] <= now
            for store, topics in self._holding.items()
            if self._held[store]
            for topic in topics
        )

    def due(self, awaited: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the topics of groupings whose windows end because one of them is waited for no longer."""
        stores = [store for store, topics in awaited.items() if self._held[store] and self._holding[store] - topics]
        return frozenset(topic for store in stores for topic in self._topics[store])

    def committed(self, states: Iterable[StateReport], awaited: Mapping[str, frozenset[str]], looked_at: float) -> None:
        """Learn of a batch.

        Args:
            states: what its stateful steps have reported.
            awaited: the topics that were waited for, by store.
            looked_at: when it was chosen.
        """
        for state in states:
            if state.store in self._topics and state.store in awaited:
                self._since |= {(state.store, topic): looked_at for topic in state.sources}
                self._holding[state.store] = awaited[state.store] | state.sources
                self._held[state.store] = state.left_ms == 0

    def inputs_unknown(self, now: float) -> None:
        """Note that nobody could say whether there is input: that is no silence."""
        self._since = dict.fromkeys(self._since, now)
