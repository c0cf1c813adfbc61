"""Several ways out of a step that emits a stream: they begin at a repartition topic behind it.

Joins of streams and ``dropDuplicates`` keep what they have read and not what they emit, so a second way has nowhere to
begin. What such a step emits is written once, by the key it has, and each way reads it there. With one way out
there is no such topic.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from sparkrelay.topology.nodes import EmittingNode, Record, RepartitionNode, SourceNode, line_up
from sparkrelay.topology.ways import ways_behind_emitting

if TYPE_CHECKING:
    from sparkrelay.topology.nodes import AnyNode


def with_branches(record: Record) -> Record:
    """Return what was written, with a repartition topic behind each emitting step that has several ways out."""
    branching = {at for at, count in ways_behind_emitting(record).items() if count > 1}
    if not branching:
        return record
    made: dict[int, AnyNode] = {}
    written = Record()
    for node in record.nodes:
        # What follows a node is written behind it, so everything that this one refers to has been made by now.
        made[id(node)] = at = written.add(_following(node, made))
        # Of what a processor returns, no column is known to decide the partition.
        if node in branching and isinstance(at, EmittingNode) and at.located is not None:
            words = (*at.step.by, "shared")
            made[id(node)] = written.add(
                RepartitionNode(
                    at, at.located, None, words, None, explicit=False, call_site=at.call_site, raw=_is_raw(at)
                )
            )
    return written


def _is_raw(node: EmittingNode) -> bool:
    """Return whether rows behind a step are those of a stream without formats."""
    first = next(at for at in line_up(node) if isinstance(at, SourceNode | RepartitionNode))
    source = isinstance(first, SourceNode) and first.key is None and first.value is None
    return source and node.step.keeps_columns


def _following(node: AnyNode, made: dict[int, AnyNode]) -> AnyNode:
    """Return the node as it follows those that were made of others; itself if it follows none of them."""

    def now(value: Any) -> Any:
        if not isinstance(value, tuple):
            return made.get(id(value), value)
        parts = tuple(map(now, value))
        return parts if any(part is not before for part, before in zip(parts, value, strict=True)) else value

    found = {field.name: (getattr(node, field.name), now(getattr(node, field.name))) for field in fields(node)}
    changed = {name: after for name, (before, after) in found.items() if after is not before}
    return replace(node, **changed) if changed else node
