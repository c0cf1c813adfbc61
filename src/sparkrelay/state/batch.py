"""The arguments and results of :meth:`TaskStore.change_batch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from sparkrelay.state.header import JournalEntry
    from sparkrelay.types import TopicPartition

#: Precedes the partitioning at the end of a store's description, where older releases had none.
SPREAD_BY: Final = ", spread by "


@dataclass(frozen=True, slots=True)
class BatchStamp:
    """The driver's description of a batch, which the store compares with its header.

    Attributes:
        task_epoch: the epoch of the task's owner, who sends the batch.
        number: the batch's number within the task; it only grows.
        committed: the last number that the driver knows to be committed.
        ranges: input partition of this leg -> offsets ``[from, to)``.
        positions_before: input partition of this leg -> next offset before the batch.
        changelog_next: changelog partition -> offset at which a restore continues after ``committed``.
        contents: the description of the pipeline's store.
        skipped: input partition -> the state's position when the next records were found deleted from the topic.
        tries: the attempt at the batch; it only grows.
        topics: source topic of this leg -> the id to which the positions belong, as far as known.
    """

    task_epoch: int
    number: int
    committed: int
    ranges: Mapping[TopicPartition, tuple[int, int]]
    positions_before: Mapping[TopicPartition, int]
    changelog_next: Mapping[TopicPartition, int] = field(default_factory=dict)
    contents: str = ""
    skipped: Mapping[TopicPartition, int] = field(default_factory=dict)
    tries: int = 1
    topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Event time with a batch.

    Attributes:
        ms: windows that end by then are over, in milliseconds since 1970. It never decreases: lower values are ignored.
        rows_late: the number of rows of the batch that were dropped because their window was over.
        final: whether the rows of windows that the batch ends are requested.
        retention_ms: how long windows are kept after their end.
        sources: source topic -> its own watermark, in milliseconds since 1970, where that is kept.
        sources_read: the source topics of which the batch has rows.
    """

    ms: int
    rows_late: int = 0
    final: bool = False
    retention_ms: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)
    sources_read: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge function.

    Attributes:
        new: the new values in the order of the old ones; null deletes.
        emitted: rows to emit.
        beside: by name, rows for other legs of the batch, which find them in the journal.
    """

    new: pa.Array
    emitted: pa.RecordBatch
    beside: Mapping[str, pa.RecordBatch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A store's values of some keys.

    Attributes:
        values: the present values, null where there is none.
        before: ``key, old`` of the changes by the batch under way; None if there are none.
        beside: by name, rows that the changing leg has left for others.
    """

    values: pa.Array
    before: pa.RecordBatch | None = None
    beside: Mapping[str, pa.RecordBatch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of a batch on a store.

    Attributes:
        emitted: rows to emit, if the operator returned them.
        keys: changed keys.
        values: their new values; null where deleted.
        entry: the journal's.
        over: the watermarks before and with the batch, in milliseconds since 1970, if the rows that end in between are
            requested (``StoreAfter.over``).
    """

    emitted: pa.RecordBatch | None
    keys: pa.Array
    values: pa.Array
    entry: JournalEntry
    over: tuple[int, int] | None = None
