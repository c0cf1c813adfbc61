"""The consumer's subscription, its assigned partitions, and its position in each.

Besides the queues this is the only state that both threads touch, as in Kafka's own consumer: the application thread
changes subscription, assignment and, while it collects records, positions; the network thread reads them and sets
positions that it looked up. One lock guards everything; it is held only for moments.

A position is an offset, the leader epoch of the record before it, and two facts about its log: the epoch of the leader
that confirmed it (KIP-320), and the topic's id (KIP-516). If a newer leader may have another log, the partition is
neither fetched nor returned until that leader has confirmed the position; if the topic was recreated, not until
somebody seeks.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    import re
    import uuid
    from collections.abc import Callable, Collection, Iterable

    from sparkrelay.consumer.base.call import Call
    from sparkrelay.types import TopicPartition


class LeaderView(NamedTuple):
    """A partition in the metadata: whether it has a leader, the leader's epoch, the topic's id."""

    led: bool
    epoch: int
    topic_id: uuid.UUID | None


@dataclass(slots=True)
class Standing:
    """The state of one assigned partition."""

    position: int | None = None  # offset of the next record that ``poll`` returns; None while unknown
    leader_epoch: int = -1  # epoch of the record before it, -1 if unknown
    checked_epoch: int = -1  # epoch of the leader whose log is known to have the position, -1 for none
    validating: bool = False  # a newer leader is being asked whether its log has the position
    topic_id: uuid.UUID | None = None  # id of the topic that the position belongs to, None while unknown
    recreated: bool = False  # the topic has another id now
    reset: int | None = None  # timestamp to look the position up by (-1 end, -2 start); None for the committed offset
    looking_up: int = 0  # number of the look-up under way, 0 for none; answers to earlier ones are ignored
    paused: bool = False  # the application wants no records now
    held_back: bool = False  # not to be fetched: it is being revoked, or ``on_assigned`` has not returned
    going: bool = False  # ``on_revoked`` or ``on_lost`` has it; it is dropped when the callback returns
    unwanted: bool = False  # its topic is no longer subscribed to; the group will take it away
    lost: bool = False  # others may have it; it is not read again before it was dropped and assigned anew
    end: int = -1  # last known end of the readable log, -1 if unknown
    end_asked: bool = False  # the end is being asked for
    asked: Call | None = None  # the call that looks the position up; its ``last_error`` explains delays
    lacking: Exception | None = None  # why there is no position until somebody seeks; None otherwise

    @property
    def readable(self) -> bool:
        """Whether records may be fetched and returned."""
        return (
            self.position is not None
            and not self.paused
            and not self.held_back
            and not self.unwanted
            and not self.lost
            and not self.validating
            and not self.recreated
        )

    def move(self, offset: int | None, leader_epoch: int = -1, reset: int | None = None) -> None:
        """Set another position, or have one looked up, and forget everything about the old one."""
        self.position, self.leader_epoch, self.reset = offset, leader_epoch, reset
        self.checked_epoch = -1
        self.validating = self.recreated = False
        self.looking_up = 0
        self.lacking = self.asked = None


class SubscriptionState:
    """Thread-safe state of subscription and positions.

    Attributes:
        changes: grows with every change that may affect the next fetch, but not with returned records.
        topics: the topics subscribed to as a group member.
        by_hand: whether the partitions come from ``assign``.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self.by_hand = False
        self._standings: dict[TopicPartition, Standing] = {}
        self.changes = 0
        self._lookups = 0
        self._recreated: frozenset[TopicPartition] = frozenset()

    # -- subscription and assignment ----------------------------------------------------------------------------------

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        with self._lock:
            return frozenset(self._standings)

    @property
    def subscribed(self) -> bool:
        """Whether the consumer is to be a group member, for topics or for a pattern that may match none."""
        return bool(self.topics) or self._pattern is not None

    def concerns(self, topic: str) -> bool:
        """Return whether the application reads a topic."""
        with self._lock:
            return topic in self.topics or any(
                partition.topic == topic and not standing.unwanted for partition, standing in self._standings.items()
            )

    def subscribe(self, topics: Collection[str], pattern: re.Pattern[str] | None = None) -> None:
        """Become a member for ``topics``, or for those that match ``pattern``.

        Partitions of other topics stay assigned until the group has rebalanced, but no more of their records are
        returned.
        """
        with self._lock:
            if self.by_hand:
                raise ConfigException("subscribe() after assign(): call unsubscribe() first, one consumer does either")
            self.topics, self._pattern = frozenset(topics), pattern
            self.changes += 1
            for partition, standing in self._standings.items():
                wanted = partition.topic in self.topics or (pattern is not None and pattern.fullmatch(partition.topic))
                standing.unwanted = not wanted

    def match(self, topics: Collection[str]) -> None:
        """Set the topics that match the pattern, unless the application has dropped it."""
        with self._lock:
            if self._pattern is not None:
                self.topics = frozenset(topics)

    def assign_by_hand(self, partitions: Collection[TopicPartition]) -> None:
        """Assign these partitions; those already assigned keep their positions."""
        with self._lock:
            if self.subscribed:
                raise ConfigException("assign() after subscribe(): call unsubscribe() first, one consumer does either")
            self.by_hand = bool(partitions)
            self._replace(partitions)

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """Assign the group's partitions; new ones are held back until ``release``."""
        with self._lock:
            new = set(partitions) - self._standings.keys()
            self._replace(partitions)
            for partition in new:
                self._standings[partition].held_back = True
            # With a pattern, the broker or the group's leader decides which topics match.
            by_name = self._pattern is None and bool(self.topics)
            for partition, standing in self._standings.items():
                standing.unwanted = by_name and partition.topic not in self.topics

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        self.changes += 1
        before = self._standings
        self._standings = {p: before.get(p) or Standing() for p in dict.fromkeys(partitions)}

    def give_up(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return no more records of these partitions; return those that were not being given up already."""
        with self._lock:
            self.changes += 1
            held = [(p, standing) for p in partitions if (standing := self._standings.get(p)) is not None]
            new = [partition for partition, standing in held if not standing.going]
            for _, standing in held:
                standing.held_back = standing.going = True
            return new

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the partitions that ``give_up`` marked and that were not assigned anew since."""
        with self._lock:
            self.changes += 1
            gone = set(partitions)
            self._standings = {p: s for p, s in self._standings.items() if not (s.going and p in gone)}

    def clear(self) -> None:
        """Drop the subscription and all partitions."""
        with self._lock:
            self.changes += 1
            self.topics, self._pattern = frozenset(), None
            self.by_hand = False
            self._standings = {}

    # -- standing -----------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Standing | None:
        """Return the standing of a partition, None if it is not assigned."""
        return self._standings.get(partition)

    def lose(self) -> None:
        """Return no more records of the group's partitions, whichever callback returns later."""
        with self._lock:
            if self.by_hand or all(standing.lost for standing in self._standings.values()):
                return
            self.changes += 1
            for standing in self._standings.values():
                standing.lost = True

    def release(self, *, but_not: Collection[TopicPartition] = ()) -> None:
        """Let partitions be fetched after their callbacks have returned; ``but_not`` stay held back."""
        with self._lock:
            self.changes += 1
            for partition, standing in self._standings.items():
                standing.held_back = standing.going or partition in but_not

    def may_return(self, partition: TopicPartition) -> bool:
        """Return whether ``poll`` may return records of a partition."""
        standing = self._standings.get(partition)
        return standing is not None and standing.readable

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Set the position to ``offset``, of whatever topic has the name now."""
        with self._lock:
            standing = self._require(partition)
            standing.move(offset, leader_epoch)
            standing.topic_id = None
            self.changes += 1

    def seek_to(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        """Have positions looked up by timestamp (-1 end, -2 start), of whatever topics have the names now."""
        with self._lock:
            for standing in [self._require(partition) for partition in partitions]:
                standing.move(None, reset=timestamp)
                standing.topic_id = None
            self.changes += 1

    def reset(self, partition: TopicPartition, timestamp: int) -> None:
        """Have the position looked up in the topic read so far.

        The application did not ask for it. Offsets are looked up by name, so the answer may belong to a recreated
        topic, which nobody would notice.
        """
        with self._lock:
            self._require(partition).move(None, reset=timestamp)
            self.changes += 1

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        """Return records again that did not reach the application, from ``offset`` if that is back."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.position is not None and standing.position > offset:
                standing.position = offset
                self.changes += 1

    def set_paused(self, partitions: Collection[TopicPartition], paused: bool) -> None:
        """Pause or resume partitions."""
        with self._lock:
            self.changes += 1
            for standing in [self._require(partition) for partition in partitions]:
                standing.paused = paused

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        with self._lock:
            return frozenset(p for p, s in self._standings.items() if s.paused)

    def advance(self, partition: TopicPartition, expected: int, offset: int, leader_epoch: int = -1) -> bool:
        """Move from ``expected`` to ``offset``; return False, and do nothing, if it may not be read from there."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is None or standing.position != expected or standing.validating or standing.recreated:
                return False
            if standing.lost:  # perhaps while its records were being decoded
                return False
            standing.position = offset
            if leader_epoch >= 0:
                standing.leader_epoch = leader_epoch
            # It becomes the last, so that a full response does not starve the others.
            self._standings[partition] = self._standings.pop(partition)
            return True

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all positions as offsets to commit, except in recreated topics, where they would be wrong."""
        with self._lock:
            return {
                p: OffsetAndMetadata(s.position, leader_epoch=s.leader_epoch)
                for p, s in self._standings.items()
                if s.position is not None and not s.recreated
            }

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, uuid.UUID]:
        """Return the known ids of the topics that positions belong to."""
        with self._lock:
            found = ((p, self._standings.get(p)) for p in partitions)
            return {p: s.topic_id for p, s in found if s is not None and s.topic_id is not None}

    def fetchable(self) -> dict[TopicPartition, int]:
        """Return the positions of partitions that may be fetched, in a stable order."""
        with self._lock:
            return {p: s.position for p, s in self._standings.items() if s.position is not None and s.readable}

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets between position and end, None if either is unknown."""
        with self._lock:
            standing = self._require(partition)
            if standing.position is None or standing.end < 0:
                return None
            return max(0, standing.end - standing.position)

    def ask_end(self, partition: TopicPartition) -> bool:
        """Return whether the caller should ask for the end; only once until ``know_end``."""
        with self._lock:
            standing = self._require(partition)
            asked, standing.end_asked = standing.end_asked, True
            return not asked

    def know_end(self, partition: TopicPartition, end: int) -> None:
        """Record the end that ``ask_end`` led to, -1 if unknown."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.end_asked:
                standing.end_asked = False
                standing.end = max(standing.end, end)

    # -- checking positions against logs (the network thread) ---------------------------------------------------------

    def check(
        self, view: Callable[[TopicPartition], LeaderView]
    ) -> tuple[dict[TopicPartition, tuple[int, int]], frozenset[TopicPartition]]:
        """Compare positions with metadata; return those that their new leader must confirm, and recreated partitions.

        Doubtful positions are (offset, epoch) by partition. A position needs no confirmation if its record's epoch is
        the leader's: that leader wrote the record. Without a known epoch there is nothing to ask about.
        """
        doubtful: dict[TopicPartition, tuple[int, int]] = {}
        recreated: set[TopicPartition] = set()
        with self._lock:
            for partition, standing in self._standings.items():
                if standing.position is None or standing.recreated:
                    continue
                led, epoch, topic_id = view(partition)
                if topic_id is not None:
                    if standing.topic_id is None:
                        standing.topic_id = topic_id
                    elif standing.topic_id != topic_id:
                        standing.recreated, standing.validating = True, False
                        recreated.add(partition)
                        self.changes += 1
                        continue
                if not led or epoch <= standing.checked_epoch or standing.validating:
                    continue
                if 0 <= standing.leader_epoch < epoch:
                    standing.validating = True
                    self.changes += 1
                    doubtful[partition] = standing.position, standing.leader_epoch
                else:
                    standing.checked_epoch = epoch
            self._recreated |= recreated
        return doubtful, frozenset(recreated)

    @property
    def has_recreated(self) -> bool:
        """Whether ``first_recreated`` may find something."""
        return bool(self._recreated)

    def first_recreated(self) -> tuple[TopicPartition, int | None] | None:
        """Return a partition of a recreated topic and its position, which has lost its meaning."""
        with self._lock:
            for partition in sorted(self._recreated):
                standing = self._standings.get(partition)
                if standing is not None and standing.recreated:
                    return partition, standing.position
                self._recreated -= {partition}
            return None

    def is_doubtful(self, partition: TopicPartition, asked: tuple[int, int]) -> bool:
        """Return whether exactly this position still needs confirmation."""
        standing = self._standings.get(partition)
        return standing is not None and standing.validating and (standing.position, standing.leader_epoch) == asked

    def confirmed(self, partition: TopicPartition, asked: tuple[int, int], epoch: int) -> None:
        """Record that the leader of ``epoch`` has the position ``asked`` in its log."""
        with self._lock:
            if self.is_doubtful(partition, asked):
                standing = self._standings[partition]
                standing.validating, standing.checked_epoch = False, epoch
                self.changes += 1

    def truncated(self, partition: TopicPartition, asked: tuple[int, int], found: tuple[int, int], epoch: int) -> bool:
        """Move a position that was cut off to the divergence ``found``: (offset, leader epoch)."""
        with self._lock:
            if not self.is_doubtful(partition, asked):
                return False
            standing = self._standings[partition]
            standing.position, standing.leader_epoch = found
            standing.validating, standing.checked_epoch = False, epoch
            self.changes += 1
            return True

    # -- looking positions up (the network thread) --------------------------------------------------------------------

    def take_unknown(self) -> tuple[int, dict[TopicPartition, int | None]]:
        """Return the look-up number that answers repeat, and the unknown positions with their reset."""
        with self._lock:
            self._lookups += 1
            found: dict[TopicPartition, int | None] = {}
            for partition, standing in self._standings.items():
                if standing.position is None and not standing.looking_up:
                    standing.looking_up = self._lookups
                    found[partition] = standing.reset
            return self._lookups, found

    def asking(self, lookup: int, partitions: Iterable[TopicPartition], call: Call) -> None:
        """Record the call that looks positions up."""
        with self._lock:
            for partition in partitions:
                if (standing := self._looked_up(partition, lookup)) is not None:
                    standing.asked = call

    def found(self, partition: TopicPartition, lookup: int, offset: int, leader_epoch: int = -1) -> None:
        """Set a position that was looked up, unless the application has set another one."""
        with self._lock:
            standing = self._looked_up(partition, lookup)
            if standing is not None and standing.position is None:
                standing.move(offset, leader_epoch)
                self.changes += 1

    def without_offset(self, partition: TopicPartition, lookup: int, why: Exception) -> None:
        """Record that there is no position to start at; it is not looked up again until somebody seeks."""
        with self._lock:
            standing = self._looked_up(partition, lookup)
            if standing is not None and standing.position is None:
                standing.lacking = why

    def not_found(self, partition: TopicPartition, lookup: int) -> None:
        """Have a position looked up again."""
        with self._lock:
            if (standing := self._looked_up(partition, lookup)) is not None:
                standing.looking_up = 0

    def _looked_up(self, partition: TopicPartition, lookup: int) -> Standing | None:
        standing = self._standings.get(partition)
        return standing if standing is not None and standing.looking_up == lookup else None

    def _require(self, partition: TopicPartition) -> Standing:
        standing = self._standings.get(partition)
        if standing is None:
            raise self.not_assigned(partition)
        return standing

    def not_assigned(self, partition: TopicPartition) -> ConfigException:
        """Return the error for a partition that is not assigned."""
        held = ", ".join(map(str, sorted(self.assigned)[:5])) or "none"
        remedy = (
            "name it in assign()"
            if self.by_hand
            else "poll() until it is assigned, use on_assigned of subscribe(), or assign() it"
        )
        return ConfigException(f"{partition} is not assigned to this consumer (assigned: {held}); {remedy}")
