"""The cluster's metadata: brokers, topics, partition leaders.

A table that is fed with Metadata responses and sends nothing, so it can be tested without a broker. Refused:
kafka-python's ``ClusterMetadata``. It asks on its own timer, replaces the whole table by a partial answer, and lets a
stale broker undo a newer leader epoch (KIP-320).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

    from sparkrelay.types import TopicPartition

V = TypeVar("V")


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
    """The location of a partition; ``leader`` is None without a leader, ``leader_epoch`` -1 if unknown."""

    leader: int | None
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its id (None before Kafka 2.8) and its partitions by number."""

    name: str
    topic_id: uuid.UUID | None
    partitions: Mapping[int, PartitionInfo]
    is_internal: bool = False


class Metadata:
    """The newest known state of the cluster. Changed by ``KafkaClient`` only, on the polling thread.

    Attributes:
        controller: broker for administrative requests (with KRaft: any live one).
        version: grows with each response and each new leader.
    """

    def __init__(self) -> None:
        self._brokers: dict[int, Broker] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._errors: dict[str, int] = {}
        self.controller: int | None = None
        self.version = 0

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The live brokers by id."""
        return MappingProxyType(self._brokers)

    def topics(self) -> Mapping[str, TopicInfo]:
        """Return all known topics by name."""
        return MappingProxyType(self._topics)

    def topic(self, name: str) -> TopicInfo | None:
        """Return a topic, None if it is unknown (never requested, or absent)."""
        return self._topics.get(name)

    def topic_error(self, name: str) -> int:
        """Return the error code of the last answer about a topic, 0 if none."""
        return self._errors.get(name, 0)

    def partitions(self, topic: str) -> tuple[int, ...] | None:
        """Return the topic's partition numbers in order, None if the topic is unknown."""
        info = self._topics.get(topic)
        return None if info is None else tuple(info.partitions)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return a partition, None if it is unknown."""
        info = self._topics.get(tp.topic)
        return None if info is None else info.partitions.get(tp.partition)

    def leader(self, tp: TopicPartition) -> int | None:
        """Return the broker that leads a partition, None if unknown or leaderless."""
        info = self.partition(tp)
        return None if info is None else info.leader

    def by_leader(
        self, values: Mapping[TopicPartition, V]
    ) -> tuple[dict[int, dict[TopicPartition, V]], list[TopicPartition]]:
        """Return the values of each leader's partitions, and the partitions without a known leader."""
        led: dict[int, dict[TopicPartition, V]] = {}
        leaderless = []
        for partition, value in values.items():
            if (leader := self.leader(partition)) is None:
                leaderless.append(partition)
            else:
                led.setdefault(leader, {})[partition] = value
        return led, leaderless

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the partition's leader epoch, -1 if unknown."""
        info = self.partition(tp)
        return -1 if info is None else info.leader_epoch

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return the topic's id, None if unknown."""
        info = self._topics.get(topic)
        return None if info is None else info.topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Return the name of a topic by its id, None if unknown."""
        return self._names.get(topic_id)

    def update(self, response: Any, *, requested: Iterable[str] | None) -> None:
        """Apply a MetadataResponse about the ``requested`` topics; None means all, so the others no longer exist."""
        if not response.brokers:
            return  # a broker that is still starting answers so
        self._brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.controller = response.controller_id if response.controller_id in self._brokers else None
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
        self.version += 1

    def set_leader(self, tp: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Apply a newer leader from a Fetch or Produce response (KIP-951); return whether it was new."""
        topic = self._topics.get(tp.topic)
        known = self.partition(tp)
        if topic is None or known is None or leader < 0 or leader_epoch <= known.leader_epoch:
            return False
        partitions = dict(topic.partitions)
        partitions[tp.partition] = replace(known, leader=leader, leader_epoch=leader_epoch)
        self._topics[tp.topic] = replace(topic, partitions=MappingProxyType(partitions))
        self.version += 1
        return True


def _topic_info(topic: Any, before: TopicInfo | None) -> TopicInfo:
    topic_id = topic.topic_id or None
    # A recreated topic starts its epochs anew: compare epochs of the same topic only.
    same = before if before is not None and before.topic_id == topic_id else None
    partitions: dict[int, PartitionInfo] = {}
    for p in sorted(topic.partitions, key=lambda item: item.partition_index):
        fresh = PartitionInfo(
            leader=p.leader_id if p.leader_id >= 0 else None,
            leader_epoch=p.leader_epoch,
            replicas=tuple(p.replica_nodes),
            offline=tuple(p.offline_replicas or ()),
        )
        known = same.partitions.get(p.partition_index) if same is not None else None
        stale = known is not None and fresh.leader_epoch < known.leader_epoch
        partitions[p.partition_index] = known if stale and known is not None else fresh
    return TopicInfo(topic.name, topic_id, MappingProxyType(partitions), bool(topic.is_internal))
