"""The codec of ``CustomFormat``: a user's class, with everything that it returns checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import is_variable, whole
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.row_order import bisect, put_back, write_others

if TYPE_CHECKING:
    from sparkrelay.records.custom_format import CustomFormat
    from sparkrelay.records.row_order import Rows

_LONGEST_REASON: Final = 500


class _UnfitError(Exception):
    """The result does not fit these values; fewer of them may be fine."""


def decode(
    values: pa.Array, form: CustomFormat, place: str, schema: pa.Schema
) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read values; nulls are not passed to the user's ``decode``.

    Raises:
        SerializationException: the user's ``decode`` returns something else than it should, whatever the records are.
    """
    del place
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    present = values.drop_null() if values.null_count else values
    parts: list[tuple[Rows, pa.RecordBatch]] = []
    reason = ""

    def fits(low: int, high: int) -> bool:
        nonlocal reason
        try:
            parts.append((rows[low:high], _decoded(present.slice(low, high - low), form, schema)))
        except _UnfitError as error:
            reason = str(error)[:_LONGEST_REASON]
            return False
        return True

    bad = [BadRecord(int(rows[low]), reason) for low, _ in bisect(len(present), fits)]
    return dict(zip(schema.names, put_back(parts, len(values), schema).columns, strict=True)), bad


def check_decode(form: CustomFormat, schema: pa.Schema) -> None:
    """Decode no values, to see that the columns are there.

    Raises:
        SerializationException: a column is missing, or ``decode`` fails.
    """
    try:
        _decoded(pa.array([], pa.binary()), form, schema)
    except _UnfitError as error:
        raise SerializationException(
            f"{error}, for an array without values; an instance decodes one to check the columns"
        ) from error


def encode(rows: pa.RecordBatch, form: CustomFormat, left_out: pa.Array | None) -> pa.Array:
    """Write rows as values.

    Raises:
        SerializationException: the user's ``encode`` raises, or returns something else than it should.
    """
    return write_others(left_out, rows, lambda some: _encoded(some, form))


def _encoded(rows: pa.RecordBatch, form: CustomFormat) -> pa.Array:
    name = f"{type(form).__name__}.encode()"
    try:
        values = form.encode(rows)
    except Exception as error:
        raise SerializationException(f"{name} raised {type(error).__name__}: {error}"[:_LONGEST_REASON]) from error
    if isinstance(values, pa.ChunkedArray):
        values = whole(values)
    if not isinstance(values, pa.Array) or not is_variable(values.type):
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
        SerializationException: the result is wrong, whatever the values are.
        _UnfitError: ``decode`` raised, or the result does not fit these values.
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
        array = whole(column) if isinstance(column, pa.ChunkedArray) else column
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


def _kind(found: Any) -> str:
    return f"an array of {found.type}" if isinstance(found, pa.Array) else f"a {type(found).__name__}"
