"""What a topology consists of, as the runtime reads it: frozen values, no behaviour.

Arguments of steps stay what the user passed (text, Columns, functions); only the runtime, which knows Spark, looks
into them. Comparing two Columns makes a third one instead of an answer, so plan parts are compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sparkrelay.topology.columns import is_session_window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.records.formats import Format
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.types import BatchId

__all__ = [
    "RECORD_TIME",
    "Aggregation",
    "Deduplication",
    "Delay",
    "EmittingStep",
    "Foreach",
    "ForeachBatch",
    "Leg",
    "Lookup",
    "NamedAggregate",
    "Order",
    "Ranking",
    "Show",
    "Sink",
    "Source",
    "Step",
    "StreamJoin",
    "Subtopology",
    "TableJoin",
    "Transformation",
]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One row-wise step.

    Attributes:
        kind: the DataFrame method: ``select``, ``where``, ``withColumn``, ...
        args: its positional arguments, as written.
        kwargs: its keyword arguments (``transform`` only).
        call_site: the line that wrote it.
        text: the step as people read it; the same in every process that runs the same program.
        table_key: of a table's step that stands in front of another table, which holds the rows behind it: the columns
            of the key in front of the step. A filter drops no row there: one that does not pass deletes what its key
            has. None for all other steps.
    """

    kind: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    call_site: CallSite
    text: str
    table_key: tuple[str, ...] | None = None

    @property
    def is_union(self) -> bool:
        """True where another stream comes in; it stands in the legs of both, and changes no row."""
        return self.kind in {"union", "unionByName"}

    @property
    def refresh(self) -> str | None:
        """The interval after which a join collects its DataFrame again; None for any other step."""
        return self.kwargs.get("refresh") if self.kind == "join" else None


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A stateful step that changes no state: each row gets what a table holds for its key.

    Attributes:
        store: the table's, which a leg of the same subtopology keeps, or every process.
        columns: the key's columns, in the table's order; the rows have columns of these names.
        how: ``inner`` leaves rows out whose key the table does not have, ``left`` gives them nulls.
        call_site: the line that wrote it.
        text: the step as people read it.
        is_global: True for a global table, which every process keeps.
        as_of: True for a table with a history: each row finds what was there at its own time.
        watermark: column of these times, and how late rows may come; None: they are the records' timestamps.
        grace: for how long rows have waited in front of it, such as ``"5 minutes"``; or None.
    """

    store: str
    columns: tuple[str, ...]
    how: str
    call_site: CallSite
    text: str
    is_global: bool = False
    as_of: bool = False
    watermark: tuple[str, str] | None = None
    grace: str | None = None

    kind: ClassVar[str] = "join"
    is_union: ClassVar[bool] = False
    refresh: ClassVar[None] = None


@dataclass(frozen=True, slots=True, eq=False)
class TableJoin:
    """What the rows of a leg are joined of: tables of one key, which legs of the same subtopology keep.

    Attributes:
        left: the left table's store; or a join of others.
        right: the right one's.
        columns: names of the columns that both are keyed by, in their order.
        how: ``inner``, ``left``, ``right`` or ``full``.
        call_site: the line that wrote it.
        text: the step as people read it.
        referencing: of a join by a foreign key: the left table's store, or a join of others, in other tasks; ``left``
            is the store of its rows by foreign key then, and ``columns`` are the right table's key. Else None.
    """

    left: TableJoin | str
    right: TableJoin | str
    columns: tuple[str, ...]
    how: str
    call_site: CallSite
    text: str
    referencing: TableJoin | str | None = None

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


@dataclass(frozen=True, slots=True)
class NamedAggregate:
    """The aggregate of ``groupBy(...).count()``, ``.sum("amount")`` and the like, under PySpark's name for it.

    A marker and not a Column, because making a Column takes a running Spark session.

    Attributes:
        function: ``count``, ``sum``, ``avg``, ``min`` or ``max``.
        column: the argument; None for ``count(*)``.
    """

    function: str = "count"
    column: str | None = None

    @property
    def name(self) -> str:
        """The result column's."""
        return self.function if self.column is None else f"{self.function}({self.column})"


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
        number: the column that gets a row's place, from 1 on; the last of the table's keys.
        order: by what rows come first; of those that are equal in all of it, the one that came first.
        count: how many rows of a key are held.
    """

    number: str
    order: tuple[Order, ...]
    count: int


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
        changes: True for a repartition topic with the rows of a table, each as it was and as it is.
    """

    name: str
    topics: tuple[str, ...]
    key: Format | None
    value: Format | None
    timestamp: str | None
    internal: bool
    call_site: CallSite
    changes: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """The stateful step of a leg.

    Attributes:
        name: the step's name.
        store: the store's name; the runtime composes ``<application.id>-<store>-changelog`` from it.
        keys: grouping columns: names (in Spark's syntax, dots and backticks included) or Columns.
        aggregates: Columns such as ``F.sum("amount")``, or a NamedAggregate.
        logged: False for a store without changelog: what it holds is on one disk only.
        call_site: the line that wrote it.
        text: the step as people read it.
        watermark: column of event times, and how late rows may come, as ``withWatermark`` has them; or None.
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
    """

    name: str
    store: str
    keys: tuple[Any, ...]
    aggregates: tuple[Any, ...]
    logged: bool
    call_site: CallSite
    text: str
    watermark: tuple[str, str] | None = None
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

    @property
    def sessions(self) -> bool:
        """True where one of the keys is ``F.session_window``: its groups merge where they touch."""
        return any(map(is_session_window, self.keys))


