"""What a leg's worker steps need to know for as long as an assignment lasts; pickled with the prepared DataFrame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark import Broadcast

    from sparkrelay.records.formats import Format
    from sparkrelay.state.aggregate import AggregateSpec

__all__ = [
    "ActionSpec",
    "AnswersSpec",
    "ChangesSpec",
    "CollectedSpec",
    "FetchSpec",
    "ForeignJoinSpec",
    "LateSpec",
    "LookupSpec",
    "PublishSpec",
    "RankingSpec",
    "SettleSpec",
    "SkippedSpec",
    "SourceChangelog",
    "StateSpec",
    "StepSpec",
    "StoreSpec",
    "WatermarkSpec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """What every step of a leg needs to know.

    Attributes:
        leg: the leg's id.
        subtopology: whose tasks it runs for.
        topics: Kafka's names of the source topics.
        spark_partitions: Spark partitions of the process.
        client: settings of the worker's Kafka connection.
        map_limit: bound on the size of a task's state, bytes (``store.max.bytes``).
        failure_key: what signs an error that travels through Spark's text (``failure_marks``).
    """

    leg: str
    subtopology: int
    topics: tuple[str, ...]
    spark_partitions: int
    client: Mapping[str, Any]
    map_limit: int
    failure_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSpec(StepSpec):
    """How a leg's source turns records into rows.

    Attributes:
        key: format of the message key, or None.
        value: format of the value, or None; internal topics carry typed rows (``internal``).
        value_schema: Arrow schema of the decoded value (typed sources).
        key_schema: likewise of the key, where its format has a schema of its own.
        layout: of an internal topic: the number of the layout that its rows must have.
        output: Arrow schema of the rows that leave the step: only the wanted columns, then the hidden ones.
        event_time: column whose value replaces the record's timestamp, or None.
        skip_tombstones: True where null values end here, as in front of an aggregation.
        skip_bad_records: True to log and drop what does not decode, False to fail.
        whole: True to decode all that the formats declare, also what nobody reads: then all legs find the same records
            bad.
        is_global: True in front of a global table, whose one task reads every partition.
        in_order: True where partitions are read one behind the other, so that every try has the rows in one order.
    """

    key: Format | None
    value: Format | None
    internal: bool
    value_schema: pa.Schema | None
    output: pa.Schema
    event_time: str | None
    skip_tombstones: bool
    skip_bad_records: bool
    whole: bool = False
    key_schema: pa.Schema | None = None
    layout: int = 0
    is_global: bool = False
    in_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedSpec(StepSpec):
    """What becomes of the records that a leg's source has skipped.

    Attributes:
        topic: Kafka's name of the dead letter topic, or None where they are only counted.
        flush_seconds: how long the broker may take to acknowledge what is written.
    """

    topic: str | None
    compression: str
    flush_seconds: float


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """When the windows of a grouping are over.

    Attributes:
        delay_ms: how much later than the newest event time a row may come.
        window: the grouping column that is a window.
        final: True where the rows of windows that are over go on, each once; False where each change does.
        ahead_ms: how far ahead of the machine's clock an event time may be to move the watermark.
        retention_ms: for how long windows that are over stay in the store, from their end on, by the watermark.
        by_source: True where each source topic has a watermark of its own, and holds that of the store back also once
            it is read to its end, until it is silent (``max.task.idle.ms``).
        sessions: True for session windows, which merge where they touch.
    """

    delay_ms: int
    window: str
    final: bool
    ahead_ms: int
    retention_ms: int = 0
    by_source: bool = False
    sessions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec(StepSpec):
    """The store that a leg's stateful step keeps.

    Attributes:
        changelog: Kafka's name of the store's changelog; None if it has none.
        contents: what the store holds, in words: a store that holds something else is refused.
        flush_seconds: how long the broker may take to acknowledge what is written.
        holds: what it holds, where that is no rows of a table.
    """

    store: str
    changelog: str | None
    contents: str
    compression: str
    flush_seconds: float

    holds: ClassVar[str] = "no rows"


@dataclass(frozen=True, slots=True)
class RankingSpec:
    """Which rows of each key a table holds.

    Attributes:
        number: the grouping column that gets a row's place, from 1 on; with ``ties`` a column that gets its rank.
        order: by what rows come first: names of columns, whether the largest comes first, and whether nulls do.
        count: how many rows of a key are held; with ``ties`` up to which rank.
        ties: whether rows that are equal in all of the order have one rank, however many they are.
    """

    number: str
    order: tuple[tuple[str, bool, bool], ...]
    count: int
    ties: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec(StoreSpec):
    """How a leg's stateful step aggregates.

    Attributes:
        keys: names of the grouping columns, in order.
        aggregates: the states kept, in the order of the argument columns; the last is the timestamp.
        input: Arrow schema of the rows that come in: keys, arguments, hidden columns.
        output: Arrow schema of the emitted rows: keys, results, hidden columns.
        watermark: when windows are over; None: never.
        newest: of a table of rows as they came: Arrow schema of a row without its key. None for aggregates.
        ranking: where they are not the newest but the first ones in an order: which; else None.
        looked_up_by: Kafka's names of the source topics of legs that look into it: where a micro-batch has input of
            them too, it leaves every version of a row for them.
        kept: where other legs go on from its changes: Arrow schema of what it leaves for them; else None.
        joined: True where a join of tables reads it, and needs to know when rows were deleted.
        answers: where answers of a join by a foreign key come in: which of them count; else None.
        history_ms: of a table of newest rows: for how long it also knows the rows before them; None: not at all.
        ahead_ms: of such a table: how far ahead of the machine's clock a row's time may be to count for others.
        partitioned_by: the grouping columns that decide in which task a group is, as the keys of messages are made of
            them; None where they are not all there as they were.
        repartitioned_by: the columns by which a repartition topic in front of it is partitioned; none: the message key.
    """

    keys: tuple[str, ...]
    aggregates: tuple[AggregateSpec, ...]
    input: pa.Schema
    output: pa.Schema
    watermark: WatermarkSpec | None = None
    newest: pa.Schema | None = None
    ranking: RankingSpec | None = None
    looked_up_by: frozenset[str] = frozenset()
    kept: pa.Schema | None = None
    joined: bool = False
    answers: AnswersSpec | None = None
    history_ms: int | None = None
    ahead_ms: int = 0
    partitioned_by: tuple[str, ...] | None = None
    repartitioned_by: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """True where a changed row goes on as it was, too (``hidden_columns.CHANGE``)."""
        return hidden_columns.CHANGE in self.output.names

    @property
    def of_changes(self) -> bool:
        """True where what comes in are the rows of a table, each as it was and as it is."""
        return hidden_columns.CHANGE in self.input.names and not self.follows_changes

    @property
    def follows_changes(self) -> bool:
        """True where those make a table of newest rows: what is no more is deleted (joins by a foreign key)."""
        return hidden_columns.CHANGE in self.input.names and self.newest is not None and self.ranking is None

    @property
    def ranks_changes(self) -> bool:
        """True for the first rows of each key of a table, whose rows change and are deleted: it keeps all of them."""
        return self.ranking is not None and self.of_changes

    @property
    def ranks_windows(self) -> bool:
        """True for the best rows of windows that end, where rows that are equal have one rank."""
        return self.ranking is not None and self.ranking.ties

    @property
    def ranks_beside(self) -> bool:
        """True where a key's rows stand beside one another in the store, and not in their places."""
        return self.ranks_changes or self.ranks_windows

    @property
    def deletes(self) -> bool:
        """True where rows of the table may be deleted, or stay as they are."""
        return self.newest is not None or self.merges or self.of_changes

    @property
    def merges(self) -> bool:
        """True for session windows."""
        return self.watermark is not None and self.watermark.sessions


