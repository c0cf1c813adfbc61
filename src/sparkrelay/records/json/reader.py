"""JSON values to typed columns, in Arrow, before Spark sees them; ``json.writer`` has the way back.

Three readers, each slower and knowing more than the one before it. Flat schemas are read by a compiled loop
(``json.flat``), which declines the rows that it is not sure of. Those, and all rows of nested schemas, go to one call
of ``pyarrow.json``; ``json.scan`` makes sure that rows cannot shift. Where that call refuses, the rows are halved until
only small groups fail, and those are read one by one (``json.values``) by the rules below, which accept more and can
say what is wrong. So one bad record costs a few parses, not the batch.

What is read, after Spark's ``from_json``: extra fields are ignored, missing ones and ``null`` are null, the last of
equal names counts, a string column takes any JSON as its text, a float column takes "NaN" and "Infinity". Decimals are
rounded half up. Timestamps are ISO-8601 text (no zone: UTC) or whole seconds since 1970, dates ISO text or days since
1970, binary is base64. Unlike Spark, a field of a wrong type is a bad record, not a silent null. Maps are read record
by record, which is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import BinaryColumn, flatten
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.formats import Boolean, Double, Float, Integer, Long, OneColumn, Raw, Short, String, Uuid
from sparkrelay.records.json.cells import too_wide_rows
from sparkrelay.records.json.columns import finish_column, parsed_type
from sparkrelay.records.json.flat import is_flat, read_flat
from sparkrelay.records.json.scan import join_objects
from sparkrelay.records.json.values import Misfit, row_from_json
from sparkrelay.records.json.writer import columns_to_json
from sparkrelay.records.keys import is_text, key_columns, plain_misfit, plain_misfits
from sparkrelay.records.plain import FIXED_WIDTHS, misfits_as_uuids, read_fixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PLAIN_TYPES", "BadRecord", "columns_to_json", "json_to_columns", "plain_to_column"]

#: Formats of one column -> the type that it has.
PLAIN_TYPES: Final[Mapping[type[OneColumn], pa.DataType]] = {
    Raw: pa.binary(),
    String: pa.string(),
    Integer: pa.int32(),
    Long: pa.int64(),
    Short: pa.int16(),
    Float: pa.float32(),
    Double: pa.float64(),
    Boolean: pa.bool_(),
    Uuid: pa.string(),
}

_BLOCK: Final = 1 << 20
_SMALL_GROUP: Final = 32
_NO_COLUMN: Final = "\0"


def json_to_columns(values: pa.Array, schema: pa.Schema) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read one JSON object a row.

    Args:
        values: bytes or strings; null (a tombstone) gives a row of nulls and is not bad.
        schema: the wanted fields.

    Returns:
        A batch of this schema with one row a value, and the bad records in order, whose rows are all null.

    Raises:
        SerializationException: the schema has a type that JSON cannot be read to, or a field twice.
    """
    values = flatten(values)
    parsed = _parsed_schema(schema)
    try:
        column = BinaryColumn.of(values)
    except TypeError as error:
        raise SerializationException(f"JSON is read from bytes: {error}") from error
    if not len(values):
        # A driver asks whether a schema can be read: without values, so that it needs no loop.
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema), []
    if not is_flat(schema):
        if wide := too_wide_rows(values, column, schema):
            values = _without(values, [one.index for one in wide])
        batch, bad = _read_any(values, schema, parsed)
        return batch, sorted(bad + wide, key=lambda one: one.index)
    columns, declined = read_flat(column, len(values), schema)
    if not len(declined):
        return pa.RecordBatch.from_arrays(columns, schema=schema), []
    rest, bad = _read_any(values.take(pa.array(declined)), schema, parsed)
    place = np.arange(len(values))
    place[declined] = len(values) + np.arange(len(declined))
    arrays = [pa.concat_arrays([column, rest.column(i)]).take(pa.array(place)) for i, column in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), [
        BadRecord(int(declined[one.index]), one.reason) for one in bad
    ]


def plain_to_column(values: pa.Array, form: type[OneColumn]) -> tuple[pa.Array, list[BadRecord]]:
    """Read what Kafka's own serialisers write.

    Args:
        values: keys or values of records; null stays null.
        form: one of ``PLAIN_TYPES``.

    Returns:
        The column, and the bad records in order, which are null in it.
    """
    values, kind = flatten(values), PLAIN_TYPES[form]
    if kind in FIXED_WIDTHS:
        return read_fixed(values, kind)
    wrong = plain_misfits(values, kind)
    bad = [BadRecord(int(row), plain_misfit(values[int(row)].as_py(), kind)) for row in wrong]
    if bad:
        values = _without(values, wrong)
    column = key_columns(values, pa.schema([("plain", kind)]))[0]
    if form is Uuid and len(unlike := misfits_as_uuids(column)):
        bad += [BadRecord(int(row), f"is {column[int(row)].as_py()[:60]!r}, which is no UUID") for row in unlike]
        column = _without(column, unlike)
        bad.sort(key=lambda one: one.index)
    return column, bad


def _without(column: pa.Array, rows: list[int] | np.ndarray[Any, Any]) -> pa.Array:
    """Return a column with nulls in some rows."""
    place = np.arange(len(column))
    return column.take(pa.array(place, mask=np.isin(place, rows)))


