"""What Kafka's serializers of numbers, booleans and UUIDs write, and back: big endian, one byte, text.

Strings, bytes, ints and longs are in :mod:`keys`: their bytes are those of keys made of one column, too. These here
are not: such keys have bytes that sort.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import BinaryColumn, flatten, validity_bitmap, validity_bytes
from sparkrelay.records.bad_record import BadRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FIXED_WIDTHS", "misfits_as_uuids", "read_fixed", "write_fixed", "write_uuids"]

#: Type -> how NumPy calls its bytes.
FIXED_WIDTHS: Final[Mapping[pa.DataType, str]] = {
    pa.int16(): ">i2",
    pa.float32(): ">f4",
    pa.float64(): ">f8",
    pa.bool_(): ">u1",
}
_UUID: Final = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


def read_fixed(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[BadRecord]]:
    """Read numbers or booleans.

    Args:
        values: bytes; null stays null.
        kind: one of ``FIXED_WIDTHS``.

    Returns:
        The column, and the bad records in order, which are null in it.
    """
    values = flatten(values)
    column, code = BinaryColumn.of(values), np.dtype(FIXED_WIDTHS[kind])
    sizes = np.diff(column.offsets)
    there = column.valid.astype(bool) if len(column.valid) else np.ones(len(values), bool)
    good = there & (sizes == code.itemsize)
    data = np.zeros((len(values), code.itemsize), np.uint8)
    if good.any():
        every = np.frombuffer(values.buffers()[2], np.uint8)
        data[good] = every[column.offsets[:-1][good][:, None] + np.arange(code.itemsize)]
    if pa.types.is_boolean(kind):
        good &= data[:, 0] < 2
    numbers: np.ndarray[Any, Any] = np.ascontiguousarray(data).view(code)[:, 0].astype(code.newbyteorder("="))
    if pa.types.is_boolean(kind):
        numbers = np.packbits(numbers.astype(bool), bitorder="little")
    bad = [
        BadRecord(int(row), _why(values[int(row)].as_py(), kind, code.itemsize))
        for row in np.flatnonzero(there & ~good)
    ]
    validity = validity_bitmap(good.view(np.uint8))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(numbers)]), bad


def write_fixed(array: pa.Array) -> pa.Array:
    """Write numbers or booleans; null stays null."""
    array = flatten(array)
    code = np.dtype(FIXED_WIDTHS[array.type])
    plain = array.cast(pa.uint8()) if pa.types.is_boolean(array.type) else array
    data = np.asarray(plain.fill_null(0)).astype(code)
    offsets = (np.arange(len(array) + 1) * code.itemsize).astype(np.int64)
    validity = validity_bitmap(validity_bytes(array)) if array.null_count else None
    large = pa.Array.from_buffers(
        pa.large_binary(), len(array), [validity, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    )
    return large.cast(pa.binary())


def misfits_as_uuids(texts: pa.Array) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the rows whose text is no UUID; nulls never are."""
    fits = pc.fill_null(pc.match_substring_regex(texts, _UUID), True)
    return np.flatnonzero(~fits.to_numpy(zero_copy_only=False))


def write_uuids(texts: pa.Array) -> pa.Array:
    """Write UUIDs, which are texts on both sides.

    Raises:
        SerializationException: a text is none.
    """
    texts = flatten(texts)
    wrong = misfits_as_uuids(texts)
    if len(wrong):
        raise SerializationException(f"{texts[int(wrong[0])].as_py()!r} is no UUID")
    return texts.cast(pa.binary())


def _why(value: bytes, kind: pa.DataType, width: int) -> str:
    if len(value) == width:
        return f"is {value!r}; a boolean is written as a byte 0 or 1"
    return f"has {len(value)} bytes: {value[:40]!r}; {kind} is written as {width}, big endian"
