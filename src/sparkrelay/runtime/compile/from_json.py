"""``from_json`` over the bytes of records: a compiled loop of the worker reads them, and Spark what that declines.

Of ``from_json(cast(value as string), schema)`` this makes, right above the source, ::

    if(agreed, named_struct('user', user, 'at', cast(at as timestamp)), from_json(cast(value as string), schema))

so that rows are Spark's own, whatever the texts are. Options, or types that the loop does not know, leave it to Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructField

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import alias, new_number, with_children
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, nothing, scala_object, seq
from sparkrelay.records.json.flat import is_flat
from sparkrelay.runtime.worker.from_json import JsonFields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sparkrelay.catalyst.tree import Expression
    from sparkrelay.topology.rows import Rows

_CALL: Final = "JsonToStructs"
#: Spark's types that the loop reads as Spark does; times as strings, which Spark casts.
_READ: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.string(),
    "timestamp": pa.string(),
}


@dataclass(frozen=True, slots=True, eq=False)
class ParsedJson:
    """Equal calls of ``from_json``.

    Attributes:
        key: what they have in common.
        text: the leaf's column whose texts are parsed.
        call: one of them, in the JVM.
        read: what the worker reads.
    """

    key: str
    text: str
    call: Any
    read: JsonFields

    @property
    def columns(self) -> list[StructField]:
        """The columns that the worker adds."""
        read = zip(self.read.names, map(from_arrow_type, self.read.fields.types), strict=True)
        return [*(StructField(name, kind) for name, kind in read), StructField(self.read.agreed, BooleanType())]

    def column(self, base: Mapping[str, Any], text: Any) -> Any:
        """Return the column of what is parsed, given the attributes of the real rows, and that of the texts."""
        parts: list[Any] = []
        modes = catalyst_object("expressions.EvalMode")
        kinds = [field.dataType() for field in items(self.call.dataType())]
        literal = catalyst_object("expressions.Literal")
        for name, kind, field in zip(self.read.names, kinds, self.read.fields.names, strict=True):
            value = base[name]
            if not kind.equals(value.dataType()):
                value = catalyst("expressions.Cast", value, kind, self.call.timeZoneId(), modes.LEGACY())
            parts += [literal.apply(field), value]
        if str(text.dataType().typeName()) == "binary":
            string = scala_object("org.apache.spark.sql.types.StringType")
            text = catalyst(
                "expressions.Cast", text, string, nothing(), catalyst_object("expressions.EvalMode").LEGACY()
            )
        otherwise = with_children(self.call, [text])
        made = catalyst(
            "expressions.If", base[self.read.agreed], catalyst("expressions.CreateNamedStruct", seq(parts)), otherwise
        )
        return alias(made, "parsed", new_number())


def parsed_json(rows: Rows, outputs: Iterable[int], given: Mapping[str, str | None]) -> list[ParsedJson]:
    """Return what the worker can read of the JSON that steps parse.

    Args:
        rows: behind the steps.
        outputs: Catalyst's numbers of their columns that anything reads.
        given: name of a column of the leaf -> what the worker calls it.
    """
    if not any(part.kind == _CALL for node, _ in rows.steps for one in node.expressions for part in one.below()):
        return []
    session = rows.frame.sparkSession
    if session.conf.get("spark.sql.legacy.timeParserPolicy") == "LEGACY":
        return []
    corrupt = str(session.conf.get("spark.sql.columnNameOfCorruptRecord"))
    found: dict[str, tuple[str, Expression, Any]] = {}
    for node, _ in rows.steps:
        if node.kind in {"Project", "Filter"}:
            for one, java in zip(node.expressions, items(node.java.expressions()), strict=True):
                for call, there in _calls(one, java):
                    key, text = key_of(rows, call), _text(rows, call.children[0])
                    if key is not None and text is not None and given.get(text) is not None:
                        found.setdefault(key, (text, call, there))
    made = []
    for number, (key, (text, call, java)) in enumerate(found.items()):
        fields = _fields(call, corrupt)
        name = given[text]
        if fields is None or name is None:
            continue
        names = tuple(f"{hidden_columns.PREFIX}json_{number}_{place}" for place in range(len(fields)))
        shows = _shows(rows, text, outputs, found)
        kinds = [field["type"] for field in call.fields["schema"]["fields"]]
        times = tuple(kind if kind in {"date", "timestamp"} else None for kind in kinds)
        read = JsonFields(name, fields, times, names, f"{hidden_columns.PREFIX}json_{number}", shows)
        made.append(ParsedJson(key, text, java, read))
    return made


def key_of(rows: Rows, call: Expression) -> str | None:
    """Return what calls have in common that parse the same texts alike; None where the worker cannot."""
    if call.kind != _CALL or str(call.fields["options"]) != "Map()" or call.fields["schema"].get("type") != "struct":
        return None
    text = _text(rows, call.children[0])
    return None if text is None else json.dumps([text, call.fields["schema"], call.fields["timeZoneId"]])


def replaced_calls(java: Any, read: Expression, known: Callable[[Expression], Any | None]) -> Any:
    """Return an expression in which columns stand for calls; ``known`` says for which."""
    if (column := known(read)) is not None:
        return column
    if not any(part.kind == _CALL for part in read.below()):
        return java
    children = zip(items(java.children()), read.children, strict=True)
    return with_children(java, [replaced_calls(child, of, known) for child, of in children])


def _calls(read: Expression, java: Any) -> Iterator[tuple[Expression, Any]]:
    if read.kind == _CALL:
        yield read, java
    elif any(part.kind == _CALL for part in read.below()):
        for one, there in zip(read.children, items(java.children()), strict=True):
            yield from _calls(one, there)


def _text(rows: Rows, text: Expression) -> str | None:
    """Return the leaf's column of strings that an expression is, or of their bytes; None for another one."""
    while True:
        if text.kind == "Cast" and text.fields["dataType"] == "string":
            (text,) = text.children
        if not text.is_attribute:
            return None
        if (copy := rows.copy(text.number)) is not None:
            break
        made = rows.made.get(text.number, ())
        if len(made) != 1:
            return None
        (text,) = made
    field = rows.node.leaf.columns.fields[copy.place]
    # Of a collation of its own a string has another type.
    return field.name if not copy.fields and field.dataType in (BinaryType(), StringType()) else None


