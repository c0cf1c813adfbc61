"""From the tree of nodes to legs and subtopologies.

Every end of the tree (a sink, a store that nothing follows, a repartition topic) makes one leg: the straight way back
to the source or repartition topic it comes from. Legs that read the same topic belong to one subtopology, numbered as
Kafka Streams numbers them: in the order in which their first source was written.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from sparkrelay.errors import TopologyException
from sparkrelay.topology.building.aggregate_checks import check_aggregates
from sparkrelay.topology.building.branches import with_branches
from sparkrelay.topology.building.node_names import NodeNames
from sparkrelay.topology.building.row_checks import check_rows
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
from sparkrelay.topology.refusals import FINAL_WITHOUT_END
from sparkrelay.topology.step_words import step_words
from sparkrelay.topology.structure import Aggregation, ForeachBatch, Leg, Sink, Source, Subtopology, TableJoin
from sparkrelay.topology.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.topology.building.ways import AnyEnd, Passage, Start, Way
    from sparkrelay.topology.parts import Part
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows

log = logging.getLogger(__name__)


def build_subtopologies(record: Record) -> Topology:
    """Return the topology that was written.

    Raises:
        TopologyException: the result of a step is not used, names clash, or topics form a cycle; names the line.
    """
    _check_leads_somewhere(record)
    with_branches(record)
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
        found = tuple(sources[start] for start in starts[way])
        legs.append(_leg(way, found, numbers[starts[way][0]], names, keepers, joins))
    check_rows(legs)
    check_aggregates(legs)
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
    for missing in record.open.values():
        raise TopologyException(missing)
    for written in record.unused.values():
        raise TopologyException(
            f"{written.call_site}: nothing uses the result of {written.method}(...): every step returns a new object; "
            "end it with to(topic), or remove it"
        )
    followed = {rows.node for node in record.nodes for rows in node.inputs}
    followed |= {node.table for node in record.nodes if isinstance(node, LookupNode)}
    followed |= {rows.node for node in record.nodes if isinstance(node, LookupNode) for rows in (node.of,)}
    joins = [node for node in record.nodes if isinstance(node, TableJoinNode)]
    followed |= {at for node in joins for at in (node.left, node.right, *(rows.node for rows in node.of))}
    for node in record.nodes:
        if node in followed or isinstance(node, AggregationNode | SinkNode | ActionNode):
            continue
        if isinstance(node, SourceNode):
            raise TopologyException(
                f"{node.call_site}: nothing is done with stream({', '.join(map(repr, node.topics))}); end it with "
                "to(topic), or with groupBy(...).agg(...)"
            )
        text = getattr(node, "text", "")
        raise TopologyException(f"{node.call_site}: nothing uses the result of {text}; end it with to(topic)")


def _check_watermarks(ways: Iterable[Way]) -> None:
    for way in ways:
        node = way.aggregation
        if node is not None and node.step.ranking is not None and node.step.ranking.ties and way.final is None:
            raise TopologyException(
                f"{node.call_site}: {node.text}: rows that are equal in the order have no key of their own, which each "
                'row of a table needs. With withWatermark("time", "10 minutes") before it and a column of F.window in '
                'partitionBy(), outputMode("append") behind it gives the rows of windows that are over; F.row_number() '
                "keeps as many rows as are asked for at any time"
            )
        if way.final is None or node is None:
            continue
        if node.step.watermark is None:
            raise TopologyException(f'{way.final.call_site}: outputMode("append") {FINAL_WITHOUT_END}')
        if node.step.window is None:
            raise TopologyException(
                f'{node.call_site}: outputMode("append") gives the final row of each window, and this grouping has '
                'none: group by F.window("time", "1 hour") too'
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
        if node is not None and node.step.window is not None and node.step.watermark is None:
            log.warning(
                '%s: the windows of %s never end, so its state and its changelog only grow; .withWatermark("time", '
                '"1 day") before groupBy() says how late rows may come',
                node.call_site,
                node.text,
            )
        elif node is not None and not node.step.newest and node.step.window is None and node.step.watermark is not None:
            log.warning("%s: without F.window among its columns, the groups of a watermark never end", node.call_site)


def _warn_of_deletions(keepers: Iterable[Way]) -> None:
    """Say which tables are not deleted from: a lookup takes no record without a value, as in Kafka Streams."""
    for way in keepers:
        node = way.aggregation
        if node is not None and node.step.newest and node.step.ranking is None and way.lookups:
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
    seen: dict[tuple[Rows, str], SinkNode] = {}
    for way in ways:
        if isinstance(way.end, SinkNode):
            first = seen.setdefault((way.end.given, way.end.topic), way.end)
            if first is not way.end:
                raise TopologyException(
                    f"{way.end.call_site}: {first.call_site} writes the same rows to {way.end.topic!r} already; "
                    "remove one of the two"
                )


def _check_lookups(ways: Iterable[Way], keepers: Mapping[AggregationNode, Way]) -> None:
    """Refuse to look into a table of the rows that look: their times do not say which of two is first."""
    for way in ways:
        for node in way.lookups:
            if node.table.step.is_global:
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
            options=node.options,
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
            return Sink(names[end], end.topic, end.key, end.value, False, None, end.call_site, headers=end.headers)
        case RepartitionNode():
            topic = f"{names[end]}-repartition"
            return Sink(
                topic, topic, end.columns, None, True, end.partitions, end.call_site, end.changes, to_all=end.to_all
            )
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
