"""JSON Schemas to columns: their fields and types.

Keywords that only validate (``minimum``, ``pattern``, ...) are ignored. A field without a single type, such as a
choice, is a string column, which takes any JSON as its text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import SerializationException
from sparkrelay.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DEPTH: Final = 32


def properties_of(text: str) -> dict[str, Any]:
    """Return the properties of the object that a schema describes.

    Raises:
        SerializationException: it is not the JSON Schema of an object.
    """
    return _properties(_root(text))


def required_of(text: str) -> tuple[list[str], bool]:
    """Return the required properties, and whether an object may have others than the schema's."""
    root = _root(text)
    kind = _resolved(root, root, "")
    required = kind.get("required")
    named = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return named, kind.get("additionalProperties", True) is not False


def text_properties(text: str) -> frozenset[str]:
    """Return the properties that must be strings; other properties may have string columns too."""
    root = _root(text)
    kinds = _properties(root).items()
    return frozenset(name for name, kind in kinds if _types(_resolved(kind, root, name)) == ["string"])


def json_schema_columns(text: str) -> pa.Schema:
    """Return the columns of a schema's properties.

    Raises:
        SerializationException: it is not the JSON Schema of an object, or it contains itself.
    """
    import pyarrow as pa  # noqa: PLC0415 - descriptions of formats load nothing heavy

    root = _root(text)
    return pa.schema([(name, _type(kind, root, name, 0)) for name, kind in _properties(root).items()])


def _properties(root: dict[str, Any]) -> dict[str, Any]:
    properties = _resolved(root, root, "").get("properties")
    if not isinstance(properties, dict) or not properties:
        raise SerializationException("the JSON Schema is not that of an object with properties, which are the columns")
    return properties


def _root(text: str) -> dict[str, Any]:
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SerializationException(f"the JSON Schema is not JSON: {printable(str(error))}") from error
    if not isinstance(root, dict):
        raise SerializationException("the JSON Schema is not an object")
    return root


def _resolved(kind: Any, root: dict[str, Any], path: str) -> dict[str, Any]:
    """Follow references within the schema, and leave null out of choices."""
    for _ in range(MAX_DEPTH):
        if not isinstance(kind, dict):
            return {}
        reference = kind.get("$ref")
        choices = kind.get("oneOf", kind.get("anyOf"))
        if isinstance(reference, str):
            kind = _pointed(reference, root, path)
        elif isinstance(choices, list) and "type" not in kind:
            others = [one for one in choices if not (isinstance(one, dict) and one.get("type") == "null")]
            if len(others) != 1:
                return {}
            kind = others[0]
        else:
            return kind
    raise SerializationException(f"the JSON Schema refers to itself at {path!r}, so its column would be endless")


def _pointed(reference: str, root: dict[str, Any], path: str) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        raise SerializationException(
            f"the JSON Schema refers to {printable(reference)!r} at {path!r}; only references within "
            "the schema are followed"
        )
    found: Any = root
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        raise SerializationException(f"the JSON Schema has no {printable(reference)!r}, which it refers to at {path!r}")
    return found


def _types(kind: dict[str, Any]) -> list[Any]:
    """Return the types that a schema names, without null."""
    named = kind.get("type")
    return [one for one in (named if isinstance(named, list) else [named]) if one != "null"]


def _type(kind: Any, root: dict[str, Any], path: str, depth: int) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415 - descriptions of formats load nothing heavy

    if depth > MAX_DEPTH:
        raise SerializationException(
            f"the JSON Schema nests {path[:80]!r} deeper than {MAX_DEPTH} levels, or in itself"
        )
    kind = _resolved(kind, root, path)
    match _types(kind):
        case ["boolean"]:
            return pa.bool_()
        case ["integer"]:
            return pa.int64()
        case ["number"] | ["integer", "number"] | ["number", "integer"]:
            return pa.float64()
        case ["array"] if isinstance(kind.get("items"), dict):
            return pa.list_(_type(kind["items"], root, f"{path}[]", depth + 1))
        case ["object"] if isinstance(kind.get("properties"), dict) and kind["properties"]:
            inner = kind["properties"].items()
            return pa.struct([(name, _type(one, root, f"{path}.{name}", depth + 1)) for name, one in inner])
        case ["object"] if isinstance(kind.get("additionalProperties"), dict):
            return pa.map_(pa.string(), _type(kind["additionalProperties"], root, f"{path}{{}}", depth + 1))
        case ["string"] if kind.get("format") == "date-time":
            return pa.timestamp("us", "UTC")
        case ["string"] if kind.get("format") == "date":
            return pa.date32()
        case ["string"] if kind.get("contentEncoding") == "base64":
            return pa.binary()
    return pa.string()
