"""Protobuf messages to typed columns: :mod:`read_loop` reads ordinary rows, Google's library the others one by one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparkrelay.records.arrow_buffers import NO_BYTES, BinaryColumn, flatten
from sparkrelay.records.nested_columns import Buffers, batch_of, buffers_of
from sparkrelay.records.protobuf import read_loop as loop
from sparkrelay.records.protobuf.messages import messages_to_columns
from sparkrelay.records.protobuf.program import make_program
from sparkrelay.records.protobuf.schema import descriptor_of
from sparkrelay.records.row_order import read_rest

if TYPE_CHECKING:
    from sparkrelay.records.bad_record import BadRecord
    from sparkrelay.records.protobuf.program import Program


def protobuf_to_columns(
    values: pa.Array, text: str, name: str, schema: pa.Schema, index: bytes | None
) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read one message a row.

    Args:
        values: bytes; null gives a row of nulls and is not bad.
        text: the schema.
        name: the message's.
        schema: the wanted fields; messages in other fields are not parsed.
        index: the framing's message index before each message, if any.

    Returns:
        A batch of the schema, and the bad records in order, whose rows are all null.
    """
    program = _program(text, name, schema)
    if program is None:
        return messages_to_columns(values, text, name, schema, index)
    values = flatten(values)
    batch, strange = _read(values, program, schema, index)
    return read_rest(values, batch, strange, lambda some: messages_to_columns(some, text, name, schema, index))


@functools.lru_cache(64)
def _program(text: str, name: str, schema: pa.Schema) -> Program | None:
    return make_program(descriptor_of(text, name), schema)


def _read(
    values: pa.Array, program: Program, schema: pa.Schema, index: bytes | None
) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]]:
    """Return a batch, and the rows that the loop left to the library."""
    column, rows, tree = BinaryColumn.of(values), len(values), program.tree
    place = NO_BYTES if index is None else np.frombuffer(bytearray(index), np.uint8)
    strange, room = np.zeros(rows, np.uint8), np.zeros(tree.levels, np.int64)
    if tree.levels > 1:
        _, room = _run(column, place, strange, program, [Buffers(NO_BYTES)] * len(tree.columns))
    room[0] = rows
    buffers = [buffers_of(node, int(room[node.level])) for node in tree.columns]
    for number, (valid, data, length) in program.defaults.items():
        own = buffers[number]
        own.valid.fill(valid)
        if own.lengths is not None and own.data is not None:
            own.data.fill(data)
            own.lengths.fill(length)
    sizes, _ = _run(column, place, strange, program, buffers, write=True)
    sizes[0] = rows
    for node, own in zip(tree.columns, buffers, strict=True):
        own.cut(int(sizes[node.level]))
    return batch_of(program.roots, schema, buffers, sizes), np.flatnonzero(strange)


def _run(
    column: BinaryColumn,
    place: np.ndarray[Any, np.dtype[np.uint8]],
    strange: np.ndarray[Any, np.dtype[np.uint8]],
    program: Program,
    buffers: list[Buffers],
    *,
    write: bool = False,
) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the items of each level, and the room that they need; marks ``strange`` rows."""
    tree = program.tree
    table = np.array(
        [
            [node.level, *own.addresses, *program.defaults.get(node.column, (0, 0, 0)), _words(node.type)]
            for node, own in zip(tree.columns, buffers, strict=True)
        ],
        np.int64,
    ).reshape(-1, loop.COLUMN)
    sizes, marks, room = np.zeros((3, tree.levels), np.int64)
    stack = np.zeros((program.depth, loop.FRAME), np.int64)
    loop.read_rows(
        column.address, column.offsets, column.valid, place, program.fields, program.messages, table, tree.widths,
        sizes, marks, room, stack, strange, write,
    )  # fmt: skip
    return sizes, room


def _words(type_: pa.DataType) -> int:
    return 2 if pa.types.is_decimal(type_) else 1
