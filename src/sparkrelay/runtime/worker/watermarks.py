"""Event time in the stateful step: which rows come too late, and which windows are over.

A task's watermark is the newest event time that its rows have had, less the delay; it never goes back. The store keeps
it, journaled with each batch, restored and followed by standbys, so that it goes on after a failover where it was
(Kafka Streams begins again at -1, ``observedStreamTime`` in its processors).

Of a task that reads several topics those that are behind hold it back: it goes by the one whose newest row of the
micro-batch is the oldest. (Kafka Streams takes records in the order of their times.) A topic whose rows of the
micro-batch are all filtered away leaves it where it is, until the task has caught up.

A row is late if its window was over before its micro-batch, as in Structured Streaming. With one row a micro-batch that
is what Kafka Streams does. Not by the watermark as of each row: what comes from several partitions, or through a
repartition topic from several tasks, lies one behind the other in a large micro-batch, though it happened at the same
time, and whatever came second would be lost.

Keys of the store begin with the end of their window, so that windows that are over are its first keys. Those that are
to be looked at for a while longer (``retention=``) stay, and take no further row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.state.batch import Watermark
from sparkrelay.state.byte_arrays import drop_first
from sparkrelay.state.watermarks import END_BYTES, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.specs import WatermarkSpec

__all__ = ["message_keys", "stored_keys", "window_ends", "without_late"]


def without_late(
    spec: WatermarkSpec,
    rows: pa.Table,
    before: Mapping[int, int],
    now_ms: int,
    behind: Mapping[int, Sequence[int]] | None = None,
) -> tuple[pa.Table, dict[int, Watermark]]:
    """Return the rows that are not late, and the watermark of each partition with the batch.

    A time far ahead moves nothing: the one wrong clock of a producer would close every window.

    Args:
        spec: the watermark.
        rows: of tasks.
        before: partition -> watermark before the batch, of each of those tasks, in milliseconds since 1970.
        now_ms: of the machine's clock, milliseconds since 1970.
        behind: partition -> which source topics are behind, of tasks that read several.
    """
    after = {partition: Watermark(ms, 0, spec.final, spec.retention_ms) for partition, ms in before.items()}
    if not rows.num_rows:
        return rows, after
    partitions = _numbers(rows.column(hidden_columns.PARTITION))
    times = _numbers(rows.column(hidden_columns.EVENT_TIME), NO_TIME)
    ends = window_ends(rows.column(spec.window))
    late = np.zeros(rows.num_rows, dtype=np.bool_)
    moving = np.where(times <= now_ms + spec.ahead_ms, times, NO_TIME)
    sources = None
    if behind is not None and hidden_columns.SOURCE in rows.column_names:
        sources = _numbers(rows.column(hidden_columns.SOURCE))
    for partition, ms in before.items():
        own = partitions == partition
        if not own.any():
            continue
        late[own] = ends[own] <= ms
        newest = int(moving[own].max())
        if sources is not None and behind is not None:
            held = [int(moving[own & (sources == source)].max(initial=NO_TIME)) for source in behind.get(partition, ())]
            newest = min(held, default=newest)
        newest = max(ms, newest - spec.delay_ms)
        after[partition] = replace(after[partition], ms=newest, rows_late=int(late[own].sum()))
    return (rows.filter(pa.array(~late)) if late.any() else rows), after


def window_ends(windows: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the ends of windows, in milliseconds since 1970, rounded up; a null window, which has none, ends never."""
    micros = _numbers(pc.struct_field(windows, "end").cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1 << 62)
    return -(-micros // 1000)


def stored_keys(windows: pa.Array, encoded: pa.Array) -> pa.Array:
    """Return the keys of the store: the encoded grouping columns, behind the end of their window."""
    ends = (window_ends(windows).astype(np.uint64) ^ np.uint64(1 << 63)).astype(">u8")
    fronts = pa.FixedSizeBinaryArray.from_buffers(pa.binary(END_BYTES), len(ends), [None, pa.py_buffer(ends.tobytes())])
    return pc.binary_join_element_wise(fronts.cast(pa.binary()), encoded, pa.scalar(b"", pa.binary()))


def message_keys(stored: pa.Array) -> pa.Array:
    """Return the encoded grouping columns of the store's keys."""
    return drop_first(stored, END_BYTES)


def _numbers(column: pa.Array | pa.ChunkedArray, missing: int = 0) -> NDArray[Any]:
    if column.null_count:
        column = pc.fill_null(column, missing)
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return numbers
