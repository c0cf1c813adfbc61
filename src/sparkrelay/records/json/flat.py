"""Flat JSON objects to columns by the compiled loop, several times faster than a general parser."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.records.arrow_buffers import BinaryColumn, BinaryWriter, array_of_numbers, validity_bitmap
from sparkrelay.records.json import flat_loop as loop

_PROBE: Final = np.frombuffer(b"1.5}", np.uint8).copy()


def is_flat(schema: pa.Schema) -> bool:
    """Return whether the loop knows all types of a schema."""
    return len(schema) <= loop.MAX_COLUMNS and all(_kind_of(field.type) >= 0 for field in schema)


def read_flat(values: BinaryColumn, rows: int, schema: pa.Schema) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
    """Read one object a row.

    Returns:
        The columns, and the rows that the loop declined, which are null.
    """
    size = int(values.offsets[-1] - values.offsets[0])
    fields = [_Field(field, rows, size) for field in schema]
    declined = np.zeros(rows, np.uint8)
    if loop.obeys_c_locale(_PROBE.ctypes.data):
        table = np.array([field.row() for field in fields], np.int64).reshape(-1, loop.FIELDS)
        loop.read_objects(values.address, values.offsets, values.valid, table.ctypes.data, len(fields), declined)
    else:
        declined[:] = values.valid if len(values.valid) else 1
    return [field.finish(rows) for field in fields], np.flatnonzero(declined)


def _kind_of(kind: pa.DataType) -> int:
    if pa.types.is_timestamp(kind):
        return loop.TIMESTAMP if kind.tz is not None else loop.LOCAL_TIMESTAMP
    for test, what in (
        (pa.types.is_signed_integer, loop.INT),
        (pa.types.is_float64, loop.DOUBLE),
        (pa.types.is_float32, loop.DOUBLE),
        (pa.types.is_string, loop.STRING),
        (pa.types.is_boolean, loop.BOOL),
        (pa.types.is_date32, loop.DATE),
    ):
        if test(kind):
            return what
    return -1


class _Field:
    """A column that the loop fills."""

    def __init__(self, field: pa.Field, rows: int, size: int) -> None:
        self._type = field.type
        self._kind = _kind_of(field.type)
        self._name = np.frombuffer(field.name.encode(), np.uint8)
        self._writer = BinaryWriter(rows, size) if self._kind == loop.STRING else None
        self._data = np.zeros(0 if self._writer else rows, np.float64 if self._kind == loop.DOUBLE else np.int64)
        self._valid = self._writer.valid if self._writer else np.empty(rows, np.uint8)
        self._valid[:] = 0

    def row(self) -> list[int]:
        """Describe the column to the loop."""
        width = 32 if self._kind == loop.DATE else self._type.bit_width if self._kind == loop.INT else 64
        name = [self._kind, self._name.ctypes.data, len(self._name)]
        if self._writer:
            return [*name, self._writer.address, self._writer.offsets.ctypes.data, self._valid.ctypes.data, 0]
        limit = int(pa.types.is_float32(self._type)) if self._kind == loop.DOUBLE else (1 << (width - 1)) - 1
        return [*name, self._data.ctypes.data, 0, self._valid.ctypes.data, limit]

    def finish(self, rows: int) -> pa.Array:
        if self._writer:
            return self._writer.finish(rows, text=True).cast(self._type)
        validity = validity_bitmap(self._valid)
        return array_of_numbers(self._type, self._data, validity)
