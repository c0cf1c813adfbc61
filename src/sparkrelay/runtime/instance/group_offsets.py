"""An application's committed offsets compared with its topics, and setting them by hand.

An offset set by hand carries the id of its topic (``commit_notes.set_by_hand_note``). This distinguishes it from the
tasks' own commits, so that it can take precedence over the position in the state: see ``TaskInitializer``.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.errors import (
    ConfigException,
    StreamsException,
    UnknownTopicException,
    UnsupportedVersionException,
)
from sparkrelay.runtime.contract.commit_notes import set_by_hand_note
from sparkrelay.runtime.instance.stopped_group import StoppedGroup, require_stopped
from sparkrelay.runtime.topics.ownership import other_owner
from sparkrelay.topology.starts import Start
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets of a partition.

    Attributes:
        first: the log's first offset; None if the partition does not exist.
        end: the offset after the last record whose transaction has ended; None if the partition does not exist.
    """

    group: int
    first: int | None = None
    end: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets left to read; None if the partition does not exist."""
        return None if self.first is None or self.end is None else max(0, self.end - max(self.group, self.first))


def target(text: str) -> Start | None:
    """Return the new position that ``--to`` says; None for the group's own offset.

    Raises:
        ConfigException: it says none.
    """
    if text == "current":
        return None
    try:
        return Start.of(int(text) if re.fullmatch("[0-9]{1,18}", text) else text)
    except ValueError as error:
        raise ConfigException(f"--to {text!r} {error}, current or an offset") from None


@dataclass(frozen=True, slots=True)
class NewOffsets:
    """Offsets to set.

    Attributes:
        offsets: partition -> the group's offset before (None without one) and after.
    """

    members: tuple[str, ...]
    offsets: Mapping[TopicPartition, tuple[int | None, int]]
    topic_id: str


class GroupOffsets(StoppedGroup):
    """The offsets of one application's group. Used on the thread of its (bootstrapped) client."""

    def show(self) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of each partition for which the group has one."""
        known = self._committed()
        counts = self._admin.partitions(sorted({partition.topic for partition in known}))
        existing = [p for p in known if p.partition in (counts[p.topic] or ())]
        # In this order a running instance's offset is never outside the log: it purges a repartition topic only up to
        # its committed offset, and logs only grow.
        first = self._admin.list_offsets(dict.fromkeys(existing, EARLIEST))
        committed = self._committed()
        ends = self._admin.list_offsets(dict.fromkeys(existing, LATEST))
        return {p: PartitionOffsets(committed[p], first.get(p), ends.get(p)) for p in sorted(known) if p in committed}

    def look(self, topic: str, numbers: Collection[int] | None, to: Start | None) -> NewOffsets:
        """Return the offsets that would be set, without setting them.

        Raises:
            UnknownTopicException: the topic or a partition does not exist.
            ConfigException: the topic is a changelog or Kafka's own, or the offset lies outside a log.
            StreamsException: there is no such application, or it is being reset.
            UnsupportedVersionException: the brokers do not support topic ids.
        """
        members = self._members()
        committed = self._committed()
        topics = self._admin.list_topics()
        self._require_application(committed, members, topics)
        if self._names.is_internal(topic) and topic.endswith("-changelog") and not _read(topic, committed):
            raise ConfigException(f"--topic: {topic!r} is a changelog, of which the group has no offsets")
        partitions = self._partitions(topic, numbers)
        if topic not in topics:
            raise ConfigException(f"--topic: {topic!r} is Kafka's own; name a topic that the application reads")
        # Before the offsets: if the topic is recreated in between, the note names the old one.
        topic_id = self._admin.await_topic_ids([topic], bool).get(topic)
        if topic_id is None:
            raise UnsupportedVersionException(
                f"topic {topic!r} has no id, so the next start could not distinguish it from a replacement. Topics "
                "have ids since Kafka 2.8: upgrade the brokers, or use sparkrelay reset"
            )
        if to is None:
            partitions = self._with_offset(partitions, committed)
        then = self._targets(partitions, to, committed)
        return NewOffsets(
            members=members,
            offsets={partition: (committed.get(partition), then[partition]) for partition in partitions},
            topic_id=topic_id,
        )

    def set(self, new: NewOffsets) -> None:
        """Commit the offsets; raises StreamsException if instances run. The broker refuses if one has joined since."""
        require_stopped(self._id, new.members)
        offsets = {partition: then for partition, (_, then) in new.offsets.items()}
        noted = {partition: commit.metadata for partition, commit in self._admin.commits(self._id, offsets).items()}
        # Other notes remain valid: whether a table's topic is its changelog, the number of the last micro-batch. Only
        # the ids of changelogs are dropped: the operator thereby accepts that the state of one may be lost.
        notes = {partition: set_by_hand_note(new.topic_id, noted.get(partition, "")) for partition in offsets}
        self._application.set_offsets(offsets, notes)

    def _require_application(
        self, committed: Collection[TopicPartition], members: Collection[str], topics: Collection[str]
    ) -> None:
        if self._names.reset_marker in topics:
            raise StreamsException(
                f"application {self._id!r} is being started over, or its reset was interrupted: run sparkrelay reset "
                "again"
            )
        if committed or members:
            return
        # With the only source topic Kafka deletes all commits of the group. The internal topics remain.
        internal = list(filter(self._names.is_internal, topics))
        groups = self._application.other_groups() if internal else ()
        if all(other_owner(self._id, topic, groups) for topic in internal):
            raise StreamsException(
                f"application {self._id!r} has no offsets and no internal topics on this Kafka: is the application.id "
                "right?"
            )

    def _partitions(self, topic: str, numbers: Collection[int] | None) -> list[TopicPartition]:
        found = self._admin.partitions([topic])[topic]
        if not found:
            raise UnknownTopicException(f"--topic: topic {topic!r} does not exist")
        if missing := sorted(set(numbers or ()) - set(found)):
            raise UnknownTopicException(
                f"--partitions: topic {topic!r} has no partition {missing[0]}; it has 0 to {max(found)}"
            )
        return [TopicPartition(topic, number) for number in sorted(set(found if numbers is None else numbers))]

    def _with_offset(
        self, partitions: list[TopicPartition], committed: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        found = [partition for partition in partitions if partition in committed]
        if not found:
            raise ConfigException(
                f"--to current: the group has no offset of {', '.join(map(str, partitions))}; give earliest, "
                "latest, an offset or a time"
            )
        return found

    def _targets(
        self, partitions: Collection[TopicPartition], to: Start | None, committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        if to is None:
            return {partition: committed[partition] for partition in partitions}
        ends = self._admin.list_offsets(dict.fromkeys(partitions, LATEST))
        now = int(time.time() * 1000)
        if (listed := to.listed_at(now)) is not None:
            found = self._admin.list_offsets(dict.fromkeys(partitions, listed))
            if listed > now and max(found.values()) < 0:
                raise ConfigException(f"--to {to.text} is in the future; write latest for the end of the log")
            # -1: no record after the time. Undecided records must not be skipped.
            return {p: ends[p] if offset < 0 else min(offset, ends[p]) for p, offset in found.items()}
        assert to.offset is not None, "a target is one of these"
        first = self._admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        for partition in partitions:
            if not first[partition] <= to.offset <= ends[partition]:
                raise ConfigException(
                    f"--to {to.offset}: {partition} has the offsets {first[partition]} to {ends[partition]}"
                )
        return dict.fromkeys(partitions, to.offset)


def _read(topic: str, committed: Collection[TopicPartition]) -> bool:
    """Return whether the group reads a topic that is merely named like a changelog, such as a database's changes."""
    return any(partition.topic == topic for partition in committed)
