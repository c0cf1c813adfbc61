"""The assignment while an assignor cannot decide: see KIP-924, ``TaskAssignmentException``.

The group keeps its assignment and rebalances again at once. The fallback assignor places tasks that nobody runs,
because they were moving or their owner has died.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_assignment import AssignedTask, KafkaStreamsAssignment
from sparkrelay.assignment.sticky import FallbackPriorTaskAssignor
from sparkrelay.assignment.task_assignor import TaskAssignment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.types import ProcessId, TaskId

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


def kept_assignment(
    state: ApplicationState, copied: Mapping[ProcessId, Mapping[TaskId, int]], leader: ProcessId
) -> TaskAssignment:
    """Return the previous assignment, with a follow-up rebalance at once by the leader's process.

    A process reports standbys and unused copies on its disk alike, so the ``num.standby.replicas`` copies of each task
    with the most data stay standbys. ``copied`` has their offset sums by process and task.
    """
    states = state.kafka_streams_states(False)
    owners: dict[TaskId, ProcessId] = {}
    for process in sorted(states):
        for task in states[process].previous_active_tasks:
            # Two members may both report that they run a task.
            owners.setdefault(task, process)
    if any(info.id not in owners for info in state.all_tasks):
        for entry in FallbackPriorTaskAssignor().assign(state).assignment:
            for task in entry.active_tasks:
                owners.setdefault(task, entry.process_id)
    placed: dict[ProcessId, list[AssignedTask]] = {process: [] for process in states}
    for info in sorted(state.all_tasks, key=lambda info: info.id):
        owner = owners.get(info.id)
        if owner is not None:
            placed[owner].append(AssignedTask(info.id, AssignedTask.Type.ACTIVE))
        if not info.is_logged:
            continue
        copies = [p for p in sorted(states) if p != owner and info.id in states[p].previous_standby_tasks]
        copies.sort(key=lambda process: -copied.get(process, {}).get(info.id, 0))
        for process in copies[: state.assignment_configs.num_standby_replicas]:
            placed[process].append(AssignedTask(info.id, AssignedTask.Type.STANDBY))
    entries = [KafkaStreamsAssignment.of(process, tasks) for process, tasks in placed.items()]
    return TaskAssignment(
        entry.with_followup_rebalance(_EPOCH) if entry.process_id == leader else entry for entry in entries
    )
