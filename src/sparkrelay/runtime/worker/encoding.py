"""Encodes a leg's rows as keys and values of its sink topic."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException
from sparkrelay.records.formatted import columns_to_format
from sparkrelay.records.keys import key_bytes, key_columns

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import PublishSpec

#: First column of a packed row: a digest of the names and types of the columns.
_LAYOUT = pa.field(f"{hidden_columns.PREFIX}layout", pa.int32())
#: Bytes up to and including the layout: the tuple's version, the column's tag, 32 bits.
_BEGINNING = 6
#: Last column of a packed row: false for a tombstone, which has all its columns.
_ALIVE = pa.field(f"{hidden_columns.PREFIX}alive", pa.bool_())


def sink_keys(spec: PublishSpec, rows: pa.RecordBatch) -> pa.Array:
    """Return the message keys: from the named columns, or the key that travels with the rows."""
    if spec.key_columns:
        columns = rows.select(list(spec.key_columns))
        _require_text(columns)
        if spec.key is not None:
            absent = functools.reduce(pc.and_, (pc.is_null(column) for column in columns.columns))
            keys = columns_to_format(columns, spec.key, absent)
            return pc.if_else(absent, pa.scalar(None, keys.type), keys) if absent.true_count else keys
        return key_bytes([rows.column(name) for name in spec.key_columns])
    return rows.column(hidden_columns.KEY)


def sink_values(spec: PublishSpec, rows: pa.RecordBatch) -> pa.Array:
    """Return the message values; tombstones stay tombstones."""
    visible = rows.select(list(spec.columns))
    _require_text(visible)
    tombstones = rows.column(hidden_columns.TOMBSTONE) if hidden_columns.TOMBSTONE in rows.schema.names else None
    if spec.value is None:
        return pack_rows(visible, tombstones, spec.layout)
    values = columns_to_format(visible, spec.value, tombstones)
    if tombstones is not None and tombstones.true_count:
        values = pc.if_else(tombstones, pa.scalar(None, values.type), values)
    return values


def pack_rows(rows: pa.RecordBatch, tombstones: pa.Array | None, layout: int) -> pa.Array:
    """Return whole rows as values of a repartition topic; each begins with the number of its layout."""
    alive = pa.repeat(pa.scalar(True), rows.num_rows) if tombstones is None else pc.invert(tombstones)
    number = pa.repeat(pa.scalar(layout, pa.int32()), rows.num_rows)
    return key_bytes([number, *rows.columns, alive], normal=False)


def first_of_another_layout(values: pa.Array, layout: int) -> int | None:
    """Return the index of the first packed row with another layout; None if there is none."""
    fits = pc.fill_null(pc.starts_with(values, pattern=_beginning(layout)), False)
    return None if fits.false_count == 0 else fits.index(pa.scalar(False)).as_py()


def unpack_rows(values: pa.Array, schema: pa.Schema) -> tuple[list[pa.Array], pa.Array]:
    """Decode rows of :func:`pack_rows`: the columns, and which rows are tombstones."""
    _, *columns, alive = key_columns(values, pa.schema([_LAYOUT, *schema, _ALIVE]))
    return columns, pc.invert(pc.fill_null(alive, False))


def _beginning(layout: int) -> bytes:
    """Return the first bytes of packed rows with a layout."""
    row: bytes = key_bytes([pa.array([layout], pa.int32()), pa.array([True])])[0].as_py()
    return row[:_BEGINNING]


def _require_text(rows: pa.RecordBatch) -> None:
    """Refuse text that is not UTF-8, which no reader of the topic could decode.

    Spark can create it: ``cast(value as string)`` takes bytes unchecked. The SerializationException names the column.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SerializationException(
                f"column {name!r} holds text that is not UTF-8 ({error}). Drop such rows before this step by "
                f'where("is_valid_utf8({name})"), repair them by make_valid_utf8({name}), or keep the column binary'
            ) from error
