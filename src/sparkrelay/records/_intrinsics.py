"""Raw memory access and CRC-32C for compiled loops, as LLVM instructions. Loads numba: import them from ``_native``.

Refused: NumPy's views of addresses, a hundred times slower in a loop that reads single bytes.
"""

# ruff: noqa: ARG001 - numba calls intrinsics with a fixed list of arguments

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

strtod = types.ExternalFunction("strtod", types.float64(types.int64, types.int64))
"""C's strtod(text, 0): the number must be followed by a byte that ends it. It obeys the process's locale."""


def _load(stored: ir.Type, kind: Any, widened: Callable[[Any, Any], Any] | None = None) -> Any:
    """Return the intrinsic that reads a native, possibly unaligned value at an address."""

    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(builder.inttoptr(arguments[0], stored.as_pointer()), align=1)
            return value if widened is None else widened(builder, value)

        return kind(types.int64), generate

    return load


def _store(stored: ir.Type, kind: Any, narrowed: Callable[[Any, Any], Any] | None = None) -> Any:
    """Return the intrinsic that writes a native, possibly unaligned value to an address."""

    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = arguments[1] if narrowed is None else narrowed(builder, arguments[1])
            builder.store(given, builder.inttoptr(arguments[0], stored.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return store


_BYTE, _LONG, _FLOAT, _DOUBLE = ir.IntType(8), ir.IntType(64), ir.FloatType(), ir.DoubleType()

#: A byte as int64, and the low byte of an int64.
load8 = _load(_BYTE, types.int64, lambda builder, value: builder.zext(value, _LONG))
store8 = _store(_BYTE, types.int64, lambda builder, value: builder.trunc(value, _BYTE))
load64 = _load(_LONG, types.int64)
store64 = _store(_LONG, types.int64)
load_double = _load(_DOUBLE, types.float64)
store_double = _store(_DOUBLE, types.float64)
#: A float32 as float64, and back.
load_float = _load(_FLOAT, types.float64, lambda builder, value: builder.fpext(value, _DOUBLE))
store_float = _store(_FLOAT, types.float64, lambda builder, value: builder.fptrunc(value, _FLOAT))


@intrinsic
def lowest_bit(typing_context: Any, value: Any) -> Any:
    """Return the index of the lowest bit that is set in a value that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes between ranges that do not overlap (memcpy)."""

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


@intrinsic
def crc_of_8(typing_context: Any, crc: Any, word: Any) -> Any:
    """Add eight bytes to a CRC-32C by the processor's instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long = ir.IntType(64)
        function = ir.FunctionType(long, [long, long])
        name = "llvm.x86.sse42.crc32.64.64"
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def crc_of_1(typing_context: Any, crc: Any, byte: Any) -> Any:
    """Add one byte to a CRC-32C by the processor's instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long, half, short = ir.IntType(64), ir.IntType(32), ir.IntType(8)
        function = ir.FunctionType(half, [half, short])
        instruction = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.sse42.crc32.32.8")
        crc, byte = arguments
        found = builder.call(instruction, [builder.trunc(crc, half), builder.trunc(byte, short)])
        return builder.zext(found, long)

    return types.int64(types.int64, types.int64), generate


def has_crc_instruction() -> bool:
    """Return whether the processor has the instruction; without it LLVM would end the process."""
    if config.CPU_NAME or config.CPU_FEATURES is not None:
        return False
    return bool(binding.get_host_cpu_features().get("sse4.2", False))
