"""Values and keys of any format to typed columns, and back: by the format's codec, loaded when it is first used."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkrelay.records.bad_record import BadRecord
    from sparkrelay.records.format import Format


class Codec(Protocol):
    """The module that reads and writes a format.

    One whose formats declare their columns themselves also has ``declared_schema(form, place) -> pa.Schema``.
    """

    def decode(
        self, values: pa.Array, form: Any, place: str, schema: pa.Schema
    ) -> tuple[dict[str, pa.Array], list[BadRecord]]:
        """As :func:`format_to_columns`."""
        ...

    def encode(self, rows: pa.RecordBatch, form: Any, left_out: pa.Array | None) -> pa.Array:
        """As :func:`columns_to_format`."""
        ...


def format_to_columns(
    values: pa.Array, form: Format, place: str, schema: pa.Schema | None
) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read values.

    Args:
        values: bytes; null (a tombstone) gives nulls and is not bad.
        form: what they are.
        place: ``key`` or ``value``.
        schema: the wanted columns; needed where the format has several.

    Returns:
        The columns by name, and the bad records in order, which are null in all columns.
    """
    return _codec(form.codec_module).decode(values, form, place, schema)


def columns_to_format(rows: pa.RecordBatch, form: Format, left_out: pa.Array | None = None) -> pa.Array:
    """Write columns as values.

    Args:
        rows: the columns; of a format of one column only that one.
        form: what the values are to be.
        left_out: rows whose values are not used, so they need not be valid.

    Raises:
        SerializationException: a column, or a value in it, cannot be written so.
    """
    return _codec(form.codec_module).encode(rows, form, left_out)


def declared_schema(form: Format, place: str) -> pa.Schema | None:
    """Return the columns that a format declares itself; None if a pipeline gives them with the format.

    Raises:
        SerializationException: a type in it has no column.
    """
    declared = getattr(_codec(form.codec_module), "declared_schema", None)
    return None if declared is None else declared(form, place)


@functools.cache
def _codec(name: str) -> Codec:
    return cast("Codec", importlib.import_module(f"{__package__}.{name}"))  # noqa: TID251 - a name of ``formats``
