"""Arrow's arrays of bytes as numpy sees them: offsets and one run of bytes.

Arrow's own ``binary_slice`` fails where values are shorter than its start ("Negative buffer resize"), hence
:func:`drop_first`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["buffers", "drop_first", "from_lengths", "from_spans"]


def buffers(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets and bytes of a binary or string array; nulls have length 0."""
    if array.null_count:
        array = array.fill_null(b"" if pa.types.is_binary(array.type) else "")
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return ends, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)


def from_spans(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    """Return the values between neighbouring offsets; none is null."""
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )


def from_lengths(data: NDArray[np.uint8], lengths: NDArray[np.int64], there: NDArray[np.bool_]) -> pa.Array:
    """Return values that lie one behind the other; null where not ``there``."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    bitmap = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def drop_first(array: pa.Array) -> pa.Array:
    """Return binary values without their first byte; each has one, or is null."""
    offsets, data = buffers(array)
    there = array.is_valid().to_numpy(zero_copy_only=False)
    kept = np.ones(int(offsets[-1] - offsets[0]), dtype=np.bool_)
    kept[(offsets[:-1] - offsets[0])[there]] = False
    return from_lengths(data[offsets[0] : offsets[-1]][kept], np.diff(offsets) - there, there)
