"""Where a task stands: in its input, and with its copy of the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["LocalCopy", "Position"]


@dataclass(slots=True)
class Position:
    """How far a task has come.

    Attributes:
        offsets: input partition -> next offset.
        skipped: input partition -> offset that the state has seen, where the records behind it are gone.
        batch: number of the last batch that was tried.
        committed: number of the last batch known as committed.
        topic_ids: source topic -> the id of the topic that the offsets belong to, as far as known.
    """

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    skipped: dict[TopicPartition, int] = field(default_factory=dict)
    batch: int = 0
    committed: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class LocalCopy:
    """What this process has of the task's state.

    Attributes:
        offsets: changelog partition -> offset where a restore would go on. What others wrote never counts: a fenced
            owner that took its copy to have it would lose it.
        listed: the changelogs' ends when the batch under way was chosen.
        ends: changelog partition -> where the restore must get to.
        wipe: True if it cannot be trusted and is rebuilt.
        wiped_after: the batch that was the last committed one when it was last found unusable, or None.
        disk_bytes: what it takes on the disk; None while nobody has said it.
    """

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    listed: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    wipe: bool = False
    wiped_after: int | None = None
    disk_bytes: int | None = None