@dataclass(frozen=True, slots=True)
class SourceChangelog:
    """How the store of a table is restored from the topic that the table is read from.

    Attributes:
        fetch: makes rows of the topic's records, as in a micro-batch.
        state: says what the store holds of them.
    """

    fetch: FetchSpec
    state: StateSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSpec(StepSpec):
    """How a leg's rows get what a table holds for their keys.

    Attributes:
        store: the table's.
        columns: names of the columns that make the key, in order.
        how: ``inner`` or ``left``.
        row: Arrow schema of the table's rows without the key.
        contents: what the store holds, in words: one that holds something else is refused.
        output: Arrow schema of the rows that leave the step: only columns that something behind it reads.
        is_global: True for a global table, which the process keeps beside its tasks.
        history_ms: of a table with a history: how far back it goes; None for others.
        time: of such a table: the column that says as of when each row looks, ms since 1970; null: by its timestamp.
    """

    store: str
    contents: str
    columns: tuple[str, ...]
    how: str
    row: pa.Schema
    output: pa.Schema
    is_global: bool = False
    history_ms: int | None = None
    time: str = hidden_columns.TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedSpec:
    """How a leg's rows are joined with what was collected of a DataFrame.

    Attributes:
        frame: number of the DataFrame, of which a worker keeps one version.
        version: digest of its rows.
        rows: the rows as an Arrow IPC stream: the key's columns, then those that it gives.
        keys: names of the stream's columns that make the key, in order.
        given: names of the DataFrame's columns behind its key.
        how: ``inner`` leaves rows out that find nothing, ``left`` gives them nulls.
        tombstones_pass: True in front of a table of newest rows: a deletion goes on whatever it finds.
        output: Arrow schema of the rows that leave the step.
    """

    frame: int
    version: bytes
    rows: Broadcast[bytes]
    keys: tuple[str, ...]
    given: tuple[str, ...]
    how: str
    tombstones_pass: bool
    output: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSpec(StepSpec):
    """Which rows are late for a grouping that another leg keeps.

    Attributes:
        store: the grouping's.
        output: Arrow schema of the rows that leave the step.
    """

    store: str
    output: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesSpec(StepSpec):
    """How a leg goes on from the changes of a store that another one keeps.

    Attributes:
        store: the store.
        contents: what it holds, in words.
        output: Arrow schema of the rows, ``StateSpec.kept`` of the keeper's.
    """

    store: str
    contents: str
    output: pa.Schema


