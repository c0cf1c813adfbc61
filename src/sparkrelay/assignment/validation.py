"""Calls of assignors with validation of their answers. See KIP-924, "Assignment Validation".

Shared by the leader, ``plan``, ``simulate`` and ``testing``, so that all reject the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment.agreement import assignor_name
from sparkrelay.assignment.answers import checked_answer
from sparkrelay.assignment.kafka_streams_assignment import AssignedTask
from sparkrelay.assignment.task_assignor import AssignmentError
from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.task_assignor import TaskAssignment, TaskAssignor
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["ask", "ask_for_valid", "invalid_assignment", "validate"]


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
