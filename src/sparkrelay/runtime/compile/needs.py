"""Which columns anything reads, found backwards from where rows go: the others are neither decoded, kept nor sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.operators.emitting.plan import ALL, plan_of
from sparkrelay.runtime.compile.carried_columns import CHANGES
from sparkrelay.runtime.compile.sink_plan import plan_sink
from sparkrelay.topology.parts import Collected, Lookup, Segment
from sparkrelay.topology.schemas import hidden_fields, without_kafka

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.operators.emitting.plan import Surroundings
    from sparkrelay.topology import Leg
    from sparkrelay.topology.parts import Part

Names = frozenset[str]


class Needs:
    """The columns that the legs of a topology read.

    Args:
        legs: of the topology.
        around: the same for plans of steps that emit streams.
    """

    def __init__(self, legs: Sequence[Leg], around: Surroundings) -> None:
        self._legs = legs
        self._around = around
        #: Leg, and a part of it (or its stateful step) -> what is read behind it.
        self._behind: dict[tuple[str, object], Names] = {}
        #: Leg -> what is read of its source.
        self._source: dict[str, Names] = {}
        self._shipped: dict[str, StructType] = {}

    def source(self, leg: Leg) -> Names:
        """Return which columns of a leg's source anything reads."""
        if leg.id not in self._source:
            self._source[leg.id] = self._found(leg)
        return self._source[leg.id]

    def behind(self, leg: Leg, part: object) -> Names:
        """Return which columns behind a part of a leg, or behind its stateful step, anything reads."""
        self.source(leg)
        return self._behind[leg.id, part]

    def shipped(self, topic: str) -> StructType:
        """Return the columns that must travel through a repartition topic: those that are read behind it.

        Args:
            topic: by its name in the topology.
        """
        if topic not in self._shipped:
            readers = [leg for leg in self._legs if leg.source.internal and topic in leg.source.topics]
            columns = readers[0].source.columns
            read = frozenset[str]().union(*(self.source(leg) for leg in readers if not leg.goes_on))
            kept = [field for field in columns if field.name in read] or columns.fields[:1]
            # What a table's rows are, as they were or as they are, travels with them.
            kept += hidden_fields(CHANGES[-1:]) if readers[0].source.changes else []
            # By name, so that rows of an earlier pipeline can be read though its columns came in another order.
            self._shipped[topic] = StructType(sorted(kept, key=lambda field: str(field.name)))
        return self._shipped[topic]

    def _found(self, leg: Leg) -> Names:
        needed = self._at_end(leg)
        needed = self._before(leg, leg.after, needed)
        needed = self._before(leg, leg.of_table, needed)
        if leg.goes_on:
            self._behind[leg.id, leg.changes_of or leg.table_join] = needed
            return frozenset()
        if leg.emitting is not None:
            self._behind[leg.id, leg.emitting] = needed
            needed = plan_of(leg.emitting, self._around).needs(needed)
            if needed >= ALL:
                needed = frozenset(leg.taken.schema.names)
        elif leg.aggregation is not None:
            self._behind[leg.id, leg.aggregation] = needed
            needed = frozenset(leg.taken.schema.names)
        elif leg.late_for is not None:
            needed |= {hidden_columns.WINDOW}
        return self._before(leg, leg.before, needed)

    def _before(self, leg: Leg, parts: Sequence[Part], needed: Names) -> Names:
        """Return what is read in front of these parts."""
        for part in reversed(parts):
            self._behind[leg.id, part] = needed
            match part:
                case Segment():
                    rows = part.rows
                    numbers = [rows.columns[place].number for place, name in enumerate(part.names) if name in needed]
                    names = rows.node.leaf.columns.names
                    needed = frozenset(names[place] for place in rows.read(numbers))
                case Lookup():
                    needed = (needed - {*part.given.names, part.found}) | {*part.columns, *part.times}
                case Collected():
                    needed = (needed - {*part.given}) | {*part.keys}
        return needed

    def _at_end(self, leg: Leg) -> Names:
        """Return what is read where a leg's rows leave it."""
        columns = columns_at_end(leg)
        if leg.action is not None:
            return frozenset(without_kafka(columns).names)
        if leg.sink is None:
            return frozenset()
        if leg.sink.internal:
            assert isinstance(leg.sink.key, tuple), "a repartition topic is written by columns"
            return frozenset({*self.shipped(leg.sink.topic).names, *leg.sink.key})
        plan = plan_sink(leg, leg.sink, columns)
        return frozenset({*plan.columns.names, *plan.key, *(() if plan.headers is None else (plan.headers,))})


def columns_at_end(leg: Leg) -> StructType:
    """Return the columns of a leg's last rows, but for hidden ones; of changes that are sent on, what they are, too."""
    columns = columns_before(leg, (*leg.before, *leg.of_table, *leg.after), last=True)
    return StructType([*columns, *hidden_fields(CHANGES[-1:])]) if leg.sends_changes else columns


def columns_before(leg: Leg, parts: Sequence[Part], *, last: bool = False) -> StructType:
    """Return the columns behind parts of a leg.

    Args:
        leg: the leg.
        parts: all of one piece of it.
        last: True where these are all the parts of the leg, its stateful step in between.
    """
    behind: Sequence[Part] = parts
    columns = leg.source.columns
    if last:
        behind = (*leg.of_table, *leg.after)
        if leg.aggregation is not None:
            columns = leg.aggregation.columns
        elif leg.emitting is not None:
            columns = leg.emitting.made
        elif leg.table_join is not None:
            columns = leg.table_join.columns
        elif leg.changed is not None:
            columns = leg.changed
        else:
            behind = (*leg.before, *leg.after)
    for part in behind:
        match part:
            case Segment():
                fields = part.rows.schema.fields
                columns = StructType()
                for name, field in zip(part.names, fields, strict=True):
                    columns = columns.add(name, field.dataType, field.nullable)
            case Lookup():
                columns = StructType([*columns, *part.given, StructField(part.found, BooleanType(), nullable=False)])
            case Collected():
                columns = part.columns
    if leg.late_for is not None and last:
        columns = StructType([field for field in columns if field.name != hidden_columns.WINDOW])
    return columns
