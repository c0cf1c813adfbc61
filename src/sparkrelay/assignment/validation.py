"""Calls of assignors with validation of their answers. See KIP-924, "Assignment Validation".

Shared by the leader, ``plan``, ``simulate`` and ``testing``, so that all reject the same answers. Types are checked,
too: a user's class may return anything, which would fail later, while the leader encodes the members' answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Set as AbstractSet
from reprlib import repr as short
from typing import TYPE_CHECKING

from sparkrelay.assignment.agreement import assignor_name
from sparkrelay.assignment.kafka_streams_assignment import AssignedTask, KafkaStreamsAssignment
from sparkrelay.assignment.task_assignor import AssignmentError, TaskAssignment
from sparkrelay.errors import StreamsException
from sparkrelay.types import ProcessId, TaskId

if TYPE_CHECKING:
    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.task_assignor import TaskAssignor


def ask(assignor: TaskAssignor, application_state: ApplicationState) -> tuple[TaskAssignment, AssignmentError]:
    """Call an assignor; return its answer and the first error in it.

    Raises:
        TypeError, ValueError: the answer has wrong types, as in :func:`checked_answer`.
        Exception: whatever the assignor raises; a TaskAssignmentException keeps the previous assignment.
    """
    answer = checked_answer(assignor.assign(application_state))
    return answer, validate(application_state, answer)


def ask_for_valid(assignor: TaskAssignor, application_state: ApplicationState) -> TaskAssignment:
    """Call an assignor; return its valid answer.

    Raises:
        StreamsException: the answer is invalid.
        Exception: as :func:`ask`.
    """
    answer, error = ask(assignor, application_state)
    if error is not AssignmentError.NONE:
        raise invalid_assignment(assignor, error)
    return answer


def invalid_assignment(assignor: TaskAssignor, error: AssignmentError) -> StreamsException:
    """Return the exception for an invalid answer."""
    return StreamsException(f"task assignor {assignor_name(type(assignor))} gave an invalid assignment: {error.value}")


def validate(application_state: ApplicationState, task_assignment: TaskAssignment) -> AssignmentError:
    """Return the first error in an answer, or NONE.

    The order is Kafka's: unknown tasks and duplicate actives in the order given, standbys of tasks without stores,
    missing processes, unknown processes. Missing tasks and surplus standbys are not errors, as in Kafka. Unlike Java,
    we check, as KIP-924 promises, for two entries of one process that hold a task in both roles.
    """
    infos = {info.id: info for info in application_state.all_tasks}
    runners: dict[TaskId, ProcessId] = {}
    followers: set[tuple[ProcessId, TaskId]] = set()
    invalid_standby = False
    for entry in task_assignment.assignment:
        for task in entry.tasks.values():
            if task.id not in infos:
                return AssignmentError.UNKNOWN_TASK_ID
            if task.type is AssignedTask.Type.ACTIVE:
                if task.id in runners:
                    return AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
                runners[task.id] = entry.process_id
            else:
                followers.add((entry.process_id, task.id))
                invalid_standby |= not infos[task.id].is_stateful
    if invalid_standby:
        return AssignmentError.INVALID_STANDBY_TASK
    present = {entry.process_id for entry in task_assignment.assignment}
    expected = application_state.clients.keys()
    if expected - present:
        return AssignmentError.MISSING_PROCESS_ID
    if present - expected:
        return AssignmentError.UNKNOWN_PROCESS_ID
    if any((process, task) in followers for task, process in runners.items()):
        return AssignmentError.ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS
    return AssignmentError.NONE


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
