"""The keys of a store whose windows end: each begins with the end of its window, so that what is over comes first."""

from __future__ import annotations

import struct
from typing import Final

__all__ = [
    "ENDLESS",
    "END_BYTES",
    "LATEST",
    "MOST_SOURCES",
    "NEVER",
    "NO_TIME",
    "end_bytes",
    "end_of",
    "expired_with",
    "over",
]

_END: Final = struct.Struct(">Q")
END_BYTES: Final = _END.size
#: Front of keys of what does not end: behind that of every window.
ENDLESS: Final = b"\xff" * END_BYTES
#: Before the first row: earlier than any time of a row.
NO_TIME: Final = -(1 << 62)
#: Later than any end: that of what never ends is before it.
LATEST: Final = (1 << 63) - 1
#: The end of what never ends.
NEVER: Final = 1 << 62
#: Source topics whose own watermarks a store may keep.
MOST_SOURCES: Final = 1000


def end_bytes(end_ms: int) -> bytes:
    """Return the front of keys of windows that end then, in milliseconds since 1970; they sort by time."""
    return _END.pack((max(min(end_ms, LATEST), -LATEST) + (1 << 63)) & 0xFFFFFFFFFFFFFFFF)


def end_of(key: bytes) -> int:
    """Return when the window of a key ends, in milliseconds since 1970."""
    return int(_END.unpack_from(key)[0]) - (1 << 63)


def over(watermark_ms: int) -> bytes:
    """Return the key below which windows are over."""
    return end_bytes(watermark_ms + 1)


def expired_with(watermark_ms: int, retention_ms: int, before_ms: int) -> int:
    """Return by when windows have ended that have expired: they are over, and were kept for the retention.

    It never goes back, as a watermark does not: what is removed does not come back with a longer retention.

    Args:
        watermark_ms: of the store, in milliseconds since 1970.
        retention_ms: for how long windows that are over are kept, from their end on.
        before_ms: what was returned last, in milliseconds since 1970.
    """
    return max(before_ms, watermark_ms - retention_ms, NO_TIME)
