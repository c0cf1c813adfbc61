"""Formats of users: a class that turns bytes into Arrow, and Arrow into bytes. Loads nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.records.format import Format

if TYPE_CHECKING:
    import pyarrow as pa


class CustomFormat(Format):
    """A format of your own for values: subclass it.

    The class reaches the workers as a UDF does: cloudpickle ships a class of the main script by value, one of a module
    by name. Records are never unpickled.

    Attributes:
        schema: the columns that :meth:`decode` returns: a Spark DDL string, such as ``"user string, amount double"``, a
            ``StructType`` or a ``pyarrow.Schema``. Required for reading.

    Usage::

        class Csv(CustomFormat):
            schema = "user string, amount string"

            def decode(self, values):
                parts = pc.split_pattern(values.cast("string"), ",", max_splits=1)
                columns = [pc.list_element(parts, 0), pc.list_element(parts, 1)]
                return pa.RecordBatch.from_arrays(columns, ["user", "amount"])

            def encode(self, rows):
                return pc.binary_join_element_wise(*rows.columns, ",")
    """

    __slots__ = ("__dict__",)

    codec_module = "custom"
    column_check = "all"

    schema: Any = None

    def decode(self, values: pa.BinaryArray) -> pa.RecordBatch:
        """Return the columns of records' values, one row a value.

        If it raises or returns a wrong number of rows, it is called again with halves of the values, down to single
        ones: those that fail alone are the bad records.

        Args:
            values: bytes, without nulls (tombstones are left out). Empty when an instance is created.

        Returns:
            A ``RecordBatch``, ``Table`` or ``StructArray`` with the columns of ``schema``, which are cast to its types
            if the cast is lossless.
        """
        raise NotImplementedError(f"{type(self).__name__} has no decode(), so it cannot be read")

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the values of rows, an array of binary or string; null is a tombstone.

        Args:
            rows: the columns to write. Without rows when an instance is created.
        """
        raise NotImplementedError(f"{type(self).__name__} has no encode(), so it cannot be written")

    @property
    def fingerprint(self) -> str:
        """What an application's instances must agree on: the class's name and the object's attributes.

        It does not cover the code of the methods. Override it if an attribute has no stable text.
        """
        declared = getattr(self, "__dataclass_fields__", ())
        held = {**vars(self), **{name: getattr(self, name) for name in declared}, "schema": self.schema}
        words = (f"{name}={_text(held[name])}" for name in sorted(held) if held[name] is not None)
        return f"{type(self).__name__}({', '.join(words)})"

    def __repr__(self) -> str:
        return self.fingerprint


def _text(held: Any) -> str:
    if hasattr(held, "simpleString"):
        return str(held.simpleString())
    return " ".join(str(held).split()) if type(held).__module__.startswith("pyarrow") else repr(held)
