"""What can be known of a join's condition: comparisons of two columns, perhaps with an interval added to one.

A condition is SQL text, a Column, or a list of them, all of which must hold. Nothing is evaluated here, and what is not
plainly such a comparison is passed on as it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.topology.columns import (
    Path,
    is_column,
    items_of,
    kind_of,
    node_of,
    parse_path,
    plain_name,
    without_alias,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FLIPPED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPERATORS: Final = {**{operator: operator for operator in _FLIPPED}, "==": "="}
_CONDITION: Final = re.compile(r"[=<>]|\bbetween\b", re.IGNORECASE)
_TOKEN: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
    r"|(?:`(?:[^`]|``)+`|\w+)(?:\.(?:`(?:[^`]|``)+`|\w+))*"
    r"|<=>|<=|>=|==|!=|<>|\S"
)
_NUMBER: Final = re.compile(r"'?\s*(\d{1,12})\s*'?")
_UNITS_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, and what is added to it.

    Attributes:
        path: the column.
        shift_us: the interval that is added, in microseconds.
    """

    path: Path
    shift_us: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two columns that are compared.

    Attributes:
        left: what stands first.
        operator: ``=``, ``<``, ``<=``, ``>`` or ``>=``.
        right: what stands second.
        written: the same as SQL text or as a Column; None if it is a part of a Column.
    """

    left: Operand
    operator: str
    right: Operand
    written: Any

    def flipped(self) -> Comparison:
        """Return the same with its sides exchanged."""
        return Comparison(self.right, _FLIPPED[self.operator], self.left, self.written)


@dataclass(frozen=True, slots=True)
class Other:
    """A condition of another kind.

    Attributes:
        written: as SQL text or as a Column; None if it is a part of a Column.
    """

    written: Any


def is_condition(value: object) -> bool:
    """Return whether an element of ``on=`` is a condition, and not the name of a column."""
    return is_column(value) or (isinstance(value, str) and _CONDITION.search(value) is not None)


def terms_of(condition: Any) -> list[Comparison | Other]:
    """Return what a condition has to hold for, each by itself."""
    if isinstance(condition, str):
        return list(_of_text(condition))
    return list(_of_node(without_alias(node_of(condition))[0], condition))


# -- Columns ----------------------------------------------------------------------------------------------------------


def _of_node(node: Any, written: Any) -> Iterator[Comparison | Other]:
    kind = kind_of(node)
    if kind == "SqlExpression":
        yield from _of_text(str(node.expression()))
        return
    function = str(node.functionName()).lower() if kind == "UnresolvedFunction" else ""
    if function == "and":
        for part in items_of(node.arguments()):
            yield from _of_node(part, None)
        return
    if function in _OPERATORS:
        left, right = map(_operand_of_node, items_of(node.arguments()))
        if left is not None and right is not None:
            yield Comparison(left, _OPERATORS[function], right, written)
            return
    yield Other(written)


def _operand_of_node(node: Any) -> Operand | None:
    kind = kind_of(node)
    if kind == "UnresolvedAttribute":
        return Operand(tuple(items_of(node.nameParts())))
    if kind == "SqlExpression":
        return _operand(_tokens(str(node.expression())))
    if kind == "UnresolvedFunction" and node.functionName() in {"+", "-"}:
        column, interval = items_of(node.arguments())
        name, us = plain_name(column), _interval_of_node(interval)
        if name is not None and us is not None:
            return Operand((name,), us if node.functionName() == "+" else -us)
    return None


def _interval_of_node(node: Any) -> int | None:
    if kind_of(node) == "SqlExpression":
        return _interval(_tokens(str(node.expression())))
    if kind_of(node) == "Literal" and node.value().getClass().getSimpleName() == "Duration":
        return int(node.value().toNanos()) // 1_000
    return None


# -- text -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text.lower()


def _tokens(text: str) -> list[_Token]:
    return [_Token(match[0], match.start(), match.end()) for match in _TOKEN.finditer(text)]


def _of_text(text: str) -> Iterator[Comparison | Other]:
    tokens = _tokens(text)
    if "--" in text or "/*" in text:
        yield Other(text)
        return
    yield from _of_tokens(text, tokens)


def _of_tokens(text: str, tokens: Sequence[_Token]) -> Iterator[Comparison | Other]:
    tokens = _without_parentheses(tokens)
    parts = _conjuncts(tokens)
    if parts is not None and len(parts) > 1:
        for part in parts:
            yield from _of_tokens(text, part)
        return
    written = text[tokens[0].start : tokens[-1].end] if tokens else text
    found = None if parts is None else _compared(tokens, written)
    yield from found or [Other(written)]


def _conjuncts(tokens: Sequence[_Token]) -> list[Sequence[_Token]] | None:
    """Split at each AND that joins conditions; None where an OR does."""
    parts: list[Sequence[_Token]] = []
    begin = between = 0
    for index, depth in _depths(tokens):
        word = tokens[index].word
        if depth:
            continue
        if word == "or":
            return None
        if word == "between":
            between += 1
        elif word == "and" and between:
            between -= 1
        elif word == "and":
            parts.append(tokens[begin:index])
            begin = index + 1
    parts.append(tokens[begin:])
    return parts if all(parts) else None


def _depths(tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """Yield each token's place, and within how many parentheses and CASE expressions it is."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.word in {")", "end"}:
            depth -= 1
        yield index, depth
        if token.word in {"(", "case"}:
            depth += 1


