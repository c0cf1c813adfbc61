"""What can be known of a user's column without importing pyspark.

A classic PySpark Column carries the JVM's object as ``_jc``; its node says what it is. Nothing here evaluates
anything: a column is either plainly another column (possibly renamed), or an expression that only Catalyst understands.
Whenever in doubt the answer is "an expression", which costs a repartition topic and is never wrong.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: A column, or a field of a struct column: ``kafka.key`` is ``("kafka", "key")``.
Path = tuple[str, ...]

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_IDENTIFIER: Final = re.compile(r"(?:`(?:[^`]|``)+`|[A-Za-z_]\w*)(?:\.(?:`(?:[^`]|``)+`|[A-Za-z_]\w*))*")
_RENAMED: Final = re.compile(rf"({_IDENTIFIER.pattern})(?:\s+(?:[aA][sS]\s+)?(`(?:[^`]|``)+`|[A-Za-z_]\w*))?")
_LITERAL_WORDS: Final = frozenset({"null", "true", "false"})
_OPERATORS: Final = frozenset({"+", "-", "*", "/", "%", "=", "<", ">", "<=", ">=", "<=>"})
#: Functions whose result Spark shows in another way than ``name(arguments)``.
_SHOWN_OTHERWISE: Final = frozenset(
    {"and", "or", "not", "isnull", "isnotnull", "in", "like", "rlike", "ilike", "between", "when", "case"}
)
_WINDOWS: Final = frozenset({"window", "session_window"})

#: What users wrote, and what stays as it is: texts, and names in backticks.
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`""", re.DOTALL)
_KEPT: Final = re.compile(r"\0(\d+)\0")
_SEEDED: Final = re.compile(r"\b(?:rand|randn|random|uuid|shuffle|randstr|uniform)\(")
#: A seed of PySpark's has 64 random bits. Behind an argument with brackets a shorter one stays.
_SEED: Final = re.compile(r"-?\b\d+L$")
_LONG_SEED: Final = re.compile(r"-?\b\d{15,}L$")
#: A seed that PySpark has made up: 64 random bits, so ten digits or more but for one in thousands of millions. Seeds
#: that people write are shorter.
_MADE_UP_SEED: Final = re.compile(
    r"\b(rand|randn|random|uuid)\(-?\d{10,}L\)|\b(shuffle|randstr|uniform)\(.*, -?\d{10,}L\)", re.DOTALL
)
#: Without a date, a time of day is one of the day on which it is read.
_LITERAL_OF_NOW: Final = re.compile(
    r"""\b(?:date|timestamp(?:_ltz|_ntz)?)\s*(['"])\s*(?:(?:now|today|tomorrow|yesterday)\b|T?\d{1,2}:)[^'"]*\1""",
    re.IGNORECASE,
)
_UDF_ARGUMENT: Final = re.compile(
    r"columnnodeexpression\(UnresolvedAttribute\(List\(([^()]*)\),None,(?:true|false),?\)\)"
)
_HASH: Final = re.compile(r"@[0-9a-f]+\b|\bat 0x[0-9a-f]+|#\d+L?\b")
#: The names on the left of ``->``, and one of them with the number that PySpark has given it.
_LAMBDA_NAMES: Final = re.compile(r"(?:\(([^()]*)\)|\b(\w+))\s*->")
_LAMBDA_VARIABLE: Final = re.compile(r"\b([A-Za-z]\w*?)_\d+\b")
#: Membership, as a Column shows it and as Catalyst does.
_IN: Final = re.compile(r"(?<![\w.])in\(|\bIN \(")


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """A function over a window, as far as it is of plain columns.

    Attributes:
        function: its name.
        partition: the columns of ``partitionBy``; None for an expression.
        order: those of ``orderBy``, whether the largest comes first, and whether nulls do; None for an expression.
        framed: True with ``rowsBetween`` or ``rangeBetween``.
    """

    function: str
    partition: tuple[str | None, ...]
    order: tuple[tuple[str, bool, bool] | None, ...]
    framed: bool


