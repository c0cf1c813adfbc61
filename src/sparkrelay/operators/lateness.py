"""Which rows come too late, and what is said of them.

A row is late if its window closed before its micro-batch, or its event time was passed before it, as in Structured
Streaming. With one row a micro-batch this equals Kafka Streams. A watermark per row would lose data: rows of several
partitions, or of several tasks through a repartition topic, follow one another in a large micro-batch although they
happened at the same time.

Late rows are dropped and counted. With ``late_to=`` another leg writes them to a topic (``late_to``).
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay import hidden_columns
from sparkrelay.operators.watermarks import newest_times
from sparkrelay.runtime.worker.event_times import numbers, window_ends
from sparkrelay.state.batch import Watermark
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.operators.watermarks import Sources, WindowWatermark

log = logging.getLogger(__name__)

_NONE: Final[Mapping[int, Any]] = MappingProxyType({})
#: Earlier than any event time: Spark's timestamps begin with the year 1.
_EARLIEST_MS: Final = -(1 << 52)
_WARN_SECONDS: Final = 60.0
#: Store -> time of the last warning.
_warned: dict[str, float] = {}


def windows_over(ends_ms: NDArray[np.int64], watermark_ms: int) -> NDArray[np.bool_]:
    """Return which windows are closed at a watermark, by their ends: their rows are late."""
    return ends_ms <= watermark_ms


def too_late(times_us: NDArray[np.int64], watermark_ms: int) -> NDArray[np.bool_]:
    """Return which event times are before the watermark: their rows are late."""
    return times_us < max(watermark_ms, _EARLIEST_MS) * 1000


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
        late[own] = windows_over(ends[own], ms)
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


def warn_of_late(store: str, count: int, how: str, remedy: str = "a longer delay in withWatermark()") -> None:
    """Log that late rows were dropped, at most once a minute a store: the results do not show it."""
    now = time.monotonic()
    if count and now >= _warned.get(store, 0.0) + _WARN_SECONDS:
        _warned[store] = now
        log.warning(
            "store %r dropped %d rows of a micro-batch that arrived %s; %s keeps them", store, count, how, remedy
        )
