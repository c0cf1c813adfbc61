"""Rows of a stateful processor's variables: Python tuples and stored bytes."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DecimalType, MapType, Row, StructField, StructType, _make_type_verifier

from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes, key_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXPIRES = "expires"


class Verifier:
    """Checks a processor's rows immediately, so that the traceback shows the user's line."""

    def __init__(self, schema: StructType, what: str) -> None:
        """Check against ``schema``; ``what`` names the value in errors."""
        self._verify = _make_type_verifier(schema)
        # Spark's check accepts decimals that do not fit their columns.
        kinds = [(index, field.dataType) for index, field in enumerate(schema)]
        self._decimals = [
            (index, Decimal(1).scaleb(-kind.scale), Context(prec=kind.precision))
            for index, kind in kinds
            if isinstance(kind, DecimalType)
        ]
        nested = any("decimal(" in kind.simpleString() for _, kind in kinds if not isinstance(kind, DecimalType))
        self._nested = schema if nested else None
        self._names = schema.names
        self._what = what

    def __call__(self, value: Any) -> tuple[Any, ...]:
        """Return a row as a plain tuple in the order of the columns.

        Raises:
            TypeError: it is not a row of these columns.
        """
        if isinstance(value, Row) and hasattr(value, "__fields__"):
            # A Row may have another order.
            if sorted(value.__fields__) != sorted(self._names):
                raise TypeError(
                    f"{self._what} takes {', '.join(self._names)}, got a Row of {', '.join(value.__fields__)}"
                )
            value = tuple(value[name] for name in self._names)
        if not isinstance(value, tuple | list):
            raise TypeError(
                f"{self._what} takes a tuple of {', '.join(self._names)}, got {type(value).__name__} {value!r}"
            )
        row = tuple(map(plain, value))
        try:
            self._verify(row)
            for index, unit, context in self._decimals:
                if row[index] is not None:
                    row[index].quantize(unit, context=context)
            if self._nested is not None:
                table_of([row], self._nested)
        except Exception as error:
            raise TypeError(f"{self._what} takes {', '.join(self._names)}, got {row!r}: {error}") from error
        return row


class RowCodec:
    """Encodes and decodes rows together with the times of their expiry."""

    def __init__(self, *schemas: StructType) -> None:
        """Take the columns; names may repeat."""
        fields = [field for schema in schemas for field in schema]
        self._schema = StructType(
            [StructField(f"c{index}", field.dataType, field.nullable) for index, field in enumerate(fields)]
        )
        self._stored = pa.schema([(_EXPIRES, pa.int64()), *to_arrow_schema(self._schema, timezone="UTC")])

    def write(self, rows: Sequence[tuple[Any, ...]], expires_ms: Sequence[int]) -> list[bytes]:
        """Encode rows."""
        if not rows:
            return []
        table = table_of(rows, self._schema)
        columns = [
            as_type(whole(table.column(index)), self._stored.field(index + 1).type)
            for index in range(table.num_columns)
        ]
        # The time makes it a tuple, whose other columns may be null.
        written: list[bytes] = key_bytes([pa.array(expires_ms, pa.int64()), *columns], normal=False).to_pylist()
        return written

    def read(self, values: Sequence[bytes]) -> tuple[list[tuple[Any, ...]], list[int]]:
        """Return stored rows, and the times of their expiry.

        Raises:
            SerializationException: they have other columns.
        """
        if not values:
            return [], []
        expires, *columns = key_columns(pa.array(values, pa.binary()), self._stored)
        table = pa.Table.from_arrays(columns, names=self._schema.names)
        return [tuple(row) for row in rows_of(table, self._schema, len(values))], expires.to_pylist()


def rows_of(table: pa.Table, schema: StructType, count: int | None = None) -> list[Row]:
    """Return the rows of a table as Spark converts them to Python."""
    if not len(schema):
        return [Row()] * (table.num_rows if count is None else count)
    rows: list[Row] = ArrowTableToRowsConversion.convert(table, schema)
    return rows


def table_of(rows: Sequence[tuple[Any, ...]], schema: StructType) -> pa.Table:
    """Return rows, at least one, as a table, as Spark converts them from Python."""
    return LocalDataToArrowConversion.convert(list(rows), schema, use_large_var_types=False)


def plain(value: Any) -> Any:
    """Return a deep copy of a value, with NumPy scalars converted to Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Row):
        made = Row(*map(plain, value))
        if hasattr(value, "__fields__"):
            made.__fields__ = value.__fields__
        return made
    if isinstance(value, tuple):
        return tuple(map(plain, value)) if type(value) is tuple else type(value)(*map(plain, value))
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    return value


def is_nested(schema: StructType) -> bool:
    """Return whether rows contain mutable values."""
    return any(isinstance(field.dataType, ArrayType | MapType | StructType) for field in schema)