def _without_parentheses(tokens: Sequence[_Token]) -> Sequence[_Token]:
    while len(tokens) > 2 and tokens[0].text == "(" and tokens[-1].text == ")":
        depths = dict(_depths(tokens))
        if any(depths[index] == 0 for index in range(1, len(tokens) - 1)):
            break
        tokens = tokens[1:-1]
    return tokens


def _compared(tokens: Sequence[_Token], written: str) -> list[Comparison | Other] | None:
    at = [
        (index, tokens[index].word)
        for index, depth in _depths(tokens)
        if depth == 0 and tokens[index].word in {*_OPERATORS, "between", "and"}
    ]
    if len(at) == 1 and at[0][1] in _OPERATORS:
        index, operator = at[0]
        left, right = _operand(tokens[:index]), _operand(tokens[index + 1 :])
        return None if left is None or right is None else [Comparison(left, _OPERATORS[operator], right, written)]
    if [word for _, word in at] == ["between", "and"]:
        (first, _), (second, _) = at
        column, least, most = map(_operand, (tokens[:first], tokens[first + 1 : second], tokens[second + 1 :]))
        if column is not None and least is not None and most is not None:
            name, low, high = map(_text, (tokens[:first], tokens[first + 1 : second], tokens[second + 1 :]))
            return [
                Comparison(column, ">=", least, f"{name} >= {low}"),
                Comparison(column, "<=", most, f"{name} <= {high}"),
            ]
    return None


def _text(tokens: Sequence[_Token]) -> str:
    return " ".join(token.text for token in tokens)


def _operand(tokens: Sequence[_Token]) -> Operand | None:
    tokens = _without_parentheses(tokens)
    if not tokens:
        return None
    if len(tokens) == 1:
        path = _path(tokens[0])
        return None if path is None else Operand(path)
    signs = [index for index, depth in _depths(tokens) if depth == 0 and tokens[index].text in {"+", "-"}]
    if signs:
        column, us = _operand(tokens[: signs[0]]), _interval(tokens[signs[0] + 1 :])
        if column is not None and us is not None:
            return Operand(column.path, column.shift_us + (us if tokens[signs[0]].text == "+" else -us))
    return None


def _path(token: _Token) -> Path | None:
    if token.text[0] in "'\"" or token.text[0].isdigit() or not (token.text[0].isidentifier() or token.text[0] == "`"):
        return None
    return None if token.word in {"null", "true", "false"} else parse_path(token.text)


def _interval(tokens: Sequence[_Token]) -> int | None:
    tokens = _without_parentheses(tokens)
    if len(tokens) == 2 and tokens[1].text[0] in "'\"":
        # INTERVAL '1 hour 30 minutes'
        tokens = [tokens[0], *_tokens(tokens[1].text[1:-1])]
    if len(tokens) < 3 or tokens[0].word != "interval":
        return None
    us, rest = 0, list(tokens[1:])
    while rest:
        sign = -1 if rest[0].text == "-" else 1
        if rest[0].text in {"+", "-"}:
            rest.pop(0)
        if len(rest) < 2:
            return None
        number, unit = rest.pop(0), rest.pop(0)
        count = _NUMBER.fullmatch(number.text)
        one = _UNITS_US.get(unit.word.removesuffix("s"))
        if count is None or one is None:
            return None
        us += sign * int(count[1]) * one
    return us
