"""Which legs lead records without a value to a table of newest rows, where they delete their key's row.

No filter on the way keeps one from it, wherever it stands: in the leg that keeps the table, or in front of the
repartition topic that this one reads. There it has no other key than what is made of the message key: a value that
stands in for a null would be somebody else's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.runtime.compile.carried_columns import keeps_newest
from sparkrelay.topology.parts import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.runtime.compile.flow import Flow
    from sparkrelay.topology import Leg, Source
    from sparkrelay.topology.parts import Part


class Deletions:
    """The way of such records through the legs of a topology."""

    def __init__(self, legs: Sequence[Leg]) -> None:
        self._legs = legs
        #: Repartition topics behind which they get to a table.
        self._topics: set[str] = set()
        while more := self._read() - self._topics:
            self._topics |= more

    def pass_through(self, leg: Leg) -> bool:
        """Return whether they get through the steps of a leg before its stateful one, or all if it has none."""
        if leg.lookups or leg.emitting is not None or leg.late_for is not None or leg.goes_on:
            return False
        if leg.aggregation is not None:
            return keeps_newest(leg)
        if leg.sink is None or not leg.sink.internal or leg.sink.topic not in self._topics:
            return False
        # Of such a record only the message key is there: by another column it would find no row.
        assert isinstance(leg.sink.key, tuple), "a repartition topic is written by columns"
        own = self._message_key(leg.source, raw=leg.passes_kafka_columns)
        return all(_origin(leg.before, name) in own for name in leg.sink.key)

    def keyed(self, leg: Leg, flow: Flow) -> Flow:
        """Return the rows that a leg writes; in deletions, key columns not derived from the message key are null.

        Args:
            leg: the leg.
            flow: behind its steps, or some of them.
        """
        sink = leg.sink
        if sink is None or not isinstance(sink.key, tuple) or sink.topic not in self._topics:
            return flow
        if leg.stateful_step is not None or leg.lookups or self.pass_through(leg):
            return flow
        own = self._message_key(leg.source, raw=leg.passes_kafka_columns) | {"kafka"}
        # A column as it is has none either.
        computed = {
            name: _made_of(leg.before, name)
            for name in sink.key
            if name in flow.columns.names and _origin(leg.before, name) is None
        }
        return flow.null_where_deleting([name for name, made in computed.items() if not made or made - own])

    def _read(self) -> set[str]:
        reading = (leg.source for leg in self._legs if leg.source.internal and self.pass_through(leg))
        return {topic for source in reading for topic in source.topics}

    def _message_key(self, source: Source, *, raw: bool) -> set[str]:
        """Return the names of the columns that a message key is decoded into."""
        if source.internal:
            sinks = (leg.sink for leg in self._legs if leg.sink is not None and leg.sink.internal)
            keys = (sink.key for sink in sinks if sink.topic in source.topics)
            return {name for key in keys if isinstance(key, tuple) for name in key}
        if source.key is not None:
            return set(source.key.known_columns("key"))
        return {"key"} if raw else set()


def _origin(parts: Sequence[Part], name: str) -> str | None:
    """Return the source's column that a column behind these parts is as it was; None if it is computed."""
    for part in reversed(parts):
        if not isinstance(part, Segment) or name not in part.names:
            return None
        copy = part.rows.copy(part.rows.columns[part.names.index(name)].number)
        if copy is None or copy.fields:
            return None
        name = str(part.rows.node.leaf.columns.names[copy.place])
    return name


def _made_of(parts: Sequence[Part], name: str) -> set[str]:
    """Return the source's columns that a column behind these parts is made of."""
    names = {name}
    for part in reversed(parts):
        if not isinstance(part, Segment):
            return set()
        leaf = part.rows.node.leaf.columns.names
        numbers = [part.rows.columns[part.names.index(one)].number for one in names if one in part.names]
        names = {leaf[place] for number in numbers for place in part.rows.depends_on(number)}
    return names
