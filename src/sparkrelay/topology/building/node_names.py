"""Which name each node of a topology gets. See ``naming`` for why they look as they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.topology.naming import NameRegister, speaking_name
from sparkrelay.topology.nodes import (
    ActionNode,
    AggregationNode,
    EmittingNode,
    RepartitionNode,
    SinkNode,
    SourceNode,
    TableJoinNode,
    before,
    line_up,
)

if TYPE_CHECKING:
    from sparkrelay.topology.nodes import AnyNode
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


class NodeNames:
    """The names of streams, repartition topics, stores and sinks, by node.

    Raises:
        TopologyException: two names clash; names both lines.
    """

    def __init__(self, record: Record) -> None:
        self._of: dict[AnyNode, str] = {}
        self._streams = NameRegister("stream")
        self._repartitions = NameRegister("repartition topic")
        self._stores = NameRegister("store")
        self._sinks = NameRegister("sink")
        # All chosen names first: which of two equal names is in the way must not depend on the order of writing.
        for node in record.nodes:
            self._choose(node, record)
        for node in record.nodes:
            if node not in self._of:
                self._find(node)

    def __getitem__(self, node: AnyNode) -> str:
        return self._of[node]

    def _choose(self, node: AnyNode, record: Record) -> None:
        match node:
            case SourceNode(name=str(name)):
                self._of[node] = self._streams.choose(name, node.call_site)
            case AggregationNode(name=str(name)) | EmittingNode(name=str(name)):
                self._of[node] = self._stores.choose(name, node.call_site)
            case SinkNode(name=str(name)) | ActionNode(name=str(name)):
                self._of[node] = self._sinks.choose(name, node.call_site)
            case RepartitionNode():
                chosen = node.name or self._name_of_its_store(node, record)
                if chosen is not None:
                    self._of[node] = self._repartitions.choose(chosen, node.call_site)
            case _:
                pass

    def _name_of_its_store(self, repartition: RepartitionNode, record: Record) -> str | None:
        """Return what the user called the first store behind its own repartition topic."""
        if repartition.explicit:
            return None
        for node in record.nodes:
            if not isinstance(node, AggregationNode | EmittingNode) or not node.name:
                continue
            if before(node.rows) is repartition and (isinstance(node, AggregationNode) or node.step.names_topic):
                return node.name
        return None

    def _find(self, node: AnyNode) -> None:
        match node:
            case SourceNode():
                # Two streams of the same topic may share a name: nothing is stored under it.
                self._of[node] = speaking_name(node.topics)
            case RepartitionNode():
                name = speaking_name((self._base(node.given), "by", *node.words))
                self._of[node] = self._repartitions.find(name, node.call_site)
            case AggregationNode():
                how = () if node.step.newest else ("by",)
                name = speaking_name((node.of or self._base(node.given), *how, *node.words))
                self._of[node] = self._stores.find(name, node.call_site)
            case EmittingNode():
                others = () if node.other is None else (self._base(node.other),)
                name = speaking_name((self._base(node.given), *node.step.words, *others))
                self._of[node] = self._stores.find(name, node.call_site)
            case TableJoinNode():
                # Nothing is stored under it.
                left = node.left if node.referencing is None else node.referencing
                self._of[node] = speaking_name((self._named(left), "join", self._named(node.right)))
            case SinkNode():
                name = speaking_name((self._base(node.given), "to", node.topic))
                self._of[node] = self._sinks.find(name, node.call_site)
            case ActionNode():
                name = speaking_name((self._base(node.given), node.action.text.partition("(")[0]))
                self._of[node] = self._sinks.find(name, node.call_site)
            case _:
                pass

    def _base(self, rows: Rows) -> str:
        """Return the nearest name before rows; a grouping's own repartition topic is passed over."""
        return self._named(before(rows))

    def _named(self, node: AnyNode) -> str:
        for at in line_up(node):
            if isinstance(at, SourceNode | AggregationNode | TableJoinNode | EmittingNode) or (
                isinstance(at, RepartitionNode) and at.explicit
            ):
                return self._of[at]
        raise AssertionError("every line of nodes begins with a source")
