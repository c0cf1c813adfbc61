"""Where a task's input partitions end, and which of them hold its watermarks back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["InputEnds"]


class InputEnds:
    """Learns from each look at the ends. Pure; it is given the time.

    A partition with more than a micro-batch takes is behind. So is one that has grown within ``max.task.idle.ms``: a
    task waits so long for what may still come, as in Kafka Streams.

    Args:
        idle_seconds: ``max.task.idle.ms``.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._ends: dict[TopicPartition, int] = {}
        self._grown: dict[TopicPartition, float] = {}
        self._waited_for: frozenset[TopicPartition] = frozenset()

    def listed(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Learn where partitions end at a monotonic time in seconds."""
        if self._idle_seconds > 0:
            for partition, end in ends.items():
                if self._ends.get(partition, -1) < end:
                    self._grown[partition] = now
            self._waited_for = frozenset(p for p, since in self._grown.items() if now < since + self._idle_seconds)
        self._ends.update(ends)

    def behind(self, stops: Mapping[TopicPartition, int]) -> frozenset[str]:
        """Return the topics that are behind with a micro-batch; ``stops`` is where it ends in each partition."""
        return frozenset(
            partition.topic
            for partition, end in self._ends.items()
            if partition in self._waited_for or stops.get(partition, 0) < end
        )
