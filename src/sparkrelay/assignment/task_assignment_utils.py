"""Building blocks of assignors; each returns a new mapping. See KIP-924, "TaskAssignmentUtils"."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_assignment import in_roles
from sparkrelay.assignment.placement.java_order import task_hash_order
from sparkrelay.assignment.placement.rack_awareness import RackAwareness, configured_costs, racks_known
from sparkrelay.assignment.placement.tag_standbys import place_standbys
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.assignment.validation import validate as validate_task_assignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.kafka_streams_assignment import KafkaStreamsAssignment
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
    """Return the previous assignment, including tasks that no longer exist."""
    return MappingProxyType(
        {
            process: in_roles(process, state.previous_active_tasks, state.previous_standby_tasks)
            for process, state in application_state.kafka_streams_states(False).items()
        }
    )


def default_standby_task_assignment(
    application_state: ApplicationState, assignments: Mapping[ProcessId, KafkaStreamsAssignment]
) -> Mapping[ProcessId, KafkaStreamsAssignment]:
    """Return ``assignments`` with ``num.standby.replicas`` standbys of each logged task.

    Each copy goes to the least loaded process without the task, or, with ``rack.aware.assignment.tags``, to one with
    other values of these tags. Copies without such a process are left out.
    """
    states = application_state.kafka_streams_states(False)
    infos = {info.id: info for info in application_state.all_tasks}
    placement = _placement(states, infos, assignments)
    names = task_hash_order(task for task in placement.tasks if infos[task].is_logged)
    logged = [placement.position[task] for task in names]
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

    Nothing changes unless a rack-aware strategy and *both* costs are configured (as in Java, arguments only replace
    configured costs), and every process and partition concerned has a rack. Each process keeps its number of these
    tasks. Call it before placing standbys: a process that gets to run its standby task loses the standby without
    replacement.

    Args:
        application_state: The application.
        assignments: The current assignment.
        tasks: The tasks to exchange; each must be active on one process.
        traffic_cost: Replaces the configured cost of a partition read across racks.
        non_overlap_cost: Replaces the configured cost of a moved task.

    Raises:
        ValueError: a task is active nowhere, or on several processes.
    """
    wanted = sorted(set(tasks))
    states = application_state.kafka_streams_states(False)
    infos = {info.id: info for info in application_state.all_tasks}
    costs = configured_costs(application_state.assignment_configs, traffic_cost, non_overlap_cost)
    looked_at = [infos[task] for task in wanted if task in infos]
    if costs is None or not wanted or not racks_known(states, looked_at, changelogs=True):
        return MappingProxyType(dict(assignments))
    placement = _placement(states, infos, assignments)
    for task in wanted:
        runners = sum(placement.position.get(task) in held for held in placement.active)
        if runners != 1:
            raise ValueError(
                f"Task {task} {'assigned to multiple clients' if runners else 'not assigned to any client'}"
            )
    strategy = application_state.assignment_configs.rack_aware_assignment_strategy
    racks = RackAwareness(placement, states, infos, strategy, public=True)
    racks.optimize_actives([placement.position[task] for task in wanted], costs)
    for client in placement.clients:
        # As in Java, the active role replaces the standby.
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
    costs = configured_costs(application_state.assignment_configs, traffic_cost, non_overlap_cost)
    followed = {task for entry in assignments.values() for task in entry.standby_tasks if task in infos}
    if costs is None or not racks_known(states, (infos[task] for task in followed), changelogs=True):
        return MappingProxyType(dict(assignments))
    placement = _placement(states, infos, assignments)
    strategy = application_state.assignment_configs.rack_aware_assignment_strategy
    racks = RackAwareness(placement, states, infos, strategy, public=True)
    racks.optimize_standbys(costs, strategy=strategy)
    return _as_before(placement, assignments)


def _placement(
    states: Mapping[ProcessId, KafkaStreamsState],
    infos: Mapping[TaskId, TaskInfo],
    assignments: Mapping[ProcessId, KafkaStreamsAssignment],
) -> Placement:
    placement = Placement(states, infos)
    for client, process in enumerate(placement.processes):
        if process in assignments:
            placement.give(client, assignments[process].active_tasks, assignments[process].standby_tasks)
    return placement


def _as_before(
    placement: Placement, assignments: Mapping[ProcessId, KafkaStreamsAssignment]
) -> Mapping[ProcessId, KafkaStreamsAssignment]:
    """Return a placement with the deadlines and vanished tasks of ``assignments``."""
    result = {}
    for placed in placement.to_assignments():
        if (before := assignments.get(placed.process_id)) is not None:
            # Vanished tasks stay, as in identity_assignment: an answer with them is UNKNOWN_TASK_ID.
            for task in before.tasks.keys() - placement.position.keys():
                placed = placed.assign_task(before.tasks[task])  # noqa: PLW2901
            if before.followup_rebalance_deadline is not None:
                placed = placed.with_followup_rebalance(before.followup_rebalance_deadline)  # noqa: PLW2901
        result[placed.process_id] = placed
    return MappingProxyType(result)
