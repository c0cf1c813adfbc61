"""Shared by the compiled loops of this package: the ``kernel`` decorator, raw memory access, varints.

Hot loops work on plain addresses: one loop reads a Fetch response, a decompressed buffer or an Arrow buffer, without
copies or variants by type. In return every read must be checked: kernels compare each position with the end of its
record first.

Refused: Cython or C (a compiler on every user's machine), NumPy tricks (variable-length records cannot be vectorized),
byte loops without the memcpy intrinsic (five times slower for 100-byte values).

numba takes 100 MB and half a second to load. So a loop is compiled, or read from numba's cache, when it is first
called. ``compile_kernels`` does it ahead for workers. A driver calls none, as a rule.
"""

from __future__ import annotations

import functools
import importlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

log = logging.getLogger(__name__)

_COMPILING: Final = (
    "compiling the loops that read and write records, as they are not in numba's cache yet: about 15 s, minutes on a "
    "slow machine, once. Where it happens at every start, set NUMBA_CACHE_DIR to a folder that lasts"
)
_INTRINSICS: Final = "sparkrelay.records._intrinsics"
_compiling_logged = False
_lock = threading.RLock()
_kernels: list[Deferred] = []


class Deferred:
    """A function that numba compiles when it is first called, or first compiled into another one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @functools.cached_property
    def made(self) -> Any:
        """The compiled function."""
        with _lock:
            _register()
            # Another thread may have made it.
            return self.__dict__.get("made") or self._make()

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return self.made(*arguments)


@functools.cache
def _register() -> None:
    """Have numba resolve a deferred function, where a loop calls one, to the compiled one."""
    from numba.core.registry import cpu_target  # noqa: PLC0415 - heavy
    from numba.extending import typeof_impl  # noqa: PLC0415 - heavy

    context = cpu_target.typing_context

    def typeof(value: Deferred, _: Any) -> Any:
        made = value.made
        # A new intrinsic is not in the context until it is refreshed.
        context.refresh()
        return context.resolve_value_type(made)

    typeof_impl.register(Deferred)(typeof)


def kernel(*signatures: str) -> Callable[[F], F]:
    """Compile a function for exactly these signatures, to run without the GIL; the machine code is kept on disk.

    ``NUMBA_CACHE_DIR`` is honoured. If no directory is writable (a read-only image without a home directory), the code
    is compiled again in each process.
    """

    def defer(function: F) -> F:
        deferred = Deferred(functools.partial(_compiled, function, signatures))
        _kernels.append(deferred)
        return cast("F", deferred)

    return defer


def kernels() -> tuple[Deferred, ...]:
    """Return the kernels of all loaded modules."""
    return tuple(_kernels)


def _compiled(function: Callable[..., Any], signatures: tuple[str, ...]) -> Any:
    import numba  # noqa: PLC0415 - heavy

    try:
        compiled = numba.njit(list(signatures), cache=True, nogil=True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        compiled = numba.njit(list(signatures), nogil=True)(function)
        _log_compiling()
    if compiled.stats.cache_misses:
        _log_compiling()
    return compiled


def _log_compiling() -> None:
    """Log once a process why it takes so long: dozens of loops follow the first."""
    global _compiling_logged  # noqa: PLW0603 - loops are compiled one by one
    if not _compiling_logged:
        _compiling_logged = True
        log.warning(_COMPILING)


def over_rows(rows: int, loop: Callable[..., Any], *arguments: Any) -> Any:
    """Call a loop over rows; return None without any.

    A driver asks without rows whether types can be written, and loads no numba for that.
    """
    return loop(*arguments) if rows else None


def inline(function: F) -> F:
    """Compile a small helper into each kernel that calls it."""
    return cast("F", Deferred(lambda: _inlined(function)))


def _inlined(function: Callable[..., Any]) -> Any:
    import numba  # noqa: PLC0415 - heavy

    return numba.njit(nogil=True)(function)


def intrinsic(name: str) -> Any:
    """Return one of ``_intrinsics``."""
    return Deferred(lambda: getattr(importlib.import_module(_INTRINSICS), name))  # noqa: TID251 - a name of ours


load8 = intrinsic("load8")
load64 = intrinsic("load64")
load_double = intrinsic("load_double")
load_float = intrinsic("load_float")
store8 = intrinsic("store8")
store64 = intrinsic("store64")
store_double = intrinsic("store_double")
store_float = intrinsic("store_float")
lowest_bit = intrinsic("lowest_bit")
copy = intrinsic("copy")
strtod = intrinsic("strtod")


@inline
def read_varint(position: int, end: int) -> tuple[int, int]:
    """Read a zigzag 32-bit varint; returns its value and the position after it, or -1 if it is not one."""
    if position >= end:
        return 0, -1
    byte = load8(position)
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 127
    shift = 7
    position += 1
    while shift < 35 and position < end:
        byte = load8(position)
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 32:
                return 0, -1
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    return 0, -1


@inline
def read_unsigned(position: int, end: int) -> tuple[int, int]:
    """Read 64 bits as a varint; returns them and the position after it, or -1 if it is not one."""
    if position >= end:
        return 0, -1
    byte = load8(position)
    if byte < 128:
        return byte, position + 1
    value, shift = byte & 127, 7
    position += 1
    while shift < 70 and position < end:
        byte = load8(position)
        position += 1
        if shift == 63 and byte > 1:
            return 0, -1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    return 0, -1


@inline
def read_varlong(position: int, end: int) -> tuple[int, int]:
    """Read a zigzag 64-bit varint; returns its value and the position after it, or -1 if it is not one."""
    value, position = read_unsigned(position, end)
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), position


@inline
def varint_size(value: int) -> int:
    """Count the bytes that the zigzag varint of a 32- or 64-bit integer takes."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    # A full 64-bit zigzag is negative as int64, hence the masked, logical shift.
    rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    while rest != 0:
        size += 1
        rest >>= 7
    return size


@inline
def write_unsigned(position: int, value: int) -> int:
    """Write 64 bits as a varint; returns the position after it."""
    byte = value & 127
    # A full 64-bit value is negative as int64, hence the masked, logical shift.
    rest = (value >> 7) & 0x01FFFFFFFFFFFFFF
    while rest != 0:
        store8(position, byte | 128)
        position += 1
        byte = rest & 127
        rest >>= 7
    store8(position, byte)
    return position + 1


@inline
def write_varint(position: int, value: int) -> int:
    """Write the zigzag varint of a 32- or 64-bit integer; returns the position after it."""
    return write_unsigned(position, (value << 1) ^ (value >> 63))
