"""What a group's leader keeps an eye on: the topics that its members subscribe to.

It needs them fresh before it assigns, and asks for a rebalance when they change afterwards. An assignor may create
topics itself (Kafka Streams' repartition topics); those are no reason for another rebalance.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.consumer.assignor import ClusterView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.topic_metadata import TopicMetadataManager

__all__ = ["TopicWatch"]


class TopicWatch:
    """The topics of one group, as its leader sees them. Pure, see ``requests``.

    Args:
        metadata: what is known of the cluster.
        topics: asks for more.
    """

    def __init__(self, metadata: Metadata, topics: TopicMetadataManager) -> None:
        self._metadata = metadata
        self._asker = topics
        self._topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._watching = False
        self._version = -1
        self._round = 0

    def stop(self) -> None:
        """Lead no more."""
        self._round += 1
        self._watching = False

    def view(self, topics: frozenset[str], ready: Callable[[ClusterView], None]) -> None:
        """Ask for fresh metadata of ``topics``, and give it to ``ready`` unless ``stop`` comes first."""
        self.stop()
        current = self._round
        self._topics = topics

        def known() -> None:
            if current == self._round:
                self._counts = self._count()
                partitions = {t: p for t in sorted(topics) if (p := self._metadata.partitions(t)) is not None}
                ready(ClusterView(MappingProxyType(partitions)))

        self._asker.ask(topics, known)

    def assigned(self, topics: Collection[str]) -> None:
        """Begin to watch, after partitions of ``topics`` were assigned; some of them may be new."""
        current = self._round

        def known() -> None:
            if current == self._round:
                made = {t: n for t, n in self._count().items() if t in topics}
                self._counts = made | self._counts
                self._watching = True

        self._asker.ask(self._topics | frozenset(topics), known)

    def changed(self) -> list[str]:
        """Return the topics that appeared, vanished or grew since they were assigned; each change once."""
        if not self._watching or self._metadata.version == self._version:
            return []
        self._version = self._metadata.version
        before, self._counts = self._counts, self._count()
        return [t for t in sorted(self._topics) if before.get(t) != self._counts.get(t)]

    def _count(self) -> dict[str, int]:
        return {t: len(p) for t in self._topics if (p := self._metadata.partitions(t)) is not None}
