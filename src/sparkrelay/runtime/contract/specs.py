"""Specifications of a leg's worker steps for as long as an assignment lasts; pickled with the prepared DataFrame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from sparkrelay.records.formats import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """What every step of a leg needs to know.

    Attributes:
        topics: Kafka's names of the source topics.
        map_limit: maximum size of a task's state in bytes (``store.max.bytes``).
        failure_key: signs errors that travel through Spark's error text (``failure_marks``).
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
        value: format of the value, if any; internal topics carry typed rows (``internal``).
        layout: number of the row layout of an internal topic.
        output: Arrow schema of the output rows: the wanted columns, then the hidden ones.
        event_time: column that replaces the record's timestamp, if any.
        skip_tombstones: drop null values, as before an aggregation.
        skip_bad_records: log and drop records that cannot be decoded, instead of failing.
        whole: decode all declared columns, even unread ones, so that all legs find the same bad records.
        is_global: True for a global table, whose single task reads every partition.
        in_order: read partitions one after the other, so that every attempt has the rows in the same order.
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
    """How a leg's skipped records are written.

    Attributes:
        topic: Kafka's name of the dead letter topic; None: skipped records are only counted.
    """

    topic: str | None
    compression: str
    flush_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec(StepSpec):
    """The store of a leg's stateful step.

    Attributes:
        contents: what the store holds, in words; a store with other contents is refused.
        holds: what it holds instead of a table's rows.
    """

    store: str
    changelog: str | None
    contents: str
    compression: str
    flush_seconds: float

    holds: ClassVar[str] = "no rows"

    def said(self) -> dict[str, Any]:
        """Return the description of the store in its changelog, without its name and contents."""
        return {"holds": self.holds}


@dataclass(frozen=True, slots=True)
class SourceChangelog:
    """How the store of a table is restored from the table's source topic.

    Attributes:
        fetch: makes rows of records, as in a micro-batch.
        stored: makes the store's keys and values of rows; null values delete.
        contents: what the store holds, in words.
    """

    fetch: FetchSpec
    stored: Callable[[pa.Table], tuple[pa.Array, pa.Array]]
    contents: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec(StepSpec):
    """What to do with the rows of a leg without a sink topic.

    Attributes:
        behind_state: True in a leg with a store.
        rows: for ``show``: most rows of a task that are sent to the driver, as text.
        function: for ``foreach``: called with each row.
        keeps: True for ``foreachBatch``: rows stay in a file until the driver has called its function.
        schema: for ``foreach``: the rows' schema as Spark's JSON.
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
        behind_state: True in a leg with a store and steps after it.
        topic: Kafka's name of the sink topic; None if the leg only keeps a store.
        key_columns: columns of the key; empty: the key that travels with the rows.
        key: format of the key; None: the encoding of ``key_bytes``.
        value: format of the value; None for a repartition topic, which carries whole rows.
        layout: number of the row layout of a repartition topic.
        changelog: Kafka's name of the changelog that this leg wrote to earlier and later legs write to again, if any.
        event_time: column with the rows' event times, for a repartition topic upstream of a watermark.
        ahead_ms: event times further ahead of the clock than this do not count.
        best: drops rows of a task that cannot be among the first of their key, for a repartition topic of which only
            those are kept.
        to_all: whether each partition of the topic gets all rows.
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
    to_all: bool = False

    @property
    def read(self) -> list[str]:
        """The visible columns that it reads, possibly with duplicates."""
        return [*self.columns, *self.key_columns, *(() if self.headers is None else (self.headers,))]
