"""The codec of ``Protobuf``: messages, alone or after the number of their schema and their index in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.records.avro.defaults import varint
from sparkrelay.records.framing import prefix, without_prefix
from sparkrelay.records.protobuf.reader import protobuf_to_columns
from sparkrelay.records.protobuf.schema import protobuf_schema
from sparkrelay.records.protobuf.writer import columns_to_protobuf
from sparkrelay.records.row_order import write_others

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkrelay.records.bad_record import BadRecord
    from sparkrelay.records.formats import Protobuf


def declared_schema(form: Protobuf, place: str) -> pa.Schema:
    """Return the message's fields as columns."""
    del place
    return protobuf_schema(form.schema, str(form.message))


def decode(
    values: pa.Array, form: Protobuf, place: str, schema: pa.Schema
) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read one message a value."""
    del place
    unframed: list[BadRecord] = []
    index = None
    if form.is_framed:
        values, unframed = without_prefix(values, "Protobuf(...)")
        index = _index(form)
    batch, bad = protobuf_to_columns(values, form.schema, str(form.message), schema, index)
    return dict(zip(schema.names, batch.columns, strict=True)), sorted(bad + unframed, key=lambda one: one.index)


def encode(rows: pa.RecordBatch, form: Protobuf, left_out: pa.Array | None) -> pa.Array:
    """Write one message a row. Rows that are left out may lack fields that a message requires."""
    first = prefix(form.schema_id) + _index(form) if form.schema_id is not None else b""
    return write_others(left_out, rows, lambda some: columns_to_protobuf(some, form.schema, str(form.message), first))


def _index(form: Protobuf) -> bytes:
    """Return the message's place in its file in Confluent's framing; a single byte 0 for the first one."""
    index = form.index
    return b"\0" if index == (0,) else b"".join(varint(number) for number in (len(index), *index))
