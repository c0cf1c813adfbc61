"""What the consumer is subscribed to, what it holds, and where it stands in each partition.

The one thing besides the queues that both threads touch, as in Kafka's own consumer: the application thread changes
subscription, assignment and, while it collects records, positions; the network thread reads them and sets positions
that were looked up. Everything is behind one lock that is held for moments only.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterable

    from sparkrelay.types import TopicPartition

__all__ = ["Standing", "SubscriptionState"]


@dataclass(slots=True)
class Standing:
    """One assigned partition.

    Attributes:
        position: offset of the next record that ``poll`` returns; None until it is known.
        leader_epoch: epoch of the record in front of it, -1 if unknown.
        reset: look the position up as this timestamp (-1 end, -2 start) instead of at the committed offset.
        looking_up: whether the network thread is about it.
        paused: the application wants no records now.
        held_back: not to be fetched: it is being revoked, or ``on_assigned`` has not returned yet.
        end: last known end of what may be read, -1 if unknown.
    """

    position: int | None = None
    leader_epoch: int = -1
    reset: int | None = None
    looking_up: bool = False
    paused: bool = False
    held_back: bool = False
    end: int = -1


class SubscriptionState:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._by_hand = False
        self._standings: dict[TopicPartition, Standing] = {}

    # -- subscription and assignment ---------------------------------------------------------------------------------

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to as a group member."""
        return self._topics

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions held."""
        with self._lock:
            return frozenset(self._standings)

    @property
    def by_hand(self) -> bool:
        """Whether the partitions were named by ``assign``."""
        return self._by_hand

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern subscribed to, if any."""
        return self._pattern

    def subscribe(self, topics: Collection[str], pattern: re.Pattern[str] | None = None) -> None:
        """Become a member for ``topics``, or for those that match ``pattern``."""
        with self._lock:
            if self._by_hand:
                raise ConfigException("subscribe() after assign(): call unsubscribe() first, one consumer does either")
            self._topics, self._pattern = frozenset(topics), pattern

    def match(self, topics: Collection[str]) -> None:
        """Set the topics that the pattern stands for now, unless the application gave it up meanwhile."""
        with self._lock:
            if self._pattern is not None:
                self._topics = frozenset(topics)

    def assign_by_hand(self, partitions: Collection[TopicPartition]) -> None:
        """Take these partitions; those held already keep where they stand."""
        with self._lock:
            if self._topics or self._pattern is not None:
                raise ConfigException("assign() after subscribe(): call unsubscribe() first, one consumer does either")
            self._by_hand = bool(partitions)
            self._replace(partitions)

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """Take what the group gives; new partitions are held back until ``release``."""
        with self._lock:
            new = set(partitions) - self._standings.keys()
            self._replace(partitions)
            for partition in new:
                self._standings[partition].held_back = True

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        before = self._standings
        self._standings = {p: before.get(p) or Standing() for p in dict.fromkeys(partitions)}

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Drop all partitions but these."""
        with self._lock:
            kept = set(partitions)
            self._standings = {p: s for p, s in self._standings.items() if p in kept}

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._topics, self._pattern = frozenset(), None
            self._by_hand = False
            self._standings = {}

    # -- standing ----------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Standing | None:
        """Return where a partition stands, None if it is not held."""
        return self._standings.get(partition)

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of these partitions: they are being revoked."""
        with self._lock:
            for partition in partitions:
                if (standing := self._standings.get(partition)) is not None:
                    standing.held_back = True

    def release(self, *, but_not: Collection[TopicPartition] = ()) -> None:
        """Let partitions be fetched: the callbacks have returned, except those for ``but_not``."""
        with self._lock:
            for partition, standing in self._standings.items():
                standing.held_back = partition in but_not

    def may_return(self, partition: TopicPartition) -> bool:
        """Tell whether ``poll`` may return records of a partition."""
        standing = self._standings.get(partition)
        return standing is not None and not standing.paused and not standing.held_back and standing.position is not None

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Go on at ``offset``."""
        with self._lock:
            standing = self._require(partition)
            standing.position, standing.leader_epoch = offset, leader_epoch
            standing.reset, standing.looking_up = None, False

    def seek_to(self, partition: TopicPartition, timestamp: int) -> None:
        """Have the position looked up: -1 is the end, -2 the start."""
        with self._lock:
            standing = self._require(partition)
            standing.position, standing.reset, standing.looking_up = None, timestamp, False

    def set_paused(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Stop or go on returning records."""
        with self._lock:
            for partition in partitions:
                self._require(partition).paused = paused

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        with self._lock:
            return frozenset(p for p, s in self._standings.items() if s.paused)

    def advance(self, partition: TopicPartition, expected: int, offset: int) -> bool:
        """Move from ``expected`` to ``offset``; do nothing and return False if it stands elsewhere by now."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is None or standing.position != expected:
                return False
            standing.position = offset
            # Whose turn it was goes to the end, so that a response that is full does not starve the others.
            self._standings[partition] = self._standings.pop(partition)
            return True

    def positions(self) -> dict[TopicPartition, int]:
        """Return all known positions: what an automatic commit covers."""
        with self._lock:
            return {p: s.position for p, s in self._standings.items() if s.position is not None}

    def fetchable(self) -> dict[TopicPartition, int]:
        """Return the positions of partitions that may be fetched, in a stable order."""
        with self._lock:
            return {
                p: s.position
                for p, s in self._standings.items()
                if s.position is not None and not s.paused and not s.held_back
            }

    # -- looking positions up (the network thread) --------------------------------------------------------------------

    def take_unknown(self) -> dict[TopicPartition, int | None]:
        """Return the partitions whose position nobody looks up yet, with their reset; they count as being looked up."""
        with self._lock:
            found: dict[TopicPartition, int | None] = {}
            for partition, standing in self._standings.items():
                if standing.position is None and not standing.looking_up:
                    standing.looking_up = True
                    found[partition] = standing.reset
            return found

    def found(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Set a position that was looked up, unless the application went elsewhere meanwhile."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.looking_up and standing.position is None:
                standing.position, standing.leader_epoch = offset, leader_epoch
                standing.reset, standing.looking_up = None, False

    def not_found(self, partition: TopicPartition, reset: int | None = None) -> None:
        """Have a position looked up again, as ``reset`` if given."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.looking_up:
                standing.looking_up = False
                if reset is not None and standing.reset is None:
                    standing.reset = reset

    def _require(self, partition: TopicPartition) -> Standing:
        standing = self._standings.get(partition)
        if standing is None:
            held = ", ".join(map(str, sorted(self._standings)[:5])) or "none"
            raise ConfigException(f"{partition} is not assigned to this consumer (assigned: {held})")
        return standing
