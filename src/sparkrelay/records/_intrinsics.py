"""Raw memory access and CRC-32C for compiled loops, as LLVM instructions. Loads numba: get them from ``_native``.

Refused: NumPy's views of addresses, which take a hundred times as long in a loop that reads a byte here and there.
"""

# ruff: noqa: ARG001 - numba calls intrinsics with a fixed list of arguments

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

__all__ = [
    "copy",
    "crc_of_1",
    "crc_of_8",
    "has_crc_instruction",
    "load8",
    "load64",
    "load_double",
    "load_float",
    "lowest_bit",
    "store8",
    "store64",
    "store_double",
    "store_float",
    "strtod",
]

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


@intrinsic
def crc_of_8(typing_context: Any, crc: Any, word: Any) -> Any:
    """Take eight bytes by the processor's instruction for CRC-32C."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long = ir.IntType(64)
        function = ir.FunctionType(long, [long, long])
        name = "llvm.x86.sse42.crc32.64.64"
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def crc_of_1(typing_context: Any, crc: Any, byte: Any) -> Any:
    """Take one byte by the processor's instruction for CRC-32C."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long, half, short = ir.IntType(64), ir.IntType(32), ir.IntType(8)
        function = ir.FunctionType(half, [half, short])
        instruction = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.sse42.crc32.32.8")
        crc, byte = arguments
        found = builder.call(instruction, [builder.trunc(crc, half), builder.trunc(byte, short)])
        return builder.zext(found, long)

    return types.int64(types.int64, types.int64), generate


def has_crc_instruction() -> bool:
    """Return whether loops are compiled for a processor that has the instruction; LLVM ends the process if not."""
    if config.CPU_NAME or config.CPU_FEATURES is not None:
        return False
    return bool(binding.get_host_cpu_features().get("sse4.2", False))
