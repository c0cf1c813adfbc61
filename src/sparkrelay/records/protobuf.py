"""Protobuf messages to columns and back, message by message, with Google's library (extra ``protobuf``).

Column types are those of Spark's ``from_protobuf``: enums are strings, ``Timestamp`` a timestamp, wrappers the value in
them, ``uint32`` a bigint, ``uint64`` a decimal. A field that can be absent and is, is null; one that cannot has its
default.
Fields that the descriptor does not have are left out, as Protobuf's rules of evolution want it.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.errors import SerializationException
from sparkrelay.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from sparkrelay.records.bad_record import BadRecord

__all__ = [
    "ProtobufFile", "as_text", "column_names", "columns_to_protobuf", "files_of", "message_index", "message_name",
    "protobuf_schema", "protobuf_to_columns",
]  # fmt: skip

MAX_DEPTH: Final = 32
#: What the files are called that come with Protobuf.
_OWN: Final = "google/protobuf/"
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_FIRST: Final = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
_LAST: Final = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND


def as_text(given: Any) -> tuple[str, str | None]:
    """Return a schema as text, the base64 of a FileDescriptorSet, and the message's name if the schema says it.

    Args:
        given: a generated message class, or the bytes of a FileDescriptorSet (``protoc --descriptor_set_out=...
            --include_imports``), or such a text.
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
    """A file of a schema, as a registry takes it.

    Attributes:
        name: by which others import it.
        text: the file, serialized, in base64.
        imports: names of the files that it imports itself.
    """

    name: str
    text: str
    imports: tuple[str, ...]


def files_of(text: str) -> list[ProtobufFile]:
    """Return the files of a schema, its own last, without those of Protobuf itself, which registries have."""
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
    """Return the full name of a schema's message: the first one of the last file, if none is named."""
    file = _files(text)[-1]
    if name is not None:
        _descriptor(text, name)
        return name
    if not file.message_type:
        raise SerializationException("the Protobuf schema has no message")
    return f"{file.package}.{file.message_type[0].name}".lstrip(".")


def message_index(text: str, name: str) -> list[int]:
    """Return where in its file a message is, as Confluent's framing says it: its number, and those of what it is in."""
    descriptor, path = _descriptor(text, name), []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = list(outer.nested_types if outer is not None else descriptor.file.message_types_by_name.values())
        path.append([one.full_name for one in siblings].index(descriptor.full_name))
        descriptor = outer
    return path[::-1]


def column_names(text: str, name: str) -> tuple[str, ...]:
    """Return the names of a message's fields."""
    return tuple(field.name for field in _descriptor(text, name).fields)


def protobuf_schema(text: str, name: str) -> pa.Schema:
    """Return the columns of a message.

    Raises:
        SerializationException: it has no fields, or contains itself.
    """
    import pyarrow as pa  # noqa: PLC0415 - descriptions of formats load nothing heavy

    fields = [(field.name, _type(field, field.name, 0)) for field in _descriptor(text, name).fields]
    if not fields:
        raise SerializationException(f"the Protobuf message {name} has no fields, which would be the columns")
    return pa.schema(fields)


