"""One task's restore: what its changelogs have and its copy lacks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commands import RestoreCommand, RestoreSlice, StoreRestore
from sparkrelay.runtime.tasks.ranges import share_out
from sparkrelay.runtime.tasks.restore_progress import RestoreProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.types import TaskId, TopicPartition

Ends = dict["TopicPartition", int]


@dataclass(slots=True)
class RestoreWork:
    """One task to restore.

    Attributes:
        source_changelogs: those that are inputs of the task.
        cut: stores whose changelogs are cut.
        ends: where to restore an active task to; None for a standby, which follows the changelog forever.
        changelog_next: changelog partition -> offset where the restore continues; None before the take-over.
        started_at: changelog partition -> offset where the restore began; None before the take-over.
        taken_over: True once the stores are taken over for ``task_epoch``.
        began_at: when the work was assigned, epoch seconds.
        first_lag: offsets to restore at the take-over.
        wiped: how often the copy was unusable since it was last complete.
        turn: number of the last slice that had time for its records; 0 if none.
        complete_since: when the copy first was complete, monotonic seconds; None before.
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
        """Return where to restore to; ``listed`` are the current ends of the changelogs."""
        return listed if self.ends is None else self.ends

    def progress(self, listed: Ends) -> RestoreProgress:
        """Return a snapshot of the progress."""
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
        """Return the stores with more in their changelogs, up to these ends; the largest lag first."""
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
        """Return the furthest allowed offsets of tables that reuse their topic."""
        ends = self.ends or {}
        return {store: ends.get(p) for store, p in self.changelogs.items() if p in self.source_changelogs}

    def command(self, stores: tuple[StoreRestore, ...], ids: Mapping[str, str]) -> RestoreCommand:
        """Return the command that restores these stores, after taking them over; ``ids`` are those of topics."""
        command = RestoreCommand(
            task=self.task, directory=self.directory, stores=stores, task_epoch=self.task_epoch or 0, wipe=self.wipe
        )
        if self.taken_over:
            return command
        return replace(
            command,
            take_over=True,
            topic_ids={p.topic: ids[p.topic] for p in self.changelogs.values() if p.topic in ids},
            changelogs=self.changelogs,
            source_ends=self.source_ends(),
            committed=self.committed,
            width=self.width,
        )

    def require_changelogs(self) -> None:
        """Raise StreamsException if a changelog ends before the restored offset: nobody could restore from it."""
        assert self.ends is not None, f"task {self.task} is a standby"
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
    """Return one job's commands, spread over its Spark partitions by weight (default: equal), in their order.

    ``seconds`` is the time limit for the records of a partition's tasks.
    """
    by_task = {command.task: command for command in commands}
    shares = share_out({task: 1 if weights is None else weights[task] for task in by_task}, spark_partitions)
    rank = {task: number for number, task in enumerate(by_task)}
    return RestoreSlice(
        tuple(tuple(by_task[task] for task in sorted(share, key=rank.__getitem__)) for share in shares), seconds
    )
