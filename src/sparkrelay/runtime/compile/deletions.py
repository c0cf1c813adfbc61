"""Which legs lead records without a value to a table of newest rows, where they delete their key's row.

No filter on the way keeps one from it, wherever it stands: in the leg that keeps the table, or in front of the
repartition topic that this one reads. There it has no other key than what is made of the message key: a value that
stands in for a null would be somebody else's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.runtime.compile.carried_columns import keeps_newest
from sparkrelay.runtime.compile.column_origins import computed_from, made_of
from sparkrelay.runtime.compile.row_steps import null_where_deleting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Leg, Source


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
        return set(leg.sink.key) <= self._message_key(leg.source, raw=leg.passes_kafka_columns)

    def keyed(self, leg: Leg, rows: DataFrame, source: DataFrame) -> DataFrame:
        """Return the rows that a leg writes; in deletions, key columns not derived from the message key are null.

        Args:
            leg: the leg.
            rows: behind its steps, or some of them.
            source: what they are made of.
        """
        sink = leg.sink
        if sink is None or not isinstance(sink.key, tuple) or sink.topic not in self._topics:
            return rows
        if leg.stateful_step is not None or leg.lookups or self.pass_through(leg):
            return rows
        own = self._message_key(leg.source, raw=leg.passes_kafka_columns) | {"kafka"}
        # A column as it is has none either.
        there = [name for name in sink.key if name in rows.columns]
        computed = {name: made_of(rows, source, name) for name in computed_from(rows, source, there, {})}
        return null_where_deleting(rows, (name for name, made in computed.items() if not made or made - own))

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
