"""Schemas of Protobuf messages and their columns, by Google's library (extra ``protobuf``).

Column types are those of Spark's ``from_protobuf``: enums are strings, ``Timestamp`` a timestamp, wrappers their value,
``uint32`` a bigint, ``uint64`` a decimal. Absent optional fields are null; absent required fields take their default.
"""

from __future__ import annotations

import base64
import binascii
import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.errors import SerializationException
from sparkrelay.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DEPTH: Final = 32
#: Where Protobuf's own files are.
_OWN: Final = "google/protobuf/"
TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def as_text(given: Any) -> tuple[str, str | None]:
    """Return a schema as the base64 of a FileDescriptorSet, and the message's name if it is known.

    Args:
        given: a generated message class, the bytes of a FileDescriptorSet (``protoc --descriptor_set_out=...
            --include_imports``), or their base64.
    """
    _require()
    if isinstance(given, str):
        return given, None
    if isinstance(given, bytes):
        return base64.b64encode(given).decode("ascii"), None
    descriptor = getattr(given, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(descriptor, "fields_by_name"):
        raise SerializationException(f"{given!r} is neither a generated message class nor a FileDescriptorSet's bytes")
    from google.protobuf import descriptor_pb2  # noqa: PLC0415

    files = descriptor_pb2.FileDescriptorSet()
    seen: set[str] = set()

    def add(file: Any) -> None:
        if file.name in seen:
            return
        seen.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        file.CopyToProto(files.file.add())

    add(descriptor.file)
    return base64.b64encode(files.SerializeToString(deterministic=True)).decode("ascii"), str(descriptor.full_name)


class ProtobufFile(NamedTuple):
    """A file of a schema, as a registry takes it."""

    #: As other files import it.
    name: str
    #: The base64 of the serialized file.
    text: str
    #: Names of the files that it imports.
    imports: tuple[str, ...]


def files_of(text: str) -> list[ProtobufFile]:
    """Return the files of a schema, its own last, without Protobuf's own files, which registries have."""
    return [
        ProtobufFile(
            file.name,
            base64.b64encode(file.SerializeToString(deterministic=True)).decode("ascii"),
            tuple(name for name in file.dependency if not name.startswith(_OWN)),
        )
        for file in _files(text)
        if not file.name.startswith(_OWN)
    ]


def message_name(text: str, name: str | None) -> str:
    """Check the full name of a schema's message; by default it is the first one of the last file."""
    file = _files(text)[-1]
    if name is not None:
        descriptor_of(text, name)
        return name
    if not file.message_type:
        raise SerializationException("the Protobuf schema has no message")
    return f"{file.package}.{file.message_type[0].name}".lstrip(".")


def message_index(text: str, name: str) -> list[int]:
    """Return a message's indexes in its file for Confluent's framing: outermost first."""
    descriptor, path = descriptor_of(text, name), []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = list(outer.nested_types if outer is not None else descriptor.file.message_types_by_name.values())
        path.append([one.full_name for one in siblings].index(descriptor.full_name))
        descriptor = outer
    return path[::-1]


def column_names(text: str, name: str) -> tuple[str, ...]:
    """Return the names of a message's fields."""
    return tuple(field.name for field in descriptor_of(text, name).fields)


def protobuf_schema(text: str, name: str) -> pa.Schema:
    """Return the columns of a message.

    Raises:
        SerializationException: it has no fields, or contains itself.
    """
    import pyarrow as pa  # noqa: PLC0415 - descriptions of formats load nothing heavy

    fields = [(field.name, _type(field, field.name, 0)) for field in descriptor_of(text, name).fields]
    if not fields:
        raise SerializationException(f"the Protobuf message {name} has no fields, and so no columns")
    return pa.schema(fields)


def _require() -> None:
    try:
        import google.protobuf  # noqa: F401, PLC0415
    except ImportError as error:
        raise SerializationException("Protobuf needs Google's library: pip install 'sparkrelay[protobuf]'") from error


def _files(text: str) -> Any:
    _require()
    from google.protobuf import descriptor_pb2  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text, validate=True)).file
    except (DecodeError, binascii.Error, ValueError) as error:
        raise SerializationException(f"the Protobuf schema is not a FileDescriptorSet: {error}") from error
    if not files:
        raise SerializationException("the Protobuf schema is a FileDescriptorSet without files")
    return files


@functools.lru_cache(64)
def _pool(text: str) -> Any:
    from google.protobuf import (  # noqa: PLC0415
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    files = _files(text)
    pool = descriptor_pool.DescriptorPool()
    there = {file.name for file in files}
    try:
        for known in (timestamp_pb2, wrappers_pb2, duration_pb2, struct_pb2, empty_pb2):
            if known.DESCRIPTOR.name not in there:
                pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, KeyError) as error:
        raise SerializationException(
            f"the Protobuf schema is not complete: {printable(str(error))}; a FileDescriptorSet needs --include_imports"
        ) from error
    return pool


def descriptor_of(text: str, name: str) -> Any:
    """Return the descriptor of a schema's message."""
    try:
        return _pool(text).FindMessageTypeByName(name)
    except KeyError:
        raise SerializationException(f"the Protobuf schema has no message {name!r}") from None


def is_map(field: Any) -> bool:
    """Return whether a field is a map, which is encoded as a list of messages."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _type(field: Any, path: str, depth: int, *, repeated: bool = True) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415 - descriptions of formats load nothing heavy

    if depth > MAX_DEPTH:
        raise SerializationException(
            f"field {path[:80]!r} of the Protobuf message is nested deeper than {MAX_DEPTH}, or in itself"
        )
    if is_map(field):
        key, value = field.message_type.fields
        return pa.map_(_type(key, path, depth + 1), _type(value, f"{path}{{}}", depth + 1))
    if repeated and field.is_repeated:
        return pa.list_(_type(field, f"{path}[]", depth + 1, repeated=False))
    kinds = {
        field.CPPTYPE_INT32: pa.int32(), field.CPPTYPE_INT64: pa.int64(), field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0), field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(), field.CPPTYPE_ENUM: pa.string(),
        field.CPPTYPE_STRING: pa.binary() if field.type == field.TYPE_BYTES else pa.string(),
    }  # fmt: skip
    if field.message_type is None:
        return kinds[field.cpp_type]
    if field.message_type.full_name == TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if field.message_type.full_name in WRAPPERS:
        return _type(field.message_type.fields_by_name["value"], path, depth + 1)
    inner = [(one.name, _type(one, f"{path}.{one.name}", depth + 1)) for one in field.message_type.fields]
    if not inner:
        raise SerializationException(f"field {path!r} of the Protobuf message has no fields, and so no column")
    return pa.struct(inner)