def _fields(call: Expression, corrupt: str) -> pa.Schema | None:
    """Return the fields as the worker reads them; None if it cannot read one."""
    fields = [(str(field["name"]), field["type"]) for field in call.fields["schema"]["fields"]]
    names = [name for name, _ in fields]
    known = all(isinstance(kind, str) and kind in _READ for _, kind in fields)
    if not fields or not known or len(set(names)) < len(names) or corrupt in names:
        return None
    schema = pa.schema([(name, _READ[kind]) for name, kind in fields])
    return schema if is_flat(schema) else None


def _shows(rows: Rows, text: str, outputs: Iterable[int], parsed: Mapping[str, Any]) -> bool:
    """Return whether anything but these calls reads a column of texts."""
    texts = {rows.numbers[rows.node.leaf.columns.names.index(text)]}

    def passes(one: Expression) -> bool:
        """Return whether an expression is the texts under another number, or their bytes as strings."""
        return (one.is_attribute and one.number in texts) or (one.kind in {"Alias", "Cast"} and passes(one.children[0]))

    def reads(one: Expression) -> bool:
        if one.kind == _CALL and key_of(rows, one) in parsed and passes(one.children[0]):
            return False
        if one.plans:
            return True
        return one.number in texts if one.is_attribute else any(map(reads, one.children))

    for node, _ in rows.steps:
        for one in node.expressions:
            if node.kind == "Project" and passes(one):
                texts.add(one.number)
            elif reads(one) or (node.kind not in {"Project", "Filter"} and not texts.isdisjoint(one.references())):
                return True
    return not texts.isdisjoint(outputs)
