"""What the consumer is subscribed to, what it holds, and where it stands in each partition.

The one thing besides the queues that both threads touch, as in Kafka's own consumer: the application thread changes
subscription, assignment and, while it collects records, positions; the network thread reads them and sets positions
that were looked up. Everything is behind one lock that is held for moments only.

A position is an offset, the leader epoch of the record in front of it, and two things that say for which log it holds:
the epoch of the leader that confirmed it (KIP-320), and the topic's id (KIP-516). If a newer leader may have another
log, the partition is neither fetched nor returned until that leader has confirmed the position; if the topic was made
anew, not until somebody seeks.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.consumer.base.committed_offsets import OffsetAndMetadata
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    import re
    import uuid
    from collections.abc import Callable, Collection, Iterable

    from sparkrelay.consumer.base.events import Call
    from sparkrelay.types import TopicPartition

__all__ = ["Checked", "LeaderView", "Standing", "SubscriptionState"]


class LeaderView(NamedTuple):
    """What metadata says of a partition: whether somebody leads it, the leader's epoch, the topic's id."""

    led: bool
    epoch: int
    topic_id: uuid.UUID | None


class Checked(NamedTuple):
    """What came of comparing positions with metadata.

    Attributes:
        doubtful: positions that their new leader must confirm: offset and its epoch by partition.
        recreated: partitions of topics that were deleted and made again.
    """

    doubtful: dict[TopicPartition, tuple[int, int]]
    recreated: frozenset[TopicPartition]


@dataclass(slots=True)
class Standing:
    """One assigned partition.

    Attributes:
        position: offset of the next record that ``poll`` returns; None until it is known.
        leader_epoch: epoch of the record in front of it, -1 if unknown.
        checked_epoch: epoch of the leader whose log is known to have the position, -1 for none yet.
        validating: a newer leader is being asked whether its log has the position.
        topic_id: id of the topic that the position belongs to, None until it is known.
        recreated: the topic is another one by now.
        reset: look the position up as this timestamp (-1 end, -2 start) instead of at the committed offset.
        looking_up: number of the look-up that is under way, 0 for none: answers to earlier ones are ignored.
        paused: the application wants no records now.
        held_back: not to be fetched: it is being revoked, or ``on_assigned`` has not returned yet.
        going: ``on_revoked`` or ``on_lost`` has it; it is dropped when that returns.
        unwanted: the application no longer subscribes to its topic; the group will take it away.
        lost: others may have it by now; never again to be read before it was dropped and given anew.
        end: last known end of what may be read, -1 if unknown.
        end_asked: whether the end is being asked for.
        asked: what looks the position up just now; its ``last_error`` says why that takes so long.
        lacking: why there is no position, and will be none until somebody seeks; None otherwise.
    """

    position: int | None = None
    leader_epoch: int = -1
    checked_epoch: int = -1
    validating: bool = False
    topic_id: uuid.UUID | None = None
    recreated: bool = False
    reset: int | None = None
    looking_up: int = 0
    paused: bool = False
    held_back: bool = False
    going: bool = False
    unwanted: bool = False
    lost: bool = False
    end: int = -1
    end_asked: bool = False
    asked: Call | None = None
    lacking: Exception | None = None

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
        """Stand somewhere else in the log."""
        self.position, self.leader_epoch, self.reset = offset, leader_epoch, reset
        self.checked_epoch = -1
        self.validating = self.recreated = False
        self.looking_up = 0
        self.lacking = self.asked = None


class SubscriptionState:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._by_hand = False
        self._standings: dict[TopicPartition, Standing] = {}
        self._changes = 0
        self._lookups = 0
        self._recreated: frozenset[TopicPartition] = frozenset()

    @property
    def changes(self) -> int:
        """Grows with everything that may change what is fetched next, but not with records that are returned."""
        return self._changes

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
    def subscribed(self) -> bool:
        """Whether the consumer is to be a group member, for topics or for a pattern that may match none yet."""
        return bool(self._topics) or self._pattern is not None

    def concerns(self, topic: str) -> bool:
        """Return whether the application wants to read a topic."""
        with self._lock:
            return topic in self._topics or any(
                partition.topic == topic and not standing.unwanted for partition, standing in self._standings.items()
            )

    def subscribe(self, topics: Collection[str], pattern: re.Pattern[str] | None = None) -> None:
        """Become a member for ``topics``, or for those that match ``pattern``.

        Other topics are held until the group has rebalanced, but nothing more is returned of them.
        """
        with self._lock:
            if self._by_hand:
                raise ConfigException("subscribe() after assign(): call unsubscribe() first, one consumer does either")
            self._topics, self._pattern = frozenset(topics), pattern
            self._changes += 1
            for partition, standing in self._standings.items():
                wanted = partition.topic in self._topics or (pattern is not None and pattern.fullmatch(partition.topic))
                standing.unwanted = not wanted

    def match(self, topics: Collection[str]) -> None:
        """Set the topics that the pattern stands for now, unless the application gave it up meanwhile."""
        with self._lock:
            if self._pattern is not None:
                self._topics = frozenset(topics)

    def assign_by_hand(self, partitions: Collection[TopicPartition]) -> None:
        """Take these partitions; those held already keep where they stand."""
        with self._lock:
            if self.subscribed:
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
            # With a pattern it is the broker, or the group's leader, who says what matches.
            by_name = self._pattern is None and bool(self._topics)
            for partition, standing in self._standings.items():
                standing.unwanted = by_name and partition.topic not in self._topics

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        self._changes += 1
        before = self._standings
        self._standings = {p: before.get(p) or Standing() for p in dict.fromkeys(partitions)}

    def give_up(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return no more records of these partitions; return which of them nobody is giving up already."""
        with self._lock:
            self._changes += 1
            new = []
            for partition in partitions:
                if (standing := self._standings.get(partition)) is not None:
                    standing.held_back = True
                    if not standing.going:
                        standing.going = True
                        new.append(partition)
            return new

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop these partitions as far as they are still those of ``give_up``, and were not taken anew since."""
        with self._lock:
            self._changes += 1
            gone = set(partitions)
            self._standings = {p: s for p, s in self._standings.items() if not (s.going and p in gone)}

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._changes += 1
            self._topics, self._pattern = frozenset(), None
            self._by_hand = False
            self._standings = {}

    # -- standing ----------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Standing | None:
        """Return where a partition stands, None if it is not held."""
        return self._standings.get(partition)

    def lose(self) -> None:
        """Return no more records of anything that the group gave, whichever callback returns meanwhile."""
        with self._lock:
            if self._by_hand or all(standing.lost for standing in self._standings.values()):
                return
            self._changes += 1
            for standing in self._standings.values():
                standing.lost = True

    def release(self, *, but_not: Collection[TopicPartition] = ()) -> None:
        """Let partitions be fetched: the callbacks have returned, except those for ``but_not``."""
        with self._lock:
            self._changes += 1
            for partition, standing in self._standings.items():
                standing.held_back = standing.going or partition in but_not

    def may_return(self, partition: TopicPartition) -> bool:
        """Return whether ``poll`` may return records of a partition."""
        standing = self._standings.get(partition)
        return standing is not None and standing.readable

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Go on at ``offset``, whatever topic of this name there is."""
        with self._lock:
            standing = self._require(partition)
            standing.move(offset, leader_epoch)
            standing.topic_id = None
            self._changes += 1

    def seek_to(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        """Have positions looked up, whatever topics of these names there are: -1 is the end, -2 the start."""
        with self._lock:
            for standing in [self._require(partition) for partition in partitions]:
                standing.move(None, reset=timestamp)
                standing.topic_id = None
            self._changes += 1

    def reset(self, partition: TopicPartition, timestamp: int) -> None:
        """Have the position looked up, which nobody asked for: only in the topic that we have been reading.

        Offsets are looked up by name, so the answer may be about a topic that was made again; nobody would notice.
        """
        with self._lock:
            self._require(partition).move(None, reset=timestamp)
            self._changes += 1

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        """Return records again that were taken but did not reach the application: from ``offset``, if that is back."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.position is not None and standing.position > offset:
                standing.position = offset
                self._changes += 1

    def set_paused(self, partitions: Collection[TopicPartition], paused: bool) -> None:
        """Stop or go on returning records."""
        with self._lock:
            self._changes += 1
            for standing in [self._require(partition) for partition in partitions]:
                standing.paused = paused

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        with self._lock:
            return frozenset(p for p, s in self._standings.items() if s.paused)

    def advance(self, partition: TopicPartition, expected: int, offset: int, leader_epoch: int = -1) -> bool:
        """Move from ``expected`` to ``offset``; do nothing and return False if it may not be read from there now."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is None or standing.position != expected or standing.validating or standing.recreated:
                return False
            # Others may have it, though its records were being decoded when it was lost.
            if standing.lost:
                return False
            standing.position = offset
            if leader_epoch >= 0:
                standing.leader_epoch = leader_epoch
            # Whose turn it was goes to the end, so that a response that is full does not starve the others.
            self._standings[partition] = self._standings.pop(partition)
            return True

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a commit of everything covers: offset and leader epoch of all positions.

        Not those of a topic that was made again: they would be taken for offsets of the new one.
        """
        with self._lock:
            return {
                p: OffsetAndMetadata(s.position, leader_epoch=s.leader_epoch)
                for p, s in self._standings.items()
                if s.position is not None and not s.recreated
            }

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, uuid.UUID]:
        """Return the ids of the topics that positions belong to, as far as there are any."""
        with self._lock:
            found = ((p, self._standings.get(p)) for p in partitions)
            return {p: s.topic_id for p, s in found if s is not None and s.topic_id is not None}

    def fetchable(self) -> dict[TopicPartition, int]:
        """Return the positions of partitions that may be fetched, in a stable order."""
        with self._lock:
            return {p: s.position for p, s in self._standings.items() if s.position is not None and s.readable}

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the end, None if either is unknown."""
        with self._lock:
            standing = self._require(partition)
            if standing.position is None or standing.end < 0:
                return None
            return max(0, standing.end - standing.position)

    def ask_end(self, partition: TopicPartition) -> bool:
        """Return whether somebody should ask for the end: once, until ``know_end``."""
        with self._lock:
            standing = self._require(partition)
            asked, standing.end_asked = standing.end_asked, True
            return not asked

    def know_end(self, partition: TopicPartition, end: int) -> None:
        """Note the answer to that question, -1 if there was none."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.end_asked:
                standing.end_asked = False
                standing.end = max(standing.end, end)

    # -- whose log the positions belong to (the network thread) -------------------------------------------------------

    def check(self, view: Callable[[TopicPartition], LeaderView]) -> Checked:
        """Compare positions with what metadata says now.

        A position whose record's epoch is the leader's own needs no question: that leader wrote the record. Nor does
        one whose epoch nobody knows: there is nothing to ask about.
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
                        self._changes += 1
                        continue
                if not led or epoch <= standing.checked_epoch or standing.validating:
                    continue
                if 0 <= standing.leader_epoch < epoch:
                    standing.validating = True
                    self._changes += 1
                    doubtful[partition] = standing.position, standing.leader_epoch
                else:
                    standing.checked_epoch = epoch
            if recreated:
                self._recreated |= recreated
        return Checked(doubtful, frozenset(recreated))

    @property
    def has_recreated(self) -> bool:
        """Whether ``first_recreated`` may find something."""
        return bool(self._recreated)

    def first_recreated(self) -> tuple[TopicPartition, int | None] | None:
        """Return a partition whose topic was made again, and the position that means nothing any more."""
        with self._lock:
            for partition in sorted(self._recreated):
                standing = self._standings.get(partition)
                if standing is not None and standing.recreated:
                    return partition, standing.position
                self._recreated -= {partition}
            return None

    def is_doubtful(self, partition: TopicPartition, asked: tuple[int, int]) -> bool:
        """Return whether this very position is still to be confirmed."""
        standing = self._standings.get(partition)
        return standing is not None and standing.validating and (standing.position, standing.leader_epoch) == asked

    def confirmed(self, partition: TopicPartition, asked: tuple[int, int], epoch: int) -> None:
        """Note that the leader of ``epoch`` has the position ``asked`` in its log."""
        with self._lock:
            if self.is_doubtful(partition, asked):
                standing = self._standings[partition]
                standing.validating, standing.checked_epoch = False, epoch
                self._changes += 1

    def truncated(self, partition: TopicPartition, asked: tuple[int, int], found: tuple[int, int], epoch: int) -> bool:
        """Move a position that is no longer in the log to where the logs part: (offset, leader epoch)."""
        with self._lock:
            if not self.is_doubtful(partition, asked):
                return False
            standing = self._standings[partition]
            standing.position, standing.leader_epoch = found
            standing.validating, standing.checked_epoch = False, epoch
            self._changes += 1
            return True

    # -- looking positions up (the network thread) --------------------------------------------------------------------

    def take_unknown(self) -> tuple[int, dict[TopicPartition, int | None]]:
        """Return a number that answers repeat, and the partitions nobody looks up yet, with their reset."""
        with self._lock:
            self._lookups += 1
            found: dict[TopicPartition, int | None] = {}
            for partition, standing in self._standings.items():
                if standing.position is None and not standing.looking_up:
                    standing.looking_up = self._lookups
                    found[partition] = standing.reset
            return self._lookups, found

    def asking(self, lookup: int, partitions: Iterable[TopicPartition], call: Call) -> None:
        """Note what looks positions up."""
        with self._lock:
            for partition in partitions:
                standing = self._standings.get(partition)
                if standing is not None and standing.looking_up == lookup:
                    standing.asked = call

    def found(self, partition: TopicPartition, lookup: int, offset: int, leader_epoch: int = -1) -> None:
        """Set a position that was looked up, unless the application went elsewhere meanwhile."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.looking_up == lookup and standing.position is None:
                standing.move(offset, leader_epoch)
                self._changes += 1

    def without_offset(self, partition: TopicPartition, lookup: int, why: Exception) -> None:
        """Note that there is nowhere to start: nobody looks again, until somebody seeks."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.looking_up == lookup and standing.position is None:
                standing.lacking = why

    def not_found(self, partition: TopicPartition, lookup: int) -> None:
        """Have a position looked up again."""
        with self._lock:
            standing = self._standings.get(partition)
            if standing is not None and standing.looking_up == lookup:
                standing.looking_up = 0

    def _require(self, partition: TopicPartition) -> Standing:
        standing = self._standings.get(partition)
        if standing is None:
            raise self.not_assigned(partition)
        return standing

    def not_assigned(self, partition: TopicPartition) -> ConfigException:
        """Return the error for a partition that is not held."""
        held = ", ".join(map(str, sorted(self.assigned)[:5])) or "none"
        remedy = (
            "name it in assign()"
            if self._by_hand
            else "poll() until it is assigned, use on_assigned of subscribe(), or assign() it"
        )
        return ConfigException(f"{partition} is not assigned to this consumer (assigned: {held}); {remedy}")
