"""Event times as numbers, from columns of times and of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def event_times_ms(column: pa.Array) -> NDArray[np.int64]:
    """Return the event times of rows that have one, ms since 1970; of times, windows, or such numbers."""
    column = column.drop_null()
    if pa.types.is_integer(column.type):
        return numbers(column)
    if pa.types.is_struct(column.type):
        # The last microsecond of a window is its time (``F.window_time``).
        return window_ends(column) - 1
    return numbers(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())) // 1000


def window_ends(windows: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the ends of windows, in ms since 1970, rounded up; a null window never ends."""
    micros = numbers(pc.struct_field(windows, "end").cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1 << 62)
    return -(-micros // 1000)


def numbers(column: pa.Array | pa.ChunkedArray, missing: int = 0) -> NDArray[Any]:
    """Return a column's values, with ``missing`` for nulls."""
    if column.null_count:
        column = pc.fill_null(column, missing)
    found: NDArray[Any] = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return found
