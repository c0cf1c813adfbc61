"""Where fetched batches end, without loading the decoder.

The fetching thread needs the next offset, not the records. Loading the compiled loops there would delay the heartbeats
of every consumer of the process by half a second. So a Python loop reads the headers (half a microsecond each) until
some thread has decoded a record, then the compiled one (``headers``).
"""

from __future__ import annotations

import struct
import sys
from typing import Final

_HEADER: Final = struct.Struct(">qiibIhi")
_HEADER_SIZE: Final = 61
_LAST_OFFSET: Final = (1 << 63) - 1


def end_offset(data: memoryview, start: int) -> int | None:
    """Return the offset after the last whole batch, ``start`` if there is none, None if a header is broken."""
    compiled = getattr(sys.modules.get("sparkrelay.records.batches.headers"), "end_offset", None)
    if compiled is not None:
        found: int | None = compiled(data, start)
        return found
    position, end, floor = 0, start, 0
    # A header that is cut off before its magic number is incomplete, as for the compiled loop.
    while position + 17 <= len(data):
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if length < _HEADER_SIZE - 12 or (data[position + 16] < 2 and length >= 14):
            return None
        if position + 12 + length > len(data):
            break
        base, _, _, magic, _, _, delta = _HEADER.unpack_from(data, position)
        last = base + delta
        if magic != 2 or base < floor or delta < 0 or last >= _LAST_OFFSET:
            return None
        floor, end = last + 1, max(start, last + 1)
        position += 12 + length
    return end
