"""``from_json`` and ``from_avro`` over the bytes of records: the worker reads them, and Spark what the worker does not.

Of ``from_json(cast(value as string), schema)`` this makes, right above the source, ::

    if(agreed, named_struct('user', user, 'at', cast(at as timestamp)), from_json(cast(value as string), schema))

so that rows are Spark's own, whatever the bytes are. Options, and JSON of other types than the worker's loop knows, are
left to Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import alias, new_number, with_children
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, nothing, scala_object, seq
from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Avro
from sparkrelay.records.json.flat import is_flat
from sparkrelay.runtime.worker.parsed_values import ParsedFields
from sparkrelay.topology.schemas import arrow_schema, format_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sparkrelay.catalyst.tree import Expression
    from sparkrelay.topology.rows import Rows

_JSON: Final = "JsonToStructs"
_AVRO: Final = "FromAvro"
#: Spark's types that the worker reads in JSON as Spark does; times as strings, which Spark casts.
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
class ParsedValue:
    """Equal calls of one of the functions.

    Attributes:
        key: what they have in common.
        call: one of them, in the JVM.
        read: what the worker reads.
    """

    key: str
    call: Any
    read: ParsedFields

    @property
    def columns(self) -> list[StructField]:
        """The columns that the worker adds."""
        read = from_arrow_schema(self.read.fields, prefer_timestamp_ntz=True).fields
        added = [StructField(name, field.dataType) for name, field in zip(self.read.names, read, strict=True)]
        return [*added, StructField(self.read.agreed, BooleanType())]

    def column(self, base: Mapping[str, Any]) -> Any:
        """Return the column of what is parsed, given the attributes of the real rows."""
        parts: list[Any] = []
        legacy = catalyst_object("expressions.EvalMode").LEGACY()
        literal = catalyst_object("expressions.Literal")
        kinds = [field.dataType() for field in items(self.call.dataType())]
        for name, kind, field in zip(self.read.names, kinds, self.read.fields.names, strict=True):
            value = base[name]
            if not kind.sameType(value.dataType()):
                value = catalyst("expressions.Cast", value, kind, self.call.timeZoneId(), legacy)
            parts += [literal.apply(field), value]
        text, (_, *others) = base[self.read.text], items(self.call.children())
        if self.read.form is None and str(text.dataType().typeName()) == "binary":
            string = scala_object("org.apache.spark.sql.types.StringType")
            text = catalyst("expressions.Cast", text, string, nothing(), legacy)
        fields = catalyst("expressions.CreateNamedStruct", seq(parts))
        otherwise = with_children(self.call, [text, *others])
        return alias(catalyst("expressions.If", base[self.read.agreed], fields, otherwise), "parsed", new_number())


def parsed_values(rows: Rows, outputs: Iterable[int], given: Mapping[str, str | None]) -> list[ParsedValue]:
    """Return what the worker can read of the bytes that steps parse.

    Args:
        rows: behind the steps.
        outputs: Catalyst's numbers of their columns that anything reads.
        given: name of a column of the leaf -> what the worker calls it.
    """
    found: dict[str, tuple[str, Any, ParsedFields]] = {}
    for node, _ in rows.steps:
        if node.kind not in {"Project", "Filter"} or not any(map(_parses, node.expressions)):
            continue
        for one, java in zip(node.expressions, items(node.java.expressions()), strict=True):
            for call, there in _calls(one, java):
                key, text = key_of(rows, call), _text(rows, call)
                if key is None or key in found or text is None or (name := given.get(text)) is None:
                    continue
                mark = f"{hidden_columns.PREFIX}parsed_{len(found)}"
                fields = _of_json(rows, call, name, mark) if call.kind == _JSON else _of_avro(call, there, name, mark)
                if fields is not None:
                    found[key] = text, there, fields
    shown = {text: _shows(rows, text, outputs, found) for text, _, _ in found.values()}
    return [ParsedValue(key, call, replace(fields, shows=shown[text])) for key, (text, call, fields) in found.items()]


def key_of(rows: Rows, call: Expression) -> str | None:
    """Return what calls have in common that parse the same bytes alike; None where the worker cannot."""
    if (text := _text(rows, call)) is None:
        return None
    if call.kind == _AVRO:
        schema, options = call.children[1:]
        known = schema.kind == "Literal" and options.fields.get("dataType") == "void"
        return json.dumps([text, schema.fields["value"]]) if known else None
    schema = call.fields["schema"]
    if str(call.fields["options"]) != "Map()" or not isinstance(schema, dict) or schema.get("type") != "struct":
        return None
    return json.dumps([text, schema, call.fields["timeZoneId"]])


def replaced_calls(java: Any, read: Expression, known: Callable[[Expression], Any | None]) -> Any:
    """Return an expression in which columns stand for calls; ``known`` says for which."""
    if not _parses(read):
        return java
    if (column := known(read)) is not None:
        return column
    children = zip(items(java.children()), read.children, strict=True)
    return with_children(java, [replaced_calls(child, of, known) for child, of in children])


def _parses(one: Expression) -> bool:
    return any(part.kind in {_JSON, _AVRO} for part in one.below())


def _calls(read: Expression, java: Any) -> Iterator[tuple[Expression, Any]]:
    if read.kind in {_JSON, _AVRO}:
        yield read, java
    elif _parses(read):
        for one, there in zip(read.children, items(java.children()), strict=True):
            yield from _calls(one, there)


def _text(rows: Rows, call: Expression) -> str | None:
    """Return the leaf's column whose strings or bytes a call parses; None where it parses anything else."""
    if call.kind not in {_JSON, _AVRO}:
        return None
    text = call.children[0]
    while True:
        if text.kind == "Cast" and text.fields["dataType"] == "string" and call.kind == _JSON:
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
    kinds = (BinaryType(), StringType()) if call.kind == _JSON else (BinaryType(),)
    return field.name if not copy.fields and field.dataType in kinds else None


