"""Watermarks of windowed stores: how far event time has come in a task. ``lateness`` says which rows are late by them.

A task's watermark is the newest event time of its rows minus the delay; it never decreases. It is stored, journaled
with each batch, restored and followed by standbys, so a failover continues with it. (Kafka Streams restarts at -1,
``observedStreamTime`` in its processors.)

If a task reads several topics, those with lag hold its watermark back: it follows the topic whose newest row of the
micro-batch is the oldest. (Kafka Streams takes records in timestamp order.) If all rows of such a topic were filtered
away, the watermark stays until the task has caught up. With ``max.task.idle.ms``, every topic that is not silent holds
it back. Such a topic may have no rows in this micro-batch, so each topic has its own stored watermark then
(:class:`Sources`).

The store's keys begin with the end of their window, so closed windows are its first keys. With ``retention=`` closed
windows stay readable for a while; they accept no rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state.batch import Watermark


@dataclass(frozen=True, slots=True)
class WindowWatermark:
    """When the windows of a grouping close.

    Attributes:
        delay_ms: how far behind the newest event time a row may be.
        window: the grouping column that is a window.
        final: True if each window is emitted once, when it closes; False if every change is.
        ahead_ms: event times further ahead of the machine's clock than this do not advance the watermark.
        retention_ms: how long closed windows stay in the store, from their end on, in watermark time.
        by_source: True if each source topic has its own watermark and holds the store's back, even when it has been
            read to its end, until it is silent (``max.task.idle.ms``).
    """

    delay_ms: int
    window: str
    final: bool
    ahead_ms: int
    retention_ms: int = 0
    by_source: bool = False


@dataclass(frozen=True, slots=True)
class Sources:
    """Source topics of a task, each with its own watermark.

    Attributes:
        topics: names, in the order of ``hidden_columns.SOURCE``.
        before: topic -> its watermark before the batch, in ms since 1970, if it has one.
        holding: topics that hold the task's watermark back, besides those with rows in the batch.
        limits: topic -> upper bound of its watermark while tasks that write it lag. Its own watermark is recorded
            unbounded.
    """

    topics: Sequence[str]
    before: Mapping[str, int]
    holding: frozenset[str]
    limits: Mapping[str, int] = field(default_factory=dict)

    def after(self, watermark: Watermark, newest: Mapping[int, int], delay_ms: int) -> Watermark:
        """Return the watermark of a task and its topics after a batch.

        Args:
            watermark: before the batch.
            newest: number of a topic -> newest event time of its rows in the batch, or ``NO_TIME``.
            delay_ms: the watermark's delay.
        """
        known = {topic: self.before[topic] for topic in self.topics if topic in self.before}
        for source, ms in newest.items():
            if ms != NO_TIME:
                topic = self.topics[source]
                known[topic] = max(known.get(topic, NO_TIME), ms - delay_ms)
        read = frozenset(self.topics[source] for source in newest)
        # A topic that never had a row stops the watermark.
        counted = {topic: min(ms, self.limits.get(topic, ms)) for topic, ms in known.items()}
        held = [counted.get(topic, NO_TIME) for topic in self.topics if topic in self.holding | read]
        ms = min(held) if held else max(counted.values(), default=NO_TIME)
        return replace(watermark, ms=max(watermark.ms, ms), sources=known, sources_read=read)


def with_silence(ms: int, task: TaskCommand, topics: Collection[str]) -> int:
    """Return a watermark advanced by the clock if none of ``topics`` had input. ``NO_TIME`` stays.

    Args:
        ms: watermark after the batch, in ms since 1970.
        task: the task's command.
        topics: the topics whose event times make the watermark.
    """
    silent = all(start == stop for p, (start, stop) in task.ranges.items() if p.topic in topics)
    return ms + task.silence_ms if silent and ms != NO_TIME else ms


def newest_times(times: NDArray[np.int64], sources: NDArray[np.int32] | None) -> dict[int, int]:
    """Return source topic -> newest time of its rows. Without ``sources`` all rows belong to topic 0."""
    if sources is None or not len(times):
        return {0: int(times.max())} if len(times) else {}
    return {int(source): int(times[sources == source].max()) for source in np.flatnonzero(np.bincount(sources))}
