"""A format of the user's own: a class that makes Arrow of bytes, and bytes of Arrow. Loads nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.records.formats import Format

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CustomFormat"]


class CustomFormat(Format):
    """A format of your own for values: subclass it.

    The class reaches the workers as a UDF does: cloudpickle writes one of the main script as it is, one of a module by
    its name. Records are never unpickled.

    Attributes:
        schema: the columns that :meth:`decode` gives: a Spark DDL string, such as ``"user string, amount double"``, a
            ``StructType`` or a ``pyarrow.Schema``. Needed for reading.

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

    schema: Any = None

    def decode(self, values: pa.BinaryArray) -> pa.RecordBatch:
        """Return the columns of records' values, one row a value.

        Where it raises, or gives another number of rows, halves of the values are tried, down to single ones: those
        that fail alone are the records that do not decode.

        Args:
            values: bytes, none null, of any number, and none when an instance is made. Tombstones do not come here.

        Returns:
            A ``RecordBatch``, ``Table`` or ``StructArray`` with the columns of ``schema``, which are cast to its types
            where nothing is lost.
        """
        raise NotImplementedError(f"{type(self).__name__} has no decode(), so it cannot be read")

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the values of rows, an array of binary or string; null is a tombstone.

        Args:
            rows: the columns as they are, of any number of rows, and none when an instance is made.
        """
        raise NotImplementedError(f"{type(self).__name__} has no encode(), so it cannot be written")

    @property
    def fingerprint(self) -> str:
        """What the instances of an application must have in common: the class's name and what the object holds.

        The code of its methods is not looked at. Overwrite it where what it holds has no fixed text.
        """
        fields = getattr(self, "__dataclass_fields__", ())
        held = {**vars(self), **{name: getattr(self, name) for name in fields}, "schema": self.schema}
        words = (f"{name}={_text(held[name])}" for name in sorted(held) if held[name] is not None)
        return f"{type(self).__name__}({', '.join(words)})"

    def __repr__(self) -> str:
        return self.fingerprint


def _text(held: Any) -> str:
    if hasattr(held, "simpleString"):
        return str(held.simpleString())
    return " ".join(str(held).split()) if type(held).__module__.startswith("pyarrow") else repr(held)
