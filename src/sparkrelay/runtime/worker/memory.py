"""What a worker's memory costs: objects that the garbage collector looks at, and pages that nobody uses any more.

Spark has as many workers as there were tasks and steps at a time, and lends them in turn. So each that has had a large
share keeps what its allocators have, for the next one, which another worker gets.
"""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path
from typing import Final

import pyarrow as pa

__all__ = ["freeze_loaded_objects", "release_unused_memory"]

_BATCHES_BEFORE_FREEZE: Final = 3
#: A worker that has less keeps it, bytes: pages cost time, too. It begins with half as many.
_KEPT_BYTES: Final = 320 << 20
_RESIDENT: Final = Path("/proc/self/statm")
_batches_seen = 0


def freeze_loaded_objects() -> None:
    """Take what is loaded by now out of the garbage collector's sight.

    PySpark collects after every task; with numba and pyarrow loaded that costs 37 ms each time.
    """
    global _batches_seen  # noqa: PLW0603 - one counter for the process is what is meant
    _batches_seen += 1
    if _batches_seen == _BATCHES_BEFORE_FREEZE:
        gc.collect()
        gc.freeze()


def release_unused_memory() -> None:
    """Give the system back what Arrow's and C's allocators hold for later, if the process has much; some ms then."""
    try:
        pages = int(_RESIDENT.read_text().split()[1])
    except OSError:
        return  # not Linux
    if pages * os.sysconf("SC_PAGE_SIZE") < _KEPT_BYTES:
        return
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
