"""Expressions and steps in words: without Catalyst's numbers, so the same in every run of the same pipeline.

They are shown by ``describe()``, and compared: instances must agree on them, and a store finds its state by those of
its grouping columns. So whatever makes a difference to a value has to be in them, also of functions that nobody thought
of here: those are written with all their fields.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.tree import expression_of
from sparkrelay.catalyst.windows import time_window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparkrelay.catalyst.tree import Expression
    from sparkrelay.catalyst.windows import TimeWindow

_INFIX: Final = {
    "Add": "+",
    "And": "AND",
    "BitwiseAnd": "&",
    "BitwiseOr": "|",
    "BitwiseXor": "^",
    "Divide": "/",
    "EqualNullSafe": "<=>",
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "IntegralDivide": "div",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "Multiply": "*",
    "Or": "OR",
    "Remainder": "%",
    "Subtract": "-",
}
#: Functions whose class is called otherwise than people know them.
_KNOWN_AS: Final = {
    "Average": "avg",
    "CreateArray": "array",
    "CreateMap": "map",
    "CreateNamedStruct": "named_struct",
    "JsonToStructs": "from_json",
    "StructsToJson": "to_json",
    "ParseToDate": "to_date",
    "ParseToTimestamp": "to_timestamp",
    "StringTrim": "trim",
}
#: Fields that make no difference to a value, or are said otherwise: numbers, where text stands, error messages.
_LEFT_OUT: Final = frozenset(
    {
        *(
            "evalContext",
            "evalMode",
            "hideSeed",
            "randomSeed",
            "evalType",
            "exprId",
            "func",
            "hidden",
            "metadata",
        ),
        *(
            "nonInheritableMetadataKeys",
            "nullable",
            "qualifier",
            "resultId",
            "timeZoneId",
            "udfDeterministic",
            "useStringTypeWhenEmpty",
        ),
    }
)
#: What escapes a character in a pattern unless the pattern says otherwise.
_NO_ESCAPE: Final = "\\"
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*\Z")


def words(expression: Expression, names: Mapping[int, str] | None = None, *, inside: bool = False) -> str:
    """Return an expression as text that looks like SQL.

    Args:
        expression: the expression.
        names: Catalyst's number of a column -> what it is called; the others are called what Catalyst calls them.
        inside: True to have it in brackets where it would mean something else beside an operator.
    """
    found = _Words({} if names is None else names)
    return found.inside(expression) if inside else found.of(expression)


def window_words(window: TimeWindow, names: Mapping[int, str] | None = None) -> str:
    """Return a window in words: of which time, how long, and how far apart windows begin."""
    time = words(window.time, names)
    if window.gap is not None:
        return f"session_window({time}, {words(window.gap, names)})"
    every = f" every {window.slide}" if window.slide != window.length else ""
    offset = f" from {window.offset}" if window.offset else ""
    return f"window({time}, {window.length}{every}{offset})"


class _Words:
    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        #: Spark numbers the names of lambdas' variables as it goes.
        self._variables: dict[int, str] = {}

    def of(self, one: Expression) -> str:
        if (window := time_window([one])) is not None:
            return window_words(window, self._names)
        if (symbol := _INFIX.get(one.kind)) is not None:
            left, right = map(self.inside, one.children)
            return f"{left} {symbol} {right}"
        special = _SPECIAL.get(one.kind)
        return self._function(one) if special is None else special(self, one)

    def inside(self, one: Expression) -> str:
        text = self.of(one)
        return f"({text})" if one.kind in _INFIX or one.kind in {"Not", "IsNull", "IsNotNull", "In"} else text

    def _function(self, one: Expression) -> str:
        name = _KNOWN_AS.get(one.kind) or _HUMP.sub("_", one.kind).lower()
        if one.fields.get("evalMode") == "TRY" and not name.startswith("try_"):
            name = f"try_{name}"
        arguments = [*map(self.of, one.children), *_fields(one)]
        zone = one.fields.get("timeZoneId")
        return f"{name}({', '.join(arguments)})" + (f" in {zone}" if zone else "")

    def attribute(self, one: Expression) -> str:
        return self._names.get(one.number) or quoted(one.name)

    def variable(self, one: Expression) -> str:
        """Return a variable of a lambda."""
        return self._variables.setdefault(one.number, f"x{len(self._variables) + 1}")

    def alternatives(self, one: Expression) -> str:
        """Return a comparison with several values, in one order: that of a Python set is another in each process."""
        return f"{self.inside(one.children[0])} IN ({', '.join(sorted(map(self.of, one.children[1:])))})"

    def cast(self, one: Expression) -> str:
        zone = one.fields.get("timeZoneId")
        tried = "TRY_" if one.fields.get("evalMode") == "TRY" else ""
        what = f"{tried}CAST({self.of(one.children[0])} AS {type_words(one.fields['dataType'])})"
        return f"{what} in {zone}" if zone and _needs_zone(one) else what

    def case(self, one: Expression) -> str:
        pairs = list(one.children)
        otherwise = f" ELSE {self.of(pairs.pop())}" if len(pairs) % 2 else ""
        parts = (
            f" WHEN {self.of(when)} THEN {self.of(then)}" for when, then in zip(pairs[::2], pairs[1::2], strict=True)
        )
        return f"CASE{''.join(parts)}{otherwise} END"

    def aggregate(self, one: Expression) -> str:
        function, *others = one.children
        text = self.of(function)
        if one.fields.get("isDistinct"):
            text = text.replace("(", "(DISTINCT ", 1)
        return f"{text} FILTER (WHERE {self.of(others[0])})" if others else text

    def field(self, one: Expression) -> str:
        """Return a field of a struct."""
        (struct,) = one.children
        if struct.is_attribute:
            made = getattr(self._names, "made", {}).get(struct.number, ())
            struct = made[0] if len(made) == 1 and made[0].kind == "JsonToStructs" else struct
        if struct.kind == "JsonToStructs" and struct.fields.get("options") == "Map()":
            # The other fields of the schema make no difference.
            struct = _with_field(struct, int(one.fields["ordinal"]))
        name = one.fields.get("name")
        of = struct.fields.get("dataType")
        if name is None and isinstance(of, dict):
            name = of["fields"][one.fields["ordinal"]]["name"]
        return f"{self.inside(struct)}.{quoted(str(one.fields['ordinal'] if name is None else name))}"

    def over(self, one: Expression) -> str:
        """Return a function over a window."""
        function, spec = one.children
        numbers = [*map(self.of, spec.children)]
        orders = [place for place, child in enumerate(spec.children) if child.kind == "SortOrder"]
        frame = 1 if spec.children and spec.children[-1].kind in {"SpecifiedWindowFrame", "UnspecifiedFrame"} else 0
        by = numbers[: orders[0] if orders else len(numbers) - frame]
        parts = [f"partition by {', '.join(by)}"] if by else []
        parts += [f"order by {', '.join(numbers[place] for place in orders)}"] if orders else []
        return f"{self.of(function)} over ({' '.join(parts)})"

    def order(self, one: Expression) -> str:
        """Return a column that rows are ordered by, and in which direction."""
        down = " desc" if "Descending" in str(one.fields["direction"]) else ""
        return f"{self.inside(one.children[0])}{down}"

    def udf(self, one: Expression) -> str:
        return f"{one.name}({', '.join(map(self.of, one.children))})"


def _with_field(parsed: Expression, place: int) -> Expression:
    """Return ``from_json`` by a schema of one of its fields alone."""
    schema = parsed.fields["schema"]
    return replace(parsed, fields={**parsed.fields, "schema": {**schema, "fields": [schema["fields"][place]]}})


def _literal(one: Expression) -> str:
    value, kind = one.fields.get("value"), type_words(one.fields["dataType"])
    if value is None:
        return "NULL"
    if kind in {"int", "boolean"}:
        return str(value)
    if kind == "binary":
        return f"X'{value}'"
    text = "'" + str(value).replace("'", "''") + "'"
    return text if kind == "string" else f"{kind} {text}"


_SPECIAL: Final[dict[str, Callable[[_Words, Expression], str]]] = {
    "AggregateExpression": _Words.aggregate,
    "Between": lambda words, one: " ".join(
        (
            words.inside(expression_of(one.fields["input"])),
            "BETWEEN",
            words.inside(expression_of(one.fields["lower"])),
            "AND",
            words.inside(expression_of(one.fields["upper"])),
        )
    ),
    "Alias": lambda words, one: f"{words.of(one.children[0])} AS {quoted(one.name)}",
    "AttributeReference": _Words.attribute,
    "CaseWhen": _Words.case,
    "Cast": _Words.cast,
    "GetStructField": _Words.field,
    "In": _Words.alternatives,
    "IsNotNull": lambda words, one: f"{words.inside(one.children[0])} IS NOT NULL",
    "IsNull": lambda words, one: f"{words.inside(one.children[0])} IS NULL",
    "KnownNullable": lambda words, one: words.of(one.children[0]),
    "Literal": lambda _, one: _literal(one),
    "NamedLambdaVariable": _Words.variable,
    "Not": lambda words, one: f"NOT {words.inside(one.children[0])}",
    "PythonUDF": _Words.udf,
    "RandStr": lambda words, one: f"randstr({words.of(one.children[0])})",
    "Rand": lambda _, __: "rand()",
    "Randn": lambda _, __: "randn()",
    "ScalarSubquery": lambda _, __: "(SELECT ...)",
    "Uniform": lambda words, one: f"uniform({words.of(one.children[0])}, {words.of(one.children[1])})",
    "SortOrder": _Words.order,
    "WindowExpression": _Words.over,
    "UnaryMinus": lambda words, one: f"-{words.inside(one.children[0])}",
}


def _fields(one: Expression) -> Iterator[str]:
    """Yield the fields of a function that are no arguments, as ``name=value``.

    An argument stands as its number among the arguments; what is not in their order is a field that looks like one.
    """
    following = 0
    for name, value in one.fields.items():
        places = value if isinstance(value, list) else [value]
        if (
            places
            and all(type(place) is int for place in places)
            and places == [*range(following, following + len(places))]
        ):
            following += len(places)
        elif name == "failOnError":
            # Under ANSI rules an error is one.
            yield from () if value else ("failOnError=False",)
        elif name not in _LEFT_OUT and value not in (None, [], "", "Map()", _NO_ESCAPE) and not _holds_tree(value):
            yield f"{name}={_field_words(value)}"


def _field_words(value: Any) -> str:
    if isinstance(value, dict) and "object" in value:
        return str(value["object"]).rpartition(".")[2].rstrip("$")
    return type_words(value) if isinstance(value, dict | str) else str(value)


def _holds_tree(value: Any) -> bool:
    if isinstance(value, dict):
        return "class" in value or any(map(_holds_tree, value.values()))
    return isinstance(value, list) and any(map(_holds_tree, value))


def _needs_zone(cast: Expression) -> bool:
    """Return whether a cast may be between texts or dates and points in time, which depends on the time zone."""
    zoned = {"timestamp", "date", "string", "timestamp_ntz"}
    return "timestamp" in str(cast.fields["dataType"]) or not {str(cast.fields["dataType"])}.isdisjoint(zoned)


def quoted(name: str) -> str:
    """Return a column's name as SQL reads it."""
    return name if _PLAIN.match(name) else "`" + name.replace("`", "``") + "`"


def type_words(of: Any) -> str:
    """Return a type in JSON as Spark's ``simpleString`` has it."""
    if isinstance(of, str):
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(of, of)
    kind = of.get("type")
    if kind == "struct":
        fields = (f"{field['name']}:{type_words(field['type'])}" for field in of["fields"])
        return f"struct<{','.join(fields)}>"
    if kind == "array":
        return f"array<{type_words(of['elementType'])}>"
    if kind == "map":
        return f"map<{type_words(of['keyType'])},{type_words(of['valueType'])}>"
    return str(of)
