"""From a message's descriptor and the wanted columns to the tables that the read loop follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.records.arrow_buffers import LoopMemory
from sparkrelay.records.nested_columns import NodeTree
from sparkrelay.records.protobuf import read_loop as loop
from sparkrelay.records.protobuf.schema import TIMESTAMP, WRAPPERS, is_map

if TYPE_CHECKING:
    from sparkrelay.records.nested_columns import Node

_MAX_FIELDS: Final = 50_000


class Program(LoopMemory):
    """The tables in which the loop looks up each field."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = NodeTree()
        #: The wanted columns by name.
        self.roots: dict[str, Node] = {}
        #: The fields of all messages that are read (:mod:`read_loop` describes them).
        self.fields = np.zeros((0, loop.FIELD), np.int64)
        #: The first field of each message, and the one after its last.
        self.messages = np.zeros((1, 2), np.int64)
        #: By column: validity, data and length of an absent field.
        self.defaults: dict[int, tuple[int, int, int]] = {}
        #: Of nested messages.
        self.depth = 1


class _UncommonError(Exception):
    """Only the library can read such messages."""


def make_program(descriptor: Any, schema: pa.Schema) -> Program | None:
    """Return how messages become the wanted columns; None if only Google's library can read them.

    The types are those of :func:`~sparkrelay.records.protobuf.schema.protobuf_schema`; structs may have fewer fields.
    """
    tables = _Tables()
    program = tables.program
    for one in schema:
        program.roots[one.name] = program.tree.add(one.type)
    try:
        tables.message(descriptor, program.roots, level=0, depth=1)
    except _UncommonError:
        return None
    ends = np.cumsum([0, *map(len, tables.messages)])
    program.fields = np.array([row for rows in tables.messages for row in rows], np.int64).reshape(-1, loop.FIELD)
    program.messages = np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)
    return program


class _Tables:
    """The rows of each message's fields."""

    def __init__(self) -> None:
        self.program = Program()
        self.messages: list[list[list[int]]] = []

    def message(self, descriptor: Any, nodes: dict[str, Node], *, level: int, depth: int) -> int:
        """Add a message; returns its number."""
        if descriptor.GetOptions().message_set_wire_format:
            raise _UncommonError
        self.program.depth = max(self.program.depth, depth + 1)
        number = len(self.messages)
        rows: list[list[int]] = []
        self.messages.append(rows)
        oneofs = {
            oneof.name: self.program.tree.add(pa.struct([]), level).column
            for oneof in descriptor.oneofs
            if len(oneof.fields) > 1 and any(field.name in nodes for field in oneof.fields)
        }
        for field in sorted(descriptor.fields, key=lambda one: one.number):
            oneof = -1 if field.containing_oneof is None else oneofs.get(field.containing_oneof.name, -1)
            node = nodes.get(field.name)
            if node is not None:
                rows.append([field.number, *self._field(field, node, depth), oneof])
            elif oneof >= 0:
                rows.append([field.number, _wire(field), loop.SKIP, -1, -1, 0, 0, oneof])
        if sum(map(len, self.messages)) > _MAX_FIELDS:
            raise _UncommonError
        return number

    def _field(self, field: Any, node: Node, depth: int) -> list[int]:
        if is_map(field):
            raise _UncommonError
        listed = -1
        if field.is_repeated:
            if not pa.types.is_list(node.type):
                raise _UncommonError
            self.program.defaults[node.column] = (1, 0, 0)
            listed, node = node.column, node.inner[0]
        op, a, b = self._value(field, node, depth)
        if listed < 0 and not field.has_presence:
            self.program.defaults[node.column] = (1, *self._default(field))
        return [_wire(field), op, node.column, listed, a, b]

    def _value(self, field: Any, node: Node, depth: int) -> tuple[int, int, int]:
        """Return the instruction that reads a value, and its arguments."""
        if field.enum_type is not None:
            self._expect(node, pa.string())
            return loop.ENUM, *self._words(field.enum_type)
        if field.message_type is None:
            op, kind = _SCALARS.get(field.type, (-1, None))
            self._expect(node, kind)
            return op, 0, 0
        if field.type == field.TYPE_GROUP:
            raise _UncommonError
        name = field.message_type.full_name
        if name == TIMESTAMP:
            self._expect(node, pa.timestamp("us", "UTC"))
            return loop.TIMESTAMP, 0, 0
        if name in WRAPPERS:
            number = self.message(field.message_type, {}, level=node.level, depth=depth + 1)
            inner = field.message_type.fields_by_name["value"]
            op, a, b = self._value(inner, node, depth + 1)
            self.messages[number] += [[inner.number, _wire(inner), op, node.column, -1, a, b, -1]]
            return loop.MESSAGE, number, 0
        if not pa.types.is_struct(node.type):
            raise _UncommonError
        nodes = {one.name: inside for one, inside in zip(node.type.fields, node.inner, strict=True)}
        return loop.MESSAGE, self.message(field.message_type, nodes, level=node.level, depth=depth + 1), 0

    def _words(self, enum: Any) -> tuple[int, int]:
        """Return the number of words of an enum, and the address of their table."""
        table = np.zeros((len(enum.values_by_number), 3), np.int64)
        for row, number in enumerate(sorted(enum.values_by_number)):
            word = enum.values_by_number[number].name.encode()
            table[row] = number, self.program.address(word), len(word)
        return len(table), self.program.address(table)

    def _default(self, field: Any) -> tuple[int, int]:
        """Return the data and the length of an absent required field."""
        if field.enum_type is None:
            return 0, 0
        word = field.enum_type.values_by_number[field.default_value].name.encode()
        return self.program.address(word), len(word)

    @staticmethod
    def _expect(node: Node, kind: pa.DataType | None) -> None:
        if node.type != kind:
            raise _UncommonError


def _wire(field: Any) -> int:
    """Return the wire type of a value, or of an item of a list that is not packed."""
    if field.type in {field.TYPE_DOUBLE, field.TYPE_FIXED64, field.TYPE_SFIXED64}:
        return loop.FIXED64
    if field.type in {field.TYPE_FLOAT, field.TYPE_FIXED32, field.TYPE_SFIXED32}:
        return loop.FIXED32
    if field.type in {field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE}:
        return loop.SIZED
    return loop.VARINT if field.type != field.TYPE_GROUP else -1


#: By the type's number in descriptor.proto.
_SCALARS: Final = {
    1: (loop.DOUBLE, pa.float64()), 2: (loop.FLOAT, pa.float32()), 3: (loop.INT64, pa.int64()),
    4: (loop.UINT64, pa.decimal128(20, 0)), 5: (loop.INT32, pa.int32()), 6: (loop.WORD64, pa.decimal128(20, 0)),
    7: (loop.WORD32, pa.int64()), 8: (loop.BOOL, pa.bool_()), 9: (loop.TEXT, pa.string()),
    12: (loop.BYTES, pa.binary()), 13: (loop.UINT32, pa.int64()), 15: (loop.SFIXED32, pa.int32()),
    16: (loop.SFIXED64, pa.int64()), 17: (loop.SINT32, pa.int32()), 18: (loop.SINT64, pa.int64()),
}  # fmt: skip
