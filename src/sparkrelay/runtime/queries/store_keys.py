"""Keys of a store as users write them, and as Arrow columns."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.operators.table.run import TableRunner

#: Times of windows are microseconds of 64 bits.
_LATEST_MS: Final = ((1 << 63) - 1) // 1000


class StoreKeys:
    """The keys of one store: its grouping columns, one of which may be a window."""

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout
        self.schema = layout.keys
        #: The window column; None if there is none.
        self.window = layout.window or next((field.name for field in self.schema if _is_window(field.type)), None)
        #: The columns without the window.
        self.plain = pa.schema([field for field in self.schema if field.name != self.window])

    @functools.cached_property
    def fingerprint(self) -> str:
        """A short digest of the columns of the store's rows."""
        return hashlib.sha256(self.layout.columns.serialize()).hexdigest()[:32]

    def columns(self, key: Any, schema: pa.Schema | None = None) -> pa.RecordBatch:
        """Return the columns of a key.

        Args:
            key: the value of a single column; else the values in order, or by column name.
            schema: the columns; None for all of the store's key.

        Raises:
            SerializationException: the key has other columns or types.
        """
        schema = self.schema if schema is None else schema
        arrays = []
        for field, value in zip(schema, self._values(key, schema), strict=True):
            if value is None and len(schema) == 1:
                raise self._misfit(schema, key, "a key is never null")
            try:
                _check_fields(field.type, value)
                _check_times(value)
                _check_exact(field.type, value)
                arrays.append(pa.array([value], field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise self._misfit(schema, key, f"{field.name}: {error}") from None
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def from_text(self, text: str, schema: pa.Schema | None = None) -> pa.RecordBatch:
        """Parse a key: a string as it is, else JSON, several values as an array or object; raises as ``columns``."""
        schema = self.schema if schema is None else schema
        if len(schema) == 1 and pa.types.is_string(schema.field(0).type):
            return self.columns((text,), schema)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            if len(schema) != 1:
                raise self._misfit(schema, text, "it is not JSON") from None
            # Times and dates need no quotes.
            value = text
        named = dict(zip(schema.names, self._json_values(value, schema), strict=True))
        decimals = [field.name for field in schema if pa.types.is_decimal(field.type)]
        if decimals and value is not text:
            # A decimal may have more digits than a float.
            exact = self._json_values(json.loads(text, parse_float=str), schema)
            named |= {name: one for name, one in zip(schema.names, exact, strict=True) if name in decimals}
        for field in schema:
            try:
                _check_fields(field.type, named[field.name])
            except ValueError as error:
                raise self._misfit(schema, text, f"{field.name}: {error}") from None
        rows, bad = json_to_columns(pa.array([json.dumps(named).encode()]), schema)
        if bad:
            raise self._misfit(schema, text, bad[0].reason)
        if len(schema) == 1 and rows.column(0).null_count:
            raise self._misfit(schema, text, "a key is never null")
        return rows

    def fits(self, key: Any) -> bool:
        """Return whether a key has a value for each column, including the window."""
        try:
            self._values(key, self.schema)
        except SerializationException:
            return False
        return True

    def partition(self, key: pa.RecordBatch, partitions: int) -> int | None:
        """Return the partition of a key by Kafka's default partitioner; None if its columns do not determine it."""
        by = self.layout.partitioned_by
        if by is None or not set(by) <= set(key.schema.names):
            return None
        # A null key may be in any partition.
        found = int(murmur2_partitions(key_bytes([key.column(name) for name in by]), partitions)[0])
        return found if found >= 0 else None

    def _json_values(self, value: Any, schema: pa.Schema) -> Sequence[Any]:
        """Return the JSON value of each column; a single column's may stand alone."""
        if len(schema) == 1 and not (isinstance(value, dict) and set(value) == set(schema.names)):
            value = [value]
        return self._values(value, schema)

    def _values(self, key: Any, schema: pa.Schema) -> Sequence[Any]:
        # A mapping may be the value of a single struct column, such as a window.
        is_struct = len(schema) == 1 and pa.types.is_struct(schema.field(0).type)
        if isinstance(key, Mapping) and not (is_struct and set(key) != set(schema.names)):
            if set(key) != set(schema.names):
                raise self._misfit(schema, key, f"it has the columns {', '.join(map(str, key)) or 'none'}")
            return [key[name] for name in schema.names]
        values = key if isinstance(key, (tuple, list)) else (key,)
        if len(values) != len(schema):
            raise self._misfit(schema, key, f"it has {len(values)} values")
        return values

    def _misfit(self, schema: pa.Schema, key: Any, why: str) -> SerializationException:
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        return SerializationException(
            f"{str(key)[:200]!r} is not a key of store {self.layout.store!r}, which has the columns {columns}: {why}. "
            f"A key in text is written as {key_example(schema)}"
        )


class KeptKeys(StoreKeys):
    """The keys of a store that the instance's tasks keep."""

    def __init__(self, spec: TableRunner) -> None:
        super().__init__(spec.layout)
        self.spec = spec


def key_example(schema: pa.Schema) -> str:
    """Return an example of a key for a path or an option: JSON, except for a single string."""
    if len(schema) == 1 and pa.types.is_string(schema.field(0).type):
        return "the string as it is, NL"
    values = [value_example(field.type) for field in schema]
    return json.dumps(values if len(values) > 1 else values[0])


def value_example(kind: pa.DataType) -> Any:
    """Return an example of a value in JSON."""
    if pa.types.is_struct(kind):
        ends = {"start": "2024-05-01T12:00:00Z", "end": "2024-05-01T12:10:00Z"} if _is_window(kind) else {}
        return {one.name: ends.get(one.name, value_example(one.type)) for one in kind}
    if pa.types.is_list(kind):
        return [value_example(kind.value_type)]
    examples: list[tuple[Callable[[pa.DataType], bool], Any]] = [
        (pa.types.is_boolean, True),
        (pa.types.is_integer, 7),
        (pa.types.is_floating, 7.5),
        (pa.types.is_decimal, 7.5),
        (pa.types.is_date, "2024-05-01"),
        (pa.types.is_timestamp, "2024-05-01T12:00:00Z"),
        (pa.types.is_binary, "TkwK"),
    ]
    return next((example for is_kind, example in examples if is_kind(kind)), "NL")


def as_milliseconds(time: dt.datetime | int | None, what: str) -> int | None:
    """Return a time in ms since 1970; raises ValueError without time zone, or too far from 1970 for a window."""
    if time is None:
        return None
    if isinstance(time, int) and not isinstance(time, bool):
        if abs(time) > _LATEST_MS:
            raise ValueError(
                f"{what}={time} is too far from 1970: times are stored in microseconds of 64 bits, so at most "
                f"{_LATEST_MS} milliseconds"
            )
        return time
    if not isinstance(time, dt.datetime):
        raise TypeError(f"{what}={time!r} must be a datetime, or milliseconds since 1970")
    _check_times(time)
    return round((time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(milliseconds=1))


def _check_fields(kind: pa.DataType, value: Any) -> None:
    """Reject unknown fields of a struct, and half a window; other fields may be left out, as nulls are in JSON."""
    if isinstance(value, Mapping) and pa.types.is_struct(kind):
        names = [one.name for one in kind]
        if set(value) - set(names) or (_is_window(kind) and set(names) - set(value)):
            raise ValueError(f"its fields are {', '.join(names)}, not {', '.join(map(str, value)) or 'none'}")
        for one in kind:
            _check_fields(one.type, value.get(one.name))


def _check_times(value: Any) -> None:
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone; add tzinfo=datetime.UTC or another one")
    if isinstance(value, Mapping):
        for inner in value.values():
            _check_times(inner)


def _check_exact(kind: pa.DataType, value: Any) -> None:
    """Reject values that Arrow would truncate silently, so that another key would be found."""
    if isinstance(value, Mapping) and pa.types.is_struct(kind):
        for one in kind:
            _check_exact(one.type, value.get(one.name))
    elif isinstance(value, (list, tuple)) and pa.types.is_list(kind):
        for one in value:
            _check_exact(kind.value_type, one)
    elif isinstance(value, dt.datetime) and pa.types.is_date(kind):
        raise ValueError(f"{value!r} has a time of day; give a datetime.date")
    elif (
        isinstance(value, numbers.Number)
        and (pa.types.is_integer(kind) or pa.types.is_temporal(kind))
        and value != int(value)  # type: ignore[call-overload]  # raises for other numbers
    ):
        raise ValueError(f"{value!r} is not a whole number")


def _is_window(kind: pa.DataType) -> bool:
    return (
        pa.types.is_struct(kind)
        and [field.name for field in kind] == ["start", "end"]
        and all(pa.types.is_timestamp(field.type) for field in kind)
    )
