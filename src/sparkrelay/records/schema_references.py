"""Schemas of a registry with the schemas that they refer to, as one text. Pure.

References are an Avro type's full name, the URI of a JSON Schema's ``$ref``, or the path of a Protobuf ``import``.
Readers, writers and workers know no registry, so the referenced schemas are included.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from sparkrelay.errors import SerializationException
from sparkrelay.printable import printable
from sparkrelay.records.avro.schema import MAX_DEPTH, PRIMITIVES

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Bytes of a whole schema: a large one may be referred to several times.
_LONGEST: Final = 16 << 20
_NAMED: Final = ("record", "enum", "fixed", "error")


def whole_schema(kind: str, text: str, referred: Mapping[str, str]) -> str:
    """Return a schema with the schemas that it refers to.

    Args:
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        text: the schema; for ``PROTOBUF`` a serialized file in base64.
        referred: name -> schema, of all direct and indirect references, the indirect ones first.

    Returns:
        The schema; for ``PROTOBUF`` a serialized set of files in base64, its own last.

    Raises:
        SerializationException: one of them cannot be read.
    """
    if kind == "AVRO":
        return _short(_Avro({name: _parsed(its, name) for name, its in referred.items()}).whole(_parsed(text, "it")))
    if kind == "JSON":
        return _short(_whole_json(_parsed(text, "it"), {name: _parsed(its, name) for name, its in referred.items()}))
    return _file_set(text, referred)


def _parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # Avro's primitives may have no quotes.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise SerializationException(f"schema {printable(name)!r} of the registry is not JSON: {error}") from error


def _short(schema: Any) -> str:
    text = json.dumps(schema, separators=(",", ":"))
    if len(text) > _LONGEST:
        raise SerializationException(f"the schema has {len(text)} bytes with its references, more than {_LONGEST}")
    return text


class _Avro:
    """Replaces the first use of each name by the type's declaration."""

    def __init__(self, referred: Mapping[str, Any]) -> None:
        #: Full name -> declaration, and the namespace around it.
        self._known: dict[str, tuple[dict[str, Any], str]] = {}
        self._put_in: set[str] = set()
        for schema in referred.values():
            self._collect(schema, "", 0)

    def whole(self, schema: Any) -> Any:
        """Return a schema that declares each type before it names it."""
        return self._type(schema, "", 0)

    def _collect(self, schema: Any, namespace: str, depth: int) -> None:
        _check_depth(depth)
        if isinstance(schema, list):
            for one in schema:
                self._collect(one, namespace, depth + 1)
        elif isinstance(schema, dict):
            inner = namespace
            if schema.get("type") in _NAMED and isinstance(schema.get("name"), str):
                full = _full_name(schema, namespace)
                self._known.setdefault(full, (schema, namespace))
                inner = full.rpartition(".")[0]
            for one in _fields(schema):
                self._collect(one.get("type"), inner, depth + 1)
            for key in ("type", "items", "values"):
                self._collect(schema.get(key), inner, depth + 1)

    def _type(self, schema: Any, namespace: str, depth: int) -> Any:
        _check_depth(depth)
        if isinstance(schema, str):
            return self._by_name(schema, namespace, depth)
        if isinstance(schema, list):
            return [self._type(one, namespace, depth + 1) for one in schema]
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") not in _NAMED or not isinstance(schema.get("name"), str):
            inner = {key: self._type(schema[key], namespace, depth + 1) for key in ("type", "items", "values")
                     if key in schema}  # fmt: skip
            return {**schema, **inner}
        full = _full_name(schema, namespace)
        if full in self._put_in and full in self._known:
            return full
        self._put_in.add(full)
        space, _, name = full.rpartition(".")
        made = {**schema, "name": name, "namespace": space}
        if isinstance(schema.get("fields"), list):
            made["fields"] = [
                {**one, "type": self._type(one.get("type"), space, depth + 1)} if isinstance(one, dict) else one
                for one in schema["fields"]
            ]
        return made

    def _by_name(self, name: str, namespace: str, depth: int) -> Any:
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        # By Avro's rules a name without a namespace may be in none.
        full = full if full in self._known or full in self._put_in else name
        if full in self._put_in or full not in self._known:
            return full if full in self._put_in else name
        declared, around = self._known[full]
        return self._type(declared, around, depth + 1)


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name = str(schema["name"])
    if "." in name:
        return name
    inside = schema.get("namespace", namespace)
    return f"{inside}.{name}" if isinstance(inside, str) and inside else name


def _fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    given = schema.get("fields")
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def _whole_json(schema: Any, referred: Mapping[str, Any]) -> Any:
    """Add the referenced schemas to ``$defs`` by name, and point references there."""
    if not isinstance(schema, dict):
        return schema
    made = _rewritten(schema, "", referred, 0)
    defined = made.get("$defs")
    made["$defs"] = {
        **(defined if isinstance(defined, dict) else {}),
        **{name: _rewritten(its, name, referred, 0) for name, its in referred.items()},
    }
    return made


def _rewritten(schema: Any, own: str, referred: Mapping[str, Any], depth: int) -> Any:
    _check_depth(depth)
    if isinstance(schema, list):
        return [_rewritten(one, own, referred, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _rewritten(its, own, referred, depth + 1) for key, its in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name, _, pointer = reference.partition("#")
        target = own if not name else _named(name, referred)
        if target:
            made["$ref"] = f"#/$defs/{target.replace('~', '~0').replace('/', '~1')}{pointer}"
    return made


def _named(name: str, referred: Mapping[str, Any]) -> str | None:
    """Return the name of the referenced schema, found by its name or its ``$id``."""
    if name in referred:
        return name
    if unquote(name) in referred:
        return unquote(name)
    return next((own for own, its in referred.items() if isinstance(its, dict) and its.get("$id") == name), None)


def _file_set(file: str, referred: Mapping[str, str]) -> str:
    from google.protobuf import descriptor_pb2  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    files = descriptor_pb2.FileDescriptorSet()
    try:
        for name, its in referred.items():
            one = files.file.add()
            one.ParseFromString(base64.b64decode(its, validate=True))
            # The registry's own name of a file is not the path by which others import it.
            one.name = name
        files.file.add().ParseFromString(base64.b64decode(file, validate=True))
    except (DecodeError, binascii.Error, ValueError) as error:
        raise SerializationException(f"a Protobuf schema of the registry is not a serialized file: {error}") from error
    return base64.b64encode(files.SerializeToString(deterministic=True)).decode("ascii")


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise SerializationException(f"the schema, with its references, is nested deeper than {MAX_DEPTH} levels")