@dataclass(frozen=True, slots=True, eq=False)
class StreamJoin:
    """The stateful step of a leg whose rows are joined with those of another stream, which other legs read.

    Attributes:
        store: the store of both streams' rows; the runtime composes the changelog's name from it.
        columns: names of the columns that both streams have, and that are equal in rows that go together.
        how: ``inner``, ``left``, ``right``, ``full``, ``left_semi`` or ``left_anti``.
        within: how much earlier and how much later than the left row the right one may be, ``("0 seconds", "1 hour")``.
        is_left: True for a leg of the left stream.
        watermark: column of this stream's event times, and how late its rows may come.
        logged: False for a store without changelog.
        call_site: the line that wrote it.
        text: the step as people read it.
    """

    store: str
    columns: tuple[str, ...]
    how: str
    within: tuple[str, str]
    is_left: bool
    watermark: tuple[str, str]
    logged: bool
    call_site: CallSite
    text: str

    @property
    def side(self) -> str:
        """Which of the two streams this is."""
        return "left" if self.is_left else "right"


@dataclass(frozen=True, slots=True, eq=False)
class Deduplication:
    """The stateful step of a leg of whose rows only the first of each key goes on.

    Attributes:
        store: the store of the keys that have been; the runtime composes the changelog's name from it.
        columns: names of the columns that make the key.
        within: True where a key is remembered until its first row's event time and the watermark's delay are over;
            False where for as long as rows may come that are equal in its columns, one of which is the event time.
        watermark: column of event times, and how late rows may come; None: keys are remembered for ever.
        logged: False for a store without changelog.
        call_site: the line that wrote it.
        text: the step as people read it.
    """

    store: str
    columns: tuple[str, ...]
    within: bool
    watermark: tuple[str, str] | None
    logged: bool
    call_site: CallSite
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """The stateful step of a leg whose rows wait, each until the watermark has passed its event time and a grace.

    Attributes:
        store: the store of the rows that wait; the runtime composes the changelog's name from it.
        grace: how long, such as ``"5 minutes"``.
        watermark: column of event times, ``RECORD_TIME`` for the records' timestamps, and how late rows may come.
        call_site: the line that wrote it.
        text: the step as people read it.
        logged: True: it has a changelog.
    """

    store: str
    grace: str
    watermark: tuple[str, str]
    call_site: CallSite
    text: str

    logged: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class Transformation:
    """The stateful step of a leg whose rows go, group by group, to a stateful processor of the user's.

    Attributes:
        store: the store of the processor's variables and timers; the runtime composes the changelog's name from it.
        keys: the grouping columns, as the user wrote them.
        processor: PySpark's ``StatefulProcessor``.
        output: the columns of the rows that it returns: a ``StructType``, or the same as text.
        time_mode: ``none``, ``processingtime`` or ``eventtime``.
        in_pandas: True where it takes and returns pandas' DataFrames, False for rows.
        watermark: column of event times, and how late rows may come; None: it does not go by event time.
        call_site: the line that wrote it.
        text: the step as people read it.
    """

    store: str
    keys: tuple[Any, ...]
    processor: Any
    output: Any
    time_mode: str
    in_pandas: bool
    watermark: tuple[str, str] | None
    call_site: CallSite
    text: str
    logged: bool = True


#: In the place of a column of event times: the records' own timestamps.
RECORD_TIME: Final = ""
#: Stateful steps that emit a stream: rows that never change, by a way that is the only one out of them.
EmittingStep = StreamJoin | Deduplication | Delay | Transformation


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
    """

    name: str
    topic: str
    key: Format | str | tuple[str, ...] | None
    value: Format | None
    internal: bool
    partitions: int | None
    call_site: CallSite
    changes: bool = False


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
        before: row-wise steps and lookups before the stateful one, or all of them if there is none.
        aggregation: the stateful step, if it is one.
        after: row-wise steps behind the stateful one.
        table_steps: how many of ``after`` are steps of the table, before ``to_stream()``: of them only filters may drop
            rows, which deletes them behind the table.
        sink: where rows go, or None for a leg that only keeps a store.
        changes_of: the store whose changes its rows are, kept by a leg of the same source; ``after`` has its steps.
            None for a leg that reads its source.
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
    before: tuple[Step | Lookup, ...]
    aggregation: Aggregation | None
    after: tuple[Step, ...]
    table_steps: int
    sink: Sink | None
    changes_of: str | None = None
    action: Show | Foreach | ForeachBatch | None = None
    late_for: Aggregation | None = None
    emitting: EmittingStep | None = None
    table_join: TableJoin | None = None
    also: tuple[Source, ...] = ()

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
        return any(step.kind in {"where", "filter"} for step in self.after[: self.table_steps])

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
    def collected(self) -> tuple[Step, ...]:
        """Its joins with DataFrames that are collected, in order."""
        return tuple(
            step for step in (*self.before, *self.after) if isinstance(step, Step) and step.refresh is not None
        )

    @property
    def passes_kafka_columns(self) -> bool:
        """True if its rows begin with Kafka's own columns, as a stream without formats has them."""
        return (
            (self.stateful_step is None or isinstance(self.stateful_step, Deduplication))
            and not self.goes_on
            and not self.source.internal
            and self.source.value is None
            and self.source.key is None
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
