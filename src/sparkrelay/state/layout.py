"""The encoding of a group's state: one field per running value, packed, little-endian, vectorised in both directions.

Version 1, without variable-length fields: version, validity bitmap (bit *i* of byte *i/8* is set if field *i* is
present), and the fields without padding. All rows have one width, so a batch is one reshape. Version 2: the same with a
4-byte length for each variable-length field, and their bytes at the end, in the order of fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.records.arrow_buffers import is_variable
from sparkrelay.state.byte_arrays import buffers, cut, from_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FIXED: Final = 1
_VARIABLE: Final = 2


def physical_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the numpy type that stores a fixed-width type, None for other types."""
    if pa.types.is_boolean(kind):
        return np.dtype("u1")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype()).newbyteorder("<")
        return dtype
    if pa.types.is_temporal(kind) and kind.bit_width in {32, 64}:
        return np.dtype(f"<i{kind.bit_width // 8}")
    if pa.types.is_decimal128(kind):
        return np.dtype("V16")  # as Arrow has them: two's complement, little-endian
    if pa.types.is_decimal256(kind):
        return np.dtype("V32")
    return None


@dataclass(slots=True)
class Field:
    """One field of many rows.

    Attributes:
        values: the stored numbers of a fixed-width field; arbitrary where it is absent.
        there: which rows have it.
        data: the bytes of a variable-length field, null where it is absent.
    """

    values: NDArray[Any]
    there: NDArray[np.bool_]
    data: pa.Array | None = None


class StateLayout:
    """Encodes and decodes the states of one set of fields."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._kinds = tuple(kinds)
        self._variable = [index for index, kind in enumerate(kinds) if is_variable(kind)]
        self._bitmap = (len(kinds) + 7) // 8
        fields: list[Any] = [("version", "u1"), ("there", "u1", (self._bitmap,))]
        for index, kind in enumerate(kinds):
            fields.append((f"f{index}", "<u4" if is_variable(kind) else physical_dtype(kind)))
        self._dtype = np.dtype(fields)
        self._names = [name for name, *_ in fields[2:]]
        self._version = _VARIABLE if self._variable else _FIXED

    def decode(self, values: pa.Array) -> list[Field]:
        """Return the fields of each value; a null value has none of them.

        Raises:
            StoreCorruptedException: a value does not have this layout.
        """
        count = len(values)
        present = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else np.ones(count, np.bool_)
        states = values.drop_null() if values.null_count else values
        offsets, data = buffers(states)
        packed = self._packed(offsets, data)
        if values.null_count:
            some, packed = packed, np.zeros(count, dtype=self._dtype)
            packed[present] = some
        there = np.unpackbits(packed["there"], axis=1, bitorder="little", count=len(self._kinds)).view(np.bool_)
        # Copies: a single row would be unaligned bytes of the store.
        fields = [Field(packed[name].copy(), there[:, index].copy()) for index, name in enumerate(self._names)]
        if self._variable:
            rows = np.cumsum(present) - 1
            lengths = [packed[f"f{index}"][present] for index in self._variable[:-1]]
            pieces = cut(offsets, data, [self._dtype.itemsize, *lengths])
            for place, index in enumerate(self._variable, 1):
                at = rows * (len(self._variable) + 1) + place
                # Arrow copies whole values; numpy would need the position of each byte.
                fields[index].data = pieces.take(pa.array(at, mask=~fields[index].there))
        return fields

    def encode(self, fields: Sequence[Field], count: int) -> pa.Array:
        """Return one value per row."""
        packed = np.zeros(count, dtype=self._dtype)
        packed["version"] = self._version
        there = np.zeros((count, len(self._kinds)), dtype=np.bool_)
        for index, field in enumerate(fields):
            there[:, index] = field.there
            if field.data is None:
                packed[f"f{index}"] = np.where(field.there, field.values, np.zeros((), field.values.dtype))
        packed["there"] = np.packbits(there, axis=1, bitorder="little")
        width = self._dtype.itemsize
        if not self._variable:
            return from_spans(np.arange(count + 1, dtype=np.int64) * width, packed.view(np.uint8))
        texts = [cast("pa.Array", fields[index].data) for index in self._variable]
        for index, text in zip(self._variable, texts, strict=True):
            packed[f"f{index}"] = np.diff(buffers(text)[0])
        numbers = from_spans(np.arange(count + 1, dtype=np.int64) * width, packed.view(np.uint8))
        return pc.binary_join_element_wise(
            numbers,
            *texts,
            pa.scalar(b"", pa.binary()),
            null_handling="replace",
            null_replacement="",
        )

    def _packed(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[Any]:
        width = self._dtype.itemsize
        lengths = offsets[1:] - offsets[:-1]
        if self._variable:
            if lengths.size and int(lengths.min()) < width:
                raise self._corrupted(f"one is {int(lengths.min())} bytes long, less than {width}")
            numbers = cut(offsets, data, [width]).take(pa.array(np.arange(0, 2 * len(lengths), 2)))
            packed = buffers(numbers)[1].view(self._dtype)
            expected = width + sum(packed[f"f{index}"].astype(np.int64) for index in self._variable)
        else:
            if (lengths != width).any():
                wrong = int(lengths[lengths != width][0])
                raise self._corrupted(f"one is {wrong} bytes long, not {width}")
            packed = data[int(offsets[0]) : int(offsets[-1])].view(self._dtype)
            expected = lengths
        if (packed["version"] != self._version).any():
            wrong = int(packed["version"][packed["version"] != self._version][0])
            raise self._corrupted(f"one has version {wrong}, not {self._version}")
        if (lengths != expected).any():
            raise self._corrupted("the lengths inside of one do not add up")
        return packed

    @staticmethod
    def _corrupted(what: str) -> StoreCorruptedException:
        return StoreCorruptedException(
            f"values of a store do not have the form of its aggregates: {what}. If the aggregates of the pipeline were "
            "changed, give the store another name, or start the application over: sparkrelay reset"
        )