def is_column(value: object) -> bool:
    """Return whether ``value`` is a Column of classic PySpark."""
    # Not hasattr: a Column answers every attribute with another Column.
    return "_jc" in getattr(value, "__dict__", {})


def is_session_window(key: object) -> bool:
    """Return whether a grouping column is ``F.session_window(...)``, perhaps under another name."""
    return argument_text(key).strip('"').lower().startswith("session_window(")


def session_gap(key: object) -> str | None:
    """Return the gap of ``F.session_window("time", "5 minutes")``; None where it is another for each row."""
    if not is_column(key) or not is_session_window(key):
        return None
    node = without_alias(node_of(key))[0]
    arguments = items_of(node.arguments()) if kind_of(node) == "UnresolvedFunction" else ()
    gap = arguments[1].value() if len(arguments) > 1 and kind_of(arguments[1]) == "Literal" else None
    return gap if isinstance(gap, str) else None


def parse_path(name: str) -> Path | None:
    """Read a column's name in Spark's syntax, ``a.b`` or ```a.b```; None if it is malformed."""
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(name, position)
        if match is None:
            return None
        parts.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        position = match.end()
        if position == len(name):
            return tuple(parts)
        if name[position] != ".":
            return None
        position += 1


def quoted(path: Path) -> str:
    """Write a path so that Spark reads it as it is: the inverse of :func:`parse_path`."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in path)


def column_path(value: object) -> Path | None:
    """Return the column that ``value`` plainly names, its alias set aside; None for any other expression."""
    if isinstance(value, str):
        return None if is_star(value) else parse_path(value)
    if not is_column(value):
        return None
    node = without_alias(node_of(value))[0]
    if kind_of(node) == "UnresolvedAttribute":
        return tuple(items_of(node.nameParts()))
    if kind_of(node) == "SqlExpression":
        path, name = expression_path(node.expression())
        return path if path is not None and name == path[-1] else None
    return None


def output_name(value: object) -> str | None:
    """Return the name of the column that ``value`` makes in a ``select``; None if only Spark knows."""
    if isinstance(value, str):
        path = column_path(value)
        return None if path is None else path[-1]
    if not is_column(value):
        return None
    node, alias = without_alias(node_of(value))
    if alias is not None:
        return alias
    if kind_of(node) == "SqlExpression":
        return expression_path(node.expression())[1]
    if kind_of(node) == "UnresolvedAttribute":
        return str(items_of(node.nameParts())[-1])
    if kind_of(node) == "UnresolvedFunction" and node.functionName() in _WINDOWS:
        return str(node.functionName())
    return _shown(node)


def expression_path(text: str) -> tuple[Path | None, str | None]:
    """Read one argument of ``selectExpr``: the column it plainly names and the name it gets; None where it does not."""
    match = _RENAMED.fullmatch(text.strip())
    if match is None or match[1].lower() in _LITERAL_WORDS:
        return None, None
    path = parse_path(match[1])
    assert path is not None, "the expression for identifiers is narrower than parse_path"
    alias = None if match[2] is None else parse_path(match[2])
    return path, path[-1] if alias is None else alias[0]


def function_over_window(value: object) -> WindowColumns | None:
    """Return the function over a window that a column is, its alias set aside; None for anything else."""
    return _over_window(without_alias(node_of(value))[0]) if is_column(value) else None


def comparison(value: object) -> tuple[str | WindowColumns, str, int] | None:
    """Take a Column such as ``F.col("n") <= 10`` apart.

    Returns:
        The name of the column or the function over a window that is compared, how, and with which number; None for any
        other Column.
    """
    if not is_column(value):
        return None
    node = without_alias(node_of(value))[0]
    if kind_of(node) != "UnresolvedFunction" or node.functionName() not in {"<=", "<", "=", "=="}:
        return None
    left, right = items_of(node.arguments())
    number = right.value() if kind_of(right) == "Literal" else None
    compared = plain_name(left) or _over_window(left)
    if compared is None or isinstance(number, bool) or not isinstance(number, int):
        return None
    return compared, str(node.functionName()), number


def is_star(value: object) -> bool:
    """Return whether ``value`` stands for all columns."""
    if isinstance(value, str):
        return value.strip() == "*"
    return is_column(value) and kind_of(node_of(value)) == "UnresolvedStar" and _text(value) == "*"


def argument_text(value: object) -> str:
    """Return an argument of a step as people read it, the same in every process."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if is_column(value):
        return stable_text(_text(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{argument_text(key)}: {argument_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, set | frozenset):
        # Texts come out of a set in another order in each process.
        return "{" + ", ".join(sorted(map(argument_text, value))) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(argument_text(item) for item in value) + "]"
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__qualname__)).rpartition("<locals>.")[2]
    return stable_text(repr(value))


