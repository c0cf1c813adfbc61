"""Values and keys of any format to typed columns, and columns to values and keys."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import flatten
from sparkrelay.records.arrow_ipc import arrow_to_columns, columns_to_arrow
from sparkrelay.records.avro.arrow_types import arrow_schema_of
from sparkrelay.records.avro.defaults import varint
from sparkrelay.records.avro.reader import AvroReader
from sparkrelay.records.avro.schema import parse_schema
from sparkrelay.records.avro.writer import columns_to_avro
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.custom import columns_to_custom, custom_to_columns
from sparkrelay.records.custom_format import CustomFormat
from sparkrelay.records.formats import Arrow, Avro, Json, JsonSchema, OneColumn, Protobuf, Raw, RegistryFormat, Uuid
from sparkrelay.records.framing import PREFIX_BYTES, UNFRAMED, prefix, schema_ids, without_prefix
from sparkrelay.records.json.schema import json_schema_columns, required_of, text_properties
from sparkrelay.records.json.writer import columns_to_json
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.plain import FIXED_WIDTHS, write_fixed, write_uuids
from sparkrelay.records.protobuf.reader import protobuf_to_columns
from sparkrelay.records.protobuf.schema import protobuf_schema
from sparkrelay.records.protobuf.writer import columns_to_protobuf
from sparkrelay.records.typed import json_to_columns, plain_to_column

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.records.formats import Format

__all__ = ["columns_to_format", "declared_schema", "format_to_columns"]

_NO_NUMBER = "it does not begin with the number of a schema, a byte 0 and four more; without them it is "


def declared_schema(form: RegistryFormat, place: str) -> pa.Schema:
    """Return the columns of a format that has a schema of its own.

    Raises:
        SerializationException: a type in it has no column.
    """
    if isinstance(form, Protobuf):
        return protobuf_schema(form.schema, str(form.message))
    return json_schema_columns(form.schema) if isinstance(form, JsonSchema) else arrow_schema_of(
        parse_schema(form.schema), place
    )  # fmt: skip


def format_to_columns(
    values: pa.Array, form: Format, place: str, schema: pa.Schema | None
) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read values.

    Args:
        values: bytes; null (a tombstone) gives nulls and is not bad.
        form: what they are.
        place: ``key`` or ``value``.
        schema: the wanted columns, where the format has several.

    Returns:
        The columns by name, and the bad records in order, which are null in all of them.
    """
    if isinstance(form, OneColumn):
        column, bad = plain_to_column(values, type(form))
        return {form.column_name(place): column}, bad
    assert schema is not None, form
    if isinstance(form, CustomFormat):
        return custom_to_columns(values, form, schema)
    if isinstance(form, Arrow):
        return arrow_to_columns(values, form.column, schema)
    if isinstance(form, Json):
        batch, bad = json_to_columns(values, schema)
    elif isinstance(form, Protobuf):
        batch, bad = _protobuf(values, form, schema)
    elif isinstance(form, JsonSchema):
        numbers = schema_ids(values)
        batch, bad = json_to_columns(without_prefix(values, numbers), schema)
        bad += [BadRecord(int(row), f"{_NO_NUMBER}Json(...)") for row in np.flatnonzero(numbers == UNFRAMED)]
        bad.sort(key=lambda one: one.index)
    else:
        assert isinstance(form, Avro), form
        wanted = tuple(schema.names)
        if form.is_framed:
            return _framed(values, form, place, schema)
        batch, bad = _avro_reader(form.schema, None, place, wanted).read(values)
    return dict(zip(batch.schema.names, batch.columns, strict=True)), bad


def columns_to_format(rows: pa.RecordBatch, form: Format, left_out: pa.Array | None = None) -> pa.Array:
    """Write columns as values.

    Args:
        rows: the columns; of a format of one column that one.
        form: what the values are to be.
        left_out: rows whose values count for nothing.

    Raises:
        SerializationException: a column, or a value in it, cannot be written so.
    """
    if isinstance(form, Json):
        return columns_to_json(rows)
    if isinstance(form, CustomFormat):
        return _but_for(left_out, rows, lambda some: columns_to_custom(some, form))
    if isinstance(form, Arrow):
        return columns_to_arrow(rows, form.column)
    if isinstance(form, Protobuf):
        first = prefix(form.schema_id) + _place_in_file(form) if form.schema_id is not None else b""
        # Their nulls may be fields that a message must have.
        return _but_for(left_out, rows, lambda some: columns_to_protobuf(some, form.schema, str(form.message), first))
    if isinstance(form, JsonSchema):
        _check_properties(rows.schema, form)
        assert form.schema_id is not None, form
        texts = columns_to_json(rows)
        return pc.binary_join_element_wise(
            pa.scalar(prefix(form.schema_id), texts.type), texts, pa.scalar(b"", texts.type)
        )
    if isinstance(form, Avro):
        first = b""
        if form.is_framed:
            assert form.schema_id is not None, form
            first = prefix(form.schema_id)
        return columns_to_avro(rows, form.schema, left_out=left_out, prefix=first)
    name = rows.schema.names[0]
    if isinstance(form, Raw):
        return rows.column(0).cast(pa.binary())
    try:
        if isinstance(form, Uuid):
            return write_uuids(rows.column(0))
        return write_fixed(rows.column(0)) if rows.column(0).type in FIXED_WIDTHS else key_bytes([rows.column(0)])
    except SerializationException as error:
        raise SerializationException(f"column {name!r} cannot be written as {form}: {error}") from error


