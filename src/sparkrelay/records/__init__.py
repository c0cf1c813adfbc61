"""Record batches to Arrow and back, and the formats of keys and values.

Modules are imported by name (``from sparkrelay.records.keys import key_bytes``): importing ``sparkrelay`` loads none.
"""

from __future__ import annotations

import functools
import importlib

from sparkrelay.records import kernel_cache
from sparkrelay.records._native import kernels

__all__ = ["compile_kernels", "compile_missing_kernels"]

_COMPILED = ("batches.decode", "batches.encode", "partition", "keys", "hll_registers", "row_checksums",
             "json.codec", "avro.codec", "protobuf.codec")  # fmt: skip


def compile_kernels() -> None:
    """Load every compiled loop, compiling what is not on disk yet.

    The first time on a machine takes about fifteen seconds of one core, later ones half a second. Done once before
    workers start, it spares each of them the compiling; ``NUMBA_CACHE_DIR`` says where the result is kept.
    """
    for name in _COMPILED:
        importlib.import_module(f"{__name__}.{name}")  # noqa: TID251 - a name of the table above
    for kernel in kernels():
        kernel.made  # noqa: B018 - makes it


@functools.cache
def compile_missing_kernels() -> None:
    """Compile the loops if numba's cache has none of this release: a worker that did would seem to hang.

    Else nothing is loaded: a driver calls none of them, as a rule. A process looks once.
    """
    if not kernel_cache.compiled():
        compile_kernels()
