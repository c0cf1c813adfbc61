"""Conversion of state columns between Arrow arrays and numpy fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import as_type, is_variable
from sparkrelay.state.layout import Field, physical_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray


def field_of(column: pa.Array, kind: pa.DataType) -> Field:
    """Return a column as a field of this type."""
    if is_variable(kind):
        there = column.is_valid().to_numpy(zero_copy_only=False)
        return Field(np.zeros(len(column), dtype=np.uint32), there, column.cast(pa.binary()))
    return Field(*numbers(column, kind))


def numbers(column: pa.Array, kind: pa.DataType) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values as they are kept, 0 where null, and which are not null."""
    there = column.is_valid().to_numpy(zero_copy_only=False)
    if column.type != kind:
        column = column.cast(kind, safe=False)
    dtype = cast("np.dtype[Any]", physical_dtype(kind))
    if pa.types.is_decimal(kind):
        kept = np.frombuffer(column.buffers()[1], dtype=dtype)[column.offset : column.offset + len(column)]
        return np.where(there, kept, np.zeros((), dtype)), there
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if dtype.itemsize == 4 else pa.int64())
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    return column.to_numpy(zero_copy_only=False).astype(dtype, copy=False), there


def array_of(field: Field, kind: pa.DataType) -> pa.Array:
    """Return a field of this type as a column."""
    if field.data is not None:
        return as_type(field.data, kind)
    if pa.types.is_decimal(kind):
        bits = pa.py_buffer(np.packbits(field.there, bitorder="little"))
        return pa.Array.from_buffers(kind, len(field.values), [bits, pa.py_buffer(np.ascontiguousarray(field.values))])
    if pa.types.is_boolean(kind):
        return pa.array(field.values.astype(np.bool_), mask=~field.there)
    kept = pa.array(field.values, mask=~field.there)
    return kept.view(kind) if pa.types.is_temporal(kind) else as_type(kept, kind)


def chosen(take: NDArray[np.bool_], new: Field, old: Field) -> Field:
    """Return the new field where ``take`` is true, the old one elsewhere."""
    there = np.where(take, new.there, old.there)
    if new.data is None or old.data is None:
        return Field(np.where(take, new.values, old.values), there)
    return Field(old.values, there, pc.if_else(pa.array(take), new.data, old.data))


def greater(left: Field, right: Field, kind: pa.DataType) -> NDArray[np.bool_]:
    """Return where the left value is greater than the right one; NaN is the greatest. Undefined where one is absent."""
    if left.data is not None or pa.types.is_decimal(kind):
        columns = [array_of(field, kind if field.data is None else pa.binary()) for field in (left, right)]
        more: NDArray[np.bool_] = pc.fill_null(pc.greater(*columns), False).to_numpy(zero_copy_only=False)
        return more
    # Only NaN is not equal to itself.
    nan_left, nan_right = left.values != left.values, right.values != right.values
    above: NDArray[np.bool_] = (left.values > right.values) | (nan_left & ~nan_right)
    return above
