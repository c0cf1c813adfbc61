"""From the tree of nodes to legs and subtopologies.

Every end of the tree (a sink, a store that nothing follows, a repartition topic) makes one leg: the straight way back
to the source or repartition topic it comes from. Legs that read the same topic belong to one subtopology, numbered as
Kafka Streams numbers them: in the order in which their first source was written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from sparkrelay.errors import TopologyException
from sparkrelay.topology.building.aggregate_checks import check_aggregates
from sparkrelay.topology.building.branches import with_branches
from sparkrelay.topology.building.leg_checks import check_legs
from sparkrelay.topology.building.node_names import NodeNames
from sparkrelay.topology.building.row_checks import check_rows
from sparkrelay.topology.building.way_checks import check_leads_somewhere, check_ways
from sparkrelay.topology.building.ways import all_ways, starts_of
from sparkrelay.topology.nodes import (
    ActionNode,
    AggregationNode,
    BehindNode,
    CollectedNode,
    EmittingNode,
    LookupNode,
    Passing,
    RepartitionNode,
    SinkNode,
    SourceNode,
    TableJoinNode,
)
from sparkrelay.topology.parts import Collected, Lookup, Segment
from sparkrelay.topology.reading.tables import key_places
from sparkrelay.topology.step_words import step_words
from sparkrelay.topology.structure import Aggregation, ForeachBatch, Leg, Sink, Source, Subtopology, TableJoin
from sparkrelay.topology.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.topology.building.ways import AnyEnd, Passage, Start, Way
    from sparkrelay.topology.parts import Part
    from sparkrelay.topology.record import Record


def build_subtopologies(record: Record) -> Topology:
    """Return the topology that was written.

    Raises:
        TopologyException: the result of a step is not used, names clash, or topics form a cycle; names the line.
    """
    check_leads_somewhere(record)
    with_branches(record)
    ways = all_ways(record)
    keepers = check_ways(ways, record)
    names = NodeNames(record)
    sources = {node: _source(node, names) for node in record.nodes if isinstance(node, SourceNode | RepartitionNode)}
    starts = {way: starts_of(way, keepers) for way in ways}
    numbers = _numbers(ways, keepers, sources, starts)
    joins: dict[TableJoinNode, TableJoin] = {}
    legs = []
    for way in ways:
        found = tuple(sources[start] for start in starts[way])
        legs.append(_leg(way, found, numbers[starts[way][0]], names, keepers, joins))
    check_rows(legs)
    check_aggregates(legs)
    check_legs(legs)
    global_tables = tuple(leg for leg in legs if leg.keeps_global_table)
    spread = [leg for leg in legs if not leg.keeps_global_table]
    if not spread:
        raise TopologyException(
            f"{global_tables[0].source.call_site}: the pipeline has nothing but global tables, so there is nothing to "
            "run; begin a stream with builder.stream(topic), and look into the table with join()"
        )
    return Topology(
        (
            Subtopology(number, tuple(leg for leg in spread if leg.subtopology == number))
            for number in sorted({leg.subtopology for leg in spread})
        ),
        global_tables,
    )


def _source(node: Start, names: NodeNames) -> Source:
    columns = node.leaf.columns
    if isinstance(node, SourceNode):
        return Source(
            names[node],
            node.topics,
            node.key,
            node.value,
            node.timestamp,
            internal=False,
            call_site=node.call_site,
            columns=columns,
            brokers=node.brokers,
            starts=node.starts,
        )
    topic = f"{names[node]}-repartition"
    return Source(topic, (topic,), None, None, None, True, node.call_site, columns, node.changes, node.raw)


def _numbers(
    ways: Iterable[Way],
    keepers: Mapping[AggregationNode, Way],
    sources: Mapping[Start, Source],
    starts: Mapping[Way, tuple[Start, ...]],
) -> dict[Start, int]:
    """Return the number of each start's subtopology; last come those of global tables, which have no tasks."""
    # Starts in the order of writing: ``sources`` keeps it, and writers of a repartition topic come before its readers.
    alone = {way.start for way in ways if way.aggregation is not None and way.aggregation.step.is_global}
    used = {start for way in ways for start in starts[way]} - alone
    groups: list[tuple[list[Start], set[tuple[bool, str]]]] = []
    for start, source in sources.items():
        if start not in used:
            continue
        _join_groups(groups, [start], {(source.internal, topic) for topic in source.topics})
    for way in ways:
        # A lookup runs in the task that keeps its table, and a join by a foreign key in that of the right table.
        tables = [*(node.table for node in way.lookups if not node.table.step.is_global), *way.referencing]
        together = [starts[way], *(starts[way] + starts[keepers[table]] for table in tables)]
        if way.emitting is not None:
            together.append(tuple(s for other in ways if other.emitting is way.emitting for s in starts[other]))
        for some in together:
            if len(some) > 1:
                _join_groups(groups, [], {(sources[s].internal, t) for s in some for t in sources[s].topics})
    order = list(sources)
    groups.sort(key=lambda group: min(order.index(member) for member in group[0]))
    spread = [members for members, _ in groups] + [[start] for start in order if start in alone]
    return {member: number for number, members in enumerate(spread) for member in members}


def _join_groups(
    groups: list[tuple[list[Start], set[tuple[bool, str]]]], members: list[Start], topics: set[tuple[bool, str]]
) -> None:
    """Make one group of those that have one of these topics, and add to it."""
    for group in [group for group in groups if group[1] & topics]:
        members = group[0] + members
        topics = topics | group[1]
        groups.remove(group)
    groups.append((members, topics))


