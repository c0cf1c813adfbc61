"""Values and keys of any format to typed columns, and columns to values and keys."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.avro.arrow_types import arrow_schema_of
from sparkrelay.records.avro.reader import AvroReader
from sparkrelay.records.avro.schema import parse_schema
from sparkrelay.records.avro.writer import columns_to_avro
from sparkrelay.records.formats import Avro, Json, OneColumn, Raw
from sparkrelay.records.json.writer import columns_to_json
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.typed import PLAIN_TYPES, json_to_columns, plain_to_column

if TYPE_CHECKING:
    from sparkrelay.records.bad_record import BadRecord
    from sparkrelay.records.formats import Format

__all__ = ["columns_to_format", "declared_schema", "format_to_columns"]


def declared_schema(form: Avro, place: str) -> pa.Schema:
    """Return the columns of a format that has a schema of its own.

    Raises:
        SerializationException: a type in it has no column.
    """
    return arrow_schema_of(parse_schema(form.schema), place)


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
        column, bad = plain_to_column(values, PLAIN_TYPES[type(form)])
        return {form.column_name(place): column}, bad
    assert schema is not None, form
    if isinstance(form, Json):
        batch, bad = json_to_columns(values, schema)
    else:
        assert isinstance(form, Avro), form
        batch, bad = _avro_reader(form.schema, place, tuple(schema.names)).read(values)
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
    if isinstance(form, Avro):
        return columns_to_avro(rows, form.schema, left_out=left_out)
    name = rows.schema.names[0]
    if isinstance(form, Raw):
        return rows.column(0).cast(pa.binary())
    try:
        return key_bytes([rows.column(0)])
    except SerializationException as error:
        raise SerializationException(f"column {name!r} cannot be written as {form}: {error}") from error


@functools.lru_cache(64)
def _avro_reader(schema: str, place: str, wanted: tuple[str, ...]) -> AvroReader:
    return AvroReader(schema, None, place, wanted)
