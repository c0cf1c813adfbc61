"""Which fully read topics hold a task's watermarks back: those that were not silent for long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.runtime.contract.commands import StateReport


class IdleTopics:
    """Tracked for one owner of a task. Pure; times are monotonic seconds.

    Only rows that reach the stateful step count: a topic whose rows are all filtered out is silent, or windows would
    never close. Kafka Streams looks at the topics themselves (``PartitionGroup.readyToProcess``).

    Args:
        idle_seconds: store -> how long to wait for a silent topic (``max.task.idle.ms``, ``join.idle.ms``); 0: not at
            all.
        topics: store -> topics read by its step, for steps with a watermark and several topics.
    """

    def __init__(self, idle_seconds: Mapping[str, float], topics: Mapping[str, frozenset[str]]) -> None:
        self._idle_seconds = idle_seconds
        self._topics = {store: read for store, read in topics.items() if idle_seconds[store] > 0}
        #: Store and topic -> when the topic was last not silent.
        self._since: dict[tuple[str, str], float] = {}
        #: Those with a backlog upstream at the last look.
        self._had_backlog: set[tuple[str, str]] = set()
        #: Store -> the topics that held its watermark in the last batch.
        self._holding = dict(self._topics)
        #: True if a window is open only because a topic holds it, or this is unknown.
        self._held = dict.fromkeys(self._topics, True)

    def look(
        self, behind: Collection[str], now: float, unread_since: Mapping[str, float] | None = None
    ) -> dict[str, frozenset[str]]:
        """Return the topics to wait for, by store; ``behind`` are those with more records than the batch takes.

        ``unread_since`` is since when possible rows have been unread upstream. What has been unread for the idle time
        is a backlog: rows on their way. Newer input, which a steady flow always has, is none: it may all be filtered
        out.
        """
        awaited = {store: set[str]() for store in self._topics}
        for store, topics in self._topics.items():
            idle = self._idle_seconds[store]
            for topic in topics:
                one = store, topic
                unread = math.inf if unread_since is None else unread_since.get(topic, math.inf)
                # Rows of a backlog may only show in the look after the one that finds it gone.
                backlog, had_backlog = unread <= now - idle, one in self._had_backlog
                if topic in behind or one not in self._since or backlog or had_backlog:
                    self._since[one] = now
                if backlog:
                    self._had_backlog.add(one)
                else:
                    self._had_backlog.discard(one)
                end = self._since[one] + idle
                # Input that existed by then is awaited.
                if now < end or unread <= end:
                    awaited[store].add(topic)
        return {store: frozenset(topics) for store, topics in awaited.items()}

    @property
    def counts(self) -> bool:
        """True if silent topics are waited for."""
        return bool(self._topics)

    def may_be_due(self, now: float) -> bool:
        """Return whether a topic may stop holding a window now, if nothing is unread upstream."""
        return any(
            self._since.get((store, topic), now) + self._idle_seconds[store] <= now
            for store, topics in self._holding.items()
            if self._held[store]
            for topic in topics
        )

    def due(self, awaited: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the topics of stores whose windows close because a topic is no longer waited for."""
        stores = [store for store, topics in awaited.items() if self._held[store] and self._holding[store] - topics]
        return frozenset(topic for store in stores for topic in self._topics[store])

    def committed(self, states: Iterable[StateReport], awaited: Mapping[str, frozenset[str]], looked_at: float) -> None:
        """Update from a committed batch, with the topics it waited for by store, and when it was chosen."""
        for state in states:
            if state.store in self._topics and state.store in awaited:
                self._since |= {(state.store, topic): looked_at for topic in state.sources}
                self._holding[state.store] = awaited[state.store] | state.sources
                self._held[state.store] = state.left_ms == 0

    def inputs_unknown(self, now: float) -> None:
        """Record that the inputs could not be checked: they are not silent."""
        self._since = dict.fromkeys(self._since, now)
