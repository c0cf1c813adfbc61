"""Rows as store values: the timestamp and the columns, concatenated."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sparkrelay import hidden_columns
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.records.keys import key_bytes, key_columns

_TIME: Final = pa.field(hidden_columns.TIMESTAMP, pa.int64())


class StoredColumns:
    """Encodes and decodes rows of one schema."""

    def __init__(self, row: pa.Schema) -> None:
        self._schema = pa.schema([_TIME, *row])

    def values(self, rows: pa.Table) -> pa.Array:
        """Encode rows."""
        columns = [whole(rows.column(field.name)).cast(field.type) for field in self._schema]
        return key_bytes(columns, normal=False)

    def results(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of stored rows, null where the value is null, then their timestamps."""
        times, *columns = self.read(values).values()
        return [*columns, times]

    def read(self, values: pa.Array) -> dict[str, pa.Array]:
        """Return the columns of stored rows by name, timestamps included; null where the value is null."""
        return dict(zip(self._schema.names, key_columns(values, self._schema), strict=True))
