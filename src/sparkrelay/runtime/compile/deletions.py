"""Which legs lead records without a value to a table of newest rows, where they delete their key's row.

No filter on the way keeps one from it, wherever it stands: in the leg that keeps the table, or in front of the
repartition topic that this one reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.records.formats import OneColumn, RegistryFormat
from sparkrelay.runtime.compile.carried_columns import keeps_newest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.topology import Leg, Source

__all__ = ["Deletions"]


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

    def _read(self) -> set[str]:
        reading = (leg.source for leg in self._legs if leg.source.internal and self.pass_through(leg))
        return {topic for source in reading for topic in source.topics}

    def _message_key(self, source: Source, *, raw: bool) -> set[str]:
        """Return the names of the columns that a message key is decoded into."""
        if source.internal:
            sinks = (leg.sink for leg in self._legs if leg.sink is not None and leg.sink.internal)
            keys = (sink.key for sink in sinks if sink.topic in source.topics)
            return {name for key in keys if isinstance(key, tuple) for name in key}
        if isinstance(source.key, OneColumn):
            return {source.key.column_name("key")}
        if isinstance(source.key, RegistryFormat):
            return set(source.key.column_names("key"))
        return {"key"} if raw else set()
