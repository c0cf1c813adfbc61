"""The assignment of one process. See KIP-924, "KafkaStreamsAssignment"."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from sparkrelay.types import ProcessId, TaskId


class _Type(enum.Enum):
    """The role of a task on a process."""

    ACTIVE = "active"
    STANDBY = "standby"

    # Members are singletons, and the enum's own hash is a slow Python call.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"AssignedTask.Type.{self.name}"


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """A task in its role: running (ACTIVE), or following its changelog (STANDBY, also warm-ups)."""

    id: TaskId
    type: _Type

    Type = _Type

    def __str__(self) -> str:
        return f"{self.type.name} {self.id}"


@dataclass(frozen=True, slots=True)
class KafkaStreamsAssignment:
    """The tasks of one process. Made by :meth:`of`; every method returns a new value.

    Attributes:
        process_id: The process.
        tasks: Its tasks by id, in task order.
        followup_rebalance_deadline: When the process requests a rebalance (timezone-aware), or None.
    """

    process_id: ProcessId
    tasks: Mapping[TaskId, AssignedTask] = field(hash=False)
    followup_rebalance_deadline: dt.datetime | None = None

    @classmethod
    def of(cls, process_id: ProcessId, tasks: Iterable[AssignedTask]) -> Self:
        """Assign ``tasks`` to ``process_id``.

        Raises:
            ValueError: a task appears in two roles.
        """
        by_id: dict[TaskId, AssignedTask] = {}
        for task in tasks:
            if by_id.setdefault(task.id, task) != task:
                raise ValueError(
                    f"process {process_id} is given task {task.id} twice, as {by_id[task.id]} and as {task}; "
                    "a process holds a task in one role"
                )
        return cls(process_id, MappingProxyType({task: by_id[task] for task in sorted(by_id)}))

    @property
    def assignment(self) -> frozenset[AssignedTask]:
        """All tasks in their roles."""
        return frozenset(self.tasks.values())

    @property
    def active_tasks(self) -> tuple[TaskId, ...]:
        """Active tasks, in order."""
        return tuple(task.id for task in self.tasks.values() if task.type is _Type.ACTIVE)

    @property
    def standby_tasks(self) -> tuple[TaskId, ...]:
        """Standby tasks, in order."""
        return tuple(task.id for task in self.tasks.values() if task.type is _Type.STANDBY)

    def with_followup_rebalance(self, deadline: dt.datetime) -> Self:
        """Return this assignment with a rebalance that the process requests at ``deadline``, unless one comes first.

        Raises:
            ValueError: the deadline has no time zone.
        """
        if deadline.tzinfo is None:
            raise ValueError(f"deadline {deadline} has no time zone; use datetime.now(timezone.utc) + timedelta(...)")
        return replace(self, followup_rebalance_deadline=deadline)

    def assign_task(self, task: AssignedTask) -> Self:
        """Return this assignment with ``task``, replacing its other role."""
        tasks = {**self.tasks, task.id: task}
        return replace(self, tasks=MappingProxyType({key: tasks[key] for key in sorted(tasks)}))

    def remove_task(self, task: AssignedTask) -> Self:
        """Return this assignment without the task, in whatever role."""
        return replace(self, tasks=MappingProxyType({k: v for k, v in self.tasks.items() if k != task.id}))


def in_roles(process_id: ProcessId, active: Iterable[TaskId], standby: Iterable[TaskId]) -> KafkaStreamsAssignment:
    """Return the assignment of these active and standby tasks."""
    roles = ((_Type.ACTIVE, active), (_Type.STANDBY, standby))
    return KafkaStreamsAssignment.of(process_id, [AssignedTask(task, role) for role, tasks in roles for task in tasks])
