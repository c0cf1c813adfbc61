"""From a leg's last rows to the key and value bytes of its sink topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records.formats import Json, Raw
from sparkrelay.records.json.writer import columns_to_json
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from sparkrelay.records.formats import Format
    from sparkrelay.runtime.contract.specs import PublishSpec

__all__ = ["pack_rows", "sink_keys", "sink_values", "unpack_rows"]

#: Last column of a packed row: false for a tombstone, whose columns travel all the same.
_ALIVE = pa.field(f"{hidden_columns.PREFIX}alive", pa.bool_())


def sink_keys(spec: PublishSpec, rows: pa.RecordBatch) -> pa.Array:
    """Return the message keys: the named columns, else the key that travels with the rows."""
    if spec.key_columns:
        return key_bytes([rows.column(name) for name in spec.key_columns])
    return rows.column(hidden_columns.KEY)


def sink_values(spec: PublishSpec, rows: pa.RecordBatch) -> pa.Array:
    """Return the message values; a tombstone that came in goes out as one."""
    visible = rows.select(list(spec.columns))
    tombstones = rows.column(hidden_columns.TOMBSTONE) if hidden_columns.TOMBSTONE in rows.schema.names else None
    if spec.value is None:
        return pack_rows(visible, tombstones)
    values = _formatted(spec.value, visible)
    if tombstones is not None and tombstones.true_count:
        values = pc.if_else(tombstones, pa.scalar(None, values.type), values)
    return values


def pack_rows(rows: pa.RecordBatch, tombstones: pa.Array | None) -> pa.Array:
    """Write whole rows as the values of a repartition topic."""
    alive = pa.repeat(pa.scalar(True), rows.num_rows) if tombstones is None else pc.invert(tombstones)
    return key_bytes([*rows.columns, alive], normal=False)


def unpack_rows(values: pa.Array, schema: pa.Schema) -> tuple[list[pa.Array], pa.Array]:
    """Read what :func:`pack_rows` wrote from rows of this schema: the columns, and which rows are tombstones."""
    *columns, alive = key_columns(values, schema.append(_ALIVE))
    return columns, pc.invert(pc.fill_null(alive, False))


def _formatted(value: Format, rows: pa.RecordBatch) -> pa.Array:
    if isinstance(value, Json):
        return columns_to_json(rows)
    name = rows.schema.names[0]
    if isinstance(value, Raw):
        return rows.column(0).cast(pa.binary())
    try:
        return key_bytes([rows.column(0)])
    except SerializationException as error:
        raise SerializationException(f"column {name!r} cannot be written as {value}: {error}") from error
