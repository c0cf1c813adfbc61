"""What the columns of a plan are computed from, in words: the same in every run of the same pipeline.

A store finds its state by the grouping columns. If one of them was computed in another way before, old and new rows
would share a group, whether the grouping itself computed it, a step before it, or one in front of a repartition topic.
So the words for what a store holds say how each grouping column was made.

Catalyst is asked, not the user's text: it alone knows what a ``selectExpr`` or a ``transform(fn)`` makes. Its numbers
of attributes (``origin#12``) and seeds are left out. Time windows are described by their lengths, because Spark has
replaced them by arithmetic, which is long and may be another in its next release. Of ``from_json`` and its like,
Catalyst leaves out by which options and to which types a text is read; that is said behind them, as far as it makes a
difference to the column: a schema may get more fields.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.runtime.compile.catalyst import (
    Attribute,
    Node,
    analyzed,
    attributes,
    items,
    java,
    scala_object,
)
from sparkrelay.topology.columns import stable_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

_ZONED: Final = "org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression"
#: Any time will do, in microseconds since 1970; py4j makes a long of what has more than 32 bits.
_SOME_TIME: Final = 10**15

_FIELD: Final = "GetStructField"
#: What reads texts by a schema: ``from_json`` and its like.
_PARSERS: Final = frozenset({"CsvToStructs", "JsonToStructs", "XmlToStructs"})
#: Number of an attribute -> the expression that makes it; several for a hopping window, one a window that a row is in.
_Made = dict[int, list[Node]]


def computed_from(
    rows: DataFrame, source: DataFrame, names: Iterable[str], behind: Mapping[str, str]
) -> dict[str, str]:
    """Return what columns are computed from; those that are columns of ``source`` as they are, are left out.

    Args:
        rows: made of ``source`` by row-wise steps.
        source: where rows come from.
        names: columns of ``rows``.
        behind: the same of columns of ``source``: they were computed before they were written there.
    """
    given = {number: behind.get(name, name) for number, name in analyzed(source).output}
    plan = analyzed(rows)
    columns = {attribute.name: attribute for attribute in plan.output}
    wanted = {name: columns[name] for name in names}
    made = made_by(plan) if any(attribute.number not in given for attribute in wanted.values()) else {}
    texts = {name: _text(attribute, given, made) for name, attribute in wanted.items()}
    return {name: text for name, text in texts.items() if text != name}


def made_of(rows: DataFrame, source: DataFrame, name: str) -> frozenset[str]:
    """Return the columns of ``source`` that a column of ``rows`` is made of: itself, or what its expression reads."""
    given = dict(analyzed(source).output)
    plan = analyzed(rows)
    of = [attribute.number for attribute in plan.output if attribute.name == name]
    return frozenset(given[number] for number in reached(of, made_by(plan)) & given.keys())


def reached(numbers: Iterable[int], made: _Made) -> set[int]:
    """Return the numbers of attributes, and of those that they are made of."""
    todo, found = list(numbers), set[int]()
    while todo:
        if (number := todo.pop()) not in found:
            found.add(number)
            todo += [one.number for expression in made.get(number, ()) for one in expression.references]
    return found


def made_by(plan: Node) -> _Made:
    """Return how the nodes of a plan make attributes."""
    made: _Made = {}
    for node in plan.below():
        if node.kind == "Generate":
            generator = Node(node.java.generator())
            made |= {number: [generator] for number, _ in attributes(node.java.generatorOutput())}
        elif node.kind == "Expand":
            ways = [list(map(Node, items(way))) for way in items(node.java.projections())]
            for (number, _), *expressions in zip(node.output, *ways, strict=True):
                if expressions[0].kind != "AttributeReference":
                    made[number] = expressions
        else:
            made |= {number: [*alias.children] for number, alias in node.aliases.items()}
    return made


def _text(attribute: Attribute, given: Mapping[int, str], made: _Made) -> str:
    """Describe how an attribute is made, and behind ``with`` how those are that it is made of, and so on."""
    parts: dict[int, str] = {}
    todo = [attribute]
    #: Attributes of which more is read than some of their fields.
    whole: set[int] = set()
    while todo:
        first, name = todo.pop(0)
        number = _renamed(first, made)
        if number in parts or (parts and given.get(number) == name):
            continue
        text = given.get(number, name)
        if number not in given and number in made:
            below = list(_below(made[number][0]))
            text = _sql(made[number]) + _zone(made[number]) + _parsed(below, made, whole=number in whole)
            todo += [read for expression in made[number] for read in expression.references]
            read_whole = (one for one, above in below if one.kind == "AttributeReference" and above != _FIELD)
            whole |= {_renamed(one.number, made) for one in read_whole}
        parts[number] = f"{name} = {text}" if parts else text
    head, *others = parts.values()
    return stable_text(f"{head} with {', '.join(others)}" if others else head)


def _below(node: Node, above: str = "") -> Iterator[tuple[Node, str]]:
    """Yield an expression and all that is below it, each with the kind of what is right above it."""
    yield node, above
    for child in node.children:
        yield from _below(child, node.kind)


def _parsed(below: Sequence[tuple[Node, str]], made: _Made, *, whole: bool) -> str:
    """Describe how an attribute's expression reads texts, beyond what Catalyst says of it.

    Args:
        below: the expression, and all that is below it.
        made: how attributes are made.
        whole: True where more is read of the attribute than some of its fields.
    """
    words: list[str] = []
    for part, above in below:
        node, what = part.java, part.kind
        # The type of a column that is a field by itself is known.
        if what == _FIELD and above and above != _FIELD and _is_parsed(part, made):
            words.append(f"{node.sql()} {node.dataType().catalogString()}")
        if what in _PARSERS:
            # In CSV, the place of a field is that in the schema.
            if what == "CsvToStructs" or above not in {"", _FIELD} or (not above and whole):
                words.append(str(node.schema().catalogString()))
            if str(node.schema().typeName()) == "map":
                words.append(str(node.child().sql()))
            words += sorted(str(option) for option in items(node.options().toSeq()))
    return f" reading {', '.join(words)}" if words else ""


def _is_parsed(field: Node, made: _Made) -> bool:
    """Return whether a field is one of what is read from a text."""
    while field.kind == _FIELD:
        field = field.children[0]
    if field.kind == "AttributeReference":
        field = made.get(_renamed(field.number, made), [field])[0]
    return field.kind in _PARSERS


def _renamed(number: int, made: _Made) -> int:
    """Follow an attribute to the one that it is another name of."""
    while number in made and made[number][0].kind == "AttributeReference":
        number = made[number][0].number
    return number


def _sql(expressions: list[Node]) -> str:
    first = expressions[0]
    if first.kind != "CreateNamedStruct" or (time := _time_of_window(first)) is None:
        return str(first.java.sql())
    if (gap := _gap_of_session(first)) is not None:
        return f"session_window({time.child().sql()}, {gap.sql()})"
    # Two windows that the time is in are one slide apart; a tumbling one is alone.
    windows = [_at_some_time(one.java, time) for one in expressions[:2]]
    start, end = windows[0].getLong(0), windows[0].getLong(1)
    length = end - start
    slide = start - windows[1].getLong(0) if len(windows) > 1 else length
    every = f" every {dt.timedelta(microseconds=slide)}" if slide != length else ""
    offset = f" from {dt.timedelta(microseconds=start % slide)}" if start % slide else ""
    return f"window({time.child().sql()}, {dt.timedelta(microseconds=length)}{every}{offset})"


def _zone(expressions: list[Node]) -> str:
    """Name the session's time zone if what the expressions compute depends on it, such as the date of a time."""
    zoned = java("java.lang.Class").forName(_ZONED)
    needs_zone = scala_object("expressions.Cast").needsTimeZone
    for part in (part for one in expressions for part in one.below() if zoned.isInstance(part.java)):
        node = part.java
        # Every cast has a zone, whether its types need one or not.
        if part.kind != "Cast" or needs_zone(node.child().dataType(), node.dataType()):
            return f" in {node.timeZoneId().get()}" if node.timeZoneId().isDefined() else ""
    return ""


def _time_of_window(struct: Node) -> Any | None:
    """Return the conversion of a row's time to microseconds that a window is made of; None if it is no window."""
    conversions = (node.java for node in struct.below() if node.kind == "PreciseTimestampConversion")
    return next((node for node in conversions if node.dataType().typeName() == "long"), None)


def _gap_of_session(struct: Node) -> Any | None:
    """Return what is added to a row's time for the session that it would make alone; None for another window."""
    added = next((node for node in struct.below() if node.kind == "TimestampAddInterval"), None)
    if added is None:
        return None
    gap = added.children[1]
    return gap.java.child() if gap.kind == "Cast" else gap.java


def _at_some_time(window: Any, time: Any) -> Any:
    """Return the start and the end of a window that some time is in."""
    literal = java("org.apache.spark.sql.catalyst.expressions.Literal")(_SOME_TIME, time.dataType())
    to_seq = java("org.apache.spark.api.python.PythonUtils").toSeq

    def replaced(expression: Any) -> Any:
        if expression.equals(time):
            return literal
        children = items(expression.children())
        return expression.withNewChildren(to_seq([replaced(child) for child in children])) if children else expression

    return replaced(window).eval(None)
