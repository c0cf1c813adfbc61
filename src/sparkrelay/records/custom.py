"""Values through a class of the user's, with everything that it returns looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.bad_record import BadRecord

if TYPE_CHECKING:
    from sparkrelay.records.custom_format import CustomFormat

__all__ = ["check_decode", "columns_to_custom", "custom_to_columns"]

_LONGEST_REASON: Final = 500


class _UnfitError(Exception):
    """What came back does not fit these values; it may fit fewer of them."""


def custom_to_columns(
    values: pa.Array, form: CustomFormat, schema: pa.Schema
) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read values.

    Args:
        values: bytes; null gives nulls, and ``decode`` does not see it.
        form: an object of the user's class.
        schema: the wanted columns.

    Returns:
        The columns by name, and the bad records in order, which are null in all of them.

    Raises:
        SerializationException: ``decode`` returns something else than it should, whatever the records are.
    """
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    there = values.drop_null() if values.null_count else values
    parts: list[pa.RecordBatch] = []
    bad: list[BadRecord] = []
    order = np.full(len(values), -1, np.int64)
    known = 0
    pending = [(0, len(there))] if len(there) else []
    while pending:
        start, count = pending.pop()
        try:
            part = _decoded(there.slice(start, count), form, schema)
        except _UnfitError as error:
            if count == 1:
                bad.append(BadRecord(int(rows[start]), str(error)[:_LONGEST_REASON]))
            else:
                half = count // 2
                pending += [(start + half, count - half), (start, half)]
            continue
        order[rows[start : start + count]] = known + np.arange(count)
        parts.append(part)
        known += count
    if len(parts) == 1 and known == len(values):
        return dict(zip(schema.names, parts[0].columns, strict=True)), bad
    # Of values that are null, or bad, no row came back.
    places = pa.array(order, mask=order < 0)
    columns = {}
    for index, field in enumerate(schema):
        pieces = [part.column(index) for part in parts]
        columns[field.name] = (pa.concat_arrays(pieces) if pieces else pa.nulls(0, field.type)).take(places)
    return columns, bad


def check_decode(form: CustomFormat, schema: pa.Schema) -> None:
    """Have no values decoded, to see that the columns are there.

    Raises:
        SerializationException: they are not, or ``decode`` fails.
    """
    try:
        _decoded(pa.array([], pa.binary()), form, schema)
    except _UnfitError as error:
        raise SerializationException(
            f"{error}, of an array without values; an instance asks for that to see the columns"
        ) from error


def columns_to_custom(rows: pa.RecordBatch, form: CustomFormat) -> pa.Array:
    """Write rows as values.

    Args:
        rows: the columns.
        form: an object of the user's class.

    Raises:
        SerializationException: it raises, or returns something else than it should.
    """
    name = f"{type(form).__name__}.encode()"
    try:
        values = form.encode(rows)
    except Exception as error:
        raise SerializationException(f"{name} raised {type(error).__name__}: {error}"[:_LONGEST_REASON]) from error
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array) or not _is_bytes(values.type):
        raise SerializationException(
            f"{name} returned {_kind(values)}; it must be an Arrow array of binary or string, a value for each row"
        )
    if len(values) != rows.num_rows:
        raise SerializationException(f"{name} returned {len(values)} values for {rows.num_rows} rows")
    try:
        values.validate(full=True)
        return values.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise SerializationException(f"{name} returned an array that is not valid: {error}") from error


def _decoded(values: pa.Array, form: CustomFormat, schema: pa.Schema) -> pa.RecordBatch:
    """Return the wanted columns of values.

    Raises:
        SerializationException: what came back is wrong whatever the values are.
        _UnfitError: ``decode`` raised, or what came back does not go with these values.
    """
    name = f"{type(form).__name__}.decode()"
    try:
        found = form.decode(values)
    except Exception as error:  # the user's code
        raise _UnfitError(f"{name} raised {type(error).__name__}: {error}") from error
    if isinstance(found, pa.StructArray):
        found = pa.RecordBatch.from_struct_array(found)
    if not isinstance(found, pa.RecordBatch | pa.Table):
        raise SerializationException(
            f"{name} returned {_kind(found)}; it must be a pyarrow.RecordBatch, a Table or a StructArray"
        )
    if found.num_rows != len(values):
        raise _UnfitError(f"{name} returned {found.num_rows} rows for {len(values)} values")
    arrays = []
    for field in schema:
        if found.schema.names.count(field.name) != 1:
            raise SerializationException(
                f"{name} returned the columns {', '.join(found.schema.names) or 'none'}, but the schema of "
                f"{type(form).__name__} has {field.name!r}"
            )
        column = found.column(field.name)
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        try:
            array.validate(full=True)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SerializationException(
                f"{name} returned column {field.name!r} as {array.type}, and the schema of {type(form).__name__} has "
                f"{field.type} there"
            ) from error
        except pa.ArrowInvalid as error:
            raise _UnfitError(
                f"{name} returned a column {field.name!r} that cannot be {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_bytes(kind: pa.DataType) -> bool:
    checks = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    return any(check(kind) for check in checks)


def _kind(found: Any) -> str:
    return f"an array of {found.type}" if isinstance(found, pa.Array) else f"a {type(found).__name__}"