def made_up_seed(value: object) -> str | None:
    """Return the function in a column that has a seed which PySpark made up, as ``F.rand()`` does; or None.

    The seed is part of the Column, so it gives the same answers however often a plan is built of it. That of
    ``F.expr("rand()")`` is made when the plan is.
    """
    match = _MADE_UP_SEED.search(_text(value)) if is_column(value) else None
    return None if match is None else match[1] or match[2]


def literal_of_now(value: object) -> str | None:
    """Return the literal in a Column or SQL text that is the time at which it is read, as ``date'today'`` is; or None.

    Spark reads it with the text, so that no plan shows what it was.
    """
    match = _LITERAL_OF_NOW.search(value if isinstance(value, str) else _text(value) if is_column(value) else "")
    return None if match is None else match[0]


def stable_text(text: str) -> str:
    """Take out of an expression's text what differs from process to process: seeds, addresses, counters, lines.

    What stands in quotes is the user's, and stays.
    """
    if "columnnodeexpression(" in text:
        text = "".join(_without_origins(text))
    text, kept = _aside(text)
    text = _HASH.sub("", text)
    text = _UDF_ARGUMENT.sub(r"\1", text)
    text = _without_seeds(text)
    bound = {name.strip() for names in _LAMBDA_NAMES.findall(text) for name in ",".join(names).split(",")}
    text = _LAMBDA_VARIABLE.sub(lambda match: match[1] if match[0] in bound else match[0], text)
    return _put_back(_sorted_alternatives(text, kept), kept)


def stable_alternatives(text: str) -> str:
    """Have what ``isin`` names in one order: that of a Python set is another in each process."""
    text, kept = _aside(text)
    return _put_back(_sorted_alternatives(text, kept), kept)


