"""Which repartition topics carry the times that a watermark, or a table with a history, behind them goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.topology.columns import parse_path
from sparkrelay.topology.lineage import Lineage
from sparkrelay.topology.structure import Lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.topology.structure import Leg, Step

#: In the place of a column, which has a name: the records' own timestamps.
TIMESTAMP: Final = ""

_TIME: Final = "event time"


def shipped_event_times(legs: Iterable[Leg]) -> dict[str, str]:
    """Return the column of event times in the rows of repartition topics, by the topics' names in the topology.

    Left out are topics behind which nothing goes by times, or several things by different ones, or by one that is
    computed behind the topic. What looks into a table with a history goes by the times as of which it looks.

    Args:
        legs: of the topology.
    """
    readers = [leg for leg in legs if leg.source.internal]
    found: dict[str, set[str | None]] = {}
    while True:
        known = {topic: set(columns) for topic, columns in found.items()}
        for leg in readers:
            if leg.keeps_watermark or (leg.stateful_step is None and leg.sink is not None and leg.sink.topic in known):
                column = _shipped(leg, known)
            elif looking := [step for step in leg.lookups if step.as_of]:
                column = _looked_by(leg, looking[0])
            else:
                continue
            for topic in leg.source.topics:
                found.setdefault(topic, set()).add(column)
        if found == known:
            break
    alone = {topic: columns.pop() for topic, columns in known.items() if len(columns) == 1}
    return {topic: column for topic, column in alone.items() if column is not None}


def _shipped(leg: Leg, known: Mapping[str, set[str | None]]) -> str | None:
    """Return the column of event times of a leg's rows if they have come with it, and no step has made another of it.

    Args:
        leg: it keeps a watermark, or passes rows on to a topic whose readers do.
        known: the columns in such topics.
    """
    if leg.stateful_step is not None:
        assert leg.stateful_step.watermark is not None
        path = parse_path(leg.stateful_step.watermark[0])
    else:
        assert leg.sink is not None
        [column, *others] = known[leg.sink.topic]
        if column == TIMESTAMP and not others:
            return TIMESTAMP
        path = None if column is None or others else (column,)
    return _unchanged(path, leg.before)


def _looked_by(leg: Leg, lookup: Lookup) -> str | None:
    """Return the column, or ``TIMESTAMP``, as of which a leg's rows look into a table with a history."""
    if lookup.watermark is None:
        return TIMESTAMP
    return _unchanged(parse_path(lookup.watermark[0]), leg.before[: leg.before.index(lookup)])


def _unchanged(path: tuple[str, ...] | None, steps: Iterable[Step | Lookup]) -> str | None:
    """Return a column if none of these steps has made another of it."""
    if path is None or len(path) != 1:
        return None
    lineage = Lineage(frozenset({(path, _TIME)}), ())
    for step in steps:
        if not isinstance(step, Lookup):
            lineage = lineage.after(step)
    return path[0] if (path, _TIME) in lineage.held else None
