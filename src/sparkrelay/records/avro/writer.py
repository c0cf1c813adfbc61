"""Columns to Avro values: :mod:`write_loop` follows a program made of the columns' types and a schema.

Columns are matched by name. Missing columns get the schema's defaults; columns that the schema lacks are rejected.
"""

# ruff: noqa: PLR0917 - a plan goes down types, columns and paths side by side

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records._native import over_rows
from sparkrelay.records.arrow_buffers import (
    NO_BYTES,
    BinaryColumn,
    BinaryWriter,
    LoopMemory,
    decimal_words,
    flatten,
    items_of,
    numbers_of,
)
from sparkrelay.records.avro import write_loop as loop
from sparkrelay.records.avro.defaults import default_bytes, varint
from sparkrelay.records.avro.program import decimal_bounds
from sparkrelay.records.avro.schema import (
    NULL,
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroUnion,
    Primitive,
    parse_schema,
    type_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkrelay.records.avro.schema import AvroType

_VARINT: Final = 10
_MAX_DEPTH: Final = 64
_REASONS: Final = {
    loop.IS_NULL: "is null, and the Avro schema has no null there",
    loop.NO_SYMBOL: "is not one of the symbols that the Avro schema has there",
    loop.WRONG_SIZE: "has another number of bytes than the fixed type of the Avro schema",
    loop.TOO_LARGE: "has more digits than the decimal of the Avro schema",
}


def columns_to_avro(
    batch: pa.RecordBatch, schema: str, *, left_out: pa.Array | None = None, prefix: bytes = b""
) -> pa.Array:
    """Write one record a row.

    Args:
        batch: the columns; the only one for a schema that is not a record.
        schema: JSON text.
        left_out: tombstones, whose values are left empty.
        prefix: bytes before each record.

    Returns:
        A binary array (``large_binary`` above 2 GiB) without nulls.

    Raises:
        SerializationException: the columns, or a value, do not fit the schema; names the column.
    """
    return _Plan(batch, parse_schema(schema), prefix).write(left_out)


class _UnlikeError(Exception):
    """A column does not fit the schema."""


class _Plan(LoopMemory):
    """The instructions for each row, and how large it can get."""

    def __init__(self, batch: pa.RecordBatch, schema: AvroType, prefix: bytes) -> None:
        super().__init__()
        self._rows = batch.num_rows
        self._code: list[list[int]] = []
        self._paths: list[str] = []
        self._columns: list[list[int]] = []
        self._counts = [batch.num_rows]
        self._capacity = 0
        if prefix:
            self._constant(prefix, 0, "")
        try:
            if isinstance(schema, AvroRecord):
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                self._record(schema, columns, 0, "")
            else:
                if batch.num_columns != 1:
                    raise _UnlikeError(
                        f"the Avro schema is {type_name(schema)}, one column, and the columns are "
                        f"{', '.join(batch.schema.names)}; select() one of them before, or give the schema of a record"
                    )
                self._value(schema, batch.column(0), 0, batch.schema.names[0], 0)
        except _UnlikeError as error:
            raise SerializationException(str(error)) from None
        self._add("", loop.END)

    def write(self, left_out: pa.Array | None) -> pa.Array:
        """Write all rows."""
        writer = BinaryWriter(self._rows, self._capacity)
        skipped = NO_BYTES if left_out is None else np.array(left_out.cast(pa.uint8()).fill_null(0), np.uint8)
        wrong, levels = np.zeros(2, np.int64), np.zeros((len(self._counts), 3), np.int64)
        code = np.array(self._code, np.int64).reshape(-1, loop.WIDTH)
        columns = np.array(self._columns, np.int64).reshape(-1, loop.COLUMN)
        over_rows(self._rows, loop.write_rows, code, columns, levels, skipped, writer.address, writer.offsets, wrong)
        if wrong[0] != loop.FINE:
            raise SerializationException(
                f"column {self._paths[int(wrong[1])]!r} of a row {_REASONS[int(wrong[0])]}; leave such rows out, or "
                "give them another value, before this step"
            )
        return writer.finish(self._rows)

    def _add(self, path: str, op: int, column: int = -1, a: int = 0, b: int = 0) -> int:
        self._code.append([op, column, a, b, 0])
        self._paths.append(path)
        return len(self._code) - 1

    def _constant(self, data: bytes, level: int, path: str) -> None:
        if data:
            self._capacity += self._counts[level] * len(data)
            self._add(path, loop.CONSTANT, -1, self.address(data), len(data))

    def _column(self, array: pa.Array, level: int, data: int = 0, offsets: int = 0) -> int:
        """Add a column of the loop, by the addresses of its data and offsets; returns its number."""
        self._columns.append([level, self.validity(array), data, offsets])
        return len(self._columns) - 1

    def _record(self, schema: AvroRecord, columns: dict[str, pa.Array], level: int, path: str, depth: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise SerializationException(f"the Avro schema nests records deeper than {_MAX_DEPTH} levels at {path!r}")
        for name in columns:
            if all(one.name != name for one in schema.fields):
                shown = ", ".join(one.name for one in schema.fields)
                raise _UnlikeError(
                    f"the Avro schema has no field {f'{path}.{name}' if path else name!r}, but {shown}; drop() it "
                    "before, or give a schema that has it"
                )
        for one in schema.fields:
            where = f"{path}.{one.name}" if path else one.name
            if one.name in columns:
                self._value(one.type, columns[one.name], level, where, depth)
            elif one.has_default:
                self._constant(default_bytes(one.type, one.default, where), level, where)
            else:
                raise _UnlikeError(
                    f"the Avro schema has the field {where!r} without a default, and there is no such column"
                )

    def _value(self, kind: AvroType, array: pa.Array, level: int, path: str, depth: int) -> None:
        array = flatten(array)
        if not isinstance(kind, AvroUnion):
            self._plain(kind, array, level, path, depth, None)
            return
        none = kind.branches.index(NULL) if NULL in kind.branches else None
        for number, branch in enumerate(kind.branches):
            state = len(self._code), len(self._columns), len(self._counts), self._capacity
            if branch == NULL:
                continue
            try:
                self._plain(branch, array, level, path, depth, (none, number))
            except _UnlikeError:
                del self._code[state[0] :], self._paths[state[0] :], self._columns[state[1] :], self._counts[state[2] :]
                self._capacity = state[3]
                if number == len(kind.branches) - 1 or kind.branches[number + 1 :] == (NULL,):
                    raise
            else:
                return
        raise _UnlikeError(f"column {path!r} is always null in the Avro schema; drop() it before")

    def _plain(
        self, kind: AvroType, array: pa.Array, level: int, path: str, depth: int, branch: tuple[int | None, int] | None
    ) -> None:
        """Write a value, after the number of its branch if it is in a union."""
        column, write = self._reading(kind, array, level, path, depth)
        self._capacity += self._counts[level] * _VARINT
        if branch is None or branch[0] is None:
            self._add(path, loop.REQUIRED, column)
            if branch is not None:
                self._constant(varint(branch[1]), level, path)
            write()
            return
        at = self._add(path, loop.NULLABLE, column, branch[0], branch[1])
        write()
        self._code[at][4] = len(self._code)

    def _reading(
        self, kind: AvroType, array: pa.Array, level: int, path: str, depth: int
    ) -> tuple[int, Callable[[], object]]:
        """Return the column of an array, and the function that adds the instructions to write it."""
        given, rows = array.type, self._counts[level]
        match kind:
            case AvroRecord() if pa.types.is_struct(given):
                column = self._column(array, level)
                inner = {given.field(i).name: array.field(i) for i in range(given.num_fields)}
                return column, lambda: self._record(kind, inner, level, path, depth + 1)
            case AvroArray() if pa.types.is_list(given) or pa.types.is_large_list(given):
                return self._list(array, level, path, [(kind.items, "[]")], depth)
            case AvroMap() if pa.types.is_map(given) and pa.types.is_string(given.key_type):
                return self._list(array, level, path, [(Primitive("string"), "{}"), (kind.values, "{}")], depth)
            case Primitive(logical="decimal") | AvroFixed(logical="decimal"):
                if not pa.types.is_decimal128(given) or given.scale != kind.scale:
                    raise _unlike(kind, given, path)
                size = kind.size if isinstance(kind, AvroFixed) else -1
                column = self._column(array, level, self.address(decimal_words(array)))
                self._capacity += rows * max(_VARINT + 16, size)
                bounds = self.address(decimal_bounds(kind.precision))
                return column, lambda: self._add(path, loop.DECIMAL, column, size, bounds)
            case AvroEnum() if pa.types.is_string(given):
                found = pc.index_in(array, pa.array(kind.symbols, pa.string()))
                numbers = np.array(found.fill_null(-1).cast(pa.int64()), np.int64)
                column = self._column(array, level, self.address(numbers))
                self._capacity += rows * _VARINT
                return column, lambda: self._add(path, loop.SYMBOL, column)
            case AvroFixed(logical=None) if pa.types.is_binary(given):
                return self._bytes(array, level, path, loop.FIXED, kind.size)
            case Primitive("bytes") if pa.types.is_binary(given) or pa.types.is_large_binary(given):
                return self._bytes(array, level, path, loop.BYTES)
            case Primitive("string") if pa.types.is_string(given) or pa.types.is_large_string(given):
                return self._bytes(array, level, path, loop.BYTES)
            case Primitive():
                for op, fits, argument, convert in _NUMBERS[kind.logical or kind.kind]:
                    if fits(given):
                        column = self._column(array, level, self.address(convert(array)))
                        self._capacity += rows * _VARINT
                        return column, lambda: self._add(path, op, column, argument)  # noqa: B023 - returned at once
        raise _unlike(kind, given, path)

    def _bytes(
        self, array: pa.Array, level: int, path: str, op: int, size: int = 0
    ) -> tuple[int, Callable[[], object]]:
        data = BinaryColumn.of(array)
        column = self._column(array, level, *self.binary(data))
        self._capacity += int(data.offsets[-1] - data.offsets[0]) + self._counts[level] * _VARINT
        return column, lambda: self._add(path, op, column, size)

    def _list(
        self, array: pa.Array, level: int, path: str, parts: Sequence[tuple[AvroType, str]], depth: int
    ) -> tuple[int, Callable[[], object]]:
        offsets, inside = items_of(array)
        column = self._column(array, level, offsets=self.address(offsets))
        self._capacity += self._counts[level] * (_VARINT + 1)
        items = len(self._counts)
        self._counts.append(int(offsets[-1]))

        def write() -> None:
            start = self._add(path, loop.LIST, column, items)
            for (kind, sign), values in zip(parts, inside, strict=True):
                self._value(kind, values, items, f"{path}{sign}", depth + 1)
            end = self._add(path, loop.LIST_END, -1, items)
            self._code[start][3] = self._code[end][3] = len(self._code)

        return column, write


def _unlike(kind: AvroType, given: pa.DataType, path: str) -> _UnlikeError:
    logical = getattr(kind, "logical", None)
    wanted = type_name(kind) if logical is None else f"{type_name(kind)} ({logical})"
    return _UnlikeError(
        f"column {path!r} is {given}, and the Avro schema has {wanted} there; cast() the column before, or "
        "change the schema"
    )


def _doubles(array: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(array.cast(pa.float64()).fill_null(0.0), np.float64)


def _is_int(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) and kind.bit_width <= 32)


def _zoned(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _local(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is None


#: Avro's type, or logical type -> instruction, the columns it takes, its argument, the columns' numbers.
_NUMBERS: Final[dict[str, Sequence[tuple[int, Callable[[pa.DataType], bool], int, Callable[[pa.Array], Any]]]]] = {
    "boolean": [(loop.BOOL, pa.types.is_boolean, 0, numbers_of)],
    "int": [(loop.INT, _is_int, 1, numbers_of)],
    "long": [(loop.INT, pa.types.is_signed_integer, 1, numbers_of)],
    "float": [(loop.FLOAT, pa.types.is_float32, 0, _doubles)],
    "double": [(loop.DOUBLE, pa.types.is_floating, 0, _doubles)],
    "date": [(loop.INT, pa.types.is_date32, 1, numbers_of)],
    "timestamp-millis": [(loop.INT, _zoned, 1000, numbers_of)],
    "timestamp-micros": [(loop.INT, _zoned, 1, numbers_of)],
    "local-timestamp-millis": [(loop.INT, _local, 1000, numbers_of)],
    "local-timestamp-micros": [(loop.INT, _local, 1, numbers_of)],
    "null": [], "bytes": [], "string": [], "uuid": [],
}  # fmt: skip
