"""What the cluster looks like: brokers, topics, partition leaders.

A plain table fed with Metadata responses; it sends nothing, so its rules are tested without a broker. kafka-python's
own ``ClusterMetadata`` is not used: it asks on its own timer, replaces the whole table for a partial answer, and lets a
stale broker undo a newer leader epoch (KIP-320).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["Broker", "Metadata", "PartitionInfo", "TopicInfo"]


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker's address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Where one partition lives. ``leader`` is None while there is none; ``leader_epoch`` is -1 if unknown."""

    leader: int | None
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic: its id (None before Kafka 2.8) and partitions by number."""

    name: str
    topic_id: uuid.UUID | None
    partitions: Mapping[int, PartitionInfo]
    is_internal: bool = False


class Metadata:
    """The newest known state of the cluster; only ``KafkaClient`` changes it, on the thread that polls."""

    def __init__(self) -> None:
        self._brokers: dict[int, Broker] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._errors: dict[str, int] = {}
        self._controller: int | None = None
        self._cluster_id: str | None = None
        self._version = 0

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The live brokers by id."""
        return MappingProxyType(self._brokers)

    @property
    def controller(self) -> int | None:
        """Broker that takes administrative requests (with KRaft: any live one)."""
        return self._controller

    @property
    def cluster_id(self) -> str | None:
        """The cluster's own name."""
        return self._cluster_id

    @property
    def version(self) -> int:
        """Grows with each response and each leader taken in; it says whether anything is new."""
        return self._version

    def topics(self) -> Mapping[str, TopicInfo]:
        """Return every topic we know, by name."""
        return MappingProxyType(self._topics)

    def topic(self, name: str) -> TopicInfo | None:
        """Return one topic, or None if it is unknown (never asked for, or absent)."""
        return self._topics.get(name)

    def topic_error(self, name: str) -> int:
        """Return the error code of the last answer about a topic, 0 if there was none."""
        return self._errors.get(name, 0)

    def partitions(self, topic: str) -> tuple[int, ...] | None:
        """Return the topic's partition numbers in order, or None if the topic is unknown."""
        info = self._topics.get(topic)
        return None if info is None else tuple(info.partitions)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return one partition, or None if it is unknown."""
        info = self._topics.get(tp.topic)
        return None if info is None else info.partitions.get(tp.partition)

    def leader(self, tp: TopicPartition) -> int | None:
        """Return the id of the broker that leads a partition, None if unknown or leaderless."""
        info = self.partition(tp)
        return None if info is None else info.leader

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the partition's leader epoch, -1 if unknown."""
        info = self.partition(tp)
        return -1 if info is None else info.leader_epoch

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return the topic's id, None if unknown."""
        info = self._topics.get(topic)
        return None if info is None else info.topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Return the name of a topic id, None if unknown."""
        return self._names.get(topic_id)

    def update(self, response: Any, *, requested: Iterable[str] | None) -> None:
        """Take in a Metadata response.

        Args:
            response: a ``MetadataResponse``; its topics replace what was known of them.
            requested: the topics that were asked for; None means all, so that topics not in it are gone.
        """
        if not response.brokers:
            # A broker that is still starting answers so; what we knew is better than nothing.
            return
        self._brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self._controller = response.controller_id if response.controller_id in self._brokers else None
        self._cluster_id = response.cluster_id
        before = self._topics
        topics = {} if requested is None else {n: t for n, t in before.items() if n not in set(requested)}
        for topic in response.topics:
            if topic.name is None:
                continue
            self._errors.pop(topic.name, None)
            if topic.error_code:
                self._errors[topic.name] = topic.error_code
                topics.pop(topic.name, None)
            else:
                topics[topic.name] = _topic_info(topic, before.get(topic.name))
        self._topics = topics
        self._names = {t.topic_id: t.name for t in topics.values() if t.topic_id is not None}
        self._version += 1

    def set_leader(self, tp: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Take a newer leader that a Fetch or Produce response named (KIP-951); return whether it was news."""
        topic = self._topics.get(tp.topic)
        known = self.partition(tp)
        if topic is None or known is None or leader < 0 or leader_epoch <= known.leader_epoch:
            return False
        partitions = dict(topic.partitions)
        partitions[tp.partition] = PartitionInfo(leader, leader_epoch, known.replicas, known.in_sync, known.offline)
        self._topics[tp.topic] = TopicInfo(topic.name, topic.topic_id, MappingProxyType(partitions), topic.is_internal)
        self._version += 1
        return True


def _topic_info(topic: Any, before: TopicInfo | None) -> TopicInfo:
    topic_id = topic.topic_id or None
    # A topic that was deleted and made again starts its epochs anew: only the same topic's newer epoch may win.
    same = before if before is not None and before.topic_id == topic_id else None
    partitions: dict[int, PartitionInfo] = {}
    for p in sorted(topic.partitions, key=lambda item: item.partition_index):
        fresh = PartitionInfo(
            leader=p.leader_id if p.leader_id >= 0 else None,
            leader_epoch=p.leader_epoch,
            replicas=tuple(p.replica_nodes),
            in_sync=tuple(p.isr_nodes),
            offline=tuple(p.offline_replicas or ()),
        )
        known = same.partitions.get(p.partition_index) if same is not None else None
        stale = known is not None and fresh.leader_epoch < known.leader_epoch
        partitions[p.partition_index] = known if stale and known is not None else fresh
    return TopicInfo(topic.name, topic_id, MappingProxyType(partitions), bool(topic.is_internal))
