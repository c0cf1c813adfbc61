"""What a topology consists of, as the runtime reads it: frozen values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkrelay.operators.stream_join.step import StreamJoin
from sparkrelay.topology.parts import Collected, Lookup, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql.types import StructType

    from sparkrelay.operators.aggregate.calls import AggregateCall
    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.records.formats import Format
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime
    from sparkrelay.topology.parts import Part
    from sparkrelay.topology.rows import Rows
    from sparkrelay.topology.starts import TopicStart
    from sparkrelay.types import BatchId


@dataclass(frozen=True, slots=True)
class Order:
    """One of the columns that rows are ordered by.

    Attributes:
        column: its name.
        descending: True where the largest value comes first.
        nulls_first: True where nulls come first.
    """

    column: str
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        """Return it as SQL has it."""
        return f"{self.column} {'desc' if self.descending else 'asc'} nulls {'first' if self.nulls_first else 'last'}"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Which rows a table holds of each key: the first ones in an order.

    Attributes:
        number: the column that gets a row's place, from 1 on; the last of the table's keys. With ``ties`` its rank.
        order: by what rows come first; of those that are equal in all of it, the one that came first.
        count: how many rows of a key are held. With ``ties``: up to which rank.
        ties: whether rows that are equal in all of the order have one rank, however many they are.
    """

    number: str
    order: tuple[Order, ...]
    count: int
    ties: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TableJoin:
    """What the rows of a leg are joined of: tables of one key, which legs of the same subtopology keep.

    Attributes:
        left: the left table's store; or a join of others.
        right: the right one's.
        columns: the joined rows' columns, those of the key first.
        width: how many columns the key has.
        how: ``inner``, ``left``, ``right`` or ``full``.
        call_site: the line that wrote it.
        text: the step as people read it.
        referencing: of a join by a foreign key: the left table's store, or a join of others, in other tasks; ``left``
            is the store of its rows by foreign key then. Else None.
        foreign: of such a join: how many columns the right table's key has.
        by: the number of equal columns of a many-to-many join, whose ``left`` and ``right`` are stores keyed by these
            columns; 0 for other joins.
    """

    left: TableJoin | str
    right: TableJoin | str
    columns: StructType
    width: int
    how: str
    call_site: CallSite
    text: str
    referencing: TableJoin | str | None = None
    foreign: int = 0
    by: int = 0

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores of its tables, from left to right, each once."""
        return tuple(dict.fromkeys((*_stores_of(self.left), *_stores_of(self.right))))

    @property
    def referencing_stores(self) -> tuple[str, ...]:
        """Of a join by a foreign key: the stores of the left table."""
        return () if self.referencing is None else _stores_of(self.referencing)


def _stores_of(table: TableJoin | str) -> tuple[str, ...]:
    return table.stores if isinstance(table, TableJoin) else (table,)


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """The stateful step of a leg, where it keeps a table.

    Attributes:
        store: the store's name; the runtime composes ``<application.id>-<store>-changelog`` from it.
        keys: names of the grouping columns.
        columns: of the store's rows, the grouping columns first.
        logged: False for a store without changelog: what it holds is on one disk only.
        call_site: the line that wrote it.
        text: the step as people read it.
        calls: its aggregates, in the order of their columns; none where ``newest``.
        watermark: what the event times of rows are, and how late they may come; or None.
        window: the grouping column that is a window; or None.
        sessions: True where that is a session: its groups merge where they touch.
        final: True where only the rows of windows that are over go on, each once.
        newest: True for a table that holds rows as they came, and has no aggregates: the newest of each key.
        ranking: where it holds not the newest row of each key but the first ones in an order: which; else None.
        is_global: True for a table that every process has whole, and keeps by itself.
        of_topic: True for a table that is read from a topic of the user's, as it is (``StreamsBuilder.table``).
        retention: for how long windows that are over stay in the store, such as ``"7 days"``; or None.
        reuses_topic: True where the topic that it is read from is its changelog (``topology.optimization``).
        keeps_changelog: why it has a changelog of its own although topics are reused, in words; empty otherwise.
        answers: of a table of rows that are joined by a foreign key: the join, whose answers come in; else None.
        history: of a table of newest rows: for how long it also knows the rows before them; or None.
        decided_by: the grouping columns that make the message key, in its order; None: others do.
        of_all: True for totals of all rows.
    """

    store: str
    keys: tuple[str, ...]
    columns: StructType
    logged: bool
    call_site: CallSite
    text: str
    calls: tuple[AggregateCall, ...] = ()
    watermark: EventTime | None = None
    window: str | None = None
    sessions: bool = False
    final: bool = False
    newest: bool = False
    is_global: bool = False
    retention: str | None = None
    ranking: Ranking | None = None
    of_topic: bool = False
    reuses_topic: bool = False
    keeps_changelog: str = ""
    answers: TableJoin | None = None
    history: str | None = None
    decided_by: tuple[str, ...] | None = None
    of_all: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where a leg's rows come from.

    Attributes:
        name: the stream's name; for a repartition topic, that topic's name.
        topics: topics read. Internal ones are without the application id, which the runtime puts in front.
        key: format of the message key, or None.
        value: format of the message value, or None. An internal topic has neither: it carries whole rows.
        timestamp: decoded column that gives the event time, or None for the record's own timestamp.
        internal: True for a repartition topic.
        call_site: the line that wrote it.
        columns: all that it can give.
        changes: True for a repartition topic with the rows of a table, each as it was and as it is.
        raw: True for one with rows of a stream without formats, which are passed on as those are.
        brokers: those that a ``readStream`` names, which the settings of an instance must agree with; or None.
        starts: topic -> where it is read first; without one the settings say so.
    """

    name: str
    topics: tuple[str, ...]
    key: Format | None
    value: Format | None
    timestamp: str | None
    internal: bool
    call_site: CallSite
    columns: StructType
    changes: bool = False
    raw: bool = False
    brokers: str | None = None
    starts: Mapping[str, TopicStart] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Sink:
    """Where a leg's rows go.

    Attributes:
        name: the sink's name.
        topic: topic written; internal ones are without the application id.
        key: format whose column is the message key, or that column's name; for a repartition topic the names of the
            key's columns; None for the key that the rows carry (a table's grouping key, else the message's own).
        value: format of the value; None for the runtime's choice. A repartition topic has none: it carries whole rows.
        internal: True for a repartition topic.
        partitions: partition count that the user asked for (repartition topics only), or None.
        call_site: the line that wrote it.
        changes: True for a repartition topic with the rows of a table, each as it was and as it is.
        headers: the column of the message headers, or None.
        to_all: True to write each row to every partition of a repartition topic.
        carried: the columns that hold the key that the rows carry; none where some are missing.
        circular: True where the user says that rows may come back from the topic.
    """

    name: str
    topic: str
    key: Format | str | tuple[str, ...] | None
    value: Format | None
    internal: bool
    partitions: int | None
    call_site: CallSite
    changes: bool = False
    headers: str | None = None
    to_all: bool = False
    carried: tuple[str, ...] = ()
    circular: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Show:
    """An end whose rows are printed by the driver, once their micro-batch is committed.

    Attributes:
        rows: of each micro-batch so many at most.
        width: characters of a cell at most.
        call_site: the line that wrote it.
        text: the step as people read it.
    """

    rows: int
    width: int
    call_site: CallSite
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Foreach:
    """An end whose rows are given to a function of the user's, in a Python worker.

    Attributes:
        function: takes a Row; what it returns is not looked at.
        call_site: the line that wrote it.
        text: the step as people read it.
    """

    function: Callable[[Any], Any]
    call_site: CallSite
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class ForeachBatch:
    """An end whose rows are given to a function of the user's on the driver, a task and micro-batch at a time.

    Attributes:
        function: takes a DataFrame and a ``BatchId``; what it returns is not looked at.
        call_site: the line that wrote it.
        text: the step as people read it.
        name: unique among the ends of the topology.
    """

    function: Callable[[Any, BatchId], Any]
    call_site: CallSite
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Leg:
    """A straight way through a subtopology.

    Attributes:
        id: its name, unique in the topology and stable: a store's journal on disk carries it.
        subtopology: number of the subtopology.
        source: where rows come from.
        before: row-wise steps and lookups before the stateful one, or all of them if there is none; the last of them
            is what the stateful step takes in.
        aggregation: the stateful step, if it is one that keeps a table.
        of_table: row-wise steps of the table: of them only filters may drop rows, which deletes them behind the table.
        after: steps of the stream behind the stateful step and those of its table.
        sink: where rows go, or None for a leg that only keeps a store.
        changes_of: the store whose changes its rows are, kept by a leg of the same source. None for a leg that reads
            its source.
        changed: the columns of that store's rows.
        action: what is done with its rows where they go to no topic, or None.
        late_for: the grouping whose late rows it passes on, which another leg of the same source keeps, or None.
        emitting: the stateful step, if it is one that emits a stream. The store of a join of streams is kept by all the
            legs of both.
        table_join: the tables that its rows are joined of, or None. ``after`` has the steps of what is joined.
        also: the sources of those tables; ``source`` is the first one's.
    """

    id: str
    subtopology: int
    source: Source
    before: tuple[Part, ...]
    aggregation: Aggregation | None
    of_table: tuple[Segment, ...]
    after: tuple[Part, ...]
    sink: Sink | None
    changes_of: str | None = None
    action: Show | Foreach | ForeachBatch | None = None
    late_for: Aggregation | None = None
    emitting: EmittingStep | None = None
    table_join: TableJoin | None = None
    also: tuple[Source, ...] = ()
    changed: StructType | None = None

    @property
    def taken(self) -> Rows:
        """What its stateful step takes in."""
        last = self.before[-1]
        assert isinstance(last, Segment), "a stateful step takes in what was projected for it"
        return last.rows

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources whose input makes rows of it, each once."""
        return tuple(dict.fromkeys((self.source, *self.also)))

    @property
    def goes_on(self) -> bool:
        """True if its rows are what others have changed in their stores: it reads no topic itself."""
        return self.changes_of is not None or self.table_join is not None

    @property
    def join(self) -> StreamJoin | None:
        """The stateful step, if it is a join of streams."""
        return self.emitting if isinstance(self.emitting, StreamJoin) else None

    @property
    def stateful_step(self) -> Aggregation | EmittingStep | None:
        """The step that keeps a store, or None."""
        return self.aggregation if self.emitting is None else self.emitting

    @property
    def store(self) -> str | None:
        """The store that it keeps, alone or with others."""
        return None if self.stateful_step is None else self.stateful_step.store

    @property
    def reused_topic(self) -> str | None:
        """The topic that is the changelog of its store as well as its source, or None."""
        return self.source.topics[0] if self.aggregation is not None and self.aggregation.reuses_topic else None

    @property
    def keeps_watermark(self) -> bool:
        """True if the rows of its store end."""
        return self.stateful_step is not None and self.stateful_step.watermark is not None

    @property
    def sends_changes(self) -> bool:
        """True if it sends each row of its table on as it was and as it is."""
        return self.sink is not None and self.sink.changes

    @property
    def filters_table(self) -> bool:
        """True if a step of its table lets some rows through and others not."""
        return any(segment.rows.filters for segment in self.of_table)

    @property
    def reads_stores(self) -> frozenset[str]:
        """Stores of other legs that it reads: it runs behind those."""
        own = set() if self.changes_of is None else {self.changes_of}
        joined = () if self.table_join is None else self.table_join.stores
        looked = (lookup.store for lookup in self.lookups if not lookup.is_global)
        answers = None if self.aggregation is None else self.aggregation.answers
        return frozenset((*looked, *own, *joined, *(() if answers is None else answers.referencing_stores)))

    @property
    def keeps_global_table(self) -> bool:
        """True for a leg that is run by every process for itself, and by no task."""
        return self.aggregation is not None and self.aggregation.is_global

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """Its lookups, in order."""
        return tuple(step for step in self.before if isinstance(step, Lookup))

    @property
    def collected(self) -> tuple[Collected, ...]:
        """Its joins with DataFrames that are collected, in order."""
        return tuple(part for part in (*self.before, *self.after) if isinstance(part, Collected))

    @property
    def texts(self) -> Iterator[str]:
        """What is done to its rows, in words, but for its stateful step."""
        for part in (*self.before, *self.of_table, *self.after):
            yield from part.steps if isinstance(part, Segment) else (part.text,)

    @property
    def passes_kafka_columns(self) -> bool:
        """True if its rows begin with Kafka's own columns, as a stream without formats has them."""
        return (
            (self.aggregation is None and (self.emitting is None or self.emitting.keeps_columns))
            and not self.goes_on
            and self.source.value is None
            and self.source.key is None
            and (self.source.raw or not self.source.internal)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Subtopology:
    """Legs that share source topics, directly or through others; the unit that tasks are made of.

    Attributes:
        id: its number, the first half of a task id.
        legs: in the order in which their ends were written.
    """

    id: int
    legs: tuple[Leg, ...]

    @property
    def source_topics(self) -> frozenset[str]:
        """Topics read that belong to the user."""
        return frozenset(topic for leg in self.legs if not leg.source.internal for topic in leg.source.topics)

    @property
    def sink_topics(self) -> frozenset[str]:
        """Topics written that belong to the user."""
        return frozenset(leg.sink.topic for leg in self.legs if leg.sink is not None and not leg.sink.internal)

    @property
    def repartition_sinks(self) -> frozenset[str]:
        """Repartition topics written, without the application id."""
        return frozenset(leg.sink.topic for leg in self.legs if leg.sink is not None and leg.sink.internal)

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores, sorted."""
        return tuple(sorted({leg.store for leg in self.legs if leg.store is not None}))

    @property
    def logged_stores(self) -> tuple[str, ...]:
        """Names of the stores that have a changelog of their own, sorted: none, or all but those that reuse a topic."""
        steps = (leg.stateful_step for leg in self.legs)
        if not all(step.logged for step in steps if step is not None):
            return ()
        return tuple(store for store in self.stores if store not in self.reused_topics)

    @property
    def reused_topics(self) -> Mapping[str, str]:
        """Store -> the user's topic that is its changelog."""
        return {leg.store: topic for leg in self.legs if leg.store is not None and (topic := leg.reused_topic)}

    @property
    def stateful(self) -> bool:
        """True if its tasks keep state."""
        return bool(self.stores)
