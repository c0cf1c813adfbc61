"""Ways through the tree of nodes: from where rows are read, or joined, to an end, with what is between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.topology.nodes import (
    ActionNode,
    AggregationNode,
    EmittingNode,
    LateNode,
    LookupNode,
    RepartitionNode,
    SinkNode,
    SourceNode,
    StepNode,
    TableJoinNode,
    UnionNode,
    tables_of,
    watermark_before,
    ways_back,
)
from sparkrelay.topology.structure import Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.topology.nodes import AnyNode, Record

Start = SourceNode | RepartitionNode
Begin = Start | TableJoinNode
End = SinkNode | ActionNode | RepartitionNode | AggregationNode


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """One leg to be: from a start to an end, with what is between."""

    start: Begin
    before: tuple[Step | LookupNode, ...]
    aggregation: AggregationNode | None
    after: tuple[Step, ...]
    table_steps: int
    end: End
    watermark: tuple[str, str] | None
    final: StepNode | None
    number: int
    late: LateNode | None = None
    emitting: EmittingNode | None = None
    is_left: bool = False

    @property
    def lookups(self) -> tuple[LookupNode, ...]:
        """The tables that it looks into, in order."""
        return tuple(step for step in self.before if isinstance(step, LookupNode))

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


def _ends(record: Record) -> list[AnyNode]:
    """Return where ways end: what is written or acted upon, and the stores that no other way leads through.

    A table with steps behind it is kept if somebody needs it as it is: the steps may be another table's, which holds
    what is behind them.
    """
    ends = [node for node in record.nodes if isinstance(node, SinkNode | ActionNode | RepartitionNode)]
    through = {at for end in ends for way in ways_back(end.parent) for at in way}
    followed = {node.parent for node in record.nodes}
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
    return Counter(node for end in _ends(record) for node in _emitting_before(end.parent))


def _emitting_before(node: AnyNode | None) -> Iterator[EmittingNode]:
    """Yield the step that emits the rows of each way to ``node``, with no topic in between."""
    if isinstance(node, EmittingNode):
        yield node
    elif node is not None and not isinstance(node, RepartitionNode):
        for parent in (node.parent, node.other) if isinstance(node, UnionNode) else (node.parent,):
            yield from _emitting_before(parent)


def _walk(end: AnyNode) -> list[Way]:
    """Return the ways that lead to an end: one for each stream of a union or a join."""
    assert isinstance(end, SinkNode | ActionNode | RepartitionNode | AggregationNode)
    # Of a repartition topic, the ways are those to it, not the one that begins there.
    return [_way(end, (end, *nodes), number) for number, nodes in enumerate(ways_back(end.parent), 1)]


def _way(end: End, nodes: tuple[AnyNode, ...], number: int) -> Way:
    aggregation: AggregationNode | None = None
    before: list[Step | LookupNode] = []
    after: list[Step | LookupNode] = []
    streamed = 0
    final: StepNode | None = None
    late: LateNode | None = None
    emitting: EmittingNode | None = None
    is_left = False
    for index, node in enumerate(nodes):
        match node:
            case AggregationNode():
                # What was collected so far stands behind it.
                aggregation, before, after = node, [], before
            case EmittingNode():
                emitting, before, after = node, [], before
                is_left = nodes[index + 1] is node.parent
            case UnionNode():
                before.append(node.step)
            case LateNode():
                late = node
            case LookupNode():
                before.append(node)
            case StepNode():
                if node.step is not None:
                    before.append(node.step)
                else:
                    streamed = len(before)
                    final = node if node.final else final
            case SourceNode() | RepartitionNode() | TableJoinNode() if node is not end:
                if isinstance(node, TableJoinNode):
                    before, after = [], before
                return Way(
                    node,
                    tuple(reversed(before)),
                    aggregation,
                    tuple(step for step in reversed(after) if isinstance(step, Step)),
                    # Final rows never change: what is done to them is done to a stream.
                    0 if final is not None or emitting is not None else len(after) - streamed,
                    end,
                    None if aggregation is None else watermark_before(aggregation.parent),
                    final,
                    number,
                    late,
                    emitting,
                    is_left,
                )
            case _:
                pass
    raise AssertionError("every line of nodes begins with a source")


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