def _read_any(values: pa.Array, schema: pa.Schema, parsed: pa.Schema | None) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read objects of any schema with Arrow's parser, and what it refuses one by one."""
    joined = _Joined(values)
    pieces: list[tuple[int, pa.Table]] = []
    slow: set[int] = set(np.flatnonzero(joined.suspect).tolist())
    if parsed is None:
        slow.update(row for row in range(len(values)) if values[row].is_valid)
    else:
        for low, high in _parse(joined, parsed, 0, len(values), pieces):
            slow.update(range(low, high))
    columns, unreadable = _finish(pieces, schema)
    slow |= unreadable
    if not slow and len(pieces) == 1:
        return pa.RecordBatch.from_arrays(columns, schema=schema), []
    return _patched(values, schema, pieces, columns, sorted(slow))


class _Joined:
    """All values, one a line, and where each starts."""

    def __init__(self, values: pa.Array) -> None:
        column, rows = BinaryColumn.of(values), len(values)
        self.starts, self.suspect = np.zeros(rows + 1, np.int64), np.zeros(rows, np.uint8)
        size = int(column.offsets[-1] - column.offsets[0]) + 3 * rows
        self._buffer = pa.allocate_buffer(size)
        arguments = (column.address, column.offsets, column.valid, self._buffer.address, self.starts, self.suspect)
        if join_objects(*arguments) and not self._is_utf8():
            # The parser would let such bytes through; take the rows out and join again.
            invalid = [row for row in range(rows) if not is_text(values[row].as_py())]
            values = pa.array(
                [None if row in set(invalid) else values[row].as_py() for row in range(rows)], pa.binary()
            )
            column = BinaryColumn.of(values)
            join_objects(column.address, column.offsets, column.valid, self._buffer.address, self.starts, self.suspect)
            self.suspect[invalid] = 1

    def _is_utf8(self) -> bool:
        size = int(self.starts[-1])
        text = pa.Array.from_buffers(
            pa.large_string(), 1, [None, pa.py_buffer(np.array([0, size], np.int64)), self._buffer]
        )
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    def lines(self, low: int, high: int) -> tuple[pa.Buffer, int]:
        """Return the bytes of some rows, and a block size that holds the longest of them."""
        start, stop = int(self.starts[low]), int(self.starts[high])
        longest = int(np.diff(self.starts[low : high + 1]).max())
        return self._buffer.slice(start, stop - start), min(max(_BLOCK, 2 * longest + 64), (1 << 31) - 1)


def _parsed_schema(schema: pa.Schema) -> pa.Schema | None:
    """Return the types that the parser is to produce; None if it cannot produce one of them."""
    names = schema.names
    if len(set(names)) != len(names):
        raise SerializationException(f"a JSON schema names a field twice: {sorted(names)}")
    kinds = [parsed_type(field.type, field.name) for field in schema]
    if any(kind is None for kind in kinds):
        return None
    # Without any column the parser would not look at the objects at all.
    return pa.schema(list(zip(names, kinds, strict=True)) or [(_NO_COLUMN, pa.string())])


def _parse(
    joined: _Joined, parsed: pa.Schema, first: int, last: int, pieces: list[tuple[int, pa.Table]]
) -> Iterator[tuple[int, int]]:
    """Parse rows into ``pieces``, in order; yields the ranges that the parser refuses."""
    waiting = [(first, last)]
    while waiting:
        low, high = waiting.pop()
        if low == high:
            continue
        data, block = joined.lines(low, high)
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=block),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=parsed, newlines_in_values=False, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid:
            table = None
        if table is not None and table.num_rows == high - low:
            pieces.append((low, table))
        elif high - low <= _SMALL_GROUP:
            yield low, high
        else:
            middle = (low + high) // 2
            waiting += ((middle, high), (low, middle))


def _finish(pieces: list[tuple[int, pa.Table]], schema: pa.Schema) -> tuple[list[pa.Array], set[int]]:
    """Turn parsed columns into those of the schema; returns them and the rows with texts that do not fit."""
    if not pieces:
        return [pa.nulls(0, field.type) for field in schema], set()
    rows = np.concatenate([np.arange(low, low + table.num_rows) for low, table in pieces])
    table = pa.concat_tables([table for _, table in pieces]) if len(pieces) > 1 else pieces[0][1]
    unreadable: set[int] = set()
    columns = [
        finish_column(flatten(table.column(index)), field.type, rows, unreadable) for index, field in enumerate(schema)
    ]
    return columns, unreadable


def _patched(
    values: pa.Array, schema: pa.Schema, pieces: list[tuple[int, pa.Table]], columns: list[pa.Array], slow: list[int]
) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read some rows one by one and put them between the others."""
    place = np.full(len(values), -1, np.int64)
    used = 0
    for low, table in pieces:
        place[low : low + table.num_rows] = np.arange(used, used + table.num_rows)
        used += table.num_rows
    patches: list[dict[str, Any]] = []
    bad: list[BadRecord] = []
    for row in slow:
        value = values[row].as_py()
        place[row] = -1
        if value is None:
            continue
        try:
            patches.append(row_from_json(value, schema))
        except Misfit as misfit:
            bad.append(BadRecord(row, str(misfit)))
        else:
            place[row] = used + len(patches) - 1
    indices = pa.array(place, mask=place < 0)
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        patch = pa.array([patch[field.name] for patch in patches], field.type)
        arrays.append(pa.concat_arrays([column, patch]).take(indices))
    return pa.RecordBatch.from_arrays(arrays, schema=schema), bad
