"""Arrow's binary arrays in numpy: offsets and one buffer of bytes.

Arrow's own ``binary_slice`` fails for values shorter than its start ("Negative buffer resize"), hence
:func:`drop_first`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StoreCorruptedException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def buffers(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets and bytes of a binary or string array; nulls have length 0."""
    if array.null_count:
        array = array.fill_null(b"" if pa.types.is_binary(array.type) else "")
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return ends, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)


def equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return where values are equal, or both null."""
    return pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(pc.is_null(left), pc.is_null(right)))


def from_spans(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    """Return the values between consecutive offsets, without nulls."""
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )


def cut(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], lengths: Sequence[NDArray[np.integer[Any]] | int]
) -> pa.Array:
    """Cut contiguous values, given by offsets and bytes, into pieces without copying.

    ``lengths`` are those of the first pieces of each value; the rest of it is its last piece.

    Returns:
        All pieces of the first value, then those of the second, and so on, without nulls.
    """
    bounds = np.empty((len(offsets) - 1, len(lengths) + 1), dtype=np.int64)
    bounds[:, 0] = offsets[:-1]
    for place, length in enumerate(lengths, 1):
        np.add(bounds[:, place - 1], length, out=bounds[:, place])
    return from_spans(np.append(bounds.reshape(-1), offsets[-1]), data)


def drop_first(array: pa.Array, count: int = 1) -> pa.Array:
    """Return binary values without their first ``count`` bytes; nulls stay null.

    Raises:
        StoreCorruptedException: a value is shorter, as in a changelog that something else has written to.
    """
    offsets, data = buffers(array)
    there = array.is_valid().to_numpy(zero_copy_only=False)
    shortest = int(np.diff(offsets)[there].min(initial=count))
    if shortest < count:
        # Arrow would not notice the negative lengths.
        raise StoreCorruptedException(f"a key or value has {shortest} bytes, and begins with {count}: it is damaged")
    rests = np.arange(1, 2 * len(array), 2)
    return cut(offsets, data, [there * count]).take(pa.array(rests, mask=~there if array.null_count else None))


def big_endian(numbers: NDArray[np.int64]) -> pa.Array:
    """Return numbers as eight bytes each, which sort like the numbers."""
    return fixed((numbers.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8"), 8)


def read_big_endian(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers whose eight bytes begin at these positions."""
    bits = np.ascontiguousarray(data[starts[:, None] + np.arange(8)]).view(">u8").reshape(-1) ^ np.uint64(1 << 63)
    return bits.astype(np.uint64).view(np.int64)


def fixed(values: NDArray[np.generic], width: int) -> pa.Array:
    """Return the bytes of values of ``width`` bytes each."""
    data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), [None, data]).cast(pa.binary())


def side_by_side(*parts: pa.Array | bytes) -> pa.Array:
    """Return the concatenated values of the parts, row by row; bytes are the same in each row."""
    columns = (pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in (*parts, b""))
    return pc.binary_join_element_wise(*columns)
