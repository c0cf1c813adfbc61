"""A task as its driver sees it: what it reads, who owns it, and where it stands. No I/O here."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.client.transactions import ProducerIdentity
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["Task", "TaskState", "behind", "name_tasks", "plan_ranges", "require_inputs", "share_out"]


class TaskState(enum.Enum):
    """Where a task stands on its stream thread.

    CREATED -> (transaction opened, ends listed) RESTORING -> RUNNING; STANDBY beside them. A task whose
    outcome is unknown, or whose store lost step, goes back to CREATED and is opened again.
    """

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    STANDBY = "standby"


@dataclass(slots=True)
class Task:
    """One task of a stream thread. That thread's, and the batch thread's while a micro-batch of it is under way.

    Attributes:
        inputs: input partitions, sorted.
        changelogs: store -> changelog partition.
        state_topics: input topics of which the state itself says how far it has seen.
        directory: state directory, or None for a stateless task.
        identity: the open transaction's producer, None unless RUNNING or RESTORING.
        task_epoch: number of this owner of the task; the store refuses batches of any other.
        positions: input partition -> next offset.
        batch: number of the last batch that was tried.
        committed: number of the last batch known as committed.
        changelog_next: changelog partition -> offset where a replay would go on. What others wrote never counts: a
            fenced owner that took its copy to have it would lose it.
        changelog_listed: the changelogs' ends when the batch under way was chosen.
        changelog_end: changelog partition -> where the restore must get to.
        skipped: input partition -> offset that the state has seen, where the records behind it are gone.
        unfinished: ranges of a batch that must run again exactly so, or None.
        tries: times the unfinished batch was tried, which says how long to wait before the next try.
        failures: times in a row that a batch failed by something of the task's own that does not pass of itself; kept
            while the task is opened again, ended by a commit.
        hindered: times in a row that the broker's silence kept it from being opened or served.
        wipe: True if the local copy cannot be trusted and is rebuilt.
        wiped_after: the batch that was the last committed one when the copy was last found unusable, or None.
    """

    id: TaskId
    inputs: tuple[TopicPartition, ...]
    changelogs: Mapping[str, TopicPartition]
    directory: str | None
    state_topics: frozenset[str] = frozenset()
    state: TaskState = TaskState.CREATED
    identity: ProducerIdentity | None = None
    task_epoch: int = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    batch: int = 0
    committed: int = 0
    changelog_next: dict[TopicPartition, int] = field(default_factory=dict)
    changelog_listed: dict[TopicPartition, int] = field(default_factory=dict)
    changelog_end: dict[TopicPartition, int] = field(default_factory=dict)
    skipped: dict[TopicPartition, int] = field(default_factory=dict)
    unfinished: dict[TopicPartition, tuple[int, int]] | None = None
    tries: int = 0
    failures: int = 0
    hindered: int = 0
    wipe: bool = False
    wiped_after: int | None = None

    @property
    def stateful(self) -> bool:
        """True if any leg of the task has a store with a changelog."""
        return bool(self.changelogs)

    @property
    def unlogged(self) -> bool:
        """True if the task has stores, none of which has a changelog."""
        return self.directory is not None and not self.changelogs

    @property
    def lag(self) -> int:
        """Changelog offsets still to replay, as far as the ends are known."""
        return behind(self.changelog_next, self.changelog_end)

    @property
    def offset_sum(self) -> int:
        """Changelog offsets replayed or written so far, as a subscription reports them."""
        return sum(self.changelog_next.get(partition, 0) for partition in self.changelogs.values())


def behind(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets lie between where something stands and the ends, as far as these are known."""
    return sum(max(0, end - offsets.get(partition, 0)) for partition, end in ends.items())


def require_inputs(
    positions: Mapping[TaskId, Mapping[TopicPartition, int]], ends: Mapping[TopicPartition, int]
) -> None:
    """Make sure that no input ends before the place where its task stands.

    Raises:
        StreamsException: one does. Going on would skip whatever comes first in the new log.
    """
    for id_, stands_at in positions.items():
        for partition, offset in stands_at.items():
            if ends.get(partition, offset) < offset:
                raise StreamsException(
                    f"task {id_} stands at offset {offset} of {partition}, but the log ends at {ends[partition]}: "
                    "the topic was deleted and created again, or lost records. Start over with sparkrelay reset, or, "
                    "for a pipeline without state, set the group's offsets to what is there"
                )


def plan_ranges(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Choose offsets ``[from, to)`` for one task, at most ``limit`` in all, fairly between its partitions.

    Each partition may take an equal share; what one leaves over goes to the others, smallest backlog first.
    """
    backlog = {p: (start, ends[p]) for p, start in positions.items() if ends.get(p, 0) > start}
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    left = limit
    for index, (partition, (start, end)) in enumerate(
        sorted(backlog.items(), key=lambda item: item[1][1] - item[1][0])
    ):
        share = max(1, left // (len(backlog) - index)) if left > 0 else 0
        if share == 0:
            break
        stop = min(end, start + share)
        ranges[partition] = (start, stop)
        left -= stop - start
    return ranges


def name_tasks(tasks: Iterable[TaskId]) -> str:
    """Return tasks as one short text: ``1_0``, or ``4 tasks, 1_0..1_3``."""
    ids = sorted(tasks)
    return str(ids[0]) if len(ids) == 1 else f"{len(ids)} tasks, {ids[0]}..{ids[-1]}"


def share_out(weights: Mapping[TaskId, int], slots: int) -> list[list[TaskId]]:
    """Spread tasks over slots so that the heaviest slot is light: largest first, to the least loaded slot."""
    shares: list[list[TaskId]] = [[] for _ in range(slots)]
    loads = [0] * slots
    for task, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        slot = loads.index(min(loads))
        shares[slot].append(task)
        loads[slot] += weight
    return shares
