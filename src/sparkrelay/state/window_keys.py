"""The keys of a store whose windows end: each begins with its window's end, so windows that are over come first."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sparkrelay.state.byte_arrays import big_endian, drop_first, side_by_side

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_END: Final = struct.Struct(">Q")
END_BYTES: Final = _END.size
#: Prefix of keys without an end: after that of every window.
ENDLESS: Final = b"\xff" * END_BYTES
#: No time: earlier than any row.
NO_TIME: Final = -(1 << 62)
#: Later than any end, also than ``NEVER``.
LATEST: Final = (1 << 63) - 1
#: The end of rows that never end.
NEVER: Final = 1 << 62
#: Limit on the source topics whose own watermarks a store keeps.
MOST_SOURCES: Final = 1000


def end_bytes(end_ms: int) -> bytes:
    """Return the prefix of keys of windows with this end, in milliseconds since 1970; prefixes sort by time."""
    return _END.pack((max(min(end_ms, LATEST), -LATEST) + (1 << 63)) & 0xFFFFFFFFFFFFFFFF)


def end_of(key: bytes) -> int:
    """Return the end of a key's window, in milliseconds since 1970."""
    return int(_END.unpack_from(key)[0]) - (1 << 63)


def over(watermark_ms: int) -> bytes:
    """Return the key below which windows are over."""
    return end_bytes(watermark_ms + 1)


def expired_with(watermark_ms: int, retention_ms: int, before_ms: int) -> int:
    """Return the end up to which windows have expired: they are over, and have been kept for the retention.

    All in milliseconds. It is never less than ``before_ms``, the last result: a longer retention does not restore
    windows.
    """
    return max(before_ms, watermark_ms - retention_ms, NO_TIME)


def window_keys(ends_ms: NDArray[np.int64], encoded: pa.Array) -> pa.Array:
    """Return the store's keys: the end of the window, then the encoded grouping columns, which are the message key."""
    return side_by_side(big_endian(ends_ms), encoded)


def message_keys(stored: pa.Array) -> pa.Array:
    """Return the encoded grouping columns of the store's keys."""
    return drop_first(stored, END_BYTES)
