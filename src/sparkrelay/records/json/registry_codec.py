"""The codec of ``JsonSchema``: JSON objects after the number of their schema."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records.framing import prefix, without_prefix
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.json.schema import json_schema_columns, required_of, text_properties
from sparkrelay.records.json.writer import columns_to_json

if TYPE_CHECKING:
    from sparkrelay.records.bad_record import BadRecord
    from sparkrelay.records.formats import JsonSchema

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
          pa.types.is_timestamp, pa.types.is_date, pa.types.is_null)  # fmt: skip
_KINDS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_list, pa.types.is_struct,
          pa.types.is_map)  # fmt: skip


def declared_schema(form: JsonSchema, place: str) -> pa.Schema:
    """Return the schema's properties as columns."""
    del place
    return json_schema_columns(form.schema)


def decode(
    values: pa.Array, form: JsonSchema, place: str, schema: pa.Schema
) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read one object a value."""
    del form, place
    bare, unframed = without_prefix(values, "Json(...)")
    batch, bad = json_to_columns(bare, schema)
    return dict(zip(schema.names, batch.columns, strict=True)), sorted(bad + unframed, key=lambda one: one.index)


def encode(rows: pa.RecordBatch, form: JsonSchema, left_out: pa.Array | None) -> pa.Array:
    """Write one object a row."""
    del left_out
    _check_properties(rows.schema, form.schema)
    assert form.schema_id is not None, form
    texts = columns_to_json(rows)
    return pc.binary_join_element_wise(pa.scalar(prefix(form.schema_id), texts.type), texts, pa.scalar(b"", texts.type))


@functools.lru_cache(256)
def _check_properties(columns: pa.Schema, schema: str) -> None:
    """Reject columns that a JSON Schema does not take, or that lack a required property."""
    declared = json_schema_columns(schema)
    required, others = required_of(schema)
    texts = text_properties(schema)
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
        is_text = any(test(column.type) for test in _TEXTS)
        if not _fits(column.type, wanted) or (column.name in texts and not is_text):
            raise SerializationException(
                f"column {column.name!r} is {column.type}, and the JSON Schema has {wanted} there; cast() it before"
            )


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether the JSON of a column is of the kind that a property has."""
    if pa.types.is_string(wanted) or given == wanted or any(kind(given) and kind(wanted) for kind in _KINDS):
        return True
    return bool(pa.types.is_floating(wanted) and (pa.types.is_integer(given) or pa.types.is_decimal(given)))
