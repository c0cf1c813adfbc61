"""The codec of ``Arrow``: Arrow IPC streams, one a record.

The bytes may come from any producer and are not trusted: the header of each message is checked here first. Refused are
compressed buffers, of which only the stream knows the size, dictionaries, types whose rows take no bytes, and types
that Python would look up by name. The rest is a view into the record, which Arrow validates in full.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay.records.arrow_buffers import offsets_of, whole
from sparkrelay.records.bad_record import BadRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.records.formats import Arrow

_SCHEMA, _BATCH = 1, 3
_CONTINUATION: Final = 0xFFFFFFFF
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
#: Bytes of a schema: the last ones are cached.
_LONGEST_SCHEMA: Final = 1 << 16
_MAX_DEPTH: Final = 16
_PLAIN: Final = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_string,
    pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_date, pa.types.is_time,
    pa.types.is_timestamp, pa.types.is_duration,
)  # fmt: skip
#: Raised by damaged or refused streams.
_DAMAGED: Final = (ValueError, struct.error, LookupError, OverflowError, OSError, TypeError, pa.ArrowException)


@dataclass(slots=True)
class _Group:
    """The batches of records that were written by one schema."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    #: The record of each batch.
    rows: list[int] = field(default_factory=list)


def decode(values: pa.Array, form: Arrow, place: str, schema: pa.Schema) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read a stream a value: of one row or, where the format has a column, of any number."""
    del place
    column = form.column
    wanted = schema if column is None else pa.schema(list(schema.field(column).type.value_type) if len(schema) else [])
    groups: dict[pa.Schema, _Group] = {}
    bad: dict[int, str] = {}
    empty: list[int] = []
    for row, value in enumerate(values):
        if not value.is_valid:
            continue
        try:
            written, batches = _batches(value.as_py(), one_row=column is None)
        except _DAMAGED as error:
            bad[row] = f"is not a readable Arrow IPC stream: {error}"
            continue
        group = groups.setdefault(written, _Group())
        group.batches += batches
        group.rows += [row] * len(batches)
        if not batches:
            empty.append(row)
    parts: list[pa.StructArray] = []
    owners: list[np.ndarray] = []
    for written, group in groups.items():
        for part, rows in _fitted(written, group, wanted, bad):
            parts.append(part)
            owners.append(rows)
    struct_type = pa.struct(list(wanted))
    together = pa.concat_arrays([*parts, pa.array([], struct_type)])
    # Rows in the order of their records.
    owner = np.concatenate([*owners, np.zeros(0, np.int64)])
    good = np.isin(owner, list(bad), invert=True) if bad else np.ones(len(owner), bool)
    order = np.flatnonzero(good)
    order = order[np.argsort(owner[order], kind="stable")]
    records = [BadRecord(row, bad[row]) for row in sorted(bad)]
    if column is None:
        places = np.full(len(values), -1, np.int64)
        places[owner[order]] = order
        taken = together.take(pa.array(places, mask=places < 0))
        columns = {}
        for index, one in enumerate(wanted):
            columns[one.name] = pa.nulls(len(values), one.type) if not len(together) else taken.flatten()[index]
        return columns, records
    counts = np.bincount(owner[order], minlength=len(values))
    absent = np.ones(len(values), bool)
    absent[owner[order]] = False
    absent[[row for row in empty if row not in bad]] = False
    offsets = offsets_of(counts, np.int32)
    lists = pa.ListArray.from_arrays(
        pa.array(offsets), together.take(pa.array(order)), mask=pa.array(absent) if absent.any() else None
    )
    return {column: lists.cast(schema.field(column).type)} if len(schema) else {}, records


def encode(rows: pa.RecordBatch, form: Arrow, left_out: pa.Array | None) -> pa.Array:
    """Write a stream a row: of all columns, or of the rows in a column that is a list of structs."""
    del left_out
    if form.column is None:
        batch = rows.replace_schema_metadata(None)
        bare = pa.schema([pa.field(one.name, one.type, one.nullable) for one in batch.schema])
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=bare)
        head = bare.serialize().to_pybytes()
        written = [head + batch.slice(row, 1).serialize().to_pybytes() + _END for row in range(batch.num_rows)]
        return pa.array(written, pa.binary())
    lists = rows.column(form.column)
    bare = pa.schema([pa.field(one.name, one.type, one.nullable) for one in lists.type.value_type])
    head = bare.serialize().to_pybytes()
    written = []
    for one in lists:
        if not one.is_valid:
            written.append(None)
            continue
        batch = pa.RecordBatch.from_arrays(one.values.flatten(), schema=bare)
        written.append(head + (batch.serialize().to_pybytes() if batch.num_rows else b"") + _END)
    return pa.array(written, pa.binary())


def _fitted(
    written: pa.Schema, group: _Group, wanted: pa.Schema, bad: dict[int, str]
) -> Iterator[tuple[pa.StructArray, np.ndarray]]:
    """Yield the wanted fields of batches of one schema, and the records of their rows; note those that do not fit."""
    if not group.batches:
        return
    counts = [batch.num_rows for batch in group.batches]
    rows = np.repeat(np.array(group.rows, np.int64), counts)
    try:
        table = pa.Table.from_batches(group.batches, written).combine_chunks()
        yield _struct(table, wanted), rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        if len(set(group.rows)) == 1:
            bad[group.rows[0]] = f"has other types than the schema: {error}"
            return
        halves = group.rows[len(group.rows) // 2]
        # Between two records.
        cut = group.rows.index(halves) or next(n for n, row in enumerate(group.rows) if row != halves)
        for some in (slice(None, cut), slice(cut, None)):
            yield from _fitted(written, _Group(group.batches[some], group.rows[some]), wanted, bad)


def _struct(table: pa.Table, wanted: pa.Schema) -> pa.StructArray:
    arrays = []
    for one in wanted:
        index = table.schema.get_field_index(one.name)
        array = pa.nulls(table.num_rows, one.type) if index < 0 else whole(table.column(index)).cast(one.type)
        arrays.append(array)
    return pa.StructArray.from_arrays(arrays, fields=list(wanted)) if arrays else pa.array(
        [{}] * table.num_rows, pa.struct([])
    )  # fmt: skip


def _batches(value: bytes, *, one_row: bool) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Return the schema of a stream, and its batches.

    Raises:
        one of ``_DAMAGED``: it is damaged, or refused.
    """
    schema: pa.Schema | None = None
    batches: list[pa.RecordBatch] = []
    rows = 0
    at = 0
    while at < len(value):
        mark, size = struct.unpack_from("<Ii", value, at)
        if mark != _CONTINUATION:
            raise ValueError("a message does not begin with 0xFFFFFFFF")
        if size == 0:
            at += 8
            break
        start, end = at + 8, at + 8 + size
        if size < 0 or end > len(value):
            raise ValueError("a message is longer than the record")
        message = _Table(value[start:end])
        kind, body = message.byte(1), message.long(3)
        if body < 0 or end + body > len(value):
            raise ValueError("a message's body is longer than the record")
        if schema is None:
            if kind != _SCHEMA or body:
                raise ValueError("it does not begin with a schema")
            schema = _schema(value[at:end])
        elif kind == _BATCH:
            header = message.table(2)
            length = header.long(0)
            if header.has(3):
                raise ValueError("its buffers are compressed; write them uncompressed, Kafka compresses batches")
            rows += length
            # A row takes a bit or more: a record cannot claim millions.
            if length < 0 or rows > len(value):
                raise ValueError(f"a batch claims to have {length} rows")
            if one_row and rows > 1:
                raise ValueError(f"it has {rows} rows or more, not one; Arrow(..., column='rows') takes any number")
            batch = pa.ipc.read_record_batch(pa.py_buffer(value[at : end + body]), schema)
            batch.validate(full=True)
            if batch.num_rows:
                batches.append(batch)
        else:
            raise ValueError("it has a message that is neither a schema nor a batch; dictionaries are not supported")
        at = end + body
    if schema is None:
        raise ValueError("it is empty")
    if at < len(value):
        raise ValueError(f"{len(value) - at} bytes follow its end")
    if one_row and not rows:
        raise ValueError("it has no row")
    return schema, batches


