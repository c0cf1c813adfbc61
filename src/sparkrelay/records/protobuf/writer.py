"""Typed columns to Protobuf messages: :mod:`write_loop` writes ordinary columns, Google's library the others.

Nested messages and items of lists are written first, a whole column in one pass; the outer messages then copy their
bytes. Columns that :mod:`fitting` accepts but that need a conversion are left to the library. So are invalid values:
its errors say what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records._native import over_rows
from sparkrelay.records.arrow_buffers import (
    BinaryColumn,
    BinaryWriter,
    LoopMemory,
    decimal_words,
    flatten,
    numbers_of,
    offsets_of,
)
from sparkrelay.records.protobuf import write_loop as loop
from sparkrelay.records.protobuf.fitting import check_columns
from sparkrelay.records.protobuf.messages import columns_to_messages
from sparkrelay.records.protobuf.read_loop import FIRST, LAST
from sparkrelay.records.protobuf.schema import TIMESTAMP, WRAPPERS, descriptor_of, is_map

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZE: Final = 5

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def columns_to_protobuf(batch: pa.RecordBatch, text: str, name: str, prefix: bytes = b"") -> pa.Array:
    """Write one message a row; a null is a field that is absent.

    Args:
        batch: the columns, named as the message's fields.
        text: the schema.
        name: the message's.
        prefix: bytes before each message.

    Returns:
        A binary array (``large_binary`` above 2 GiB) without nulls.

    Raises:
        SerializationException: the columns, or a value, do not fit the message; names the column.
    """
    check_columns(batch.schema, text, name)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    try:
        fields = _Fields()
        fields.add_message(descriptor_of(text, name), columns)
    except _UncommonError:
        return columns_to_messages(batch, text, name, prefix)
    return fields.write(batch.num_rows, prefix).finish(batch.num_rows)


class _UncommonError(Exception):
    """Left to the library."""


class _Fields(LoopMemory):
    """The fields that the loop writes for each row."""

    def __init__(self) -> None:
        super().__init__()
        self._fields: list[tuple[int, list[int]]] = []
        self._capacity = 0

    def add_message(self, descriptor: Any, columns: Mapping[str, pa.Array]) -> None:
        """Add the fields of a message."""
        known = descriptor.fields_by_name
        if any(name not in known for name in columns) or any(field.is_required for field in descriptor.fields):
            raise _UncommonError
        for oneof in descriptor.oneofs:
            there = [np.array(columns[field.name].is_valid()) for field in oneof.fields if field.name in columns]
            # The library's error names the columns.
            if len(there) > 1 and (np.sum(there, axis=0) > 1).any():
                raise _UncommonError
        for name, array in columns.items():
            self._add_field(known[name], flatten(array))

    def write(self, rows: int, prefix: bytes = b"") -> BinaryWriter:
        """Write all rows."""
        writer = BinaryWriter(rows, self._capacity + rows * len(prefix))
        first = np.frombuffer(prefix or b"\0", np.uint8)
        table = np.array([row for _, row in sorted(self._fields)], np.int64).reshape(-1, loop.FIELD)
        arguments = (table, int(first.ctypes.data), len(prefix), writer.address, writer.offsets)
        over_rows(rows, loop.write_rows, *arguments)
        return writer

    def _add_field(self, field: Any, array: pa.Array) -> None:
        if is_map(field) or field.type == field.TYPE_GROUP:
            raise _UncommonError
        if not field.is_repeated:
            self.add_value(field, array, tag=True, implicit=not field.has_presence)
            return
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            raise _UncommonError
        items = array.flatten()
        if items.null_count:
            raise _UncommonError
        ends = offsets_of(np.array(pc.fill_null(pc.list_value_length(array), 0), np.int64))
        inner = _Fields()
        inner.add_value(field, items, tag=not field.is_packed, implicit=False)
        written = inner.write(len(items))
        self._owners.append(written)
        offsets = written.offsets[ends]
        op = loop.SIZED if field.is_packed else loop.BYTES
        self._add(field, op, array, offsets, written.address, tag=field.is_packed, implicit=True)

    def add_value(self, field: Any, array: pa.Array, *, tag: bool, implicit: bool) -> None:
        """Add a single value, or the items of a list."""
        if field.message_type is not None:
            self._inner(field, array, tag=tag)
        elif field.type in {field.TYPE_STRING, field.TYPE_BYTES}:
            wanted = pa.types.is_string if field.type == field.TYPE_STRING else pa.types.is_binary
            if not wanted(array.type):
                raise _UncommonError
            column = BinaryColumn.of(array)
            self._owners.append(column)
            self._add(field, loop.SIZED, array, column.offsets, column.address, tag=tag, implicit=implicit)
        else:
            op, numbers = _numbers(field, array)
            self._add(field, op, array, numbers, tag=tag, implicit=implicit)

    def _inner(self, field: Any, array: pa.Array, *, tag: bool) -> None:
        name = field.message_type.full_name
        if name == TIMESTAMP:
            if not pa.types.is_timestamp(array.type) or array.type.unit != "us" or array.type.tz is None:
                raise _UncommonError
            micros = numbers_of(array)
            if len(micros) and not FIRST <= int(micros.min()) <= int(micros.max()) <= LAST:
                raise _UncommonError
            self._add(field, loop.TIMESTAMP, array, micros, tag=tag, implicit=False)
            return
        inner = _Fields()
        if name in WRAPPERS:
            inner.add_message(field.message_type, {"value": array})
        elif pa.types.is_struct(array.type):
            names = [one.name for one in array.type.fields]
            inner.add_message(field.message_type, dict(zip(names, array.flatten(), strict=True)))
        else:
            raise _UncommonError
        written = inner.write(len(array))
        self._owners.append(written)
        self._add(field, loop.SIZED, array, written.offsets, written.address, tag=tag, implicit=False)

    def _add(
        self, field: Any, op: int, array: pa.Array, numbers: Numbers, data: int = 0, *, tag: bool, implicit: bool
    ) -> None:
        """Add numbers or, as the offsets of values, with the address of their bytes."""
        address = self.address(numbers)
        kept = op in {loop.SIZED, loop.BYTES}
        self._capacity += len(array) * (_SIZE + _SIZE if kept else loop.WIDEST)
        self._capacity += int(numbers[-1]) - int(numbers[0]) if kept else 0
        self._fields.append(
            (
                field.number,
                [
                    field.number << 3 | _WIRES[op] if tag else 0,
                    op,
                    self.validity(array),
                    data if kept else address,
                    address if kept else 0,
                    int(implicit),
                ],
            )
        )


_WIRES: Final = {
    loop.VARINT: 0, loop.ZIGZAG: 0, loop.WORD64: 1, loop.WORD32: 5, loop.TIMESTAMP: 2, loop.SIZED: 2, loop.BYTES: 2,
}  # fmt: skip


def _numbers(field: Any, array: pa.Array) -> tuple[int, Numbers]:
    """Return the instruction for numbers, and their bits."""
    kind = array.type
    if field.type in {field.TYPE_DOUBLE, field.TYPE_FLOAT}:
        if not pa.types.is_floating(kind):
            raise _UncommonError
        floats = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
        if field.type == field.TYPE_DOUBLE:
            return loop.WORD64, np.ascontiguousarray(floats, np.float64).view(np.int64)
        with np.errstate(over="ignore"):
            return loop.WORD32, np.ascontiguousarray(floats, np.float32).view(np.uint32).astype(np.int64)
    if field.type == field.TYPE_BOOL:
        if not pa.types.is_boolean(kind):
            raise _UncommonError
        return loop.VARINT, numbers_of(array)
    if field.enum_type is not None:
        return loop.VARINT, _enum_numbers(field.enum_type, array)
    if pa.types.is_decimal128(kind) and kind.scale == 0 and field.cpp_type == field.CPPTYPE_UINT64:
        return _INTEGERS[field.type][0], _low_words(array)
    if not pa.types.is_integer(kind) or kind == pa.uint64():
        raise _UncommonError
    numbers = numbers_of(array)
    op, least, most = _INTEGERS[field.type]
    if len(numbers) and not least <= int(numbers.min()) <= int(numbers.max()) <= most:
        raise _UncommonError
    return op, numbers


def _enum_numbers(enum: Any, array: pa.Array) -> Numbers:
    if not pa.types.is_string(array.type):
        raise _UncommonError
    words = list(enum.values_by_name)
    places = pc.index_in(array, pa.array(words, pa.string()))
    if places.null_count != array.null_count:
        raise _UncommonError
    numbers: Numbers = np.array([enum.values_by_name[word].number for word in words], np.int64)[numbers_of(places)]
    return numbers


def _low_words(array: pa.Array) -> Numbers:
    """Return the bits of unsigned decimals of 64 bits."""
    array = pc.fill_null(array, 0) if array.null_count else array
    words = decimal_words(array)
    if (words[1::2] != 0).any():
        raise _UncommonError
    return np.ascontiguousarray(words[::2])


#: By the type's number in descriptor.proto: the instruction, and the smallest and largest integer.
_INTEGERS: Final = {
    3: (loop.VARINT, -(1 << 63), (1 << 63) - 1), 4: (loop.VARINT, 0, (1 << 63) - 1),
    5: (loop.VARINT, -(1 << 31), (1 << 31) - 1), 6: (loop.WORD64, 0, (1 << 63) - 1),
    7: (loop.WORD32, 0, (1 << 32) - 1), 13: (loop.VARINT, 0, (1 << 32) - 1),
    15: (loop.WORD32, -(1 << 31), (1 << 31) - 1), 16: (loop.WORD64, -(1 << 63), (1 << 63) - 1),
    17: (loop.ZIGZAG, -(1 << 31), (1 << 31) - 1), 18: (loop.ZIGZAG, -(1 << 63), (1 << 63) - 1),
}  # fmt: skip