def _of_json(rows: Rows, call: Expression, text: str, mark: str) -> ParsedFields | None:
    """Return what the worker reads of JSON; None if it cannot read one of the fields."""
    session = rows.frame.sparkSession
    corrupt = str(session.conf.get("spark.sql.columnNameOfCorruptRecord"))
    kinds = {str(field["name"]): field["type"] for field in call.fields["schema"]["fields"]}
    known = all(isinstance(kind, str) and kind in _READ for kind in kinds.values())
    if not kinds or not known or len(kinds) < len(call.fields["schema"]["fields"]) or corrupt in kinds:
        return None
    times = tuple(kind if kind in {"date", "timestamp"} else None for kind in kinds.values())
    if any(times) and session.conf.get("spark.sql.legacy.timeParserPolicy") == "LEGACY":
        return None
    schema = pa.schema([(name, _READ[kind]) for name, kind in kinds.items()])
    return ParsedFields(text, schema, mark, times) if is_flat(schema) else None


def _of_avro(call: Expression, java: Any, text: str, mark: str) -> ParsedFields | None:
    """Return what the worker reads of Avro; None if it would make other columns of it than Spark."""
    try:
        form = Avro(call.children[1].fields["value"])
        fields = StructType(format_fields(form, "value", ""))
    except (TopologyException, ValueError):
        return None
    schema = arrow_schema(StructType([StructField(field.name, field.dataType) for field in fields]))
    made = json.loads(str(java.dataType().asNullable().json()))
    plain = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not form.is_record or _without_nullable(plain.jsonValue()) != _without_nullable(made):
        return None
    return ParsedFields(text, schema, mark, (None,) * len(schema), form)


def _without_nullable(kind: Any) -> Any:
    """Return a type without what says where there are nulls."""
    if isinstance(kind, dict):
        left_out = {"containsNull", "metadata", "nullable", "valueContainsNull"}
        return {name: _without_nullable(value) for name, value in kind.items() if name not in left_out}
    return [*map(_without_nullable, kind)] if isinstance(kind, list) else kind


def _shows(rows: Rows, text: str, outputs: Iterable[int], parsed: Mapping[str, Any]) -> bool:
    """Return whether anything but these calls reads a column of texts."""
    texts = {rows.numbers[rows.node.leaf.columns.names.index(text)]}

    def passes(one: Expression) -> bool:
        """Return whether an expression is the texts under another number, or their bytes as strings."""
        return (one.is_attribute and one.number in texts) or (one.kind in {"Alias", "Cast"} and passes(one.children[0]))

    def reads(one: Expression) -> bool:
        if one.kind in {_JSON, _AVRO} and key_of(rows, one) in parsed and passes(one.children[0]):
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
