"""Pieces of the built-in assignors for use in one's own. See KIP-924, "TaskAssignmentUtils".

Every function returns a new mapping and changes nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_assignment import AssignedTask, KafkaStreamsAssignment
from sparkrelay.assignment.placement.hash_order import task_hash_order
from sparkrelay.assignment.placement.rack_awareness import Costs, RackAwareness, racks_known
from sparkrelay.assignment.placement.tag_standbys import place_standbys
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.assignment.validation import validate as validate_task_assignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.assignment_configs import AssignmentConfigs
    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId, TaskId

__all__ = [
    "default_standby_task_assignment",
    "identity_assignment",
    "optimize_rack_aware_active_tasks",
    "optimize_rack_aware_standby_tasks",
    "validate_task_assignment",
]


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
    placement = _placement(states, infos, assignments)
    position = {task: index for index, task in enumerate(placement.tasks)}
    logged = [position[task] for task in task_hash_order(task for task in placement.tasks if infos[task].is_logged)]
    place_standbys(placement, states, logged, application_state.assignment_configs)
    return _as_before(placement, assignments)


def optimize_rack_aware_active_tasks(
    application_state: ApplicationState,
    assignments: Mapping[ProcessId, KafkaStreamsAssignment],
    tasks: Iterable[TaskId],
    *,
    traffic_cost: int | None = None,
    non_overlap_cost: int | None = None,
) -> Mapping[ProcessId, KafkaStreamsAssignment]:
    """Return ``assignments`` with active ``tasks`` exchanged so that fewer partitions are read across racks.

    Nothing changes unless a rack-aware strategy and *both* costs are configured (as in Java, costs given here only
    replace configured ones), every process has a rack and every partition looked at has one. Each process keeps its
    number of these tasks. Call it before placing standbys: a process that gets a task to run which it followed so far
    no longer follows it, and nobody else does instead.

    Args:
        application_state: The application.
        assignments: The present assignment.
        tasks: The tasks that may be exchanged; each must be active somewhere.
        traffic_cost: Cost of a partition read across racks, instead of the configured one.
        non_overlap_cost: Cost of a task that moves, instead of the configured one.

    Raises:
        ValueError: a task is active nowhere, or on several processes.
    """
    wanted = sorted(set(tasks))
    states = application_state.kafka_streams_states(False)
    infos = {info.id: info for info in application_state.all_tasks}
    costs = _costs(application_state.assignment_configs, traffic_cost, non_overlap_cost)
    looked_at = [infos[task] for task in wanted if task in infos]
    if costs is None or not wanted or not racks_known(states, looked_at, changelogs=True):
        return MappingProxyType(dict(assignments))
    placement = _placement(states, infos, assignments)
    position = {task: index for index, task in enumerate(placement.tasks)}
    for task in wanted:
        runners = sum(position.get(task) in held for held in placement.active)
        if runners != 1:
            raise ValueError(
                f"Task {task} {'assigned to multiple clients' if runners else 'not assigned to any client'}"
            )
    strategy = application_state.assignment_configs.rack_aware_assignment_strategy
    racks = RackAwareness(placement, states, infos, strategy, public=True)
    racks.optimize_actives([position[task] for task in wanted], **costs)
    for client in placement.clients:
        # A process holds a task in one role; as in Java, running it replaces following it.
        placement.standby[client] -= placement.active[client]
    return _as_before(placement, assignments)


def optimize_rack_aware_standby_tasks(
    application_state: ApplicationState,
    assignments: Mapping[ProcessId, KafkaStreamsAssignment],
    *,
    traffic_cost: int | None = None,
    non_overlap_cost: int | None = None,
) -> Mapping[ProcessId, KafkaStreamsAssignment]:
    """Return ``assignments`` with standbys exchanged so that fewer changelogs are read across racks.

    The conditions and costs are those of :func:`optimize_rack_aware_active_tasks`.
    """
    states = application_state.kafka_streams_states(False)
    infos = {info.id: info for info in application_state.all_tasks}
    costs = _costs(application_state.assignment_configs, traffic_cost, non_overlap_cost)
    followed = {task for entry in assignments.values() for task in entry.standby_tasks if task in infos}
    if costs is None or not racks_known(states, (infos[task] for task in followed), changelogs=True):
        return MappingProxyType(dict(assignments))
    placement = _placement(states, infos, assignments)
    strategy = application_state.assignment_configs.rack_aware_assignment_strategy
    racks = RackAwareness(placement, states, infos, strategy, public=True)
    racks.optimize_standbys(strategy=strategy, **costs)
    return _as_before(placement, assignments)


def _costs(configs: AssignmentConfigs, traffic: int | None, non_overlap: int | None) -> Costs | None:
    configured = configs.traffic_cost, configs.non_overlap_cost
    if configs.rack_aware_assignment_strategy == "none" or None in configured:
        return None
    return {
        "traffic_cost": traffic if traffic is not None else configs.traffic_cost or 0,
        "non_overlap_cost": non_overlap if non_overlap is not None else configs.non_overlap_cost or 0,
    }


def _placement(
    states: Mapping[ProcessId, KafkaStreamsState],
    infos: Mapping[TaskId, TaskInfo],
    assignments: Mapping[ProcessId, KafkaStreamsAssignment],
) -> Placement:
    placement = Placement(states, infos)
    position = {task: index for index, task in enumerate(placement.tasks)}
    for client, process in enumerate(placement.processes):
        if process in assignments:
            held = assignments[process]
            placement.active[client] |= {position[task] for task in held.active_tasks if task in position}
            placement.standby[client] |= {position[task] for task in held.standby_tasks if task in position}
    return placement


def _as_before(
    placement: Placement, assignments: Mapping[ProcessId, KafkaStreamsAssignment]
) -> Mapping[ProcessId, KafkaStreamsAssignment]:
    result = {}
    for placed in placement.to_assignments():
        before = assignments.get(placed.process_id)
        result[placed.process_id] = placed if before is None else _with_leftovers(placed, before, placement.tasks)
    return MappingProxyType(result)


def _with_leftovers(
    placed: KafkaStreamsAssignment, before: KafkaStreamsAssignment, known: Iterable[TaskId]
) -> KafkaStreamsAssignment:
    """Return ``placed`` with what a placement has no room for: the deadline, and tasks that no longer exist."""
    for task in before.tasks.keys() - set(known):
        # They stay, as identity_assignment gives them: who hands them on gets UNKNOWN_TASK_ID.
        placed = placed.assign_task(before.tasks[task])
    deadline = before.followup_rebalance_deadline
    return placed if deadline is None else placed.with_followup_rebalance(deadline)
