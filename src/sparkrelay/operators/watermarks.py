"""Event time in the stateful step: which rows come too late, and which windows are over.

A task's watermark is the newest event time that its rows have had, less the delay; it never goes back. The store keeps
it, journaled with each batch, restored and followed by standbys, so that it goes on after a failover where it was
(Kafka Streams begins again at -1, ``observedStreamTime`` in its processors).

Of a task that reads several topics those that are behind hold it back: it goes by the one whose newest row of the
micro-batch is the oldest. (Kafka Streams takes records in the order of their times.) A topic whose rows of the
micro-batch are all filtered away leaves it where it is, until the task has caught up. With ``max.task.idle.ms`` all
that are not silent hold it back. They need not have rows in this micro-batch, so each has a watermark of its own in the
store then (:class:`Sources`).

A row is late if its window was over before its micro-batch, as in Structured Streaming. With one row a micro-batch that
is what Kafka Streams does. Not by the watermark as of each row: what comes from several partitions, or through a
repartition topic from several tasks, lies one behind the other in a large micro-batch, though it happened at the same
time, and whatever came second would be lost.

Keys of the store begin with the end of their window, so that windows that are over are its first keys. Those that are
to be looked at for a while longer (``retention=``) stay, and take no further row.
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

__all__ = [
    "Sources",
    "WindowWatermark",
    "end_fronts",
    "message_keys",
    "newest_times",
    "stored_keys",
    "warn_of_late",
    "with_silence",
    "without_late",
]


log = logging.getLogger(__name__)

_NONE: Final[Mapping[int, Any]] = MappingProxyType({})
_WARN_SECONDS: Final = 60.0
#: Store -> when it was last said that rows come too late.
_warned: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class WindowWatermark:
    """When the windows of a grouping are over.

    Attributes:
        delay_ms: how much later than the newest event time a row may come.
        window: the grouping column that is a window.
        final: True where the rows of windows that are over go on, each once; False where each change does.
        ahead_ms: how far ahead of the machine's clock an event time may be to move the watermark.
        retention_ms: for how long windows that are over stay in the store, from their end on, by the watermark.
        by_source: True where each source topic has a watermark of its own, and holds that of the store back also once
            it is read to its end, until it is silent (``max.task.idle.ms``).
    """

    delay_ms: int
    window: str
    final: bool
    ahead_ms: int
    retention_ms: int = 0
    by_source: bool = False


@dataclass(frozen=True, slots=True)
class Sources:
    """The topics that a task's rows are of, where each has a watermark of its own.

    Attributes:
        topics: their names, as ``hidden_columns.SOURCE`` numbers them.
        before: topic -> its watermark before the batch, in milliseconds since 1970, of those that have one.
        holding: the topics that hold the task's watermark back, beside those that the batch has rows of.
        limits: topic -> the latest that its watermark may be, where tasks that write the topic are behind. What its
            rows have said is kept all the same.
    """

    topics: Sequence[str]
    before: Mapping[str, int]
    holding: frozenset[str]
    limits: Mapping[str, int] = field(default_factory=dict)

    def after(self, watermark: Watermark, newest: Mapping[int, int], delay_ms: int) -> Watermark:
        """Return a task's watermark with a batch, and its topics'.

        Args:
            watermark: before the batch.
            newest: number of a topic -> newest event time of its rows in the batch, ``NO_TIME`` if none has one.
            delay_ms: how much later than that a row may come.
        """
        known = {topic: self.before[topic] for topic in self.topics if topic in self.before}
        for source, ms in newest.items():
            if ms != NO_TIME:
                topic = self.topics[source]
                known[topic] = max(known.get(topic, NO_TIME), ms - delay_ms)
        read = frozenset(self.topics[source] for source in newest)
        # One that never had a row holds it where it is.
        counted = {topic: min(ms, self.limits.get(topic, ms)) for topic, ms in known.items()}
        held = [counted.get(topic, NO_TIME) for topic in self.topics if topic in self.holding | read]
        ms = min(held) if held else max(counted.values(), default=NO_TIME)
        return replace(watermark, ms=max(watermark.ms, ms), sources=known, sources_read=read)


def without_late(  # noqa: PLR0917 - as they come
    spec: WindowWatermark,
    rows: pa.Table,
    before: Mapping[int, int],
    now_ms: Mapping[int, int],
    behind: Mapping[int, Sequence[int]] = _NONE,
    by_source: Mapping[int, Sources] = _NONE,
) -> tuple[pa.Table, dict[int, Watermark]]:
    """Return the rows that are not late, and the watermark of each partition with the batch.

    A time far ahead moves nothing: the one wrong clock of a producer would close every window.

    Args:
        spec: the watermark.
        rows: of tasks.
        before: partition -> watermark before the batch, of each of those tasks, in milliseconds since 1970.
        now_ms: partition -> what the machine's clock says of it, milliseconds since 1970.
        behind: partition -> which source topics are behind, of tasks that read several.
        by_source: partition -> its source topics, where each has a watermark of its own; ``behind`` is not asked then.
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
        late[own] = ends[own] <= ms
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


def with_silence(ms: int, task: TaskCommand, topics: Collection[str]) -> int:
    """Return a watermark that goes on by the clock where nothing has come; one that never was stays so.

    Args:
        ms: the watermark with the batch, in milliseconds since 1970.
        task: its share of the batch.
        topics: those that the watermark is of.
    """
    silent = all(start == stop for p, (start, stop) in task.ranges.items() if p.topic in topics)
    return ms + task.silence_ms if silent and ms != NO_TIME else ms


def newest_times(times: NDArray[np.int64], sources: NDArray[np.int32] | None) -> dict[int, int]:
    """Return the newest time of the rows of each source topic; all are of the first if nothing else is said."""
    if sources is None or not len(times):
        return {0: int(times.max())} if len(times) else {}
    return {int(source): int(times[sources == source].max()) for source in np.flatnonzero(np.bincount(sources))}


def stored_keys(windows: pa.Array, encoded: pa.Array) -> pa.Array:
    """Return the keys of the store: the encoded grouping columns, behind the end of their window."""
    return side_by_side(end_fronts(windows), encoded)


def end_fronts(windows: pa.Array) -> pa.Array:
    """Return what the store's keys of windows begin with: when they end."""
    return big_endian(window_ends(windows))


def message_keys(stored: pa.Array) -> pa.Array:
    """Return the encoded grouping columns of the store's keys."""
    return drop_first(stored, END_BYTES)


def warn_of_late(store: str, count: int, how: str, remedy: str = "a longer delay in withWatermark()") -> None:
    """Say, now and then, that rows were left out: nothing else shows it where results go."""
    now = time.monotonic()
    if count and now >= _warned.get(store, 0.0) + _WARN_SECONDS:
        _warned[store] = now
        log.warning(
            "store %r left out %d rows of a micro-batch, which came %s; %s lets them in",
            store,
            count,
            how,
            remedy,
        )
