"""How a topic's keys and values are written: descriptions only, so that importing them loads nothing heavy.

A format says what the bytes are. Which Arrow code reads or writes them is decided where records flow (``typed``,
``json.writer``, ``keys``); which Spark type a schema means is decided by the runtime, which alone knows Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Format", "Integer", "Json", "Long", "OneColumn", "Raw", "String"]


@dataclass(frozen=True, slots=True)
class Format:
    """What the bytes of keys or of values are. Use one of its subclasses."""


@dataclass(frozen=True, slots=True)
class OneColumn(Format):
    """A format that fills one column, and is written from one column of its type.

    Attributes:
        column: the column's name; None means ``key`` or ``value``, by the place where the format stands.
    """

    column: str | None = None

    def __post_init__(self) -> None:
        if self.column is not None and (not isinstance(self.column, str) or not self.column):
            raise ValueError(f"{type(self).__name__}({self.column!r}): the column's name must be a non-empty string")

    def column_name(self, place: str) -> str:
        """Return the column's name for a place, ``"key"`` or ``"value"``."""
        return self.column or place


@dataclass(frozen=True, slots=True)
class Raw(OneColumn):
    """Bytes as they are, a binary column."""


@dataclass(frozen=True, slots=True)
class String(OneColumn):
    """UTF-8 text, a string column: Kafka's StringSerializer.

    Usage::

        builder.stream("flights", key=String("carrier"), value=Json("origin string"))
    """


@dataclass(frozen=True, slots=True)
class Integer(OneColumn):
    """Four bytes, big endian, an int column: Kafka's IntegerSerializer."""


@dataclass(frozen=True, slots=True)
class Long(OneColumn):
    """Eight bytes, big endian, a bigint column: Kafka's LongSerializer."""


@dataclass(frozen=True, slots=True)
class Json(Format):
    """One JSON object a record.

    Attributes:
        schema: a Spark DDL string, such as ``"user string, amount double"``, or a ``StructType``. Needed for reading.
            For writing it must be None: the columns are written as they are.
    """

    schema: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.schema, str) and not self.schema.strip():
            raise ValueError('Json(""): name at least one field, such as Json("user string, amount double")')