def protobuf_to_columns(
    values: pa.Array, text: str, name: str, schema: pa.Schema, index: bytes | None
) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read one message a row.

    Args:
        values: bytes; null gives a row of nulls and is not bad.
        text: the schema.
        name: the message's.
        schema: the wanted fields.
        index: what is in front of each message: where it is in its file; None: nothing is.

    Returns:
        A batch of the schema, and the bad records in order, whose rows are all null.
    """
    import pyarrow as pa  # noqa: PLC0415 - descriptions of formats load nothing heavy
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    from sparkrelay.records.bad_record import BadRecord  # noqa: PLC0415

    made, fields = _message(text, name), _descriptor(text, name).fields_by_name
    readers = [(one.name, _reader(fields[one.name])) for one in schema]
    columns: dict[str, list[Any]] = {one.name: [] for one in schema}
    bad = []
    for row, value in enumerate(values.to_pylist()):
        message = None
        try:
            if value is not None:
                message = made.FromString(value if index is None else _behind(value, index))
            got = [None if message is None else read(message) for _, read in readers]
        except (DecodeError, ValueError, OverflowError) as error:
            bad.append(BadRecord(row, f"is no message {name}: {error}; was it written by another Protobuf schema?"))
            got = [None] * len(readers)
        for (column, _), one in zip(readers, got, strict=True):
            columns[column].append(one)
    if not len(schema):
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), len(values), [None])), bad
    return pa.RecordBatch.from_pydict(columns, schema), bad


def columns_to_protobuf(batch: pa.RecordBatch, text: str, name: str, prefix: bytes = b"") -> pa.Array:
    """Write one message a row; a null is a field that is absent.

    Raises:
        SerializationException: the columns do not go with the message, or a value does not; names the column.
    """
    import pyarrow as pa  # noqa: PLC0415 - descriptions of formats load nothing heavy

    made, declared = _message(text, name), protobuf_schema(text, name)
    for column in batch.schema:
        place = declared.get_field_index(column.name)
        if place < 0:
            raise SerializationException(
                f"the Protobuf message {name} has no field {column.name!r}, but {', '.join(declared.names)}; drop() it "
                "before"
            )
        try:
            pa.array([], column.type).cast(declared.field(place).type)
        except pa.ArrowNotImplementedError as error:
            raise SerializationException(
                f"column {column.name!r} is {column.type}, and the Protobuf message {name} has "
                f"{declared.field(place).type} there; cast() it before"
            ) from error
    fields = _descriptor(text, name).fields_by_name
    written = []
    for row in batch.to_pylist(maps_as_pydicts="lossy"):
        message = made()
        for column, value in row.items():
            try:
                _set(message, fields[column], value)
            except (TypeError, ValueError, OverflowError) as error:
                raise SerializationException(f"column {column!r} cannot be written as Protobuf: {error}") from error
        written.append(prefix + message.SerializeToString(deterministic=True))
    return pa.array(written, pa.binary())


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
        raise SerializationException(f"the Protobuf schema is no FileDescriptorSet: {error}") from error
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


def _descriptor(text: str, name: str) -> Any:
    try:
        return _pool(text).FindMessageTypeByName(name)
    except KeyError:
        raise SerializationException(f"the Protobuf schema has no message {name!r}") from None


@functools.lru_cache(64)
def _message(text: str, name: str) -> Any:
    from google.protobuf import message_factory  # noqa: PLC0415

    return message_factory.GetMessageClass(_descriptor(text, name))


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _type(field: Any, path: str, depth: int, *, repeated: bool = True) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415 - descriptions of formats load nothing heavy

    if depth > MAX_DEPTH:
        raise SerializationException(
            f"field {path[:80]!r} of the Protobuf message is deeper than {MAX_DEPTH}, or in itself"
        )
    if _is_map(field):
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
    if field.message_type.full_name == _TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if field.message_type.full_name in _WRAPPERS:
        return _type(field.message_type.fields_by_name["value"], path, depth + 1)
    inner = [(one.name, _type(one, f"{path}.{one.name}", depth + 1)) for one in field.message_type.fields]
    if not inner:
        raise SerializationException(f"field {path!r} of the Protobuf message is one without fields; it has no column")
    return pa.struct(inner)


def _reader(field: Any) -> Callable[[Any], Any]:
    """Return what takes a field out of a message."""
    name = field.name
    if _is_map(field):
        value = _value(field.message_type.fields_by_name["value"])
        return lambda message: [(key, value(its)) for key, its in getattr(message, name).items()]
    one = _value(field)
    if field.is_repeated:
        return lambda message: [one(its) for its in getattr(message, name)]
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one(getattr(message, name))


def _microseconds(time: Any) -> int:
    """Return a Timestamp as Arrow takes it, which costs a third of a datetime."""
    found = int(time.seconds) * 1_000_000 + int(time.nanos) // 1000
    if not _FIRST <= found <= _LAST:
        raise OverflowError(f"the timestamp of {time.seconds} s is not between the years 1 and 9999")
    return found


def _value(field: Any) -> Callable[[Any], Any]:
    """Return what makes a column's value of a field's."""
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    if field.cpp_type == field.CPPTYPE_UINT64:
        return decimal.Decimal
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name == _TIMESTAMP:
        return _microseconds
    if field.message_type.full_name in _WRAPPERS:
        inside = _value(field.message_type.fields_by_name["value"])
        return lambda its: inside(its.value)
    readers = [(one.name, _reader(one)) for one in field.message_type.fields]
    return lambda message: {name: read(message) for name, read in readers}


def _set(message: Any, field: Any, value: Any) -> None:
    if value is None:
        return
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        target = getattr(message, field.name)
        for key, its in value.items():
            if inner.message_type is None:
                target[key] = _plain(inner, its)
            else:
                _fill(target[key], inner, its)
    elif field.is_repeated:
        target = getattr(message, field.name)
        for item in value:
            if item is None:
                raise ValueError("a repeated field takes no null")
            if field.message_type is None:
                target.append(_plain(field, item))
            else:
                _fill(target.add(), field, item)
    elif field.message_type is None:
        setattr(message, field.name, _plain(field, value))
    else:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(inner, field, value)


def _fill(message: Any, field: Any, value: Any) -> None:
    """Fill a message that is a field's value."""
    if value is None:
        raise ValueError("a message among several cannot be null")
    if field.message_type.full_name == _TIMESTAMP:
        micros = (value - _EPOCH) // _MICROSECOND
        message.seconds, message.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
    elif field.message_type.full_name in _WRAPPERS:
        message.value = _plain(field.message_type.fields_by_name["value"], value)
    else:
        for name, its in value.items():
            _set(message, field.message_type.fields_by_name[name], its)


def _plain(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        found = field.enum_type.values_by_name.get(value)
        if found is None:
            raise ValueError(f"{value!r} is none of {', '.join(field.enum_type.values_by_name)}")
        return found.number
    return int(value) if isinstance(value, decimal.Decimal) else value


def _behind(value: bytes, index: bytes) -> bytes:
    """Return the message behind where in its file it is; of the first one in a file that is said in two ways."""
    for form in (index, b"\x02\x00") if index == b"\0" else (index,):
        if value.startswith(form):
            return value[len(form) :]
    raise ValueError(f"it begins with {value[:6]!r}, which is the place of another message in its file")
