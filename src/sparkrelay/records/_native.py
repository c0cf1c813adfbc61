"""What the compiled loops of this package share: the ``kernel`` decorator, raw memory access, varints.

Hot loops work on plain addresses. An executor decodes batches that lie in a Fetch response, in decompressed buffers and
in Arrow buffers at once, and an address names any of them without copies or per-type variants of a kernel. The price is
that every read must be checked by us: kernels compare each position with the end of its record before they touch it.

Refused: Cython or C (a compiler on every user's machine), NumPy tricks (variable-length records cannot be vectorised),
byte loops without the memcpy intrinsic (five times slower for 100-byte values).
"""

# ruff: noqa: ARG001 - numba calls intrinsics with a fixed list of arguments

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "copy",
    "inline",
    "kernel",
    "load8",
    "load64",
    "load_double",
    "load_float",
    "lowest_bit",
    "read_unsigned",
    "read_varint",
    "read_varlong",
    "store8",
    "store64",
    "store_double",
    "store_float",
    "strtod",
    "varint_size",
    "write_unsigned",
    "write_varint",
]


F = TypeVar("F", bound="Callable[..., Any]")

log = logging.getLogger(__name__)

_COMPILING: Final = (
    "compiling the loops that read and write records, as they are not in numba's cache yet: about 15 s, minutes on a "
    "slow machine, once. Where it happens at every start, set NUMBA_CACHE_DIR to a folder that lasts"
)
_compiling_logged = False


def kernel(*signatures: str) -> Callable[[F], F]:
    """Compile a function for exactly these signatures, without the GIL, and keep the machine code on disk.

    ``NUMBA_CACHE_DIR`` is honoured. Where no directory can be written (a read-only image without a home directory)
    the code is compiled again in each process, which costs a second instead of failing.
    """

    def compile_function(function: F) -> F:
        try:
            compiled = numba.njit(list(signatures), cache=True, nogil=True)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            compiled = numba.njit(list(signatures), nogil=True)(function)
            _log_compiling()
        if compiled.stats.cache_misses:
            _log_compiling()
        return cast("F", compiled)

    return compile_function


def _log_compiling() -> None:
    """Say once a process why it takes so long; there are dozens of loops still to come after the first."""
    global _compiling_logged  # noqa: PLW0603 - loops are compiled while modules are imported
    if not _compiling_logged:
        _compiling_logged = True
        log.warning(_COMPILING)


def inline(function: F) -> F:
    """Compile a small helper into each kernel that calls it."""
    return cast("F", numba.njit(nogil=True)(function))


strtod = types.ExternalFunction("strtod", types.float64(types.int64, types.int64))
"""C's strtod(text, 0), for numbers with a byte behind them that is no part of one. It obeys the process's locale."""


@intrinsic
def load8(typing_context: Any, address: Any) -> Any:
    """Read the byte at an address, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def load64(typing_context: Any, address: Any) -> Any:
    """Read eight bytes at an address as a native, possibly unaligned, int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.int64(types.int64), generate


@intrinsic
def load_double(typing_context: Any, address: Any) -> Any:
    """Read a native float64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        return builder.load(pointer, align=1)

    return types.float64(types.int64), generate


@intrinsic
def load_float(typing_context: Any, address: Any) -> Any:
    """Read a native float32 at an address, as float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.FloatType().as_pointer())
        return builder.fpext(builder.load(pointer, align=1), ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def store_float(typing_context: Any, address: Any, value: Any) -> Any:
    """Write a float64 to an address as a native float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.FloatType().as_pointer())
        builder.store(builder.fptrunc(arguments[1], ir.FloatType()), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), generate


@intrinsic
def lowest_bit(typing_context: Any, value: Any) -> Any:
    """Return the index of the lowest bit that is set in a value that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def store8(typing_context: Any, address: Any, value: Any) -> Any:
    """Write the low byte of an integer to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        builder.store(builder.trunc(arguments[1], ir.IntType(8)), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def store64(typing_context: Any, address: Any, value: Any) -> Any:
    """Write a native, possibly unaligned, int64 to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store(arguments[1], pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def store_double(typing_context: Any, address: Any, value: Any) -> Any:
    """Write a native float64 to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        builder.store(arguments[1], pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), generate


@intrinsic
def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy ``size`` bytes between two addresses whose ranges do not overlap (memcpy)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder,
            builder.inttoptr(arguments[0], byte_pointer),
            builder.inttoptr(arguments[1], byte_pointer),
            arguments[2],
            1,
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


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