def _but_for(left_out: pa.Array | None, rows: pa.RecordBatch, write: Callable[[pa.RecordBatch], pa.Array]) -> pa.Array:
    """Write rows but for those that are left out, whose values are null."""
    if left_out is None or not left_out.true_count:
        return write(rows)
    chosen = np.flatnonzero(~pc.fill_null(left_out, False).to_numpy(zero_copy_only=False))
    order = np.full(rows.num_rows, -1, np.int64)
    order[chosen] = np.arange(len(chosen))
    return write(rows.take(pa.array(chosen))).take(pa.array(order, mask=order < 0))


def _protobuf(values: pa.Array, form: Protobuf, schema: pa.Schema) -> tuple[pa.RecordBatch, list[BadRecord]]:
    if not form.is_framed:
        return protobuf_to_columns(values, form.schema, str(form.message), schema, None)
    numbers = schema_ids(values)
    behind = without_prefix(values, numbers)
    batch, bad = protobuf_to_columns(behind, form.schema, str(form.message), schema, _place_in_file(form))
    bad += [BadRecord(int(row), f"{_NO_NUMBER}Protobuf(...)") for row in np.flatnonzero(numbers == UNFRAMED)]
    return batch, sorted(bad, key=lambda one: one.index)


def _place_in_file(form: Protobuf) -> bytes:
    """Return how Confluent's framing says which message it is; a single byte 0 for the first one."""
    index = form.index
    return b"\0" if index == (0,) else b"".join(varint(number) for number in (len(index), *index))


@functools.lru_cache(256)
def _check_properties(columns: pa.Schema, form: JsonSchema) -> None:
    """Refuse columns that a JSON Schema does not take, or that leave out what it requires."""
    declared = json_schema_columns(form.schema)
    required, others = required_of(form.schema)
    texts = text_properties(form.schema)
    if missing := [name for name in required if name not in columns.names]:
        raise SerializationException(f"the JSON Schema requires {missing[0]!r}, and there is no such column")
    for column in columns:
        index = declared.get_field_index(column.name)
        if index < 0:
            if others:
                continue
            raise SerializationException(
                f"the JSON Schema has no property {column.name!r}, but {', '.join(declared.names)}, and takes no "
                "others; drop() it before"
            )
        wanted = declared.field(index).type
        if not _goes_as(column.type, wanted) or (column.name in texts and not _is_written_as_text(column.type)):
            raise SerializationException(
                f"column {column.name!r} is {column.type}, and the JSON Schema has {wanted} there; cast() it before"
            )


def _is_written_as_text(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
             pa.types.is_timestamp, pa.types.is_date, pa.types.is_null)  # fmt: skip
    return any(is_kind(kind) for is_kind in kinds)


def _goes_as(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column's JSON is of the kind that a property has."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_list, pa.types.is_struct,
             pa.types.is_map)  # fmt: skip
    if pa.types.is_string(wanted) or given == wanted or any(kind(given) and kind(wanted) for kind in kinds):
        return True
    return bool(pa.types.is_floating(wanted) and (pa.types.is_integer(given) or pa.types.is_decimal(given)))


def _framed(values: pa.Array, form: Avro, place: str, schema: pa.Schema) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read values each of which says by which schema it was written."""
    values = flatten(values)
    numbers = schema_ids(values)
    found = [int(number) for number in np.unique(numbers) if number >= 0]
    form.writers.require(found)
    readers = {number: _by_writer(form, number, place, schema) for number in found}
    if len(found) == 1 and isinstance(reader := readers[found[0]], AvroReader) and (numbers >= 0).all():
        batch, bad = reader.read(values, PREFIX_BYTES)
        return dict(zip(batch.schema.names, batch.columns, strict=True)), bad
    # Each writer's rows by themselves, then all in their old order.
    order = np.full(len(values), -1, np.int64)
    parts: list[pa.RecordBatch] = []
    bad = [BadRecord(int(row), f"{_NO_NUMBER}Avro(schema)") for row in np.flatnonzero(numbers == UNFRAMED)]
    rows_before = 0
    for number, reader in readers.items():
        rows = np.flatnonzero(numbers == number)
        if isinstance(reader, str):
            bad += [BadRecord(int(row), reader) for row in rows]
            continue
        batch, own = reader.read(values.take(pa.array(rows)), PREFIX_BYTES)
        bad += [BadRecord(int(rows[one.index]), one.reason) for one in own]
        order[rows] = rows_before + np.arange(len(rows))
        parts.append(batch)
        rows_before += len(rows)
    places = pa.array(order, mask=order < 0)
    own_schema = _avro_reader(form.schema, None, place, tuple(schema.names)).schema
    columns = {}
    for index, one in enumerate(own_schema):
        pieces = [part.column(index) for part in parts]
        together = pa.concat_arrays(pieces) if pieces else pa.nulls(0, one.type)
        columns[one.name] = together.take(places)
    return columns, sorted(bad, key=lambda one: one.index)


def _by_writer(form: Avro, number: int, place: str, schema: pa.Schema) -> AvroReader | str:
    """Return the reader of what a schema wrote, or why nothing reads that."""
    writer = form.writers.get(number)
    if writer is None:
        return str(form.writers.why_unknown(number))
    try:
        return _avro_reader(form.schema, writer, place, tuple(schema.names))
    except SerializationException as error:
        return f"it was written by the registry's schema {number}: {error}"


@functools.lru_cache(256)
def _avro_reader(schema: str, writer: str | None, place: str, wanted: tuple[str, ...]) -> AvroReader:
    return AvroReader(schema, writer, place, wanted)
