"""Watermarks of windowed stores: which rows are late, and which windows are closed.

A task's watermark is the newest event time of its rows minus the delay; it never decreases. It is stored, journaled
with each batch, restored and followed by standbys, so a failover continues with it. (Kafka Streams restarts at -1,
``observedStreamTime`` in its processors.)

If a task reads several topics, those with lag hold its watermark back: it follows the topic whose newest row of the
micro-batch is the oldest. (Kafka Streams takes records in timestamp order.) If all rows of such a topic were filtered
away, the watermark stays until the task has caught up. With ``max.task.idle.ms``, every topic that is not silent holds
it back. Such a topic may have no rows in this micro-batch, so each topic has its own stored watermark then
(:class:`Sources`).

A row is late if its window closed before its micro-batch, as in Structured Streaming. With one row a micro-batch this
equals Kafka Streams. A watermark per row would lose data: rows of several partitions, or of several tasks through a
repartition topic, follow one another in a large micro-batch although they happened at the same time.

The store's keys begin with the end of their window, so closed windows are its first keys. With ``retention=`` closed
windows stay readable for a while; they accept no rows.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.event_times import numbers, window_ends
from sparkrelay.state.batch import Watermark
from sparkrelay.state.byte_arrays import big_endian, drop_first, side_by_side
from sparkrelay.state.watermarks import END_BYTES, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.commands import TaskCommand

log = logging.getLogger(__name__)

_NONE: Final[Mapping[int, Any]] = MappingProxyType({})
_WARN_SECONDS: Final = 60.0
#: Store -> time of the last warning.
_warned: dict[str, float] = {}


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


def without_late(  # noqa: PLR0917
    spec: WindowWatermark,
    rows: pa.Table,
    before: Mapping[int, int],
    now_ms: Mapping[int, int],
    behind: Mapping[int, Sequence[int]] = _NONE,
    by_source: Mapping[int, Sources] = _NONE,
) -> tuple[pa.Table, dict[int, Watermark]]:
    """Return the rows that are not late, and each partition's watermark after the batch.

    Times far in the future do not advance it: one producer with a wrong clock would close every window.

    Args:
        spec: the watermark.
        rows: rows of the tasks.
        before: partition -> watermark before the batch, in ms since 1970; has every task.
        now_ms: partition -> the machine's clock, in ms since 1970.
        behind: partition -> source topics with lag, for tasks that read several.
        by_source: partition -> source topics with watermarks of their own. ``behind`` is ignored for these.
    """
    after = {partition: Watermark(ms, 0, spec.final, spec.retention_ms) for partition, ms in before.items()}
    if not rows.num_rows:
        return rows, after | {p: topics.after(after[p], {}, spec.delay_ms) for p, topics in by_source.items()}
    partitions = numbers(rows.column(hidden_columns.PARTITION))
    times = numbers(rows.column(hidden_columns.EVENT_TIME), NO_TIME)
    ends = window_ends(rows.column(spec.window))
    late = np.zeros(rows.num_rows, dtype=np.bool_)
    sources = None
    if hidden_columns.SOURCE in rows.column_names:
        sources = numbers(rows.column(hidden_columns.SOURCE))
    for partition, ms in before.items():
        own = partitions == partition
        late[own] = too_late(ends[own], ms)
        moving = np.where(times[own] <= now_ms[partition] + spec.ahead_ms, times[own], NO_TIME)
        newest = newest_times(moving, None if sources is None else sources[own])
        mark = replace(after[partition], rows_late=int(late[own].sum()))
        if partition in by_source:
            mark = by_source[partition].after(mark, newest, spec.delay_ms)
        elif newest:
            held = [newest.get(source, NO_TIME) for source in behind.get(partition, ())]
            mark = replace(mark, ms=max(ms, min(held, default=max(newest.values())) - spec.delay_ms))
        after[partition] = mark
    return (rows.filter(pa.array(~late)) if late.any() else rows), after


def too_late(ends_ms: NDArray[np.int64], watermark_ms: int) -> NDArray[np.bool_]:
    """Return which windows are closed at a watermark, by their ends: their rows are late."""
    return ends_ms <= watermark_ms


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


def stored_keys(windows: pa.Array, encoded: pa.Array) -> pa.Array:
    """Return the store's keys: the end of the window, then the encoded grouping columns."""
    return side_by_side(end_fronts(windows), encoded)


def end_fronts(windows: pa.Array) -> pa.Array:
    """Return the prefix of the store's keys of windows: their ends."""
    return big_endian(window_ends(windows))


def message_keys(stored: pa.Array) -> pa.Array:
    """Return the encoded grouping columns of the store's keys."""
    return drop_first(stored, END_BYTES)


def warn_of_late(store: str, count: int, how: str, remedy: str = "a longer delay in withWatermark()") -> None:
    """Log that late rows were dropped, at most once a minute a store: the results do not show it."""
    now = time.monotonic()
    if count and now >= _warned.get(store, 0.0) + _WARN_SECONDS:
        _warned[store] = now
        log.warning(
            "store %r dropped %d rows of a micro-batch that arrived %s; %s keeps them", store, count, how, remedy
        )
