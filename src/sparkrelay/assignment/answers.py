"""Type checks of an assignor's answer; ``validation`` checks its meaning. See KIP-924, "TaskAssignor".

Java's compiler does this; here a user's class may return anything, which would fail later, while the leader encodes the
members' answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Set as AbstractSet
from reprlib import repr as short

from sparkrelay.assignment.kafka_streams_assignment import AssignedTask, KafkaStreamsAssignment
from sparkrelay.assignment.task_assignor import TaskAssignment
from sparkrelay.types import ProcessId, TaskId

__all__ = ["checked_answer", "message_of"]


def message_of(error: BaseException) -> str:
    """Return the type and text of an error, even if ``str()`` of it fails."""
    try:
        text = str(error)
    except Exception as unreadable:  # noqa: BLE001 - user code
        text = f"(str() failed: {type(unreadable).__name__})"
    return f"{type(error).__name__}: {text}"


def checked_answer(answer: object) -> TaskAssignment:
    """Return the answer.

    Raises:
        TypeError: it or a part of it has the wrong type.
        ValueError: a task is under another task's id, or a deadline has no time zone.
    """
    if not isinstance(answer, TaskAssignment):
        raise TypeError(f"assign() returned {short(answer)} instead of a TaskAssignment")
    if not isinstance(answer.assignment, tuple):
        raise TypeError(f"TaskAssignment.assignment is {short(answer.assignment)}; it must be a tuple")
    for entry in answer.assignment:
        _check_entry(entry)
    if not isinstance(answer.probing_rebalance, bool):
        raise TypeError(f"TaskAssignment.probing_rebalance is {short(answer.probing_rebalance)}; give True or False")
    warm_ups: object = answer.warm_ups
    if not (isinstance(warm_ups, Mapping) and all(_is_warm_up(*item) for item in warm_ups.items())):
        raise TypeError(f"TaskAssignment.warm_ups is {short(warm_ups)}; it must map ProcessIds to sets of TaskIds")
    return answer


def _is_warm_up(process: object, tasks: object) -> bool:
    if not (isinstance(process, ProcessId) and isinstance(tasks, AbstractSet)):
        return False
    return all(isinstance(task, TaskId) for task in tasks)


def _check_entry(entry: object) -> None:
    if not isinstance(entry, KafkaStreamsAssignment):
        raise TypeError(f"assign() returned an entry {short(entry)}; make entries with KafkaStreamsAssignment.of")
    if not isinstance(entry.process_id, ProcessId):
        raise TypeError(f"process_id of an entry is {short(entry.process_id)}; it must be a ProcessId")
    of = f"of process {entry.process_id}"
    if not isinstance(entry.tasks, Mapping):
        raise TypeError(f"tasks {of} are {short(entry.tasks)}; they must map TaskIds to AssignedTasks")
    for name, task in entry.tasks.items():
        _check_task(name, task, of)
    deadline: object = entry.followup_rebalance_deadline
    if deadline is None:
        return
    if not isinstance(deadline, dt.datetime):
        raise TypeError(f"followup_rebalance_deadline {of} is {short(deadline)}; it must be a datetime with time zone")
    if deadline.utcoffset() is None:
        raise ValueError(f"followup_rebalance_deadline {of} has no time zone: {deadline}")


def _check_task(name: object, task: object, of: str) -> None:
    if not isinstance(task, AssignedTask):
        raise TypeError(f"a task {of} is {short(task)}; it must be an AssignedTask")
    if not isinstance(task.id, TaskId):
        raise TypeError(f"a task {of} has the id {short(task.id)}; it must be a TaskId, see TaskId.parse")
    if not isinstance(task.type, AssignedTask.Type):
        raise TypeError(f"task {task.id} {of} has the type {short(task.type)}; it must be an AssignedTask.Type")
    if name != task.id:
        found = str(name) if isinstance(name, TaskId) else short(name)
        raise ValueError(f"task {task.id} {of} is found under {found}; use KafkaStreamsAssignment.of")
