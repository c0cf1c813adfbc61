"""Event time in the stateful step: which rows come too late, and which windows are over.

A task's clock is the newest event time that its rows have had. It is a row of the store itself, under a key of its own:
journaled, restored and followed by standbys like any other, so that it goes on after a failover where it was (Kafka
Streams begins again at -1, ``observedStreamTime`` in its processors).

A row is late if its window had ended, and the delay had passed, before its micro-batch, as in Structured Streaming.
With one row a micro-batch that is what Kafka Streams does. Not by the clock as of each row: what comes from several
partitions, or through a repartition topic from several tasks, lies one behind the other in a large micro-batch, though
it happened at the same time, and whatever came second would be lost.

Keys of the store begin with the end of their window, so that windows that are over are its first keys.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.state.byte_arrays import drop_first
from sparkrelay.state.watermarks import CLOCK_KEY, END_BYTES, end_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.specs import WatermarkSpec

__all__ = ["Clocks", "message_keys", "read_clock", "stored_keys", "without_late"]

#: Before the first row: earlier than any time of a row.
NO_TIME: Final = -(1 << 62)
_CLOCK: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of some tasks before and after a micro-batch, by partition, in milliseconds since 1970."""

    before: Mapping[int, int]
    after: Mapping[int, int]

    def closed_before(self, partition: int, delay_ms: int) -> bytes:
        """Return the key below which a task's windows are over."""
        return end_bytes(self.after[partition] - delay_ms + 1)

    def row(self, partition: int) -> tuple[bytes, bytes]:
        """Return the row that keeps a task's clock."""
        return CLOCK_KEY, _CLOCK.pack(self.after[partition])


def read_clock(value: bytes | None) -> int:
    """Return what a store's clock says; before the first row there is none."""
    return NO_TIME if value is None else int(_CLOCK.unpack(value)[0])


def without_late(
    spec: WatermarkSpec, rows: pa.Table, before: Mapping[int, int], now_ms: int
) -> tuple[pa.Table, Clocks, dict[int, int]]:
    """Return the rows that are not late, the clocks, and how many rows of each partition are late.

    A time far ahead moves no clock: the one wrong clock of a producer would close every window.

    Args:
        spec: the watermark.
        rows: of tasks.
        before: partition -> clock, of each of those tasks.
        now_ms: of the machine's clock, milliseconds since 1970.
    """
    after, late_rows = dict(before), dict.fromkeys(before, 0)
    if not rows.num_rows:
        return rows, Clocks(before, after), late_rows
    partitions = _numbers(rows.column(hidden_columns.PARTITION))
    times = _numbers(rows.column(hidden_columns.EVENT_TIME), NO_TIME)
    ends = window_ends(rows.column(spec.window))
    late = np.zeros(rows.num_rows, dtype=np.bool_)
    moving = np.where(times <= now_ms + spec.ahead_ms, times, NO_TIME)
    for partition, clock in before.items():
        own = partitions == partition
        if not own.any():
            continue
        late[own] = ends[own] <= clock - spec.delay_ms
        after[partition] = max(clock, int(moving[own].max()))
        late_rows[partition] = int(late[own].sum())
    return (rows.filter(pa.array(~late)) if late.any() else rows), Clocks(before, after), late_rows


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
