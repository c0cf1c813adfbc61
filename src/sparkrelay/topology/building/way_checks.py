"""Checks of ways: what was written and leads nowhere, has no end, or has two of which one is meant."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparkrelay.errors import TopologyException
from sparkrelay.topology.nodes import (
    ActionNode,
    AggregationNode,
    EmittingNode,
    LookupNode,
    SinkNode,
    SourceNode,
    TableJoinNode,
)
from sparkrelay.topology.refusals import FINAL_WITHOUT_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.topology.building.ways import Way
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows

log = logging.getLogger(__name__)


def check_leads_somewhere(record: Record) -> None:
    """Refuse nodes that nothing follows.

    Raises:
        TopologyException: a step has no end; names its line.
    """
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


def check_ways(ways: Sequence[Way], record: Record) -> dict[AggregationNode, Way]:
    """Check all ways of a record; return the one that keeps each store, the first that leads through it.

    Raises:
        TopologyException: what was written would be silently wrong, or never end; names the line.
    """
    _check_watermarks(ways)
    keepers = _keepers(ways)
    _warn_of_windows(keepers.values())
    _warn_of_deletions(keepers.values())
    _warn_of_endless_state(record)
    _check_doubled(ways)
    _check_lookups(ways, keepers)
    _check_ways_out(ways)
    return keepers


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
