"""From the tree of nodes to legs and subtopologies.

Every end of the tree (a sink, a store that nothing follows, a repartition topic) makes one leg: the straight way back
to the source or repartition topic it comes from. Legs that read the same topic belong to one subtopology, numbered as
Kafka Streams numbers them: in the order in which their first source was written.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkrelay.errors import TopologyException
from sparkrelay.topology.calls.branches import with_branches
from sparkrelay.topology.calls.stateful_steps import Aggregation, TableJoin
from sparkrelay.topology.node_names import NodeNames
from sparkrelay.topology.nodes import (
    ActionNode,
    EmittingNode,
    GroupingNode,
    LookupNode,
    RepartitionNode,
    SinkNode,
    SourceNode,
    StepNode,
    TableJoinNode,
    UnionNode,
    watermark_before,
)
from sparkrelay.topology.structure import ForeachBatch, Leg, Lookup, Sink, Source, Step, Subtopology
from sparkrelay.topology.topology import Topology
from sparkrelay.topology.ways import all_ways, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.topology.nodes import AggregationNode, Node, Record
    from sparkrelay.topology.ways import End, Start, Way

log = logging.getLogger(__name__)


def build_subtopologies(record: Record) -> Topology:
    """Return the topology that was written.

    Raises:
        TopologyException: the result of a step is not used, names clash, or topics form a cycle; names the line.
    """
    _check_leads_somewhere(record)
    record = with_branches(record)
    ways = all_ways(record)
    _check_watermarks(ways)
    keepers = _keepers(ways)
    _warn_of_windows(keepers.values())
    _warn_of_deletions(keepers.values())
    _warn_of_endless_state(record)
    _check_doubled(ways)
    _check_lookups(ways, keepers)
    _check_ways_out(ways)
    names = NodeNames(record)
    sources = {node: _source(node, names) for node in record.nodes if isinstance(node, SourceNode | RepartitionNode)}
    starts = {way: starts_of(way, keepers) for way in ways}
    numbers = _numbers(ways, keepers, sources, starts)
    joins: dict[TableJoinNode, TableJoin] = {}
    legs = []
    for way in ways:
        first, *also = (sources[start] for start in starts[way])
        number = numbers[starts[way][0]]
        if isinstance(way.start, TableJoinNode):
            legs.append(_joined(way, way.start, (first, *also), number, names, joins))
        else:
            legs.append(_leg(way, first, number, names, keepers, joins))
    _check_circles(legs)
    _check_changelogs(legs)
    _check_batches(legs)
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


# -- from the tree to ways ----------------------------------------------------------------------------------------


def _check_leads_somewhere(record: Record) -> None:
    if not record.nodes:
        raise TopologyException("the topology is empty; begin with builder.stream(topic)")
    for leaf in record.leaves():
        node = leaf
        # A join by a condition ends in steps that the user did not write; one call has one call site.
        while isinstance(node, StepNode) and node.parent.call_site is node.call_site:
            node = node.parent
        match node:
            case SourceNode():
                raise TopologyException(
                    f"{node.call_site}: nothing is done with stream({', '.join(map(repr, node.topics))}); end it with "
                    "to(topic), or with groupBy(...).agg(...)"
                )
            case GroupingNode():
                raise TopologyException(f"{node.call_site}: {node.text} is not followed by agg(...) or count()")
            case UnionNode() | LookupNode() | EmittingNode() | TableJoinNode():
                text = node.step.text if isinstance(node, UnionNode) else node.text
                raise TopologyException(f"{node.call_site}: nothing uses the result of {text}; end it with to(topic)")
            case StepNode() | RepartitionNode():
                raise TopologyException(
                    f"{node.call_site}: nothing uses the result of {node.text}: every step returns a new object; end "
                    "it with to(topic), or remove it"
                )


def _check_watermarks(ways: Iterable[Way]) -> None:
    for way in ways:
        if way.late is not None and watermark_before(way.late) is None:
            raise TopologyException(
                f"{way.late.call_site}: agg(..., late_to=...) needs to know which rows are late: put "
                'withWatermark("time", "10 minutes") before groupBy()'
            )
        node = way.aggregation
        if node is not None and node.retention is not None and way.watermark is None:
            raise TopologyException(
                f"{node.call_site}: agg(..., retention={node.retention!r}) needs to know when a window is over: put "
                'withWatermark("time", "10 minutes") before groupBy()'
            )
        if node is not None and node.ranking is not None and node.ranking.ties and way.final is None:
            raise TopologyException(
                f"{node.call_site}: {node.text}: rows that are equal in the order have no key of their own, which each "
                'row of a table needs. With withWatermark("time", "10 minutes") before it and a column of F.window in '
                'partitionBy(), outputMode("append") behind it gives the rows of windows that are over; F.row_number() '
                "keeps as many rows as are asked for at any time"
            )
        if way.final is not None and way.watermark is None:
            raise TopologyException(
                f'{way.final.call_site}: outputMode("append") needs to know when a window is over: put '
                'withWatermark("time", "10 minutes") before groupBy(), with the column of event times and how late '
                "rows may come"
            )


def _keepers(ways: Iterable[Way]) -> dict[AggregationNode, Way]:
    """Return the way that keeps each store: the first that leads through it. Others go on from its changes.

    Raises:
        TopologyException: one of several ways is of final rows, and of those there are no changes.
    """
    keepers: dict[AggregationNode, Way] = {}
    for way in ways:
        if way.aggregation is None:
            continue
        first = keepers.setdefault(way.aggregation, way)
        final = next((node for node in (first.final, way.final) if node is not None), None)
        if first is not way and final is not None:
            raise TopologyException(
                f"{way.end.call_site}: the table of {way.aggregation.call_site} is used here and at "
                f'{first.end.call_site}; with outputMode("append"), at {final.call_site}, there is one way out of a '
                "table. Write it once with to(topic), and begin the other ways with builder.stream(topic)"
            )
    return keepers


def _warn_of_windows(keepers: Iterable[Way]) -> None:
    """Say which stores will only ever grow."""
    for way in keepers:
        node = way.aggregation
        if node is not None and "window(" in node.parent.text and way.watermark is None:
            log.warning(
                '%s: the windows of %s never end, so its state and its changelog only grow; .withWatermark("time", '
                '"1 day") before groupBy() says how late rows may come',
                node.call_site,
                node.parent.text,
            )


def _warn_of_deletions(keepers: Iterable[Way]) -> None:
    """Say which tables are not deleted from: a lookup takes no record without a value, as in Kafka Streams."""
    for way in keepers:
        node = way.aggregation
        if node is not None and node.newest and node.ranking is None and way.lookups:
            log.warning(
                "%s: records without a value end at the join of %s, as in Kafka Streams, so they delete nothing from "
                "this table; where that is wanted, mark deleted rows by a column, and leave them out with where()",
                node.call_site,
                way.lookups[-1].call_site,
            )


def _warn_of_endless_state(record: Record) -> None:
    for node in record.nodes:
        if isinstance(node, EmittingNode) and node.step.endless is not None:
            log.warning("%s: %s %s", node.call_site, node.text, node.step.endless)


def _check_doubled(ways: Iterable[Way]) -> None:
    seen: dict[tuple[Node, str], SinkNode] = {}
    for way in ways:
        if isinstance(way.end, SinkNode):
            first = seen.setdefault((way.end.parent, way.end.topic), way.end)
            if first is not way.end:
                raise TopologyException(
                    f"{way.end.call_site}: {first.call_site} writes the same rows to {way.end.topic!r} already; "
                    "remove one of the two"
                )


def _check_lookups(ways: Iterable[Way], keepers: Mapping[AggregationNode, Way]) -> None:
    """Refuse to look into a table of the rows that look: their times do not say which of two is first."""
    for way in ways:
        for node in way.lookups:
            if node.table.is_global:
                continue
            kept = keepers[node.table]
            own = way.start is kept.start or (
                isinstance(way.start, SourceNode)
                and isinstance(kept.start, SourceNode)
                and not set(way.start.topics).isdisjoint(kept.start.topics)
            )
            if own:
                raise TopologyException(
                    f"{node.call_site}: {node.text}: the stream and the table of {node.table.call_site} are read from "
                    "the same topic, and rows with equal timestamps have no defined order between the two; put a "
                    "repartition(...) before the table"
                )


def _check_ways_out(ways: Iterable[Way]) -> None:
    """Refuse several ways out of a processor: no column of what it returns is known to decide the partition."""
    first: dict[EmittingNode, Way] = {}
    for way in ways:
        if way.emitting is None or way.emitting.located is not None:
            continue
        text, other = way.emitting.text, first.setdefault(way.emitting, way)
        if other is not way:
            also = "once more, by union()," if other.end is way.end else f"at {other.end.call_site},"
            raise TopologyException(
                f"{way.end.call_site}: the rows of {text} at {way.emitting.call_site} are used here and {also} "
                f"and there is one way out of {text}. Put "
                'repartition("column") behind it, and begin both ways there'
            )


# -- from ways to the plan ----------------------------------------------------------------------------------------


def _source(node: Start, names: NodeNames) -> Source:
    if isinstance(node, SourceNode):
        return Source(names[node], node.topics, node.key, node.value, node.timestamp, False, node.call_site)
    topic = f"{names[node]}-repartition"
    return Source(topic, (topic,), None, None, None, True, node.call_site, node.changes, node.raw)


def _numbers(
    ways: Iterable[Way],
    keepers: Mapping[AggregationNode, Way],
    sources: Mapping[Start, Source],
    starts: Mapping[Way, tuple[Start, ...]],
) -> dict[Start, int]:
    """Return the number of each start's subtopology; last come those of global tables, which have no tasks."""
    # Starts in the order of writing: ``sources`` keeps it, and writers of a repartition topic come before its readers.
    alone = {way.start for way in ways if way.aggregation is not None and way.aggregation.is_global}
    used = {start for way in ways for start in starts[way]} - alone
    groups: list[tuple[list[Start], set[tuple[bool, str]]]] = []
    for start, source in sources.items():
        if start not in used:
            continue
        _join_groups(groups, [start], {(source.internal, topic) for topic in source.topics})
    for way in ways:
        # A lookup runs in the task that keeps its table, and a join by a foreign key in that of the right table.
        tables = [*(node.table for node in way.lookups if not node.table.is_global), *way.referencing]
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
    store = names[node]
    text = node.text if node.newest else f"{node.parent.text}.{node.text}"
    if way.final is not None:
        text += '.outputMode("append")'
    return Aggregation(
        store,
        store,
        node.parent.keys,
        node.aggregates,
        node.logged,
        node.call_site,
        text,
        watermark=way.watermark,
        final=way.final is not None,
        newest=node.newest,
        is_global=node.is_global,
        of_topic=node.of_topic,
        retention=node.retention,
        ranking=node.ranking,
        answers=None if node.answers is None else _table_join(node.answers, names, joins),
        history=node.history,
    )


