"""Several ways out of a step that emits a stream: they begin at a repartition topic behind it.

Joins of streams and ``dropDuplicates`` keep what they have read and not what they emit, so a second way has nowhere to
begin. What such a step emits is written once, by the key it has, and each way reads it there. With one way out
there is no such topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.topology.building.ways import ways_behind_emitting
from sparkrelay.topology.nodes import EmittingNode, RepartitionNode, SourceNode, line_up
from sparkrelay.topology.rows import Rows
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from sparkrelay.topology.record import Record


def with_branches(record: Record) -> None:
    """Write down a repartition topic behind each emitting step that has several ways out."""
    for node in [node for node in record.nodes if isinstance(node, EmittingNode)]:
        if node.shared is not None:
            record.nodes.remove(node.shared)
            node.shared = None
    for node, count in ways_behind_emitting(record).items():
        # Of what a processor returns, no column is known to decide the partition.
        if count < 2 or node.located is None:
            continue
        names = tuple(node.leaf.columns.names[place] for place in node.located)
        topic = RepartitionNode(
            call_site=node.call_site,
            text=f"repartition({', '.join(map(repr, names))})",
            given=Rows(node, node.leaf.frame, first=True),
            columns=names,
            name=None,
            words=(*node.step.by, "shared"),
            partitions=None,
            explicit=False,
            raw=_is_raw(node),
        )
        topic.leaf, topic.spread = node.leaf, Spread.of_key(node.located, names)
        record.nodes.insert(record.nodes.index(node) + 1, topic)
        node.shared = topic


def _is_raw(node: EmittingNode) -> bool:
    """Return whether rows behind a step are those of a stream without formats."""
    first = next(at for at in line_up(node) if isinstance(at, SourceNode | RepartitionNode))
    source = isinstance(first, SourceNode) and first.key is None and first.value is None
    return source and node.step.keeps_columns