def _aside(text: str) -> tuple[str, list[str]]:
    """Return a text with marks in the place of what stands in quotes, and that."""
    kept: list[str] = []

    def mark(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    return _QUOTED.sub(mark, text), kept


def _put_back(text: str, kept: Sequence[str]) -> str:
    return _KEPT.sub(lambda match: kept[int(match[1])], text)


def _without_seeds(text: str) -> str:
    # From the last one on, so that those inside of others are done first.
    for match in reversed(list(_SEEDED.finditer(text))):
        end = _closing(text, match.end())
        arguments = text[match.end() : end]
        seed = _LONG_SEED if "(" in arguments else _SEED
        text = text[: match.end()] + seed.sub("seed", arguments) + text[end:]
    return text


def _sorted_alternatives(text: str, kept: Sequence[str]) -> str:
    for match in reversed(list(_IN.finditer(text))):
        end = _closing(text, match.end())
        alternatives = _split(text[match.end() : end])
        # As a Column shows it, the first one is what is looked for.
        first = alternatives[:1] if match[0] == "in(" else []
        rest = sorted(alternatives[len(first) :], key=lambda one: _put_back(one, kept))
        text = text[: match.end()] + ", ".join([*first, *rest]) + text[end:]
    return text


def _split(arguments: str) -> list[str]:
    """Split arguments at the commas that stand in no brackets."""
    parts, depth = [""], 0
    for one in arguments.split(", "):
        parts[-1] += one if not parts[-1] else f", {one}"
        depth += one.count("(") - one.count(")")
        if depth == 0:
            parts.append("")
    return [part for part in parts if part]


def _closing(text: str, begin: int) -> int:
    """Return where the bracket is closed whose content begins there; the end, if it is not."""
    depth = 1
    for at in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


def _without_origins(text: str) -> Iterator[str]:
    """Drop ``Origin(...)``, which PySpark puts into the text of a UDF's arguments: it holds lines and addresses."""
    while (start := text.find("Origin(")) >= 0:
        yield text[:start]
        depth, end = 0, start + len("Origin")
        for end in range(end, len(text)):  # noqa: B020 - starts where the name ends
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                break
        rest = text[end + 1 :]
        # What follows in the same list says nothing either: the plan id and a flag, as ",None,None".
        text = re.sub(r"^(?:,(?:None|true|false))*", "", rest)
    yield text


def _shown(node: Any) -> str | None:
    """Return Spark's name for an expression without an alias, where that is certain."""
    kind = kind_of(node)
    if kind == "UnresolvedAttribute":
        return ".".join(items_of(node.nameParts()))
    if kind == "Literal":
        value = node.value()
        if isinstance(value, bool):
            return str(value).lower()
        return str(value) if isinstance(value, int | str) else None
    if kind != "UnresolvedFunction" or node.isDistinct():
        return None
    arguments = [_shown(argument) for argument in items_of(node.arguments())]
    function = str(node.functionName())
    if None in arguments:
        return None
    if function in _OPERATORS and len(arguments) == 2:
        return f"({arguments[0]} {function} {arguments[1]})"
    if not function.isidentifier() or function.lower() in _SHOWN_OTHERWISE:
        return None
    return f"{function}({', '.join(str(argument) for argument in arguments)})"


def without_alias(node: Any) -> tuple[Any, str | None]:
    """Return a node without the alias around it, and that alias."""
    alias = None
    while kind_of(node) == "Alias":
        names = items_of(node.name())
        if len(names) != 1:
            break
        alias = alias or str(names[0])
        node = node.child()
    return node, alias


def _over_window(node: Any) -> WindowColumns | None:
    if kind_of(node) != "Window":
        return None
    spec, function = node.windowSpec(), node.windowFunction()
    order: list[tuple[str, bool, bool] | None] = []
    for one in items_of(spec.sortColumns()):
        name = plain_name(one.child())
        # Of these two objects only the names of their classes say anything: Descending, NullsLast.
        descending, nulls_first = "Descending" in str(one.sortDirection()), "NullsFirst" in str(one.nullOrdering())
        order.append(None if name is None else (name, descending, nulls_first))
    return WindowColumns(
        str(function.functionName()).lower() if kind_of(function) == "UnresolvedFunction" else kind_of(function),
        tuple(plain_name(one) for one in items_of(spec.partitionColumns())),
        tuple(order),
        bool(spec.frame().isDefined()),
    )


def plain_name(node: Any) -> str | None:
    """Return the name of the column that a node plainly is; None for a field or an expression."""
    parts = items_of(node.nameParts()) if kind_of(node) == "UnresolvedAttribute" else ()
    return str(parts[0]) if len(parts) == 1 else None


def node_of(column: Any) -> Any:
    """Return the JVM's description of a Column."""
    return column._jc.node()


def kind_of(node: Any) -> str:
    """Return the name of a node's class."""
    return str(node.productPrefix())


def _text(column: Any) -> str:
    return str(column._jc.toString())


def items_of(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]
