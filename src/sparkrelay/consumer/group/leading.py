"""The group leader's watch over the topics that its members subscribe to.

The leader needs fresh metadata before it assigns, and requests a rebalance when the topics change later. Topics that an
assignor creates itself (Kafka Streams' repartition topics) do not count as a change.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.consumer.base.assignor import ClusterView
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager


@dataclass(eq=False)
class TopicWatch:
    """The topics of one group, as its leader sees them. Pure, see ``requests``.

    Args:
        by_rack: whether replicas that move to other racks are a change: if the leader has a rack, as in Java.
    """

    metadata: Metadata  # what is known of the cluster
    topics: TopicMetadataManager  # requests metadata
    by_rack: bool = False

    def __post_init__(self) -> None:
        self._topics: frozenset[str] = frozenset()
        self._shapes: dict[str, object] = {}
        self._watching = False
        self._version = -1
        self._round = 0

    def stop(self) -> None:
        """Stop watching."""
        self._round += 1
        self._watching = False

    def view(self, topics: frozenset[str], ready: Callable[[ClusterView], None]) -> None:
        """Request fresh metadata of ``topics``, and pass it to ``ready`` unless ``stop`` comes first."""
        self.stop()
        current = self._round
        self._topics = topics

        def known() -> None:
            if current == self._round:
                self._shapes = self._look()
                partitions = {t: p for t in sorted(topics) if (p := self.metadata.partitions(t)) is not None}
                racks = {at: r for t in partitions for at, r in self._racks(t).items()}
                ready(ClusterView(MappingProxyType(partitions), MappingProxyType(racks)))

        self.topics.ask(topics, known)

    def assigned(self, topics: Collection[str]) -> None:
        """Begin to watch after partitions of ``topics``, some perhaps new, were assigned."""
        current = self._round

        def known() -> None:
            if current == self._round:
                made = {t: n for t, n in self._look().items() if t in topics}
                self._shapes = made | self._shapes
                self._watching = True

        self.topics.ask(self._topics | frozenset(topics), known)

    def resume(self, topics: frozenset[str], ready: Callable[[], None]) -> None:
        """Begin to watch without assigning: a static leader returned, and the assignment stands (KIP-814).

        ``ready`` is called when watching begins, unless ``stop`` comes first. Later partitions count as a change;
        earlier ones are in no assignment.
        """

        def known(_: ClusterView) -> None:
            self._watching = True
            ready()

        self.view(topics, known)

    def changed(self) -> list[str]:
        """Return the topics that appeared, vanished or grew since they were assigned; each change once."""
        if not self._watching or self.metadata.version == self._version:
            return []
        self._version = self.metadata.version
        before, self._shapes = self._shapes, self._look()
        return [t for t in sorted(self._topics) if before.get(t) != self._shapes.get(t)]

    def _look(self) -> dict[str, object]:
        """Return by topic what must not change: the number of partitions, and perhaps their racks."""
        known = ((t, p) for t in self._topics if (p := self.metadata.partitions(t)) is not None)
        return {t: (len(p), self._racks(t) if self.by_rack else None) for t, p in known}

    def _racks(self, topic: str) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks of each partition's replicas; nothing if no broker has one."""
        racks = {broker.id: broker.rack for broker in self.metadata.brokers.values() if broker.rack}
        known = self.metadata.topic(topic)
        if not racks or known is None:
            return {}
        return {
            TopicPartition(topic, number): frozenset(racks[node] for node in info.replicas if node in racks)
            for number, info in known.partitions.items()
        }
