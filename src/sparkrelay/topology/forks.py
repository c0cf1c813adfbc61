"""Steps behind which a stream forks: each of the legs that begin there repeats them for the same rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sparkrelay.topology.structure import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.topology.structure import Leg


def repeated_steps(legs: Iterable[Leg]) -> frozenset[Step]:
    """Return the steps that several legs take the same rows through.

    Behind a union a step is in several legs too, and each has rows of its own there: it is repeated where all that
    leads to it is. A leg of late rows repeats the steps of their grouping, but a row goes one of the two ways only.
    """
    counts = Counter(way for leg in legs if leg.late_for is None for way in _ways_to_steps(leg))
    return frozenset(way[-1] for way, count in counts.items() if count > 1 and isinstance(way[-1], Step))


def _ways_to_steps(leg: Leg) -> Iterator[tuple[object, ...]]:
    """Yield what leads to each step of a leg, from where its rows come from, with the step itself."""
    begins: list[tuple[object, Iterable[object]]] = [(leg.source, leg.before)]
    # What a join of streams emits of its left rows and of its right ones is not the same.
    if leg.emitting is None:
        begins.append((leg.store or leg.changes_of or leg.table_join, leg.after))
    for begin, steps in begins:
        way: tuple[object, ...] = (begin,)
        for step in steps:
            if isinstance(step, Step):
                way = (*way, step)
                yield way
