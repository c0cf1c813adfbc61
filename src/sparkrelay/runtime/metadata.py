"""What an instance tells its operator about its threads and tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.runtime.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.runtime.task import Task

__all__ = ["TaskMetadata", "ThreadMetadata", "describe_thread"]


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """One task of this instance.

    Attributes:
        task_id: such as ``0_3``.
        state: created, restoring, running or standby.
        positions: input partition -> next offset.
        lag: changelog offsets still to replay; None while that is not known.
    """

    task_id: str
    state: str
    positions: Mapping[str, int]
    lag: int | None


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """One stream thread of this instance."""

    name: str
    process_id: str
    active_tasks: tuple[TaskMetadata, ...]
    standby_tasks: tuple[TaskMetadata, ...]


def describe_thread(name: str, process_id: str, tasks: Iterable[Task]) -> ThreadMetadata:
    """Describe a thread and its tasks as they are now."""
    active: list[TaskMetadata] = []
    standby: list[TaskMetadata] = []
    for task in tasks:
        positions = {str(partition): offset for partition, offset in task.positions.items()}
        described = TaskMetadata(str(task.id), task.state.value, positions, task.known_lag)
        (standby if task.state is TaskState.STANDBY else active).append(described)
    return ThreadMetadata(name, process_id, tuple(active), tuple(standby))
