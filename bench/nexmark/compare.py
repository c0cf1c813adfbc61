"""Whether two answers are the same, and where they differ."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["RELATIVE", "Answer", "differences", "newest"]

Row = dict[str, Any]

#: Sums and averages of doubles depend on the order of what is added.
RELATIVE: Final = 1e-9
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that must come out.

    Attributes:
        columns: their names.
        inexact: those of them that are doubles or decimals, which are compared as numbers.
        rows: in any order.
    """

    columns: tuple[str, ...]
    inexact: frozenset[str]
    rows: Sequence[Row]


def newest(records: Iterable[tuple[Any, Row | None]]) -> list[Row]:
    """Return the rows of a table: of each key's records the last one, unless it is a tombstone."""
    rows: dict[Any, Row] = {}
    for key, row in records:
        rows.pop(key, None)
        if row is not None:
            rows[key] = row
    return list(rows.values())


def differences(found: Iterable[Row], wanted: Answer) -> list[str]:
    """Return the first differences in words; none if each row comes as often in both.

    Values are equal if they are the same; of doubles and decimals, if they differ by no more than a billionth.
    """
    exact = [name for name in wanted.columns if name not in wanted.inexact]
    inexact = [name for name in wanted.columns if name in wanted.inexact]
    groups: defaultdict[tuple[Any, ...], tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    shown: list[str] = []
    counts = [0, 0]
    for side, rows in enumerate((found, wanted.rows)):
        for row in rows:
            counts[side] += 1
            if more := row.keys() - set(wanted.columns):
                return [f"there are columns that SQL has not: {', '.join(sorted(more))}"]
            key = tuple(row.get(name) for name in exact)
            groups[key][side].append(tuple(row.get(name) for name in inexact))
    if counts[0] != counts[1]:
        shown.append(f"{counts[0]} rows where SQL has {counts[1]}")
    for key, (ours, theirs) in groups.items():
        ours.sort(key=_order)
        theirs.sort(key=_order)
        if len(ours) != len(theirs) or not all(map(_equal, ours, theirs)):
            named = ", ".join(f"{name}={value!r}" for name, value in zip(exact, key, strict=True))
            shown.append(f"[{named}] {_said(inexact, ours)} where SQL has {_said(inexact, theirs)}")
        if len(shown) > _SHOWN:
            break
    return shown


def _order(values: tuple[Any, ...]) -> list[tuple[bool, float]]:
    return [(value is not None, 0.0 if value is None else float(value)) for value in values]


def _equal(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(
        a is b if a is None or b is None else math.isclose(float(a), float(b), rel_tol=RELATIVE) for a, b in pairs
    )


def _said(inexact: list[str], rows: list[Any]) -> str:
    if not inexact or not rows:
        return f"{len(rows)} times"
    return " and ".join(", ".join(f"{n}={v!r}" for n, v in zip(inexact, row, strict=True)) for row in rows[:_SHOWN])
