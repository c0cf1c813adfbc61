"""Is an assignor's answer usable? See KIP-924, "Assignment Validation"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_assignment import AssignedTask
from sparkrelay.assignment.task_assignor import AssignmentError

if TYPE_CHECKING:
    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.task_assignor import TaskAssignment
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["validate"]


def validate(application_state: ApplicationState, task_assignment: TaskAssignment) -> AssignmentError:
    """Return the first thing that is wrong with an answer, or NONE.

    Kafka's order of checks: unknown tasks and doubled actives in the order given, standbys of tasks without stores,
    missing processes, unknown processes. Not errors, as in Kafka: tasks left out, or too many standbys.

    We check one thing more than Java, which KIP-924 promises: two entries for one process that together hold a task
    in both roles. (Within one entry it cannot happen: ``KafkaStreamsAssignment.of`` refuses.)
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
