"""Pieces of the built-in assignors for use in one's own. See KIP-924, "TaskAssignmentUtils".

Every function returns a new mapping and changes nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_assignment import AssignedTask, KafkaStreamsAssignment
from sparkrelay.assignment.placement import Placement
from sparkrelay.assignment.standbys import place_standbys
from sparkrelay.assignment.validation import validate as validate_task_assignment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.types import ProcessId

__all__ = ["default_standby_task_assignment", "identity_assignment", "validate_task_assignment"]


def identity_assignment(application_state: ApplicationState) -> Mapping[ProcessId, KafkaStreamsAssignment]:
    """Return the previous assignment as it was, vanished tasks included."""
    return MappingProxyType(
        {
            process: KafkaStreamsAssignment.of(
                process,
                [
                    *(AssignedTask(task, AssignedTask.Type.ACTIVE) for task in state.previous_active_tasks),
                    *(AssignedTask(task, AssignedTask.Type.STANDBY) for task in state.previous_standby_tasks),
                ],
            )
            for process, state in application_state.kafka_streams_states(False).items()
        }
    )


def default_standby_task_assignment(
    application_state: ApplicationState, assignments: Mapping[ProcessId, KafkaStreamsAssignment]
) -> Mapping[ProcessId, KafkaStreamsAssignment]:
    """Return ``assignments`` with ``num.standby.replicas`` standbys of each logged task.

    Each copy goes to the least loaded process that does not hold the task yet, or, with
    ``rack.aware.assignment.tags``, to one with other values of these tags; copies for which there is none are left out.
    """
    states = application_state.kafka_streams_states(False)
    infos = {info.id: info for info in application_state.all_tasks}
    placement = Placement(states, infos)
    position = {task: index for index, task in enumerate(placement.tasks)}
    for client, process in enumerate(placement.processes):
        if process in assignments:
            placement.active[client] |= {position[task] for task in assignments[process].active_tasks}
            placement.standby[client] |= {position[task] for task in assignments[process].standby_tasks}
    logged = [task for task, name in enumerate(placement.tasks) if infos[name].is_logged]
    place_standbys(placement, states, logged, application_state.assignment_configs)
    result = {}
    for placed in placement.to_assignments():
        deadline = (
            assignments[placed.process_id].followup_rebalance_deadline if placed.process_id in assignments else None
        )
        result[placed.process_id] = placed if deadline is None else placed.with_followup_rebalance(deadline)
    return MappingProxyType(result)
