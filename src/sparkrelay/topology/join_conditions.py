"""A join's condition as PySpark users write it: what is equal, how far apart times may be, and what else must hold.

    clicks.join(views, F.expr("user = viewer and seen between at - interval 1 minute and at"), "left")

The store of a join finds rows by columns that both streams have, within a range of time. So each pair of columns that
are equal becomes one column of both, which is dropped behind the join; comparisons of the two event times become the
range; and what remains is a ``where`` behind an inner join, which gives the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import TopologyException
from sparkrelay.topology.calls.lookups import shared_columns
from sparkrelay.topology.calls.row_steps import check_expression, flat
from sparkrelay.topology.columns import argument_text, parse_path, quoted
from sparkrelay.topology.conditions import Comparison, is_condition, terms_of
from sparkrelay.topology.known_names import known_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.columns import Path
    from sparkrelay.topology.nodes import Node

_UNITS: Final = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
)


@dataclass(slots=True)
class JoinTerms:
    """What a join of two streams goes by.

    Attributes:
        columns: names of columns that both streams have.
        pairs: a column of the left stream and one of the right that are equal, by the name that both get for the join.
        within: how much earlier and how much later than the left row the right one may be; None where nothing says so.
        further: conditions that are left, which pairs of rows have to pass.
        unread: of an error that there is no range of time: that these say none; empty without any.
    """

    columns: tuple[str, ...] = ()
    pairs: dict[str, tuple[str, str]] = field(default_factory=dict)
    within: tuple[str, str] | None = None
    further: tuple[Any, ...] = ()
    unread: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that rows go together by."""
        return (*self.columns, *self.pairs)


def join_terms(on: Any, sides: tuple[Node, Node], times: tuple[str, str], how: str, call_site: CallSite) -> JoinTerms:
    """Read ``on=`` of a join of two streams.

    Args:
        on: names of columns, conditions, or a list of both.
        sides: where the left stream's rows come from, and the right one's.
        times: their columns of event times.
        how: the way of joining.
        call_site: the line that wrote it.

    Raises:
        TopologyException: nothing is equal in rows that go together, or a condition cannot be kept in this way.
    """
    if not has_conditions(on):
        return JoinTerms(join_names(on, call_site))
    parts = flat((on,))
    conditions = [part for part in parts if is_condition(part)]
    names = [part for part in parts if not is_condition(part)]
    terms = JoinTerms(join_names(names, call_site) if names else ())
    known = known_names(sides[0]) | known_names(sides[1])
    left_time, right_time = both = tuple(parse_path(time) or () for time in times)
    least: list[int] = []
    most: list[int] = []
    further: list[tuple[Any, str]] = []
    for condition in conditions:
        check_expression("join", condition, call_site)
        for term in terms_of(condition):
            text = argument_text(term.written if term.written is not None else condition)
            if not isinstance(term, Comparison):
                further.append((term.written, text))
                continue
            paths = _time_or_itself(term.left.path, both, known), _time_or_itself(term.right.path, both, known)
            if paths in {(left_time, right_time), (right_time, left_time)} and left_time != right_time:
                low, high = _bounds(term if paths[0] == right_time else term.flipped())
                least += low
                most += high
            elif term.operator == "=" and all(len(path) == 1 for path in paths) and not _shifted(term):
                one, other = _sided(term.left.path[0], term.right.path[0], sides, text, call_site)
                terms.pairs[f"{one} = {other}"] = one, other
            else:
                further.append((term.written, text))
    terms.unread = _unread([text for _, text in further], times)
    if least or most:
        terms.within, beyond = _range(least, most, times, terms.unread, call_site)
        if beyond and how != "inner":
            raise TopologyException(
                f"{call_site}: {beyond[0][1]}, in join(): of rows that may go out alone, how={how!r}, the range of "
                f"{times[0]!r} and {times[1]!r} has equal times in it too; widen it to them, or use an inner join"
            )
        further += beyond
    terms.further = _further(further, how, times, call_site)
    if not terms.keys:
        raise TopologyException(
            f"{call_site}: join() of two streams needs a column of each that are equal in rows that go together, "
            f'on="left_column = right_column and ...", not {argument_text(on)}'
        )
    return terms


def has_conditions(on: Any) -> bool:
    """Return whether ``on=`` has more than names of columns."""
    return any(map(is_condition, flat((on,))))


