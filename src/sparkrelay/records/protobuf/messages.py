"""Protobuf messages to columns and back, one by one with Google's library: those that compiled loops leave to it.

Absent optional fields are null; absent required fields take their default. Unknown fields are ignored, by Protobuf's
rules of evolution.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import operator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import no_columns
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.protobuf.cells import why_too_wide
from sparkrelay.records.protobuf.fitting import check_columns, check_values
from sparkrelay.records.protobuf.read_loop import FIRST, LAST
from sparkrelay.records.protobuf.schema import TIMESTAMP, WRAPPERS, descriptor_of, is_map

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def messages_to_columns(
    values: pa.Array, text: str, name: str, schema: pa.Schema, index: bytes | None
) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Read one message a row, as :func:`~sparkrelay.records.protobuf.reader.protobuf_to_columns`."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra

    made, fields = _message(text, name), descriptor_of(text, name).fields_by_name
    readers = [(one.name, _reader(fields[one.name])) for one in schema]
    columns: dict[str, list[Any]] = {one.name: [] for one in schema}
    bad = []
    for row, value in enumerate(values.to_pylist()):
        message, reason = None, None
        try:
            if value is not None:
                body = value if index is None else _behind(value, index)
                reason = why_too_wide(body, text, name)
                message = made.FromString(body) if reason is None else None
            got = [None if message is None else read(message) for _, read in readers]
        except (DecodeError, ValueError, OverflowError) as error:
            reason = f"is not a message {name}: {error}; was it written by another Protobuf schema?"
            got = [None] * len(readers)
        if reason is not None:
            bad.append(BadRecord(row, reason))
        for (column, _), one in zip(readers, got, strict=True):
            columns[column].append(one)
    if not len(schema):
        return no_columns(len(values)), bad
    return pa.RecordBatch.from_pydict(columns, schema), bad


def columns_to_messages(batch: pa.RecordBatch, text: str, name: str, prefix: bytes = b"") -> pa.Array:
    """Write one message a row; a null is a field that is absent.

    Raises:
        SerializationException: the columns do not go with the message, or a value does not; names the column.
    """
    from google.protobuf.message import EncodeError  # noqa: PLC0415 - an extra

    check_columns(batch.schema, text, name)
    descriptor = descriptor_of(text, name)
    check_values(dict(zip(batch.schema.names, batch.columns, strict=True)), descriptor)
    made, fields = _message(text, name), descriptor.fields_by_name
    written = []
    for row in batch.to_pylist(maps_as_pydicts="lossy"):
        message = made()
        for column, value in row.items():
            try:
                _set(message, fields[column], value)
            except (TypeError, ValueError, OverflowError) as error:
                raise SerializationException(f"column {column!r} cannot be written as Protobuf: {error}") from error
        try:
            written.append(prefix + message.SerializeToString(deterministic=True))
        except EncodeError as error:
            raise SerializationException(f"a row cannot be written as the Protobuf message {name}: {error}") from error
    return pa.array(written, pa.binary())


@functools.lru_cache(64)
def _message(text: str, name: str) -> Any:
    from google.protobuf import message_factory  # noqa: PLC0415 - an extra

    return message_factory.GetMessageClass(descriptor_of(text, name))


def _reader(field: Any) -> Callable[[Any], Any]:
    """Return a function that reads a field of a message."""
    name = field.name
    if is_map(field):
        value = _value(field.message_type.fields_by_name["value"])
        # The library's order differs between processes, and a micro-batch that is retried must give the same rows.
        return lambda message: sorted(
            ((key, value(its)) for key, its in getattr(message, name).items()), key=operator.itemgetter(0)
        )
    one = _value(field)
    if field.is_repeated:
        return lambda message: [one(its) for its in getattr(message, name)]
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one(getattr(message, name))


def _microseconds(time: Any) -> int:
    """Return a Timestamp's microseconds, at a third of the cost of a datetime."""
    found = int(time.seconds) * 1_000_000 + int(time.nanos) // 1000
    if not FIRST <= found <= LAST:
        raise OverflowError(f"the timestamp of {time.seconds} s is not between the years 1 and 9999")
    return found


def _string(value: str | bytes) -> str:
    """Return a text; for proto2 the library returns invalid UTF-8 as bytes."""
    if isinstance(value, bytes):
        raise ValueError(f"the text {value[:40]!r} is not UTF-8")  # noqa: TRY004 - the record is bad, not the code
    return value


def _value(field: Any) -> Callable[[Any], Any]:
    """Return a function from a field's value to the column's."""
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    if field.cpp_type == field.CPPTYPE_UINT64:
        return decimal.Decimal
    if field.type == field.TYPE_STRING:
        return _string
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name == TIMESTAMP:
        return _microseconds
    if field.message_type.full_name in WRAPPERS:
        inside = _value(field.message_type.fields_by_name["value"])
        return lambda its: inside(its.value)
    readers = [(one.name, _reader(one)) for one in field.message_type.fields]
    return lambda message: {name: read(message) for name, read in readers}


def _set(message: Any, field: Any, value: Any) -> None:
    if value is None:
        return
    if is_map(field):
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
    """Fill the message that is a field's value."""
    if value is None:
        raise ValueError("a message among several cannot be null")
    if field.message_type.full_name == TIMESTAMP:
        micros = (value - _EPOCH) // _MICROSECOND
        message.seconds, message.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
    elif field.message_type.full_name in WRAPPERS:
        message.value = _plain(field.message_type.fields_by_name["value"], value)
    else:
        for name, its in value.items():
            _set(message, field.message_type.fields_by_name[name], its)


def _plain(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        found = field.enum_type.values_by_name.get(value)
        if found is None:
            raise ValueError(f"{value!r} is not one of {', '.join(field.enum_type.values_by_name)}")
        return found.number
    # Only whole numbers get here.
    return int(value) if isinstance(value, decimal.Decimal) else value


def _behind(value: bytes, index: bytes) -> bytes:
    """Return the message after its index, which has two forms for the first message of a file."""
    for form in (index, b"\x02\x00") if index == b"\0" else (index,):
        if value.startswith(form):
            return value[len(form) :]
    raise ValueError(f"it begins with {value[:6]!r}, which is the index of another message")
