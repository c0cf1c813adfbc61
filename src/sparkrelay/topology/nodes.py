"""What the fluent objects write down: a tree of nodes, each knowing its parent and its line.

Nodes are private. A KStream is a handle on one of them, so using it twice forks the tree. ``planning`` turns the tree
into legs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.records.formats import Format
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.calls.stateful_steps import Ranking
    from sparkrelay.topology.structure import Foreach, ForeachBatch, Show, Step


@dataclass(frozen=True, slots=True, eq=False)
class SourceNode:
    """``builder.stream(...)``."""

    topics: tuple[str, ...]
    key: Format | None
    value: Format | None
    timestamp: str | None
    name: str | None
    call_site: CallSite
    parent: None = None


@dataclass(frozen=True, slots=True, eq=False)
class StepNode:
    """A row-wise step; ``step`` is None for ``to_stream()`` and ``outputMode()``, which change no row.

    Attributes:
        final: True for ``outputMode("append")``: what goes on are the table's final rows.
    """

    parent: Node
    step: Step | None
    call_site: CallSite
    final: bool = False

    @property
    def text(self) -> str:
        """The step as the user wrote it."""
        if self.step is not None:
            return self.step.text
        return 'outputMode("append")' if self.final else "to_stream()"


@dataclass(frozen=True, slots=True, eq=False)
class UnionNode:
    """``union(...)`` of two streams; ``step`` stands in the legs of both."""

    parent: Node
    other: Node
    step: Step
    call_site: CallSite


@dataclass(frozen=True, slots=True, eq=False)
class LookupNode:
    """``join(table, on)`` of a stream: each row gets what the table holds for its key.

    Attributes:
        table: what is looked into.
        of: what the user wrote for it: the table, or a step of it.
        columns: names of the columns that the table is keyed by, in its order; the stream has them too.
        how: ``inner`` or ``left``.
        watermark: of a table with a history: the arguments of the ``withWatermark`` whose column says as of when each
            row looks; None for its record's timestamp.
        grace: for how long rows have waited in front of it, as the user wrote it; or None.
    """

    parent: Node
    table: AggregationNode
    of: Node
    columns: tuple[str, ...]
    how: str
    text: str
    call_site: CallSite
    watermark: tuple[str, str] | None = None
    grace: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EmittingNode:
    """A step that keeps a store and emits a stream.

    Attributes:
        step: what is done; its store has no name yet.
        name: of the store, or None.
        located: names of the columns that the message key of the emitted rows is made of, in its order; None: unknown.
        other: of a join of streams: where the right one's rows come from, another node in any case; else None.
        other_step: likewise of the right stream.
    """

    parent: Node
    step: EmittingStep
    name: str | None
    located: tuple[str, ...] | None
    other: Node | None = None
    other_step: EmittingStep | None = None

    @property
    def text(self) -> str:
        """The step as people read it."""
        return self.step.text

    @property
    def call_site(self) -> CallSite:
        """The line that wrote it."""
        return self.step.call_site

    @property
    def parents(self) -> tuple[Node, ...]:
        """Where its rows come from: of a join from two streams."""
        return (self.parent,) if self.other is None else (self.parent, self.other)


@dataclass(frozen=True, slots=True, eq=False)
class RepartitionNode:
    """Rows written to a topic by another key, and read again.

    Attributes:
        columns: names of the columns that make the key.
        name: what the user called it, or None.
        words: what an automatic name is made of.
        explicit: True for ``repartition(...)``, False for what a ``groupBy`` needs.
        changes: True where the rows are a table's, each as it was and as it is.
        raw: True where they have Kafka's own columns still, and are passed on as a stream without formats is.
    """

    parent: Node
    columns: tuple[str, ...]
    name: str | None
    words: tuple[str, ...]
    partitions: int | None
    explicit: bool
    call_site: CallSite
    changes: bool = False
    raw: bool = False

    @property
    def text(self) -> str:
        """The step as the user wrote it, if it is explicit."""
        return f"repartition({', '.join(map(repr, self.columns))})"


@dataclass(frozen=True, slots=True, eq=False)
class GroupingNode:
    """``groupBy(...)``, and what stands for it in front of a table's newest rows.

    Attributes:
        words: what an automatic name of the store ends with.
        of: what the user called the table whose rows these are behind its steps; None: an automatic name begins with
            the stream's.
    """

    parent: Node
    keys: tuple[Any, ...]
    words: tuple[str, ...]
    text: str
    call_site: CallSite
    of: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AggregationNode:
    """``groupBy(...).agg(...)``, ``table(...)``, ``global_table(...)`` or ``to_table()``.

    Attributes:
        aggregates: none where ``newest``.
        logged: False for a store without changelog.
        newest: True for a table that holds rows as they came: the newest of each key.
        ranking: where it is not the newest but the first ones in an order: which; else None.
        is_global: True for a table that every process has whole.
        of_topic: True for another one that is read from a topic of the user's, as it is.
        retention: for how long windows that are over stay in the store, as the user wrote it; or None.
        answers: of a table of rows that are joined by a foreign key: the join, whose answers come in; else None.
        history: of a table of newest rows: for how long it also knows the rows before them, likewise; or None.
    """

    parent: GroupingNode
    aggregates: tuple[Any, ...]
    name: str | None
    logged: bool
    text: str
    call_site: CallSite
    newest: bool = False
    is_global: bool = False
    of_topic: bool = False
    retention: str | None = None
    ranking: Ranking | None = None
    answers: TableJoinNode | None = None
    history: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TableJoinNode:
    """``join(table, on, how)`` of two tables. It keeps nothing: its rows are found in the stores of its tables.

    Attributes:
        left: the left table, as it is stored; or a join of others.
        right: the right one.
        of: what the user wrote for both: tables, or steps of them.
        columns: names of the columns that both are keyed by, in their order.
        how: ``inner``, ``left``, ``right`` or ``full``.
        referencing: of a join by a foreign key: the left table, as it is stored; ``left`` then is the table of its rows
            by foreign key, in the right one's tasks, and ``columns`` are what the right one is keyed by. Else None.
    """

    left: StoredTable
    right: StoredTable
    of: tuple[Node, Node]
    columns: tuple[str, ...]
    how: str
    text: str
    call_site: CallSite
    referencing: StoredTable | None = None
    parent: None = None

    @property
    def tables(self) -> tuple[AggregationNode, ...]:
        """The tables that it is of in the end, from left to right; one may come twice."""
        return (*tables_of(self.left), *tables_of(self.right))


@dataclass(frozen=True, slots=True, eq=False)
class LateNode:
    """The rows of a grouping that come after their window is over; ``late_to=`` of ``agg``.

    Attributes:
        table: of the grouping.
    """

    parent: Node
    table: AggregationNode
    call_site: CallSite


@dataclass(frozen=True, slots=True, eq=False)
class SinkNode:
    """``to(...)``."""

    parent: Node
    topic: str
    key: Format | str | None
    value: Format | None
    name: str | None
    call_site: CallSite
    headers: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ActionNode:
    """``show(...)``, ``foreach(...)`` and ``foreachBatch(...)``: an end whose rows go to no topic."""

    parent: Node
    action: Show | Foreach | ForeachBatch
    name: str | None
    call_site: CallSite


#: A place in the tree that rows flow out of.
Node = (
    SourceNode
    | StepNode
    | UnionNode
    | LookupNode
    | EmittingNode
    | RepartitionNode
    | GroupingNode
    | AggregationNode
    | TableJoinNode
    | LateNode
)
#: Tables whose rows stores hold, as they are or as they are joined.
StoredTable = AggregationNode | TableJoinNode
AnyNode = Node | SinkNode | ActionNode
NodeT = TypeVar("NodeT", bound=AnyNode)


@dataclass(slots=True)
class Record:
    """Everything that was written with one builder, in order.

    Attributes:
        nodes: what was written.
        stored: step of a table -> the table that holds its rows behind that step, for those who look into it.
    """

    nodes: list[AnyNode] = field(default_factory=list)
    stored: dict[Node, AggregationNode] = field(default_factory=dict)

    def add(self, node: NodeT) -> NodeT:
        """Write ``node`` down and return it."""
        self.nodes.append(node)
        return node

    def leaves(self) -> Iterator[AnyNode]:
        """Yield the nodes that nothing follows."""
        followed = {node.parent for node in self.nodes}
        followed |= {node.other for node in self.nodes if isinstance(node, UnionNode | EmittingNode)}
        followed |= {at for node in self.nodes if isinstance(node, LookupNode) for at in (node.table, node.of)}
        followed |= {
            at for node in self.nodes if isinstance(node, TableJoinNode) for at in (node.left, node.right, *node.of)
        }
        return (node for node in self.nodes if node not in followed)


def tables_of(table: StoredTable) -> tuple[AggregationNode, ...]:
    """Return the tables with stores that a table is, or is joined of."""
    return table.tables if isinstance(table, TableJoinNode) else (table,)


def ways_back(node: AnyNode) -> Iterator[tuple[AnyNode, ...]]:
    """Yield each way from ``node`` back to a source or repartition topic: several behind a union or a join."""
    if node.parent is None or isinstance(node, RepartitionNode):
        yield (node,)
        return
    for parent in parents_of(node):
        for way in ways_back(parent):
            yield (node, *way)


def parents_of(node: AnyNode) -> tuple[Node, ...]:
    """Return where rows at a node come from: at a union and a join of streams from two places."""
    if isinstance(node, UnionNode):
        return node.parent, node.other
    if isinstance(node, EmittingNode):
        return node.parents
    return () if node.parent is None else (node.parent,)


def behind_state(node: Node) -> bool:
    """Return whether rows at ``node`` come out of a stateful step, with no topic in between."""
    stateful = AggregationNode | EmittingNode | TableJoinNode
    return any(isinstance(at, stateful) for way in ways_back(node) for at in way)


def watermark_before(node: AnyNode) -> tuple[str, str] | None:
    """Return the arguments of the last ``withWatermark`` before ``node``, also before a repartition topic; or None."""
    for at in line_up(node):
        if isinstance(at, AggregationNode | UnionNode) or (isinstance(at, EmittingNode) and not at.step.keeps_times):
            # What comes out of another grouping has times of its own, and so has each stream of a union or a join.
            return None
        if isinstance(at, StepNode) and at.step is not None and at.step.kind == "withWatermark":
            column, delay = at.step.args
            return column, delay
    return None


def line_up(node: AnyNode) -> Iterator[AnyNode]:
    """Yield ``node`` and what is before it, up to the source: that of the first stream of a union or a join."""
    at: AnyNode | None = node
    while at is not None:
        yield at
        at = at.parent
