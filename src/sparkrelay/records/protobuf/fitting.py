"""Whether columns fit the fields of a Protobuf message: first their types, then their values.

Google's library does not always report a loss: a decimal that becomes a double by way of an int, two members of a
``oneof``. So columns are checked here first. A type fits if every value is either unchanged or an error: a bigint fits
an ``int32`` field, where values out of range are errors, but not a ``double`` field, which would round some. Types are
checked when a pipeline is built.

Refused: types of which some values are lost without an error. Whether a sink is right would depend on the data.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import flatten, items_of
from sparkrelay.records.protobuf.read_loop import FIRST, LAST
from sparkrelay.records.protobuf.schema import TIMESTAMP, WRAPPERS, descriptor_of, is_map

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@functools.lru_cache(64)
def check_columns(schema: pa.Schema, text: str, name: str) -> None:
    """Reject columns whose types do not fit the message's fields.

    Raises:
        SerializationException: names the column, both types and the cast.
    """
    _check_names(schema, descriptor_of(text, name), "")


def check_values(columns: Mapping[str, pa.Array], descriptor: Any, path: str = "") -> None:
    """Reject values that do not fit though their type does.

    Raises:
        SerializationException: two members of a ``oneof`` are set, or a time is not a Timestamp; names the columns.
    """
    for oneof in descriptor.oneofs:
        names = [field.name for field in oneof.fields if field.name in columns]
        there = np.array([np.array(columns[name].is_valid()) for name in names])
        if len(names) > 1 and (several := np.flatnonzero(there.sum(axis=0) > 1)).size:
            both = [f"{path}{name}" for name, valid in zip(names, there[:, several[0]], strict=True) if valid]
            raise SerializationException(
                f"columns {' and '.join(map(repr, both))} both have a value in one row, and the Protobuf message "
                f"{descriptor.full_name} has one of them, its oneof {oneof.name!r}; set all but one to null before, "
                f"F.when(..., F.col({both[0]!r}))"
            )
    for name, array in columns.items():
        _check_array(array, descriptor.fields_by_name[name], f"{path}{name}")


def _check_names(fields: pa.Schema | pa.StructType, descriptor: Any, path: str) -> None:
    known = descriptor.fields_by_name
    for one in fields:
        if one.name not in known:
            remedy = "drop() it before" if not path else f"leave it out, F.col({path[:-1]!r}).dropFields({one.name!r})"
            raise SerializationException(
                f"the Protobuf message {descriptor.full_name} has no field {path + one.name!r}, but "
                f"{', '.join(known.keys())}; {remedy}"
            )
        _check_type(one.type, known[one.name], path + one.name)


def _check_type(kind: pa.DataType, field: Any, path: str, *, item: bool = False) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return
    if is_map(field):
        if not pa.types.is_map(kind):
            raise _unlike(kind, "map", path)
        for part, own in (("key", kind.key_type), ("value", kind.item_type)):
            _check_type(own, field.message_type.fields_by_name[part], f"{path}{{}}")
    elif field.is_repeated and not item:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise _unlike(kind, "array", path)
        _check_type(kind.value_type, field, f"{path}[]", item=True)
    elif field.message_type is not None and field.message_type.full_name in WRAPPERS:
        _check_type(kind, field.message_type.fields_by_name["value"], path)
    elif field.message_type is not None and field.message_type.full_name != TIMESTAMP:
        if not pa.types.is_struct(kind):
            raise _unlike(kind, "struct", path)
        _check_names(kind, field.message_type, f"{path}.")
    else:
        fits, wanted = _TIMESTAMP if field.message_type is not None else _fitting(field)
        if not fits(kind):
            raise _unlike(kind, wanted, path, column="[" not in path and "{" not in path and "." not in path)


def _unlike(kind: pa.DataType, wanted: str, path: str, *, column: bool = False) -> SerializationException:
    remedy = f"withColumn({path!r}, F.col({path!r}).cast({wanted!r}))" if column else f"cast() it to {wanted} before"
    return SerializationException(
        f"column {path!r} is {kind}, and the Protobuf message has {wanted} there, which does not take all of its "
        f"values; {remedy}"
    )


def _fitting(field: Any) -> tuple[Callable[[pa.DataType], bool], str]:
    if field.type == field.TYPE_BYTES:
        return _BYTES
    return _PLAIN[field.cpp_type]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_whole(kind: pa.DataType) -> bool:
    # The library reports numbers that are too large.
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale <= 0))


def _fits_double(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind.bit_width <= 32))


def _fits_float(kind: pa.DataType) -> bool:
    return bool(
        (pa.types.is_floating(kind) and kind.bit_width <= 32) or (pa.types.is_integer(kind) and kind.bit_width <= 16)
    )


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None)


#: The types that fit a field, and Spark's name of its column type.
_TIMESTAMP: Final = (_is_time, "timestamp")
_BYTES: Final = (_is_bytes, "binary")
#: By the library's number of the C++ type.
_PLAIN: Final[dict[int, tuple[Callable[[pa.DataType], bool], str]]] = {
    1: (_is_whole, "int"), 2: (_is_whole, "bigint"), 3: (_is_whole, "bigint"), 4: (_is_whole, "decimal(20,0)"),
    5: (_fits_double, "double"), 6: (_fits_float, "float"), 7: (pa.types.is_boolean, "boolean"),
    8: (_is_text, "string"), 9: (lambda kind: _is_text(kind) or _is_bytes(kind), "string"),
}  # fmt: skip


def _check_array(array: pa.Array, field: Any, path: str) -> None:
    array = flatten(array)
    if field.message_type is None or pa.types.is_null(array.type):
        return
    if is_map(field):
        _, (_, values) = items_of(array)
        _check_array(values, field.message_type.fields_by_name["value"], f"{path}{{}}")
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        _check_array(array.flatten(), field, f"{path}[]")
    elif pa.types.is_struct(array.type):
        names = [one.name for one in array.type]
        check_values(dict(zip(names, array.flatten(), strict=True)), field.message_type, f"{path}.")
    elif pa.types.is_timestamp(array.type):
        bounds = pc.min_max(array.cast(pa.int64())).as_py()
        for micros in (bounds["min"], bounds["max"]):
            if micros is not None and not FIRST <= micros <= LAST:
                raise SerializationException(
                    f"column {path!r} has the timestamp {micros // 1_000_000} s after 1970, which is outside the "
                    "years 1 to 9999; set such values to null before, or leave their rows out"
                )
