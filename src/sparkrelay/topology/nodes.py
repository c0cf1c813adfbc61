"""What a pipeline is made of: a tree of nodes, each with the rows that come to it and a leaf for those that go on.

Nodes are private. A KStream is a handle on rows behind one of them, so using it twice forks the tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from sparkrelay import hidden_columns
from sparkrelay.topology.rows import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.records.formats import Format
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime
    from sparkrelay.topology.rows import Rows
    from sparkrelay.topology.starts import TopicStart
    from sparkrelay.topology.structure import Aggregation, Foreach, ForeachBatch, Show


@dataclass(slots=True, eq=False, kw_only=True)
class SourceNode(Node):
    """``builder.stream(...)``.

    Attributes:
        brokers: those that a ``readStream`` names, which the settings of an instance must agree with; or None.
        starts: topic -> where it is read first; without one the settings say so.
    """

    topics: tuple[str, ...]
    key: Format | None
    value: Format | None
    timestamp: str | None
    name: str | None
    brokers: str | None = None
    starts: Mapping[str, TopicStart] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True)
class Passing(Node):
    """A node whose columns are those that come to it, by their places.

    Attributes:
        given: the rows that come to it.
    """

    given: Rows

    @property
    def width(self) -> int:
        """How many of the columns that come to it go on: hidden ones do not."""
        return sum(not column.name.startswith(hidden_columns.PREFIX) for column in self.given.columns)

    @property
    def inputs(self) -> tuple[Rows, ...]:
        """The rows that come to it."""
        return (self.given,)

    def origin(self, place: int) -> tuple[Rows, int] | None:
        """Return the column that comes to it at the same place."""
        return (self.given, self.given.columns[place].number) if place < self.width else None


@dataclass(slots=True, eq=False, kw_only=True)
class BehindNode(Passing):
    """The rows of a table, on their way to another one that holds them behind steps: no filter drops any there."""


@dataclass(slots=True, eq=False, kw_only=True)
class StreamNode(Passing):
    """``to_stream()`` and ``outputMode()`` of a table.

    Attributes:
        final: True for ``outputMode("append")``: what goes on are the table's final rows.
    """

    final: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class UnionNode(Passing):
    """The rows of two streams; ``other`` has columns of the same types at the same places."""

    other: Rows

    @property
    def inputs(self) -> tuple[Rows, ...]:
        """The rows of both."""
        return self.given, self.other


@dataclass(slots=True, eq=False, kw_only=True)
class LookupNode(Passing):
    """``join(table, on)`` of a stream: each row gets what the table holds for its key, behind its own columns.

    The last of its columns says whether the table has the key.

    Attributes:
        table: what is looked into.
        of: what the user wrote for it: the table, or a step of it.
        columns: names of the stream's columns that the table is looked into by, in the order of its key; none: each
            row gets all rows of a global table, in one column.
        how: ``inner`` or ``left``.
        time: of a table with a history: the column as of which each row looks; None for its record's timestamp.
        grace: for how long rows have waited in front of it, as the user wrote it; or None.
    """

    table: AggregationNode
    of: Rows
    columns: tuple[str, ...]
    how: str
    time: EventTime | None = None
    grace: str | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class CollectedNode(Passing):
    """``join(DataFrame, on, refresh=...)``.

    Attributes:
        frame: what is joined with: the columns that are equal to the stream's, then the others.
        keys: names of those columns of the stream.
        how: ``inner`` or ``left``.
        refresh: after which time it is collected again.
    """

    frame: DataFrame
    keys: tuple[str, ...]
    how: str
    refresh: str


@dataclass(slots=True, eq=False, kw_only=True)
class EmittingNode(Node):
    """A step that keeps a store and emits a stream.

    Attributes:
        given: the rows that it takes in.
        step: what is done; its store has no name yet.
        name: of the store, or None.
        located: places of its columns that the message key of its rows is made of, in its order; None: unknown.
        other: of a join of streams: the rows of the right one.
        other_step: likewise what is done with them.
        origins: place -> the column, of the rows that come to it, that a column of its is.
    """

    given: Rows
    step: EmittingStep
    name: str | None
    located: tuple[int, ...] | None
    other: Rows | None = None
    other_step: EmittingStep | None = None
    origins: Mapping[int, tuple[Rows, int]] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[Rows, ...]:
        """The rows that come to it: of a join from two streams."""
        return (self.given,) if self.other is None else (self.given, self.other)

    def origin(self, place: int) -> tuple[Rows, int] | None:
        """Return the column that one of its is."""
        return self.origins.get(place)


@dataclass(slots=True, eq=False, kw_only=True)
class RepartitionNode(Passing):
    """Rows written to a topic by another key, and read again.

    Attributes:
        columns: names of the columns that make the key.
        name: what the user called it, or None.
        words: what an automatic name is made of.
        explicit: True for ``repartition(...)``, False for what a ``groupBy`` needs.
        changes: True where the rows are a table's, each as it was and as it is.
        raw: True where they have Kafka's own columns still, and are passed on as a stream without formats is.
        to_all: True to write each row to every partition.
    """

    columns: tuple[str, ...]
    name: str | None
    words: tuple[str, ...]
    partitions: int | None
    explicit: bool
    changes: bool = False
    raw: bool = False
    to_all: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class AggregationNode(Node):
    """``groupBy(...).agg(...)``, ``table(...)``, ``global_table(...)`` or ``to_table()``.

    Attributes:
        given: the rows that it takes in: the columns of its key, and what is aggregated.
        grouped: the rows in front of that.
        step: what is done; its store has no name yet.
        name: of the store, or None.
        words: what an automatic name of the store ends with.
        of: what the user called the table whose rows these are behind its steps; None: an automatic name begins with
            the stream's.
        answers: of a table of rows that are joined by a foreign key: the join, whose answers come in; else None.
        origins: as of :class:`EmittingNode`.
    """

    given: Rows
    grouped: Rows
    step: Aggregation
    name: str | None
    words: tuple[str, ...]
    of: str | None = None
    answers: TableJoinNode | None = None
    origins: Mapping[int, tuple[Rows, int]] = field(default_factory=dict)

    is_table: ClassVar[bool] = True

    @property
    def inputs(self) -> tuple[Rows, ...]:
        """The rows that come to it."""
        return (self.given,)

    def origin(self, place: int) -> tuple[Rows, int] | None:
        """Return the column that one of its is."""
        return self.origins.get(place)


@dataclass(slots=True, eq=False, kw_only=True)
class TableJoinNode(Node):
    """``join(table, on, how)`` of two tables. It keeps nothing: its rows are found in the stores of its tables.

    Attributes:
        left: the left table, as it is stored; or a join of others.
        right: the right one.
        of: what the user wrote for both: tables, or steps of them.
        columns: names of the columns that both are keyed by, in their order.
        how: ``inner``, ``left``, ``right`` or ``full``.
        width: how many columns the key of the joined rows has.
        referencing: of a join by a foreign key: the left table, as it is stored; ``left`` then is the table of its rows
            by foreign key, in the right one's tasks, and ``columns`` are what the right one is keyed by. Else None.
        foreign: of such a join: how many columns the right table's key has.
        by: the number of equal columns of a many-to-many join, whose sides are stored by these columns; 0 for other
            joins.
    """

    left: StoredTable
    right: StoredTable
    of: tuple[Rows, Rows]
    columns: tuple[str, ...]
    how: str
    width: int
    referencing: StoredTable | None = None
    foreign: int = 0
    by: int = 0

    is_table: ClassVar[bool] = True

    @property
    def tables(self) -> tuple[AggregationNode, ...]:
        """The tables that it is of in the end, from left to right; one may come twice."""
        return (*tables_of(self.left), *tables_of(self.right))


@dataclass(slots=True, eq=False, kw_only=True)
class LateNode(Passing):
    """The rows of a grouping that come after their window is over; ``late_to=`` of ``agg``.

    Attributes:
        table: of the grouping.
    """

    table: AggregationNode


@dataclass(slots=True, eq=False, kw_only=True)
class End:
    """Where rows leave the pipeline.

    Attributes:
        given: the rows.
        call_site: the line that wrote it.
        name: what the user called it, or None.
    """

    given: Rows
    call_site: CallSite
    name: str | None

    @property
    def inputs(self) -> tuple[Rows, ...]:
        """The rows."""
        return (self.given,)

    @property
    def rows(self) -> Rows:
        """The rows."""
        return self.given


@dataclass(slots=True, eq=False, kw_only=True)
class SinkNode(End):
    """``to(...)``."""

    topic: str
    key: Format | str | None
    value: Format | None
    headers: str | None = None
    circular: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class ActionNode(End):
    """``show(...)``, ``foreach(...)`` and ``foreachBatch(...)``: an end whose rows go to no topic."""

    action: Show | Foreach | ForeachBatch


#: Tables whose rows stores hold, as they are or as they are joined.
StoredTable = AggregationNode | TableJoinNode
AnyNode = Node | End


def tables_of(table: StoredTable) -> tuple[AggregationNode, ...]:
    """Return the tables with stores that a table is, or is joined of."""
    return table.tables if isinstance(table, TableJoinNode) else (table,)


def before(rows: Rows) -> Node:
    """Return the node that rows come from: the topic behind it, where several ways begin there."""
    return rows.node if rows.node.shared is None or rows.first else rows.node.shared


def ways_back(node: AnyNode) -> Iterator[tuple[AnyNode, ...]]:
    """Yield each way from ``node`` back to a source or repartition topic: several behind a union or a join."""
    if not node.inputs or isinstance(node, RepartitionNode):
        yield (node,)
        return
    for rows in node.inputs:
        for way in ways_back(before(rows)):
            yield (node, *way)


def behind_state(node: Node) -> bool:
    """Return whether rows at ``node`` come out of a stateful step, with no topic in between."""
    stateful = AggregationNode | EmittingNode | TableJoinNode
    return any(isinstance(at, stateful) for way in ways_back(node) for at in way)


def line_up(node: AnyNode) -> Iterator[AnyNode]:
    """Yield ``node`` and what is before it, up to the source: that of the first stream of a union or a join."""
    at: AnyNode | None = node
    while at is not None:
        yield at
        at = before(at.rows) if at.inputs else None


def any_table(rows: Iterable[Rows]) -> bool:
    """Return whether some of these rows are a table's."""
    return any(one.node.is_table for one in rows)
