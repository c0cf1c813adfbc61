"""Avro schemas: JSON text to a tree.

Source: Avro 1.12's specification, "Schema Declaration". As it says, a logical type that does not fit its type is
ignored.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from sparkrelay.errors import SerializationException
from sparkrelay.printable import printable

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_DEPTH: Final = 64
"""Of nested types: readers recurse over schemas."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_LOGICAL: Final = {
    "int": {"date"},
    "long": {"timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"},
    "string": {"uuid"},
    "bytes": {"decimal"},
    "fixed": {"decimal", "uuid"},
}
_MAX_PRECISION: Final = 38


@dataclass(frozen=True, slots=True)
class Primitive:
    """One of Avro's eight primitive types, with its logical type if that is known here."""

    kind: str
    logical: str | None = None
    # Of a decimal.
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class AvroFixed:
    """Bytes of one size; names of types are full names."""

    name: str
    size: int
    logical: str | None = None
    # Of a decimal.
    precision: int = 0
    scale: int = 0
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AvroEnum:
    """One of some symbols; a reader's default stands for unknown ones."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class AvroRecord:
    """Fields in the order in which they are written."""

    name: str
    fields: list[AvroField] = field(default_factory=list)
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    """A field of a record, with the JSON of its default if ``has_default``."""

    name: str
    type: AvroType
    default: Any = None
    has_default: bool = False
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class AvroArray:
    """A list of items of one type."""

    items: AvroType


@dataclass(frozen=True, slots=True, eq=False)
class AvroMap:
    """Names with values of one type."""

    values: AvroType


@dataclass(frozen=True, slots=True, eq=False)
class AvroUnion:
    """One of several types."""

    branches: tuple[AvroType, ...]


NULL: Final = Primitive("null")
AvroType = Primitive | AvroFixed | AvroEnum | AvroRecord | AvroArray | AvroMap | AvroUnion


def parse_schema(text: str) -> AvroType:
    """Parse the JSON of a schema.

    Raises:
        SerializationException: it is not a schema; says where and why.
    """
    try:
        declared = json.loads(text)
    except (ValueError, RecursionError) as error:
        if _NAME.fullmatch(text.strip()):
            declared = text.strip()
        else:
            raise SerializationException(f"the Avro schema is not JSON: {printable(str(error))}") from error
    return _Parser().type(declared, "", "", 0)


def without_null(kind: AvroType) -> AvroType:
    """Return the other branch of a union of null and one type; any other type as it is."""
    if isinstance(kind, AvroUnion):
        others = [branch for branch in kind.branches if branch != NULL]
        if len(others) == 1:
            return others[0]
    return kind


def is_nullable(kind: AvroType) -> bool:
    """Return whether a value may be null."""
    return kind == NULL or (isinstance(kind, AvroUnion) and NULL in kind.branches)


def type_name(kind: AvroType) -> str:
    """Return the name of a type in messages and in unions."""
    match kind:
        case Primitive():
            return kind.kind
        case AvroArray():
            return "array"
        case AvroMap():
            return "map"
        case AvroUnion():
            return f"union of {', '.join(map(type_name, kind.branches))}"
        case _:
            return kind.name


class _Parser:
    def __init__(self) -> None:
        #: Declared so far, by full name.
        self._named: dict[str, AvroType] = {}

    def type(self, declared: Any, namespace: str, path: str, depth: int) -> AvroType:
        """Return the declared type; ``path`` is its place in the schema."""
        if depth > MAX_DEPTH:
            raise SerializationException(f"the Avro schema nests types deeper than {MAX_DEPTH} levels at {path[:80]!r}")
        if isinstance(declared, str):
            return self._by_name(declared, namespace, path)
        if isinstance(declared, list):
            return self._union(declared, namespace, path, depth)
        if not isinstance(declared, dict):
            raise _wrong(path, f"{declared!r} is not a type")
        kind = declared.get("type")
        match kind:
            case "record" | "error":
                return self._record(declared, namespace, path, depth)
            case "enum":
                return self._enum(declared, namespace, path)
            case "fixed":
                return self._fixed(declared, namespace, path)
            case "array":
                return AvroArray(self.type(declared.get("items"), namespace, f"{path}[]", depth + 1))
            case "map":
                return AvroMap(self.type(declared.get("values"), namespace, f"{path}{{}}", depth + 1))
            case str() if kind in PRIMITIVES:
                return Primitive(kind, *_logical(declared, kind))
            case str() | dict() | list():
                # {"type": {...}} and {"type": "com.shop.Named"} are the same as the inner declaration.
                return self.type(kind, namespace, path, depth + 1)
            case _:
                raise _wrong(path, f"{declared!r} has no type")

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = _full(name, namespace)
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise _wrong(path, f"no type {full!r} was declared before it")
        return found

    def _union(self, branches: list[Any], namespace: str, path: str, depth: int) -> AvroUnion:
        kinds = tuple(self.type(branch, namespace, path, depth + 1) for branch in branches)
        names = [type_name(kind) for kind in kinds]
        if not kinds or any(isinstance(kind, AvroUnion) for kind in kinds) or len(set(names)) < len(names):
            raise _wrong(path, f"a union has different types, and no unions, as its branches: {names}")
        return AvroUnion(kinds)

    def _declare(self, declared: dict[str, Any], namespace: str, path: str) -> tuple[str, str, frozenset[str]]:
        """Return a named type's full name, its inner namespace and its full aliases."""
        name = declared.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _wrong(path, f"{declared.get('type')} has the invalid name {name!r}")
        inside = declared.get("namespace", namespace)
        full = _full(name, inside if isinstance(inside, str) else namespace)
        if full in self._named:
            raise _wrong(path, f"{full!r} is declared twice")
        outer = full.rpartition(".")[0]
        return full, outer, frozenset(_full(alias, outer) for alias in _aliases(declared))

    def _record(self, declared: dict[str, Any], namespace: str, path: str, depth: int) -> AvroRecord:
        name, inside, aliases = self._declare(declared, namespace, path)
        record = self._named[name] = AvroRecord(name, aliases=aliases)
        fields = declared.get("fields")
        if not isinstance(fields, list):
            raise _wrong(path, f"record {name!r} has no list of fields")
        for one in fields:
            own = one.get("name") if isinstance(one, dict) else None
            if not isinstance(own, str) or not _NAME.fullmatch(own) or "." in own:
                raise _wrong(path, f"record {name!r} has the field {one!r} without a valid name")
            if any(own == other.name for other in record.fields):
                raise _wrong(path, f"record {name!r} has two fields {own!r}")
            where = f"{path}.{own}" if path else own
            kind = self.type(one.get("type"), inside, where, depth + 1)
            record.fields.append(AvroField(own, kind, one.get("default"), "default" in one, frozenset(_aliases(one))))
        return record

    def _enum(self, declared: dict[str, Any], namespace: str, path: str) -> AvroEnum:
        name, _, aliases = self._declare(declared, namespace, path)
        symbols, default = declared.get("symbols"), declared.get("default")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(one, str) for one in symbols):
            raise _wrong(path, f"enum {name!r} has no list of symbols")
        if len(set(symbols)) < len(symbols):
            raise _wrong(path, f"enum {name!r} has a symbol twice")
        if default is not None and default not in symbols:
            raise _wrong(path, f"enum {name!r} has the default {default!r}, which is not one of its symbols")
        kind = self._named[name] = AvroEnum(name, tuple(symbols), default, aliases)
        return kind

    def _fixed(self, declared: dict[str, Any], namespace: str, path: str) -> AvroFixed:
        name, _, aliases = self._declare(declared, namespace, path)
        size = declared.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
            raise _wrong(path, f"fixed {name!r} has the invalid size {size!r}")
        logical, precision, scale = _logical(declared, "fixed")
        if logical == "uuid" and size != 16:
            logical = None
        kind = self._named[name] = AvroFixed(name, size, logical, precision, scale, aliases)
        return kind


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _aliases(declared: dict[str, Any]) -> list[str]:
    given = declared.get("aliases")
    return [alias for alias in given if isinstance(alias, str)] if isinstance(given, list) else []


def _logical(declared: dict[str, Any], kind: str) -> tuple[str | None, int, int]:
    """Return the logical type, precision and scale; none if it does not fit its type."""
    logical = declared.get("logicalType")
    if not isinstance(logical, str) or logical not in _LOGICAL.get(kind, ()):
        return None, 0, 0
    if logical != "decimal":
        return logical, 0, 0
    precision, scale = declared.get("precision"), declared.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return None, 0, 0
    if precision > _MAX_PRECISION:
        raise SerializationException(
            f"the Avro schema has a decimal of {precision} digits, and Spark's decimals have {_MAX_PRECISION} at most"
        )
    return logical, precision, scale


def _wrong(path: str, reason: str) -> SerializationException:
    where = f" at {path!r}" if path else ""
    return SerializationException(f"the Avro schema is wrong{where}: {printable(reason)[:300]}")
