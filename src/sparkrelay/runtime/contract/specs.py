"""What a leg's worker steps need to know for as long as an assignment lasts; pickled with the prepared DataFrame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from sparkrelay.records.formats import Format

__all__ = [
    "ActionSpec",
    "FetchSpec",
    "PublishSpec",
    "SkippedSpec",
    "SourceChangelog",
    "StepSpec",
    "StoreSpec",
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
        value_schema: Arrow schema of the decoded columns of the value; None: the value has no format.
        key_schema: likewise of the key.
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

    def said(self) -> dict[str, Any]:
        """Return what a changelog says of its store, beside its name and contents."""
        return {"holds": self.holds}


@dataclass(frozen=True, slots=True)
class SourceChangelog:
    """How the store of a table is restored from the topic that the table is read from.

    Attributes:
        fetch: makes rows of the topic's records, as in a micro-batch.
        stored: makes the store's keys and values of rows; null values delete.
        contents: what the store holds, in words.
    """

    fetch: FetchSpec
    stored: Callable[[pa.Table], tuple[pa.Array, pa.Array]]
    contents: str


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
        best: of a repartition topic behind which only the first rows of each key are kept: leaves rows of one task out
            that are none of them; else None.
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
    best: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None

    @property
    def read(self) -> list[str]:
        """The columns of its rows that it reads, but for hidden ones; some of them twice."""
        return [*self.columns, *self.key_columns, *(() if self.headers is None else (self.headers,))]