@functools.lru_cache(64)
def _schema(message: bytes) -> pa.Schema:
    """Return the schema in a message.

    Raises:
        ValueError: it has a type that is not supported.
    """
    if len(message) > _LONGEST_SCHEMA:
        raise ValueError(f"its schema has {len(message)} bytes, more than {_LONGEST_SCHEMA}")
    # Python would look up a class by that name.
    if b"ARROW:extension" in message:
        raise ValueError("its schema has extension types")
    schema = pa.ipc.read_schema(pa.py_buffer(message)).remove_metadata()
    for one in schema:
        _check(one.type, one.name, 0)
    if not len(schema) or len(set(schema.names)) < len(schema):
        raise ValueError("its schema has no field, or one twice")
    return schema


def _check(kind: pa.DataType, path: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"field {path[:80]!r} is deeper than {_MAX_DEPTH} levels")
    if pa.types.is_struct(kind) and kind.num_fields:
        for one in kind:
            _check(one.type, f"{path}.{one.name}", depth + 1)
    elif pa.types.is_map(kind):
        _check(kind.key_type, path, depth + 1)
        _check(kind.item_type, path, depth + 1)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _check(kind.value_type, f"{path}[]", depth + 1)
    elif not any(check(kind) for check in _PLAIN) and not (pa.types.is_fixed_size_binary(kind) and kind.byte_width):
        raise ValueError(f"field {path[:80]!r} is {str(kind)[:80]}, which is not supported")


class _Table:
    """A table of a flatbuffer, as far as headers of messages need it. Reading outside of it raises."""

    def __init__(self, data: bytes, at: int | None = None) -> None:
        self._data = data
        self._at = self._read("<I", 0) if at is None else at
        self._fields = self._at - self._read("<i", self._at)
        self._size = self._read("<H", self._fields)

    def has(self, number: int) -> bool:
        """Return whether a field is present."""
        return self._place(number) is not None

    def byte(self, number: int) -> int:
        """Return a field of one byte; 0 by default."""
        return self._number("<B", number)

    def long(self, number: int) -> int:
        """Return a field of 64 bits; 0 by default."""
        return self._number("<q", number)

    def table(self, number: int) -> _Table:
        """Return the table that a field points to."""
        place = self._place(number)
        if place is None:
            raise ValueError("a message has no header")
        return _Table(self._data, place + self._read("<I", place))

    def _number(self, code: str, number: int) -> int:
        place = self._place(number)
        return 0 if place is None else self._read(code, place)

    def _place(self, number: int) -> int | None:
        if 4 + 2 * number + 2 > self._size:
            return None
        offset = self._read("<H", self._fields + 4 + 2 * number)
        return self._at + offset if offset else None

    def _read(self, code: str, at: int) -> int:
        if at < 0:
            raise ValueError("a message points before its beginning")
        return int(struct.unpack_from(code, self._data, at)[0])
