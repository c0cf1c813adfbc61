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

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import BinaryColumn, flatten
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.json.cells import too_wide_rows
from sparkrelay.records.json.columns import finish_column, parsed_type
from sparkrelay.records.json.flat import is_flat, read_flat
from sparkrelay.records.json.scan import join_objects
from sparkrelay.records.json.values import Misfit, row_from_json
from sparkrelay.records.plain import is_text, null_at
from sparkrelay.records.row_order import bisect, put_back, read_rest

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
        wide = too_wide_rows(values, column, schema)
        if wide:
            values = null_at(values, [one.index for one in wide])
        batch, bad = _read_any(values, schema, parsed)
        return batch, sorted(bad + wide, key=lambda one: one.index)
    columns, declined = read_flat(column, len(values), schema)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return read_rest(values, batch, declined, lambda some: _read_any(some, schema, parsed))


def _read_any(values: pa.Array, schema: pa.Schema, parsed: pa.Schema | None) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read objects of any schema with Arrow's parser, and those that it refuses one by one."""
    joined = _Joined(values)
    pieces: list[tuple[int, pa.Table]] = []
    slow: set[int] = set(np.flatnonzero(joined.suspect).tolist())

    def parses(low: int, high: int) -> bool:
        table = _parse(joined, parsed, low, high)
        if table is not None:
            pieces.append((low, table))
        return table is not None

    if parsed is None:
        slow.update(range(len(values)))
    else:
        for low, high in bisect(len(values), parses, _SMALL_GROUP):
            slow.update(range(low, high))
    rows = np.concatenate([np.arange(low, low + table.num_rows) for low, table in pieces] or [np.empty(0, np.int64)])
    columns, unreadable = _finish(pieces, schema, rows)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    alone = np.array(sorted(slow | unreadable), np.int64)
    if not len(alone):
        return put_back([(rows, batch)], len(values), schema), []
    patches, bad = _read_each(values, schema, alone.tolist())
    return put_back([(rows, batch), (alone, patches)], len(values), schema), bad


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


def _parse(joined: _Joined, parsed: pa.Schema, low: int, high: int) -> pa.Table | None:
    """Return the parsed rows; None if the parser refuses one."""
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
        return None
    return table if table.num_rows == high - low else None


def _finish(
    pieces: list[tuple[int, pa.Table]], schema: pa.Schema, rows: np.ndarray[Any, Any]
) -> tuple[list[pa.Array], set[int]]:
    """Turn parsed columns into those of the schema; returns them and the rows with texts that do not fit."""
    if not pieces:
        return [pa.nulls(0, field.type) for field in schema], set()
    table = pa.concat_tables([table for _, table in pieces]) if len(pieces) > 1 else pieces[0][1]
    unreadable: set[int] = set()
    columns = [
        finish_column(flatten(table.column(index)), field.type, rows, unreadable) for index, field in enumerate(schema)
    ]
    return columns, unreadable


def _read_each(values: pa.Array, schema: pa.Schema, rows: list[int]) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read some rows one by one; bad ones are null, as are those without a value."""
    found: list[dict[str, Any]] = []
    bad: list[BadRecord] = []
    for row in rows:
        value = values[row].as_py()
        try:
            found.append({} if value is None else row_from_json(value, schema))
        except Misfit as misfit:
            bad.append(BadRecord(row, str(misfit)))
            found.append({})
    arrays = [pa.array([one.get(field.name) for one in found], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), bad
