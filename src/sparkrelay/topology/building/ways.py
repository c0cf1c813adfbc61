"""Ways through the tree of nodes: from where rows are read, or joined, to an end, with what is between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkrelay.topology.nodes import (
    ActionNode,
    AggregationNode,
    EmittingNode,
    End,
    LateNode,
    LookupNode,
    RepartitionNode,
    SinkNode,
    SourceNode,
    StreamNode,
    TableJoinNode,
    before,
    tables_of,
    ways_back,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.topology.nodes import AnyNode
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows

Start = SourceNode | RepartitionNode
Begin = Start | TableJoinNode
AnyEnd = SinkNode | ActionNode | RepartitionNode | AggregationNode


@dataclass(frozen=True, slots=True)
class Passage:
    """Rows on a way, and the node that they come to."""

    rows: Rows
    to: AnyNode


@dataclass(slots=True, eq=False)
class Way:
    """One leg to be: from a start to an end, with what is between.

    Attributes:
        start: where rows are read, or joined.
        end: where they go.
        number: which of several ways to the end it is, from 1 on.
        before: what is in front of the stateful step, that included; or all.
        stateful: the step that keeps a store; or None.
        of_table: what is done to a table's rows, behind the stateful step.
        after: what is behind that.
        final: ``outputMode("append")``, or None.
        late: the rows of a grouping that come late, or None.
        is_left: True on the way of a join's left stream.
    """

    start: Begin
    end: AnyEnd
    number: int
    before: list[Passage] = field(default_factory=list)
    stateful: AggregationNode | EmittingNode | None = None
    of_table: list[Passage] = field(default_factory=list)
    after: list[Passage] = field(default_factory=list)
    final: StreamNode | None = None
    late: LateNode | None = None
    is_left: bool = False

    @property
    def aggregation(self) -> AggregationNode | None:
        """The stateful step, if it keeps a table."""
        return self.stateful if isinstance(self.stateful, AggregationNode) else None

    @property
    def emitting(self) -> EmittingNode | None:
        """The stateful step, if it emits a stream."""
        return self.stateful if isinstance(self.stateful, EmittingNode) else None

    @property
    def lookups(self) -> tuple[LookupNode, ...]:
        """The tables that it looks into, in order."""
        return tuple(passage.to for passage in self.before if isinstance(passage.to, LookupNode))

    @property
    def tables(self) -> tuple[AggregationNode, ...]:
        """The tables that its rows are joined of, that it looks into, or that its answers are for."""
        joined = self.start.tables if isinstance(self.start, TableJoinNode) else ()
        return (*joined, *self.referencing, *(node.table for node in self.lookups))

    @property
    def referencing(self) -> tuple[AggregationNode, ...]:
        """The tables that answers of a join by a foreign key are for."""
        join = None if self.aggregation is None else self.aggregation.answers
        return () if join is None or join.referencing is None else tables_of(join.referencing)


def all_ways(record: Record) -> list[Way]:
    """Return every way, those that keep a table before those that look into it; else in the order of their ends."""
    return _tables_first([way for end in _ends(record) for way in _walk(end)])


def starts_of(way: Way, keepers: Mapping[AggregationNode, Way]) -> tuple[Start, ...]:
    """Return where a way's rows come from: of joined tables, where theirs do."""
    if not isinstance(way.start, TableJoinNode):
        return (way.start,)
    found = (start for table in way.start.tables for start in starts_of(keepers[table], keepers))
    return tuple(dict.fromkeys(found))


def _ends(record: Record) -> list[AnyEnd]:
    """Return where ways end: what is written or acted upon, and the stores that no other way leads through.

    A table with steps behind it is kept if somebody needs it as it is: the steps may be another table's, which holds
    what is behind them.
    """
    ends = [node for node in record.nodes if isinstance(node, End | RepartitionNode)]
    through = {at for end in ends for rows in end.inputs for way in ways_back(before(rows)) for at in way}
    followed = {before(rows) for node in record.nodes for rows in node.inputs}
    followed |= {node.of.node for node in record.nodes if isinstance(node, LookupNode)}
    followed |= {rows.node for node in record.nodes if isinstance(node, TableJoinNode) for rows in node.of}
    needed = {node.table for node in record.nodes if isinstance(node, LookupNode)}
    needed |= {table for node in record.nodes if isinstance(node, TableJoinNode) for table in node.tables}
    return [
        node
        for node in record.nodes
        if isinstance(node, SinkNode | ActionNode | RepartitionNode)
        or ((isinstance(node, AggregationNode) and node not in through) and (node not in followed or node in needed))
    ]


def ways_behind_emitting(record: Record) -> Counter[EmittingNode]:
    """Return how many ways lead from each step that emits a stream to ends, with no topic in between.

    Those to one end count too: they part, and come together again by a union.
    """
    found = (node for end in _ends(record) for rows in end.inputs for node in _emitting_before(rows))
    return Counter(found)


def _emitting_before(rows: Rows) -> Iterator[EmittingNode]:
    """Yield the step that emits the rows of each way to here, with no topic in between."""
    node = rows.node
    if isinstance(node, EmittingNode):
        yield node
    elif not isinstance(node, RepartitionNode):
        for one in node.inputs:
            yield from _emitting_before(one)


def _walk(end: AnyEnd) -> list[Way]:
    """Return the ways that lead to an end: one for each stream of a union or a join."""
    # Of a repartition topic, the ways are those to it, not the one that begins there.
    ways = (steps for rows in end.inputs for steps in _back(rows, end))
    return [_way(end, steps, number) for number, steps in enumerate(ways, 1)]


def _back(rows: Rows, to: AnyNode) -> Iterator[tuple[Passage, ...]]:
    """Yield the passages of each way back, the last one first."""
    node = before(rows)
    if not node.inputs or isinstance(node, RepartitionNode):
        yield (Passage(rows, to),)
        return
    for one in node.inputs:
        for way in _back(one, node):
            yield (Passage(rows, to), *way)


def _way(end: AnyEnd, steps: tuple[Passage, ...], number: int) -> Way:
    first = steps[-1]
    start = before(first.rows)
    assert isinstance(start, SourceNode | RepartitionNode | TableJoinNode), "every way begins where rows are read"
    way = Way(start, end, number)
    at = way.before
    if isinstance(start, TableJoinNode):
        at = way.of_table
    for passage in reversed(steps):
        node = passage.to
        at.append(passage)
        if isinstance(node, AggregationNode):
            way.stateful, at = node, way.of_table
        elif isinstance(node, EmittingNode):
            way.stateful, at = node, way.after
            way.is_left = passage.rows is node.given
        elif isinstance(node, StreamNode):
            at = way.after
            if node.final:
                way.final = node
        elif isinstance(node, LateNode):
            way.late = node
    if way.final is not None:
        # Final rows never change: what is done to them is done to a stream.
        way.after, way.of_table = [*way.of_table, *way.after], []
    return way


def _tables_first(ways: list[Way]) -> list[Way]:
    """Put every way behind those that keep the tables it looks into; else in the order in which they were written."""
    ordered: list[Way] = []
    left = list(ways)
    while left:
        kept = {way.aggregation for way in left if way.aggregation is not None}
        # A table is written before what looks into it, so there is always one that waits for nobody.
        way = next(way for way in left if kept.isdisjoint(way.tables))
        ordered.append(way)
        left.remove(way)
    return ordered
