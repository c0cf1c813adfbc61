"""Avro values to typed columns: :mod:`read_loop` follows the program of :mod:`program`, and Arrow arrays come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import BinaryColumn, flatten, validity_bitmap
from sparkrelay.records.avro import read_loop as loop
from sparkrelay.records.avro.arrow_types import arrow_schema_of, arrow_type
from sparkrelay.records.avro.program import make_program
from sparkrelay.records.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    Primitive,
    parse_schema,
)
from sparkrelay.records.bad_record import BadRecord

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkrelay.records.avro.program import Node

__all__ = ["AvroReader"]

_REASONS: Final = {
    loop.ENDS: "the value ends in it",
    loop.NO_NUMBER: "there is no whole number, or the value ends in it",
    loop.TOO_LARGE: "the number is larger than its type",
    loop.NO_TEXT: "the text is not UTF-8",
    loop.NO_BOOLEAN: "a boolean is neither 0 nor 1",
    loop.NO_BRANCH: "the union has no such branch",
    loop.NO_SYMBOL: "the enum has no such symbol, or the reader's schema has not and has no default",
    loop.TOO_LONG: "it is longer than what is left of the value",
    loop.TOO_MANY: "it has more items than what is left of the value can hold",
    loop.UNWANTED_BRANCH: "it is of a branch that the reader's schema does not take",
}


@dataclass(slots=True)
class _Buffers:
    """What the loop fills for one column."""

    valid: np.ndarray[Any, np.dtype[np.uint8]]
    data: np.ndarray[Any, np.dtype[np.int64]] | None
    lengths: np.ndarray[Any, np.dtype[np.int64]] | None

    def cut(self, count: int) -> None:
        """Forget what damaged records left behind the last item."""
        self.valid = self.valid[:count]
        if self.lengths is not None:
            self.lengths = self.lengths[:count]


class AvroReader:
    """Reads records of one writer's schema to columns of a reader's."""

    def __init__(self, reader: str, writer: str | None, place: str, wanted: Collection[str] | None = None) -> None:
        """Take the schemas.

        Args:
            reader: JSON text of the schema whose fields are the columns.
            writer: of the one by which the values were written; None: the same.
            place: ``key`` or ``value``, the column of a schema that is no record.
            wanted: the columns that are read; None: all.

        Raises:
            SerializationException: a schema is wrong, or they do not go together.
        """
        own = parse_schema(reader)
        schema = arrow_schema_of(own, place)
        kept = [one for one in schema if wanted is None or one.name in wanted]
        self.schema = pa.schema(kept)
        written = own if writer is None else parse_schema(writer)
        self._program = make_program(written, own, place, set(self.schema.names))
        self._code = self._program.code

    def read(self, values: pa.Array, prefix: int = 0) -> tuple[pa.RecordBatch, list[BadRecord]]:
        """Read one record a row.

        Args:
            values: bytes; null (a tombstone) gives a row of nulls and is not bad.
            prefix: how many bytes of each are in front of the record.

        Returns:
            A batch of ``schema`` with one row a value, and the bad records in order, whose rows are all null.
        """
        values = flatten(values)
        try:
            column = BinaryColumn.of(values)
        except TypeError as error:
            raise SerializationException(f"Avro is read from bytes: {error}") from error
        program, rows = self._program, len(values)
        room = np.zeros(program.levels, np.int64)
        if program.levels > 1:
            nothing = [_Buffers(np.empty(0, np.uint8), None, None)] * len(program.columns)
            _, _, room = self._run(column, prefix, rows, nothing)
        room[0] = rows
        buffers = [_buffers(node, int(room[node.level])) for node in program.columns]
        errors, sizes, _ = self._run(column, prefix, rows, buffers, write=True)
        for node, own in zip(program.columns, buffers, strict=True):
            own.cut(int(sizes[node.level]))
        arrays = [_array(program.roots[one.name], one.type, buffers, sizes) for one in self.schema]
        batch = (
            pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            if arrays
            else pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
        )
        bad = [
            BadRecord(row, self._reason(values[row].as_py(), *errors[row].tolist(), prefix=prefix))
            for row in np.flatnonzero(errors[:, 0]).tolist()
        ]
        return batch, bad

    def _run(
        self,
        column: BinaryColumn,
        prefix: int,
        rows: int,
        buffers: list[_Buffers],
        *,
        write: bool = False,
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
        """Return what is wrong with the rows, how many items each level has, and for how many there must be room."""
        program = self._program
        table = np.array(
            [
                [node.level, *(0 if one is None else one.ctypes.data for one in (own.valid, own.data, own.lengths))]
                for node, own in zip(program.columns, buffers, strict=True)
            ],
            np.int64,
        ).reshape(-1, loop.COLUMN)
        sizes, marks, room = np.zeros((3, program.levels), np.int64)
        errors = np.zeros((rows, 2), np.int64)
        stack = np.zeros((program.depth, loop.FRAME), np.int64)
        loop.read_rows(
            column.address, column.offsets, column.valid, prefix, self._code, table, sizes, marks, room, stack, errors,
            write,
        )  # fmt: skip
        sizes[0] = rows
        return errors, sizes, room

    def _reason(self, value: bytes, code: int, at: int, *, prefix: int) -> str:
        shown = value[prefix : prefix + 40]
        if code == loop.GOES_ON:
            return f"there are bytes behind its last field: {shown!r}; was it written by another Avro schema?"
        path = self._program.path(at)
        where = f"field {path!r}: " if path else ""
        return f"{where}{_REASONS[code]}: {shown!r}; was it written by another Avro schema?"


def _buffers(node: Node, count: int) -> _Buffers:
    valid = np.zeros(count, np.uint8)
    match node.kind:
        case AvroRecord():
            return _Buffers(valid, None, None)
        case AvroArray() | AvroMap():
            return _Buffers(valid, None, np.zeros(count, np.int64))
        case Primitive(logical="decimal") | AvroFixed(logical="decimal"):
            return _Buffers(valid, np.zeros(2 * count, np.int64), None)
        case Primitive("bytes" | "string") | AvroFixed() | AvroEnum():
            return _Buffers(valid, np.zeros(count, np.int64), np.zeros(count, np.int64))
        case _:
            return _Buffers(valid, np.zeros(count, np.int64), None)


def _array(
    node: Node, kind: pa.DataType, buffers: list[_Buffers], sizes: np.ndarray[Any, np.dtype[np.int64]]
) -> pa.Array:
    """Return the Arrow array of a column."""
    own, count = buffers[node.column], int(sizes[node.level])
    validity = validity_bitmap(own.valid)
    if pa.types.is_struct(kind):
        inner = [_array(one, kind.field(i).type, buffers, sizes) for i, one in enumerate(node.inner)]
        return pa.Array.from_buffers(kind, count, [validity], children=inner)
    if own.lengths is not None:
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(own.lengths, out=offsets[1:])
        if own.data is None:
            return _lists(node, kind, buffers, sizes, validity, offsets)
        return _texts(node, kind, own, validity, offsets)
    assert own.data is not None
    if pa.types.is_boolean(kind):
        data: np.ndarray[Any, Any] = np.packbits(own.data.astype(bool), bitorder="little")
    elif pa.types.is_floating(kind):
        data = own.data.view(np.float64)
        if pa.types.is_float32(kind):
            with np.errstate(over="ignore"):
                data = data.astype(np.float32)
    else:
        data = own.data.astype(np.int32) if kind.bit_width == 32 else own.data
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(data)])


def _lists(  # noqa: PLR0917 - the parts of an Arrow array
    node: Node,
    kind: pa.DataType,
    buffers: list[_Buffers],
    sizes: np.ndarray[Any, np.dtype[np.int64]],
    validity: pa.Buffer | None,
    offsets: np.ndarray[Any, np.dtype[np.int64]],
) -> pa.Array:
    places = pa.py_buffer(offsets.astype(np.int32))
    if pa.types.is_map(kind):
        names, items = (_array(one, arrow_type(one.kind, ""), buffers, sizes) for one in node.inner)
        entries = pa.StructArray.from_arrays(
            [names, items.cast(kind.item_type)], fields=[kind.key_field, kind.item_field]
        )
        return pa.Array.from_buffers(kind, len(offsets) - 1, [validity, places], children=[entries])
    items = _array(node.inner[0], kind.value_type, buffers, sizes)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [validity, places], children=[items])


def _texts(
    node: Node,
    kind: pa.DataType,
    own: _Buffers,
    validity: pa.Buffer | None,
    offsets: np.ndarray[Any, np.dtype[np.int64]],
) -> pa.Array:
    size = int(offsets[-1])
    data = pa.allocate_buffer(size)
    loop.copy_texts(own.data, own.lengths, data.address)
    if isinstance(node.kind, AvroFixed) and node.kind.logical == "uuid":
        return _uuids(data, len(offsets) - 1, validity, own.valid)
    large = size >= 1 << 31
    wide = pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
    places = pa.py_buffer(offsets if large else offsets.astype(np.int32))
    return pa.Array.from_buffers(wide if large else kind, len(offsets) - 1, [validity, places, data]).cast(kind)


def _uuids(
    data: pa.Buffer, count: int, validity: pa.Buffer | None, valid: np.ndarray[Any, np.dtype[np.uint8]]
) -> pa.Array:
    """Write 16 bytes as text, 00112233-4455-6677-8899-aabbccddeeff."""
    digits = np.frombuffer(bytes(data).hex().encode(), np.uint8).reshape(-1, 32)
    text = np.full((len(digits), 36), ord("-"), np.uint8)
    for start, stop, shift in ((0, 8, 0), (8, 12, 1), (12, 16, 2), (16, 20, 3), (20, 32, 4)):
        text[:, start + shift : stop + shift] = digits[:, start:stop]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(valid.astype(np.int32) * 36, out=offsets[1:])
    return pa.Array.from_buffers(pa.string(), count, [validity, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())])
