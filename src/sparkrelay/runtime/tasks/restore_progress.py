"""Progress of the copies that an instance restores or keeps warm, and the names of restore slices in Spark's UI."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkrelay.runtime.tasks.ranges import behind, name_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.types import TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """Snapshot of one task's restore; None where unknown before the take-over. See :class:`RestoreWork`.

    Attributes:
        restoring: True for an active task that waits for it, False for a standby.
        offsets: changelog partition -> offset where the restore continues.
        ends: changelog partition -> where to restore to; for a standby, the last known end.
        first_lag: offsets to restore at the beginning.
    """

    task: TaskId
    restoring: bool
    began_at: float
    offsets: Mapping[TopicPartition, int] | None
    ends: Mapping[TopicPartition, int]
    first_lag: int | None
    changelogs: Mapping[str, TopicPartition] = field(default_factory=dict)
    started_at: Mapping[TopicPartition, int] | None = None
    disk_bytes: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets still to restore; None if unknown."""
        return None if self.offsets is None else behind(self.offsets, self.ends)

    @property
    def share(self) -> float | None:
        """The restored share of all offsets, from 0 to 1; None if unknown."""
        lag = self.lag
        if lag is None or self.first_lag is None:
            return None
        return 1.0 if self.first_lag <= 0 else min(1.0, max(0.0, 1 - lag / self.first_lag))


def describe_slice(copies: Sequence[RestoreProgress]) -> str:
    """Return the description of a restore slice: ``restoring 3 tasks, 1_0..1_2: 40 %``."""
    names = name_tasks([copy.task for copy in copies])
    known = [copy for copy in copies if copy.first_lag is not None]
    left = sum(copy.lag or 0 for copy in known)
    if not any(copy.restoring for copy in copies):
        return f"standby of {names}: {left:,} offsets behind" if known else f"standby of {names}"
    if len(known) < len(copies):
        return f"restoring {names}"
    whole = sum(copy.first_lag or 0 for copy in known)
    done = 1.0 if whole <= 0 else max(0.0, 1 - left / whole)
    return f"restoring {names}: {int(done * 100)} %"
