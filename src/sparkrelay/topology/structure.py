"""What a topology consists of, as the runtime reads it: frozen values, no behaviour.

Arguments of steps stay what the user passed (text, Columns, functions); only the runtime, which knows Spark, looks
into them. Comparing two Columns makes a third one instead of an answer, so plan parts are compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sparkrelay.operators.stream_join.step import StreamJoin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.records.formats import Format
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.calls.stateful_steps import Aggregation, TableJoin
    from sparkrelay.types import BatchId


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One row-wise step.

    Attributes:
        kind: the DataFrame method: ``select``, ``where``, ``withColumn``, ...
        args: its positional arguments, as written.
        kwargs: its keyword arguments (of ``transform`` and ``dropna``).
        call_site: the line that wrote it.
        text: the step as people read it; the same in every process that runs the same program.
        table_key: of a table's step that stands in front of another table, which holds the rows behind it: the columns
            of the key in front of the step, and copies of them. A filter drops no row there: one that does not pass
            deletes what its key has. None for all other steps.
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
    def is_filter(self) -> bool:
        """True if it lets some rows through and others not, and changes none."""
        return self.kind in {"where", "filter", "dropna"}

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
        raw: True for one with rows of a stream without formats, which are passed on as those are.
    """

    name: str
    topics: tuple[str, ...]
    key: Format | None
    value: Format | None
    timestamp: str | None
    internal: bool
    call_site: CallSite
    changes: bool = False
    raw: bool = False


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
        return any(step.is_filter for step in self.after[: self.table_steps])

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