@dataclass(frozen=True, slots=True)
class JoinedTables:
    """How tables are joined.

    Attributes:
        how: ``inner``, ``left``, ``right`` or ``full``.
        left: number of the left table, or a join of others.
        right: of the right one.
    """

    how: str
    left: JoinedTables | int
    right: JoinedTables | int


@dataclass(frozen=True, slots=True)
class TableSide:
    """One table of a join of tables.

    Attributes:
        contents: what its store holds, in words.
        state: the step that keeps it.
    """

    contents: str
    state: StateSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoinSpec(StepSpec):
    """How a leg goes on from the changes of several tables of one key, which other legs keep.

    Attributes:
        tables: which.
        joined: how they are joined; tables by their place among ``tables``.
        keys: Arrow schema of the key's columns.
        output: Arrow schema of the rows: the key's columns, the tables' others, hidden ones.
    """

    tables: tuple[TableSide, ...]
    joined: JoinedTables
    keys: pa.Schema
    output: pa.Schema

    @property
    def changes(self) -> bool:
        """True where a changed row goes on as it was, too (``hidden_columns.CHANGE``)."""
        return hidden_columns.CHANGE in self.output.names


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignJoinSpec(StepSpec):
    """How a leg answers the rows of a table that name rows of another one, which is in its tasks.

    Attributes:
        referencing: the table of the rows by foreign key.
        tables: those that the right table is of.
        joined: how they are joined; tables by their place among ``tables``.
        how: ``inner`` or ``left``.
        keys: Arrow schema of the key of ``referencing``: the foreign key's columns, then the left table's others.
        foreign: how many columns the foreign key has.
        own: names of the left table's key.
        output: Arrow schema of the rows: the left table's columns, the right one's without its key, hidden ones.
    """

    referencing: TableSide
    tables: tuple[TableSide, ...]
    joined: JoinedTables | int
    how: str
    keys: pa.Schema
    foreign: int
    own: tuple[str, ...]
    output: pa.Schema


@dataclass(frozen=True, slots=True)
class AnswersSpec:
    """Which answers of a join by a foreign key count: those of the left table's rows as they are.

    Attributes:
        tables: those that the left table is of.
        joined: how they are joined; tables by their place among ``tables``.
        columns: Arrow schema of its columns without the key.
    """

    tables: tuple[TableSide, ...]
    joined: JoinedTables | int
    columns: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec(StepSpec):
    """What is done with the rows of a leg that go to no topic.

    Attributes:
        behind_state: True in a leg that keeps a store.
        columns: Arrow schema of the visible columns.
        rows: of ``show``: rows of a task at most that go to the driver, all of them text.
        width: of ``show``: characters of a cell at most.
        function: of ``foreach``: takes each row.
        keeps: of ``foreachBatch``: True; the rows stay in a file until the driver has called its function.
        schema: of ``foreach``: the rows' schema as Spark's JSON.
        changelog: as :class:`PublishSpec` has it.
    """

    columns: pa.Schema
    rows: int = 0
    width: int = 0
    function: Callable[[Any], Any] | None = None
    keeps: bool = False
    schema: str = ""
    behind_state: bool = False
    changelog: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleSpec(StepSpec):
    """What a table's filters leave of the changes of its rows.

    Attributes:
        keys: columns that make the key in the sink topic, where that is not the table's own.
        output: Arrow schema of the rows.
    """

    keys: tuple[str, ...]
    output: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSpec(StepSpec):
    """How a leg's rows become records of its sink topic.

    Attributes:
        behind_state: True in a leg that keeps a store, and has other steps in between.
        topic: Kafka's name of the sink topic, or None for a leg that only keeps a store.
        columns: names of the columns that the value is made of, in order.
        key_columns: columns that make the key; empty: the key that travels with the rows.
        key: format of the key; None: as ``key_bytes`` writes the columns.
        value: format of the value; None for a repartition topic, which carries whole rows.
        layout: of a repartition topic: the number of its rows' layout.
        changelog: Kafka's name of the changelog that the leg has written to before, and others write to behind it.
        headers: the column that is written as the records' headers, or None.
        flush_seconds: how long the broker may take to acknowledge what is written.
        event_time: of a repartition topic behind which a watermark goes by it: the column of the rows' event times.
        ahead_ms: how far ahead of the machine's clock an event time may be to count.
        ranking: of a repartition topic behind which only the first rows of each key are kept: which; else None.
        ranked_by: the columns of that key.
    """

    topic: str | None
    columns: tuple[str, ...]
    key_columns: tuple[str, ...]
    value: Format | None
    headers: str | None
    compression: str
    flush_seconds: float
    key: Format | None = None
    layout: int = 0
    behind_state: bool = False
    changelog: str | None = None
    event_time: str | None = None
    ahead_ms: int = 0
    ranking: RankingSpec | None = None
    ranked_by: tuple[str, ...] = ()

    @property
    def read(self) -> list[str]:
        """The columns of its rows that it reads, but for hidden ones; some of them twice."""
        return [*self.columns, *self.key_columns, *(() if self.headers is None else (self.headers,))]
