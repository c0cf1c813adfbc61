"""One task's restore: what its changelogs have that its copy has not."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commands import RestoreCommand, RestoreSlice, StoreRestore
from sparkrelay.runtime.tasks.ranges import share_out
from sparkrelay.runtime.tasks.restore_progress import RestoreProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["Ends", "RestoreWork", "slice_of"]

Ends = dict["TopicPartition", int]


@dataclass(slots=True)
class RestoreWork:
    """One task to restore.

    Attributes:
        changelogs: store -> changelog partition.
        source_changelogs: those of them that are inputs of the task.
        cut: stores whose changelogs are cut at what is over.
        task_epoch: of a task that is being restored; None for a standby.
        ends: where an active task must get to; None for a standby, which follows the changelog for ever.
        changelog_next: changelog partition -> where the restore goes on; None until the store was taken over.
        started_at: changelog partition -> where the restore began; None until the store was taken over.
        committed: of a task whose stores have no changelog: the group's offset of each partition that they are made of,
            None where there is none. Else None.
        width: of the same, how many tasks its subtopology has. Else None.
        taken_over: True once the store was taken over for ``task_epoch``.
        began_at: when the work was given, in seconds since the epoch.
        first_lag: offsets that were to restore when the store was taken over.
        wiped: how often the copy was found unusable since it was last complete.
        turn: number of the slice in which it last had time for records; 0 if in none.
        disk_bytes: what the copy takes on the disk, as of the last slice.
        complete_since: when the copy first had all that there was, by the monotonic clock; None until then.
    """

    task: TaskId
    directory: str
    changelogs: Mapping[str, TopicPartition]
    task_epoch: int | None = None
    source_changelogs: frozenset[TopicPartition] = frozenset()
    cut: frozenset[str] = frozenset()
    ends: Ends | None = None
    committed: Mapping[TopicPartition, int | None] | None = None
    width: int | None = None
    wipe: bool = False
    taken_over: bool = False
    changelog_next: Ends | None = None
    started_at: Ends | None = None
    began_at: float = field(default_factory=time.time)
    first_lag: int | None = None
    wiped: int = 0
    turn: int = 0
    disk_bytes: int | None = None
    complete_since: float | None = None

    def goal(self, listed: Ends) -> Ends:
        """Return where the task is to get to; ``listed`` are the changelogs' ends as of now."""
        return listed if self.ends is None else self.ends

    def progress(self, listed: Ends) -> RestoreProgress:
        """Return where the work stands, as a copy."""
        goal = self.goal(listed)
        return RestoreProgress(
            task=self.task,
            restoring=self.ends is not None,
            began_at=self.began_at,
            offsets=None if self.changelog_next is None else dict(self.changelog_next),
            ends={partition: goal[partition] for partition in self.changelogs.values() if partition in goal},
            first_lag=self.first_lag,
            changelogs=self.changelogs,
            started_at=self.started_at,
            disk_bytes=self.disk_bytes,
        )

    def missing(self, ends: Ends) -> tuple[StoreRestore, ...]:
        """Return the stores whose changelogs have more, up to these ends, than was restored; who lacks most first."""
        known = self.changelog_next or {}
        lacking = {
            store: ends[partition] - known.get(partition, 0)
            for store, partition in self.changelogs.items()
            if ends.get(partition, 0) > known.get(partition, 0)
        }
        # A slice may have no time for the last one.
        ordered = sorted(lacking, key=lambda store: (-lacking[store], store))
        return tuple(
            StoreRestore(store, self.changelogs[store], ends[self.changelogs[store]], store in self.cut)
            for store in ordered
        )

    def source_ends(self) -> dict[str, int | None]:
        """Return where tables that reuse their topic may stand at most, while the stores are to be taken over."""
        if self.taken_over:
            return {}
        ends = self.ends or {}
        return {store: ends.get(p) for store, p in self.changelogs.items() if p in self.source_changelogs}

    def ids_to_check(self, ids: Mapping[str, str]) -> dict[str, str]:
        """Return the ids of the changelog topics, while the stores are to be taken over."""
        return {} if self.taken_over else {p.topic: ids[p.topic] for p in self.changelogs.values() if p.topic in ids}

    def require_changelogs(self) -> None:
        """Refuse a changelog of an active task that ends before what was restored: nobody could restore from it.

        Raises:
            StreamsException: there is such a one.
        """
        assert self.ends is not None, f"task {self.task} stands by: it is nowhere to get to"
        for store, partition in self.changelogs.items():
            known, end = (self.changelog_next or {}).get(partition, 0), self.ends[partition]
            if known > end:
                raise StreamsException(
                    f"task {self.task}: store {store!r} has {known} offsets of {partition}, but the changelog ends at "
                    f"{end}: the topic was deleted and created again, or lost records. No other instance could take "
                    "this task over. Start the application over: sparkrelay reset"
                )


def slice_of(
    commands: Iterable[RestoreCommand],
    spark_partitions: int,
    weights: Mapping[TaskId, int] | None = None,
    *,
    seconds: float = 0.0,
) -> RestoreSlice:
    """Return one job's commands, shared out over its Spark partitions by weight, each one's as they came.

    Without weights all weigh the same. ``seconds`` is how long the records of a partition's tasks may take.
    """
    by_task = {command.task: command for command in commands}
    shares = share_out({task: 1 if weights is None else weights[task] for task in by_task}, spark_partitions)
    rank = {task: number for number, task in enumerate(by_task)}
    return RestoreSlice(
        tuple(tuple(by_task[task] for task in sorted(share, key=rank.__getitem__)) for share in shares), seconds
    )