def _aggregation(way: Way, names: NodeNames, joins: dict[TableJoinNode, TableJoin]) -> Aggregation:
    node = way.aggregation
    assert node is not None, "a way that keeps a store leads through it"
    return replace(
        node.step,
        store=names[node],
        text=node.text if way.final is None else f'{node.text}.outputMode("append")',
        final=way.final is not None,
        answers=None if node.answers is None else _table_join(node.answers, names, joins),
    )


def _leg(  # noqa: PLR0917 - what is known of one leg
    way: Way,
    sources: tuple[Source, ...],
    number: int,
    names: NodeNames,
    keepers: Mapping[AggregationNode, Way],
    joins: dict[TableJoinNode, TableJoin],
) -> Leg:
    keeps = way.aggregation is not None and keepers[way.aggregation] is way
    aggregation = _aggregation(way, names, joins) if keeps else None
    emitting = None if way.emitting is None else _emitting(way.emitting, names, is_left=way.is_left)
    stateful = aggregation if emitting is None else emitting
    id_ = names[way.end] if stateful is None else stateful.store
    if isinstance(way.end, RepartitionNode) and stateful is None:
        id_ = f"{id_}-repartition"
    if way.number > 1:
        # No name has this sign: an automatic one that was taken ends with "-2" itself.
        id_ = f"{id_}#{way.number}"
    # Stores, sinks and repartition topics are named apart; a prefix keeps a sink called like a store from its journal.
    prefix = "store" if stateful is not None else "topic" if isinstance(way.end, RepartitionNode) else "sink"
    action = way.end.action if isinstance(way.end, ActionNode) else None
    if isinstance(action, ForeachBatch):
        action = replace(action, name=names[way.end])
    goes_on = way.aggregation is not None and not keeps
    return Leg(
        f"{prefix}:{id_}",
        number,
        sources[0],
        () if goes_on else tuple(_parts(way.before, names)),
        aggregation,
        tuple(part for part in _parts(way.of_table, names) if isinstance(part, Segment)),
        tuple(_parts(way.after, names)),
        _sink(way.end, names),
        changes_of=names[way.aggregation] if goes_on and way.aggregation is not None else None,
        action=action,
        late_for=None if way.late is None else _aggregation(keepers[way.late.table], names, joins),
        emitting=emitting,
        table_join=_table_join(way.start, names, joins) if isinstance(way.start, TableJoinNode) else None,
        also=sources[1:],
        changed=way.aggregation.step.columns if goes_on and way.aggregation is not None else None,
    )


def _parts(passages: Sequence[Passage], names: NodeNames) -> Iterator[Part]:
    """Yield what is done to rows on a piece of a way."""
    for passage in passages:
        rows, to = passage.rows, passage.to
        called = [*rows.schema.names]
        if isinstance(to, Passing):
            called[: to.width] = to.leaf.columns.names[: to.width]
        deletes = tuple(range(len(rows.node.spread.held))) if isinstance(rows.node, BehindNode) else ()
        stateful = isinstance(to, AggregationNode | EmittingNode)
        if stateful or not (rows.is_whole and [*called] == rows.node.leaf.columns.names):
            yield Segment(rows, tuple(called), step_words(rows), deletes)
        if isinstance(to, LookupNode):
            yield _lookup(to, names)
        elif isinstance(to, CollectedNode):
            columns = to.leaf.columns
            given = tuple(columns.names[to.width :])
            yield Collected(to.frame, to.keys, given, to.how, to.refresh, columns, to.call_site, to.text)


def _table_join(node: TableJoinNode, names: NodeNames, joins: dict[TableJoinNode, TableJoin]) -> TableJoin:
    """Return a join of tables; ways that begin at one have one."""
    if node not in joins:
        left, right, *others = (
            _table_join(side, names, joins) if isinstance(side, TableJoinNode) else names[side]
            for side in (node.left, node.right, node.referencing)
            if side is not None
        )
        joins[node] = TableJoin(
            left,
            right,
            node.leaf.columns,
            node.width,
            node.how,
            node.call_site,
            node.text,
            next(iter(others), None),
            node.foreign,
            node.by,
        )
    return joins[node]


def _emitting(node: EmittingNode, names: NodeNames, *, is_left: bool) -> EmittingStep:
    step = node.step if is_left or node.other_step is None else node.other_step
    return step.named(names[node])


def _lookup(node: LookupNode, names: NodeNames) -> Lookup:
    table = node.table
    return Lookup(
        names[table],
        node.columns,
        StructType(node.leaf.columns.fields[node.width : -1]),
        node.leaf.columns.names[-1],
        node.how,
        node.call_site,
        node.text,
        is_global=table.step.is_global,
        as_of=table.step.history is not None,
        watermark=node.time,
        grace=node.grace,
    )


def _sink(end: AnyEnd, names: NodeNames) -> Sink | None:
    match end:
        case SinkNode():
            called = end.given.schema.names
            carried = tuple(called[place] for place in key_places(end.given) or ())
            return Sink(
                names[end],
                end.topic,
                end.key,
                end.value,
                False,
                None,
                end.call_site,
                headers=end.headers,
                carried=carried,
                circular=end.circular,
            )
        case RepartitionNode():
            topic = f"{names[end]}-repartition"
            return Sink(
                topic, topic, end.columns, None, True, end.partitions, end.call_site, end.changes, to_all=end.to_all
            )
        case _:
            return None
