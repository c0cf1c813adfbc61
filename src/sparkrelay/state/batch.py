"""What goes into and comes out of :meth:`TaskStore.apply_batch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from sparkrelay.state.header import JournalEntry
    from sparkrelay.types import TopicPartition

__all__ = ["SPREAD_BY", "Applied", "BatchStamp", "LookedUp", "MergeResult", "Watermark"]

#: In the words for what a store holds, last: what decides in which partition its rows are. It was once left out.
SPREAD_BY: Final = ", spread by "


@dataclass(frozen=True, slots=True)
class BatchStamp:
    """What the driver sent along with a batch; the store compares it with what it knows.

    Attributes:
        task_epoch: number of the owner of the task that the batch comes from.
        number: the batch's number within the task; it only grows.
        committed: the last number that the driver knows as committed.
        ranges: input partition of this leg -> offsets ``[from, to)``.
        positions_before: input partition of this leg -> next offset before the batch.
        changelog_next: changelog partition -> offset where a restore goes on after ``committed``.
        contents: what the pipeline means the store to hold, in words.
        skipped: input partition -> where the state stood when the records behind it were found gone from the topic.
        tries: number of this attempt at the batch; it only grows.
        topics: source topic of this leg -> the id of the topic that the positions belong to, as far as known.
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
    """What event time has come to with a batch.

    Attributes:
        ms: windows that end by then are over, in milliseconds since 1970. What is less than before counts as before.
        rows_late: how many rows of the batch were left out because their window was over.
        final: whether the rows of the windows are asked for that are over with the batch.
        retention_ms: for how long windows that are over are kept, from their end on.
        sources: source topic -> the watermark of its rows alone, in milliseconds since 1970, where that is kept.
        sources_read: which of those topics the batch has rows of.
    """

    ms: int
    rows_late: int = 0
    final: bool = False
    retention_ms: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)
    sources_read: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge function makes of the old values.

    Attributes:
        new: the new ones, in the same order; null deletes.
        emitted: rows to send on.
        beside: by name, rows for other legs of the batch, which find them in the journal.
    """

    new: pa.Array
    emitted: pa.RecordBatch
    beside: Mapping[str, pa.RecordBatch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What a store holds for some keys.

    Attributes:
        values: the values now, null where there is none.
        before: ``key, old`` of what the batch under way has changed; None if it has changed nothing.
        beside: what the leg that changed it has left for others, by name.
    """

    values: pa.Array
    before: pa.RecordBatch | None = None
    beside: Mapping[str, pa.RecordBatch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch did to a store.

    Attributes:
        emitted: rows to send on, if what changed the store has put them here.
        keys: changed keys.
        values: their values now; null where deleted.
        entry: the journal's.
        over: the watermarks before and with the batch, in milliseconds since 1970, if what is over with it is asked
            for: it ends after the one and by the other (``StoreAfter.over``).
    """

    emitted: pa.RecordBatch | None
    keys: pa.Array
    values: pa.Array
    entry: JournalEntry
    over: tuple[int, int] | None = None