def join_names(on: Any, call_site: CallSite) -> tuple[str, ...]:
    """Return the names of columns that both streams have.

    Raises:
        TopologyException: they are none, or one comes twice.
    """
    columns = shared_columns(on, call_site)
    if len({column.lower() for column in columns}) < len(columns):
        raise TopologyException(f"{call_site}: on={list(columns)} of join() names a column twice")
    return columns


def _time_or_itself(path: Path, times: Iterable[Path], known: frozenset[str]) -> Path:
    """Return the column of event times that a path names, in another case perhaps, as Spark reads it; or the path."""
    if path[0] in known:
        return path
    lower = [part.lower() for part in path]
    return next((time for time in times if [part.lower() for part in time] == lower), path)


def _unread(texts: list[str], times: tuple[str, str]) -> str:
    if not texts:
        return ""
    return (
        f". Not read as a range of {times[0]!r} and {times[1]!r}: {', '.join(texts)}; compare both, with an interval "
        "such as interval 1 hour added to one of them or taken from it"
    )


def _shifted(term: Comparison) -> bool:
    return bool(term.left.shift_us or term.right.shift_us)


def _bounds(term: Comparison) -> tuple[list[int], list[int]]:
    """Return by how much the right time is later than the left one at least, and at most, in microseconds.

    ``term`` has the right stream's time first.
    """
    us = term.right.shift_us - term.left.shift_us
    match term.operator:
        case ">=":
            return [us], []
        case ">":
            return [us + 1], []
        case "<=":
            return [], [us]
        case "<":
            return [], [us - 1]
        case _:
            return [us], [us]


def _range(
    least: list[int], most: list[int], times: tuple[str, str], unread: str, call_site: CallSite
) -> tuple[tuple[str, str], list[tuple[Any, str]]]:
    """Return the range that covers the bounds, and conditions for what of it lies outside of them.

    Raises:
        TopologyException: one bound is missing, or no time is within both.
    """
    left, right = times
    if not least or not most:
        lacking = f"{right} >= {left} - interval 1 hour" if not least else f"{right} <= {left} + interval 1 hour"
        raise TopologyException(
            f"{call_site}: join() of two streams needs both ends of the range of time, or rows would be kept for ever: "
            f'add "and {lacking}"{unread}'
        )
    low, high = max(least), min(most)
    if low > high:
        raise TopologyException(f"{call_site}: no two times are within the range that the condition of join() gives")
    names = {word: quoted(parse_path(time) or (time,)) for word, time in (("left", left), ("right", right))}
    beyond: list[tuple[Any, str]] = []
    if low > 0:
        text = f"{names['right']} >= {names['left']} + interval {low} microseconds"
        beyond.append((text, f"{right} at least {_words(low)} after {left}"))
    if high < 0:
        text = f"{names['right']} <= {names['left']} - interval {-high} microseconds"
        beyond.append((text, f"{right} at least {_words(-high)} before {left}"))
    return (_words(max(-low, 0)), _words(max(high, 0))), beyond


def _words(us: int) -> str:
    """Return an interval as people write it."""
    unit, size = next(((unit, size) for unit, size in _UNITS if us % size == 0 and us >= size), ("second", 1))
    count = us // size
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _sided(one: str, other: str, sides: tuple[Node, Node], text: str, call_site: CallSite) -> tuple[str, str]:
    """Return the left stream's column first.

    Raises:
        TopologyException: both may be the same stream's.
    """
    left, right = ({name.lower() for name in known_names(side)} for side in sides)
    straight = one.lower() in left or other.lower() in right
    crossed = other.lower() in left or one.lower() in right
    if straight == crossed:
        what = "both streams have a column of one of these names" if straight else "which stream has which is not known"
        raise TopologyException(
            f"{call_site}: {text} in join(): {what}; give the columns names of their own with select() or "
            "withColumnRenamed() before the join"
        )
    return (one, other) if straight else (other, one)


def _further(
    further: Iterable[tuple[Any, str]], how: str, times: tuple[str, str], call_site: CallSite
) -> tuple[Any, ...]:
    found = list(further)
    for written, text in found:
        if how != "inner":
            raise TopologyException(
                f"{call_site}: {text} in join(): of rows that may go out alone, how={how!r}, conditions are what is "
                f"equal and the range of the two event times, {times[0]!r} and {times[1]!r}; with an inner join it may "
                "be said too"
            )
        if written is None:
            raise TopologyException(
                f"{call_site}: {text} in join() has a part that is neither columns that are equal nor a range of the "
                f"event times, {times[0]!r} and {times[1]!r}; say that part in a where() behind the join, or as a "
                "condition of its own in a list, on=[..., ...]"
            )
    return tuple(written for written, _ in found)
