"""The register of a HyperLogLog sketch for each value, and its rank (Flajolet et al., 2007)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparkrelay.records._native import inline, kernel, load8
from sparkrelay.records.arrow_buffers import BinaryColumn

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_BITS = 64
# FNV-1a of 64 bits and the last steps of MurmurHash3, as signed numbers, which wrap.
_START = 0xCBF29CE484222325 - (1 << 64)
_PRIME = 0x100000001B3
_MIX_1 = 0xFF51AFD7ED558CCD - (1 << 64)
_MIX_2 = 0xC4CEB9FE1A85EC53 - (1 << 64)
_LOW_31 = 0x7FFFFFFF


def registers_of(values: pa.Array, bits: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the register of each value, one of ``2 ** bits``, and the place of the hash's next set bit, from 1 on.

    Values are bytes, none null. Sketches are stored: the hash must never change.
    """
    column = BinaryColumn.of(values)
    registers, ranks = np.empty(len(values), np.int64), np.empty(len(values), np.uint8)
    _registers(column.address, column.offsets, bits, registers, ranks)
    return registers, ranks


@inline
def _hash(address: int, size: int) -> int:
    value = _START
    for position in range(address, address + size):
        value = (value ^ load8(position)) * _PRIME
    value ^= (value >> 33) & _LOW_31
    value *= _MIX_1
    value ^= (value >> 33) & _LOW_31
    value *= _MIX_2
    return value ^ ((value >> 33) & _LOW_31)


@kernel("void(int64, int64[::1], int64, int64[::1], uint8[::1])")
def _registers(address: int, offsets: Any, bits: int, registers: Any, ranks: Any) -> None:
    for row in range(len(registers)):
        value = _hash(address + offsets[row], offsets[row + 1] - offsets[row])
        registers[row] = (value >> (_BITS - bits)) & ((1 << bits) - 1)
        bit = _BITS - bits - 1
        while bit >= 0 and (value >> bit) & 1 == 0:
            bit -= 1
        ranks[row] = _BITS - bits - bit