def _leg(  # noqa: PLR0917 - what is known of one leg
    way: Way,
    source: Source,
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
    sink = _sink(way.end, names)
    action = way.end.action if isinstance(way.end, ActionNode) else None
    if isinstance(action, ForeachBatch):
        action = replace(action, name=names[way.end])
    if way.aggregation is not None and not keeps:
        store = names[way.aggregation]
        return Leg(f"{prefix}:{id_}", number, source, (), None, way.after, way.table_steps, sink, store, action)
    before = tuple(step if isinstance(step, Step) else _lookup(step, names) for step in way.before)
    return Leg(
        f"{prefix}:{id_}",
        number,
        source,
        before,
        aggregation,
        way.after,
        way.table_steps,
        sink,
        action=action,
        late_for=None if way.late is None else _aggregation(keepers[way.late.table], names, joins),
        emitting=emitting,
    )


def _joined(  # noqa: PLR0917 - what is known of one leg
    way: Way,
    start: TableJoinNode,
    sources: tuple[Source, ...],
    number: int,
    names: NodeNames,
    joins: dict[TableJoinNode, TableJoin],
) -> Leg:
    """Return the leg of rows that are joined of tables. It keeps none of them: other legs do."""
    id_ = names[way.end]
    prefix, id_ = ("topic", f"{id_}-repartition") if isinstance(way.end, RepartitionNode) else ("sink", id_)
    return Leg(
        f"{prefix}:{id_}" if way.number == 1 else f"{prefix}:{id_}#{way.number}",
        number,
        sources[0],
        (),
        None,
        way.after,
        way.table_steps,
        _sink(way.end, names),
        action=way.end.action if isinstance(way.end, ActionNode) else None,
        table_join=_table_join(start, names, joins),
        also=sources[1:],
    )


def _table_join(node: TableJoinNode, names: NodeNames, joins: dict[TableJoinNode, TableJoin]) -> TableJoin:
    """Return a join of tables; ways that begin at one have one."""
    if node not in joins:
        left, right, *referencing = (
            _table_join(side, names, joins) if isinstance(side, TableJoinNode) else names[side]
            for side in (node.left, node.right, node.referencing)
            if side is not None
        )
        joins[node] = TableJoin(left, right, node.columns, node.how, node.call_site, node.text, *referencing)
    return joins[node]


def _emitting(node: EmittingNode, names: NodeNames, *, is_left: bool) -> EmittingStep:
    step = node.step if is_left or node.other_step is None else node.other_step
    return step.named(names[node])


def _lookup(node: LookupNode, names: NodeNames) -> Lookup:
    table = node.table
    return Lookup(
        names[table],
        node.columns,
        node.how,
        node.call_site,
        node.text,
        is_global=table.is_global,
        as_of=table.history is not None,
        watermark=node.watermark,
        grace=node.grace,
    )


def _sink(end: End, names: NodeNames) -> Sink | None:
    match end:
        case SinkNode():
            return Sink(names[end], end.topic, end.key, end.value, False, None, end.call_site, headers=end.headers)
        case RepartitionNode():
            topic = f"{names[end]}-repartition"
            return Sink(topic, topic, end.columns, None, True, end.partitions, end.call_site, end.changes)
        case _:
            return None


def _check_changelogs(legs: Iterable[Leg]) -> None:
    """Refuse stores with and without changelog in one task: after a restore they would not have seen the same input."""
    first: dict[int, Aggregation | EmittingStep] = {}
    for leg in legs:
        if (one := leg.stateful_step) is None:
            continue
        other = first.setdefault(leg.subtopology, one)
        if other.logged != one.logged:
            unlogged, logged = (other, one) if one.logged else (one, other)
            raise TopologyException(
                f"{unlogged.call_site}: {unlogged.text} has no changelog, and {logged.text} at {logged.call_site} has "
                "one: they share source topics and so a task, whose stores have changelogs all or none. Give both "
                "logged=False or neither, or put a repartition(...) before one of them"
            )


def _check_batches(legs: list[Leg]) -> None:
    """Refuse foreachBatch behind a store without changelog: a batch that runs again elsewhere would find it empty."""
    unlogged = {step.store: step for leg in legs if (step := leg.stateful_step) is not None and not step.logged}
    for leg in legs:
        if isinstance(leg.action, ForeachBatch) and (
            found := unlogged.keys() & {*leg.reads_stores, *(() if leg.store is None else (leg.store,))}
        ):
            step = unlogged[min(found)]
            raise TopologyException(
                f"{leg.action.call_site}: {leg.action.text} stands behind {step.text} of {step.call_site}, which has "
                "no changelog: a micro-batch that runs again on another instance would have other rows under the same "
                "number. Leave logged=False out"
            )


def _check_circles(legs: list[Leg]) -> None:
    """Refuse legs whose rows come back to them: they would never end."""
    following = {
        leg.id: [
            other
            for other in legs
            if leg.sink is not None
            and leg.sink.internal == other.source.internal
            and leg.sink.topic in other.source.topics
        ]
        for leg in legs
    }
    done: set[str] = set()

    def visit(leg: Leg, way: list[Leg]) -> None:
        if leg in way:
            circle = [at.sink for at in way[way.index(leg) :] if at.sink is not None]
            route = " and ".join(f"{sink.topic!r} at {sink.call_site}" for sink in circle)
            raise TopologyException(
                f"{circle[-1].call_site}: rows would go round in a circle, written to {route} and read again at "
                f"{leg.source.call_site}; write to another topic"
            )
        if leg.id not in done:
            for other in following[leg.id]:
                visit(other, [*way, leg])
            done.add(leg.id)

    for leg in legs:
        visit(leg, [])
