"""The position of a task in its input and of its copy of the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition


@dataclass(slots=True)
class Position:
    """Progress of a task.

    Attributes:
        skipped: input partition -> offset up to which the state has read, if the records after it were deleted.
        batch: number of the last attempted batch.
        topic_ids: source topic -> known id of the topic that the offsets refer to.
    """

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    skipped: dict[TopicPartition, int] = field(default_factory=dict)
    batch: int = 0
    committed: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class LocalCopy:
    """The copy of the task's state in this process.

    Attributes:
        offsets: changelog partition -> offset where a restore would continue. Never counts what others wrote: a fenced
            owner would lose those records.
        listed: ends of the changelogs when the batch under way was chosen.
        wipe: True if the copy is unusable and must be rebuilt.
        wiped_after: the last committed batch when the copy was last unusable; None if it never was.
    """

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    listed: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    wipe: bool = False
    wiped_after: int | None = None
    disk_bytes: int | None = None
