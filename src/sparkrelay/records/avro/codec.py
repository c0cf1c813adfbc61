"""The codec of ``Avro``: records, alone or after the number of the schema by which each was written."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import flatten
from sparkrelay.records.avro.arrow_types import arrow_schema_of
from sparkrelay.records.avro.reader import AvroReader
from sparkrelay.records.avro.schema import parse_schema
from sparkrelay.records.avro.writer import columns_to_avro
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.framing import PREFIX_BYTES, prefix, schema_ids, unframed
from sparkrelay.records.row_order import at_rows, put_back

if TYPE_CHECKING:
    from sparkrelay.records.formats import Avro
    from sparkrelay.records.row_order import Rows


def declared_schema(form: Avro, place: str) -> pa.Schema:
    """Return the schema's fields as columns."""
    return arrow_schema_of(parse_schema(form.schema), place)


def decode(values: pa.Array, form: Avro, place: str, schema: pa.Schema) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read one record a value."""
    read = _framed if form.is_framed else _unframed
    batch, bad = read(values, form, place, tuple(schema.names))
    return dict(zip(batch.schema.names, batch.columns, strict=True)), bad


def encode(rows: pa.RecordBatch, form: Avro, left_out: pa.Array | None) -> pa.Array:
    """Write one record a row."""
    first = b""
    if form.is_framed:
        assert form.schema_id is not None, form
        first = prefix(form.schema_id)
    return columns_to_avro(rows, form.schema, left_out=left_out, prefix=first)


def _unframed(
    values: pa.Array, form: Avro, place: str, wanted: tuple[str, ...]
) -> tuple[pa.RecordBatch, list[BadRecord]]:
    return _reader(form.schema, None, place, wanted).read(values)


def _framed(
    values: pa.Array, form: Avro, place: str, wanted: tuple[str, ...]
) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read the values of each writer's schema apart."""
    values = flatten(values)
    numbers = schema_ids(values)
    found = [int(number) for number in np.unique(numbers) if number >= 0]
    form.writers.require(found)
    bad = unframed(numbers, "Avro(schema)")
    parts: list[tuple[Rows, pa.RecordBatch]] = []
    for number in found:
        rows = np.flatnonzero(numbers == number)
        reader = _reader_of(form, number, place, wanted)
        if isinstance(reader, str):
            bad += [BadRecord(int(row), reader) for row in rows]
            continue
        own = values if len(rows) == len(values) else values.take(pa.array(rows))
        batch, wrong = reader.read(own, PREFIX_BYTES)
        bad += at_rows(wrong, rows)
        parts.append((rows, batch))
    schema = _reader(form.schema, None, place, wanted).schema
    return put_back(parts, len(values), schema), sorted(bad, key=lambda one: one.index)


def _reader_of(form: Avro, number: int, place: str, wanted: tuple[str, ...]) -> AvroReader | str:
    """Return the reader of records of a writer's schema, or why there is none."""
    writer = form.writers.get(number)
    if writer is None:
        return str(form.writers.why_unknown(number))
    try:
        return _reader(form.schema, writer, place, wanted)
    except SerializationException as error:
        return f"it was written by the registry's schema {number}: {error}"


_reader = functools.lru_cache(256)(AvroReader)
