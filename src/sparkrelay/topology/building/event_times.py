"""Which repartition topics carry the times that a watermark, or a table with a history, behind them goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay import hidden_columns
from sparkrelay.topology.parts import Lookup, Segment
from sparkrelay.topology.reading.event_times import event_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.topology.parts import Part
    from sparkrelay.topology.rows import Rows
    from sparkrelay.topology.structure import Leg

#: In the place of a column, which has a name: the records' own timestamps.
TIMESTAMP: Final = ""


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
            if leg.keeps_watermark:
                column = _time_at_source(leg.before)
            elif leg.stateful_step is None and leg.sink is not None and leg.sink.topic in known:
                [wanted, *others] = known[leg.sink.topic]
                column = None if others or wanted is None else _carried(leg.before, wanted)
            elif looking := [step for step in leg.lookups if step.as_of]:
                before = leg.before[: leg.before.index(looking[0])]
                column = TIMESTAMP if looking[0].watermark is None else _time_at_source(before)
            else:
                continue
            for topic in leg.source.topics:
                found.setdefault(topic, set()).add(column)
        if found == known:
            break
    alone = {topic: columns.pop() for topic, columns in known.items() if len(columns) == 1}
    return {topic: column for topic, column in alone.items() if column is not None}


def _time_at_source(parts: tuple[Part, ...]) -> str | None:
    """Return the source's column that the last of these rows have as their event time; None if it is computed."""
    segments = [part for part in parts if isinstance(part, Segment)]
    if not segments:
        return None
    rows = segments[-1].rows
    # What a stateful step takes in has its time computed of the column in front of that.
    times = [column.number for column in rows.columns if column.name.startswith(hidden_columns.PREFIX + "event_")]
    if times:
        read = rows.reads_of(times[0])
        return _name_at_source(parts, segments[-1], read[0]) if len(read) == 1 else None
    time = event_time(rows)
    return None if time is None else _named_at_source(parts, time.name)


def _carried(parts: tuple[Part, ...], name: str) -> str | None:
    """Return the source's column that a column behind these parts is as it was; None if it is computed."""
    return TIMESTAMP if name == TIMESTAMP else _named_at_source(parts, name)


def _named_at_source(parts: tuple[Part, ...], name: str) -> str | None:
    for part in reversed(parts):
        if isinstance(part, Lookup):
            continue
        if not isinstance(part, Segment):
            return None
        if name not in part.names:
            return None
        name_or_none = _copied(part.rows, part.names.index(name))
        if name_or_none is None:
            return None
        name = name_or_none
    return name


def _name_at_source(parts: tuple[Part, ...], segment: Segment, place: int) -> str | None:
    before = parts[: parts.index(segment)]
    return _named_at_source(before, segment.rows.node.leaf.columns.names[place])


def _copied(rows: Rows, place: int) -> str | None:
    copy = rows.copy(rows.columns[place].number)
    if copy is None or copy.fields:
        return None
    return str(rows.node.leaf.columns.names[copy.place])
