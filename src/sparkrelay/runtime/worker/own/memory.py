"""Memory of workers: objects for the garbage collector, and unused pages.

Spark has as many workers as there ever were concurrent tasks and steps, and uses them in turn. So each that had much
data would keep its allocators' memory, while the next data goes to another worker.
"""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path
from typing import Final

import pyarrow as pa

_BATCHES_BEFORE_FREEZE: Final = 3
#: Bytes that a worker keeps, as new pages take time. It begins with half as many.
_KEPT_BYTES: Final = 320 << 20
_RESIDENT: Final = Path("/proc/self/statm")
_batches_seen = 0


def freeze_loaded_objects() -> None:
    """Exclude loaded objects from garbage collection.

    PySpark collects after every task; with numba and pyarrow loaded, that takes 37 ms each time.
    """
    global _batches_seen  # noqa: PLW0603 - one counter for the process is what is meant
    _batches_seen += 1
    if _batches_seen == _BATCHES_BEFORE_FREEZE:
        gc.collect()
        gc.freeze()


def release_unused_memory() -> None:
    """Release memory that Arrow's and C's allocators hold for later, if there is much; takes some ms."""
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
