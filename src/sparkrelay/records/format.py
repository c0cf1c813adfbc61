"""What every format declares: which columns it has, and what pipelines may do with it. Loads nothing heavy."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The first word of each field of a DDL schema, at its top level.
_FIELD: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))[\s:]")
_NO_KEY: Final = 'equal keys may have different bytes. Read it as Raw("key"), and take it apart with a pandas_udf'


class Format:
    """What the bytes of keys or of values are. Use one of its subclasses."""

    __slots__ = ()

    schema: Any

    #: The module of ``sparkrelay.records`` that reads and writes the format (``formatted.Codec``).
    codec_module: ClassVar[str]
    #: Python's type of a key column.
    key_type: ClassVar[type[str | int | bytes]] = bytes
    #: Why a stream cannot be read with keys of this format, and what to do; None if it can.
    key_refusal: ClassVar[str | None] = _NO_KEY
    #: The same for tables. None: column and bytes are one to one, the bytes as ``keys`` writes them.
    table_key_refusal: ClassVar[str | None] = _NO_KEY
    #: Whether equal columns are always written as equal bytes, as a sink's keys must be.
    has_fixed_bytes: ClassVar[bool] = False
    #: True if ``schema`` is for reading, where it is required: columns are written as they are.
    schema_is_for_reading: ClassVar[bool] = False
    #: Whether a sink's columns are checked each alone, or all together; None: all are written.
    column_check: ClassVar[Literal["each", "all"] | None] = None

    def only_column(self, place: str) -> str | None:
        """Return the name of the only column, at ``"key"`` or ``"value"``; None where fields are the columns."""
        del place
        return None

    def known_columns(self, place: str) -> tuple[str, ...]:
        """Return the names of the columns, as far as they are known without Spark and without a registry."""
        column = self.only_column(place)
        return _declared_names(self.schema) if column is None else (column,)

    def leaves_out(self, key: Iterable[str]) -> frozenset[str]:
        """Return the columns that values lack though rows have them: some of those that are the message key."""
        del key
        return frozenset()

    @property
    def fingerprint(self) -> str:
        """The format as it is written, ``String("carrier")``; an application's instances must agree on it."""
        words = []
        for declared in fields(cast("Any", self)):
            name, argument = declared.name, getattr(self, declared.name)
            if not declared.compare or argument is None:
                continue
            if declared.kw_only and argument == declared.default:
                continue
            if declared.kw_only:
                words.append(f"{name}={argument!r}")
            elif isinstance(argument, str):
                words.append('"' + " ".join(argument.split()) + '"')
            else:
                # repr() of a StructType is not stable, its short form is. Or Arrow's schema.
                text = argument.simpleString() if hasattr(argument, "simpleString") else repr(argument)
                words.append(" ".join(text.split()))
        return f"{type(self).__name__}({', '.join(words)})"

    def in_few_words(self) -> str:
        """Return the format for people; of long schemas only the name."""
        return self.fingerprint


def _declared_names(schema: Any) -> tuple[str, ...]:
    """Return the names of the fields of a DDL string, a StructType or an Arrow schema."""
    if not isinstance(schema, str):
        return tuple(getattr(schema, "names", ()))
    texts, depth = [""], 0
    for sign in schema:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            texts.append("")
        else:
            texts[-1] += sign
    found = (_FIELD.match(text) for text in texts)
    return tuple((one[1] or one[2]).replace("``", "`") for one in found if one is not None)
