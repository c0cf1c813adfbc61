"""The keys of a store whose windows end: each begins with the end of its window, and one row keeps the task's clock."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["CLOCK_KEY", "END_BYTES", "end_bytes"]

_END: Final = struct.Struct(">Q")
END_BYTES: Final = _END.size
#: Behind all windows, as no window ends so late; and it is longer than their fronts, in case one does.
CLOCK_KEY: Final = b"\xff" * END_BYTES + b"clock"
_LATEST: Final = (1 << 63) - 1


def end_bytes(end_ms: int) -> bytes:
    """Return the front of keys of windows that end then, in milliseconds since 1970; they sort by time."""
    return _END.pack((max(min(end_ms, _LATEST), -_LATEST) + (1 << 63)) & 0xFFFFFFFFFFFFFFFF)
