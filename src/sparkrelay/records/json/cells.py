"""The cells of the lists of JSON objects: an empty object in an array has a null in each wanted field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.cells import may_be_too_many, too_many, widest, width_of

if TYPE_CHECKING:
    from sparkrelay.records.arrow_buffers import BinaryColumn


def too_wide_rows(values: pa.Array, column: BinaryColumn, schema: pa.Schema) -> list[BadRecord]:
    """Return the objects that make too many cells; only those that are large enough are counted."""
    columns = widest(schema.types)
    sizes = np.diff(column.offsets)
    if not len(sizes) or not may_be_too_many(int(sizes.max()), columns):
        return []
    found = []
    for row in np.flatnonzero([may_be_too_many(size, columns) for size in sizes.tolist()]).tolist():
        try:
            # Numbers are not needed, and int() refuses more than 4300 digits, which the readers take.
            parsed = json.loads(values[row].as_py(), parse_int=str, parse_float=str)
        except (ValueError, TypeError, RecursionError):
            # Null, or not JSON: the readers report it.
            continue
        reason = too_many(_cells(parsed, pa.struct(schema)), int(sizes[row]))
        if reason is not None:
            found.append(BadRecord(row, reason))
    return found


def _cells(value: Any, kind: pa.DataType) -> int:
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return sum(_cells(value.get(one.name), one.type) for one in kind if one.type.num_fields)
    if pa.types.is_list(kind) and isinstance(value, list):
        return len(value) * width_of(kind.value_type) + _inside(value, kind.value_type)
    if pa.types.is_map(kind) and isinstance(value, dict):
        return len(value) * (1 + width_of(kind.item_type)) + _inside(value.values(), kind.item_type)
    return 0


def _inside(items: Any, kind: pa.DataType) -> int:
    return sum(_cells(item, kind) for item in items) if widest([kind]) else 0
