"""The codec of ``Json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.json.writer import columns_to_json

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkrelay.records.bad_record import BadRecord
    from sparkrelay.records.formats import Json


def decode(values: pa.Array, form: Json, place: str, schema: pa.Schema) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read one object a value."""
    del form, place
    batch, bad = json_to_columns(values, schema)
    return dict(zip(schema.names, batch.columns, strict=True)), bad


def encode(rows: pa.RecordBatch, form: Json, left_out: pa.Array | None) -> pa.Array:
    """Write one object a row."""
    del form, left_out
    return columns_to_json(rows)
