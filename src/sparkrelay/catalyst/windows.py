"""Time windows in analysed plans, where Spark has replaced them by arithmetic on the row's time.

That arithmetic is long, and may be another in Spark's next release. So it is computed for some time: start and end say
how long the window is, and those of a second one how far apart windows begin.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.catalyst.tree import Expression

#: Any time will do, in microseconds since 1970.
_SOME_TIME: Final = 10**15


@dataclass(frozen=True, slots=True, eq=False)
class TimeWindow:
    """A window that rows are grouped by.

    Attributes:
        time: the row's time, an expression.
        length: from its start to its end; None for a session.
        slide: from the start of one window to that of the next; equal to the length where they do not overlap.
        offset: from 1970 to the start of some window, less than the slide.
        gap: of a session: how long nothing comes when it ends, an expression; else None.
    """

    time: Expression
    length: dt.timedelta | None
    slide: dt.timedelta | None
    offset: dt.timedelta
    gap: Expression | None = None


def time_window(made: Sequence[Expression]) -> TimeWindow | None:
    """Return the window that a column is; None if it is none.

    Args:
        made: how the column is computed: in several ways where rows are in several windows at once.
    """
    first = made[0]
    if first.kind != "CreateNamedStruct" or (time := _time_of(first)) is None:
        return None
    added = next((one for one in first.below() if one.kind == "TimestampAddInterval"), None)
    if added is not None:
        gap = added.children[1]
        return TimeWindow(time, None, None, dt.timedelta(), gap.children[0] if gap.kind == "Cast" else gap)
    bounds = [_at_some_time(one) for one in made[:2]]
    start, end = bounds[0]
    length = end - start
    slide = start - bounds[1][0] if len(bounds) > 1 else length
    found = [dt.timedelta(microseconds=some) for some in (length, slide, start % slide)]
    return TimeWindow(time, found[0], found[1], found[2])


def _time_of(struct: Expression) -> Expression | None:
    """Return the row's time, of which a window is made."""
    for one in struct.below():
        if one.kind == "PreciseTimestampConversion" and one.fields["toType"] == "long":
            return one.children[0]
    return None


def _at_some_time(struct: Expression) -> tuple[int, int]:
    """Return start and end of the window that some time is in, in microseconds."""
    start, end = (_value(one) for one in struct.children[1::2])
    return start, end


def _value(one: Expression) -> Any:
    """Return the value of an expression of the kinds that windows are made of.

    Raises:
        KeyError: it is of another kind: this release of Spark makes windows in another way.
    """
    if one.kind == "PreciseTimestampConversion" and one.fields["toType"] == "long":
        return _SOME_TIME
    if one.kind == "Literal":
        return int(one.fields["value"])
    values = [_value(child) for child in one.children]
    if one.kind == "CaseWhen":
        return values[1] if values[0] else values[2]
    if one.kind in {"Cast", "KnownNullable", "PreciseTimestampConversion"}:
        return values[0]
    left, right = values
    match one.kind:
        case "Add":
            return left + right
        case "LessThan":
            return left < right
        case "Remainder":
            # That of Java: its sign is that of the left number, and the time is positive.
            return left % right
        case "Subtract":
            return left - right
    raise KeyError(one.kind)
