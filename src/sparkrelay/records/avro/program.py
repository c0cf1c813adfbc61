"""From a writer's and a reader's schema to the program that the loop follows: Avro's rules of schema resolution.

Fields are matched by name and alias in any order; the writer's other fields are skipped, the reader's other fields get
their defaults. Numbers are promoted, strings and bytes are read as each other, unknown symbols of an enum become the
reader's default. Names of records, enums and fixed types only decide among several such branches of a writer's union.
Timestamps have the writer's unit.

A default is encoded as Avro once, and read by the same loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import LoopMemory
from sparkrelay.records.avro import read_loop as loop
from sparkrelay.records.avro.arrow_types import arrow_type, columns_of, takes_no_bytes
from sparkrelay.records.avro.defaults import default_bytes
from sparkrelay.records.avro.schema import (
    NULL,
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroUnion,
    Primitive,
    is_nullable,
    type_name,
    without_null,
)
from sparkrelay.records.nested_columns import NodeTree

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkrelay.records.avro.schema import AvroType
    from sparkrelay.records.nested_columns import Node

_MAX_INSTRUCTIONS: Final = 50_000
_PROMOTED: Final = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
_UNITS: Final = {
    "timestamp-millis": 1000, "local-timestamp-millis": 1000, "timestamp-micros": 1, "local-timestamp-micros": 1,
}  # fmt: skip
_SIZES: Final = {"boolean": 1, "float": 4, "double": 8}


class Program(LoopMemory):
    """The instructions that the loop follows for each record."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = NodeTree()
        #: The wanted columns by name.
        self.roots: dict[str, Node] = {}
        #: Of nested lists.
        self.depth = 1
        self._code: list[list[int]] = []
        self._paths: list[str] = []
        self._lists = 0

    @property
    def code(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The instructions."""
        return np.array(self._code, np.int64).reshape(-1, loop.WIDTH)

    def path(self, at: int) -> str:
        """Return the field of an instruction."""
        return self._paths[at]

    def add(self, path: str, op: int, node: Node | None = None, a: int = 0, b: int = 0) -> int:
        """Add an instruction; returns its number."""
        if len(self._code) >= _MAX_INSTRUCTIONS:
            raise SerializationException(
                f"the Avro schema has more than {_MAX_INSTRUCTIONS} fields, nested ones included"
            )
        self._code.append([op, -1 if node is None else node.column, a, b])
        self._paths.append(path)
        return len(self._code) - 1

    def here(self) -> int:
        """Return the number of the next instruction."""
        return len(self._code)

    def undo(self, to: int) -> None:
        """Remove the instructions from a number on."""
        del self._code[to:], self._paths[to:]

    def patch(self, at: int, *, a: int | None = None, b: int | None = None) -> None:
        """Set an instruction's arguments."""
        self._code[at][2] = self._code[at][2] if a is None else a
        self._code[at][3] = self._code[at][3] if b is None else b

    def enter_list(self) -> None:
        """Note that a list begins."""
        self._lists += 1
        self.depth = max(self.depth, self._lists)

    def leave_list(self) -> None:
        """Note that a list ends."""
        self._lists -= 1


class _UnlikeError(Exception):
    """The writer's type does not match the reader's."""


def make_program(writer: AvroType, reader: AvroType, place: str, wanted: Collection[str]) -> Program:
    """Return how records of the writer's schema become the wanted columns of the reader's.

    Args:
        writer: the schema of the bytes.
        reader: the schema of the columns; :func:`arrow_types.arrow_schema_of` takes it.
        place: ``key`` or ``value``, the column of a schema that is not a record.
        wanted: the columns to read; others are skipped.

    Raises:
        SerializationException: the schemas do not match; says where.
    """
    program = Program()
    for name, kind in columns_of(reader, place):
        if name in wanted:
            program.roots[name] = program.tree.add(arrow_type(kind, name))
    resolver = _Resolver(program)
    try:
        if isinstance(reader, AvroRecord):
            resolver.union_of_records(writer, reader)
        else:
            resolver.read(writer, reader, program.roots.get(place), place)
    except _UnlikeError as error:
        raise SerializationException(
            f"a record of this writer's schema cannot be read by the reader's: {error}"
        ) from None
    program.add("", loop.END)
    return program


class _Resolver:
    """Adds the instructions for pairs of types."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._above: list[str] = []

    def union_of_records(self, writer: AvroType, reader: AvroRecord) -> None:
        """Read a top-level record, which may be a branch of a union."""
        if isinstance(writer, AvroUnion):
            self._branches(writer, reader, "", lambda branch: self.union_of_records(branch, reader))
        elif isinstance(writer, AvroRecord):
            self._fields(writer, reader, self._program.roots, "")
        else:
            raise _UnlikeError(f"it is a {type_name(writer)}, not a record")

    def read(self, writer: AvroType, reader: AvroType, node: Node | None, path: str) -> None:
        """Read a value; ``node`` is None where it is skipped."""
        if node is None:
            self.skip(writer, path)
        elif isinstance(writer, AvroUnion):
            self._branches(writer, reader, path, lambda branch: self.read(branch, reader, node, path))
        elif writer == NULL:
            if not is_nullable(reader):
                raise _UnlikeError(f"field {path!r} is null, and the reader's schema has no null there")
            self._null(node, path)
        else:
            self._value(writer, without_null(reader), node, path)

    def skip(self, writer: AvroType, path: str) -> None:
        """Skip a value."""
        program = self._program
        match writer:
            case Primitive("null"):
                pass
            case Primitive("int" | "long") | AvroEnum():
                program.add(path, loop.SKIP_INT)
            case Primitive("bytes" | "string"):
                program.add(path, loop.SKIP_BYTES)
            case Primitive():
                program.add(path, loop.SKIP_FIXED, a=_SIZES[writer.kind])
            case AvroFixed():
                program.add(path, loop.SKIP_FIXED, a=writer.size)
            case AvroUnion():
                self._branches(writer, None, path, lambda branch: self.skip(branch, path))
            case AvroRecord() if not takes_no_bytes(writer):
                self._enter(writer, path)
                for one in writer.fields:
                    self.skip(one.type, f"{path}.{one.name}")
                self._above.pop()
            case AvroArray():
                self._list(writer.items, None, path, lambda: self.skip(writer.items, f"{path}[]"))
            case AvroMap():
                self._list(Primitive("string"), None, path, lambda: self._skip_entry(writer, path))

    def _skip_entry(self, writer: AvroMap, path: str) -> None:
        self._program.add(path, loop.SKIP_BYTES)
        self.skip(writer.values, f"{path}{{}}")

    def _enter(self, record: AvroRecord, path: str) -> None:
        if record.name in self._above:
            raise SerializationException(f"field {path!r} of the Avro schema is a record {record.name} in itself")
        self._above.append(record.name)

    def _branches(self, writer: AvroUnion, reader: AvroType | None, path: str, read: Any) -> None:
        """Read one of several types; a branch that the reader does not take makes the record bad."""
        meant = _meant(writer, reader)
        program = self._program
        table = np.zeros(len(writer.branches), np.int64)
        program.add(path, loop.UNION, a=len(table), b=program.address(table))
        ends, failed, reasons = [], 0, []
        # Null first, so that the usual branch needs no jump.
        order = sorted(range(len(table)), key=lambda number: writer.branches[number] != NULL)
        for number in order:
            table[number] = program.here()
            above = list(self._above)
            try:
                if number not in meant:
                    raise _UnlikeError(f"it is a {type_name(writer.branches[number])}, a type of another name")
                read(writer.branches[number])
            except _UnlikeError as error:
                program.undo(int(table[number]))
                self._above = above
                program.add(path, loop.FAIL)
                failed += 1
                reasons.append(str(error))
                continue
            if number != order[-1]:
                ends.append(program.add(path, loop.JUMP))
        if failed == len(table):
            raise _UnlikeError(reasons[0])
        for at in ends:
            program.patch(at, a=program.here())

    def _null(self, node: Node, path: str) -> None:
        self._program.add(path, loop.NULL, node)
        if pa.types.is_struct(node.type):
            for inner in node.inner:
                self._null(inner, path)

    def _list(self, item: AvroType, node: Node | None, path: str, read: Any) -> None:
        if takes_no_bytes(item):
            raise SerializationException(f"field {path!r} of the Avro schema is an array whose items take no bytes")
        program = self._program
        program.enter_list()
        start = program.add(path, loop.LIST, node, a=-1 if node is None else node.items)
        read()
        program.add(path, loop.LIST_END)
        program.leave_list()
        program.patch(start, b=program.here())

    def _value(self, writer: AvroType, reader: AvroType, node: Node, path: str) -> None:
        program = self._program
        match writer, reader:
            case (Primitive() | AvroFixed(), Primitive() | AvroFixed()):
                self._plain(writer, reader, node, path)
            case AvroEnum(), AvroEnum():
                table = np.zeros((len(writer.symbols), 2), np.int64)
                for number, symbol in enumerate(writer.symbols):
                    known = symbol if symbol in reader.symbols else reader.default
                    if known is not None:
                        table[number] = program.address(known.encode() or b"\0"), len(known.encode())
                program.add(path, loop.ENUM, node, a=len(table), b=program.address(table))
            case AvroRecord(), AvroRecord():
                program.add(path, loop.VALID, node)
                names = [one.name for one in reader.fields]
                self._fields(writer, reader, dict(zip(names, node.inner, strict=True)), path)
            case AvroArray(), AvroArray():
                item = node.inner[0]
                self._list(writer.items, node, path, lambda: self.read(writer.items, reader.items, item, f"{path}[]"))
            case AvroMap(), AvroMap():
                self._list(Primitive("string"), node, path, lambda: self._entry(writer, reader, node, path))
            case _:
                raise _unlike(writer, reader, path)

    def _entry(self, writer: AvroMap, reader: AvroMap, node: Node, path: str) -> None:
        self._program.add(path, loop.TEXT, node.inner[0])
        self.read(writer.values, reader.values, node.inner[1], f"{path}{{}}")

    def _plain(self, writer: Primitive | AvroFixed, reader: Primitive | AvroFixed, node: Node, path: str) -> None:
        program = self._program
        if reader.logical == "decimal":
            self._decimal(writer, reader, node, path)
            return
        if isinstance(writer, AvroFixed) or isinstance(reader, AvroFixed):
            if not (isinstance(writer, AvroFixed) and isinstance(reader, AvroFixed)) or writer.size != reader.size:
                raise _unlike(writer, reader, path)
            node.is_uuid = reader.logical == "uuid"
            program.add(path, loop.FIXED, node, a=writer.size)
            return
        if writer.kind != reader.kind and (writer.kind, reader.kind) not in _PROMOTED:
            raise _unlike(writer, reader, path)
        narrow = int(writer.kind == "int")
        match reader.kind:
            case "int" | "long":
                unit = 1
                if reader.logical in _UNITS:
                    unit = _UNITS.get(str(writer.logical), _UNITS[reader.logical])
                program.add(path, loop.INT, node, a=narrow, b=unit)
            case "float" | "double" if writer.kind in {"int", "long"}:
                program.add(path, loop.INT_TO_DOUBLE, node, a=narrow)
            case "float" | "double":
                program.add(path, loop.FLOAT if writer.kind == "float" else loop.DOUBLE, node)
            case "boolean":
                program.add(path, loop.BOOL, node)
            case "string":
                program.add(path, loop.TEXT, node)
            case _:
                program.add(path, loop.BYTES, node)

    def _decimal(self, writer: Primitive | AvroFixed, reader: Primitive | AvroFixed, node: Node, path: str) -> None:
        if not isinstance(writer, AvroFixed) and writer.kind != "bytes":
            raise _unlike(writer, reader, path)
        if writer.logical == "decimal" and (writer.precision, writer.scale) != (reader.precision, reader.scale):
            raise _UnlikeError(
                f"field {path!r} was written as decimal({writer.precision}, {writer.scale}), and is to be read as "
                f"decimal({reader.precision}, {reader.scale})"
            )
        bounds = decimal_bounds(reader.precision)
        size = writer.size if isinstance(writer, AvroFixed) else -1
        self._program.add(path, loop.DECIMAL, node, a=size, b=self._program.address(bounds))

    def _fields(self, writer: AvroRecord, reader: AvroRecord, nodes: dict[str, Node], path: str) -> None:
        """Read the fields in the writer's order, then the defaults of missing ones."""
        self._enter(writer, path or writer.name)
        pairs = _pairs(writer, reader)
        for one in writer.fields:
            wanted = pairs.get(one.name)
            where = f"{path}.{one.name}" if path else one.name
            if wanted is None or wanted.name not in nodes:
                self.skip(one.type, where)
            else:
                self.read(one.type, wanted.type, nodes[wanted.name], where)
        there = {wanted.name for wanted in pairs.values()}
        for missing in reader.fields:
            if missing.name in there or missing.name not in nodes:
                continue
            where = f"{path}.{missing.name}" if path else missing.name
            if not missing.has_default:
                raise _UnlikeError(f"field {where!r} is not in the writer's schema, and has no default in the reader's")
            self._default(missing.type, missing.default, nodes[missing.name], where)
        self._above.pop()

    def _default(self, kind: AvroType, default: Any, node: Node, path: str) -> None:
        if default is None and is_nullable(kind):
            self._null(node, path)
            return
        data = default_bytes(kind, default, path)
        program = self._program
        program.add(path, loop.CONSTANT, a=program.address(data), b=len(data))
        above, self._above = self._above, []
        self.read(kind, kind, node, path)
        self._above = above
        program.add(path, loop.CONSTANT_END)


def decimal_bounds(precision: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the smallest number with too many digits and its negative, each as two halves of 64 bits."""
    limit = 10**precision
    halves = [half for number in (limit, -limit) for half in (number >> 64, number & ((1 << 64) - 1))]
    return np.array([half - (1 << 64) if half >= 1 << 63 else half for half in halves], np.int64)


def _meant(writer: AvroUnion, reader: AvroType | None) -> set[int]:
    """Return the branches that match a reader's type by name.

    Of several records (enums, fixed types) those with its name or an alias match: first with namespaces, then without,
    by Avro's specification ("Schema Resolution") and as Java's ``Resolver`` does for enums and fixed types. If none
    has such a name, all of them match.
    """
    everything = set(range(len(writer.branches)))
    named = reader if reader is None else without_null(reader)
    if not isinstance(named, AvroRecord | AvroEnum | AvroFixed):
        return everything
    names = {number: one.name for number, one in enumerate(writer.branches) if isinstance(one, type(named))}
    wanted = {named.name, *named.aliases}
    found = {number for number, name in names.items() if name in wanted}
    if not found:
        short = {name.rpartition(".")[2] for name in wanted}
        found = {number for number, name in names.items() if name.rpartition(".")[2] in short}
    return everything - names.keys() | found if found else everything


def _pairs(writer: AvroRecord, reader: AvroRecord) -> dict[str, Any]:
    """Return the reader's field of each field of the writer's, by name, else by alias."""
    written = {one.name for one in writer.fields}
    pairs = {one.name: one for one in reader.fields if one.name in written}
    for one in reader.fields:
        if one.name not in written:
            for alias in sorted(one.aliases):
                if alias in written and alias not in pairs:
                    pairs[alias] = one
                    break
    return pairs


def _unlike(writer: AvroType, reader: AvroType, path: str) -> _UnlikeError:
    return _UnlikeError(f"field {path!r} was written as {type_name(writer)}, and is read as {type_name(reader)}")
