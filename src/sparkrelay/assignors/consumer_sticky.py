"""The Kafka consumer's StickyAssignor, with tasks for partitions. See KIP-441, "StickyAssignor", and KIP-54.

Balance first, then stickiness: every consumer gets an even share, rounded down or up, and keeps as many of its tasks as
that allows. The cost of a move is ignored. Since all members can run all tasks, only the StickyAssignor's algorithm for
equal subscriptions is needed.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from sparkrelay.assignment import (
    AssignedTask,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    task_assignment_utils,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.assignment import ApplicationState, KafkaStreamsState, ProcessId, TaskId

__all__ = ["ConsumerStickyTaskAssignor"]


class ConsumerStickyTaskAssignor(TaskAssignor):
    """Even shares first, then as many tasks as possible where they were; state is ignored.

    A stream thread counts as a consumer, so a process gets the shares of all its threads. Consumers have no standbys;
    they come from ``task_assignment_utils.default_standby_task_assignment``.
    """

    settings = frozenset()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task."""
        states = application_state.kafka_streams_states(compute_task_lags=False)
        tasks = [info.id for info in application_state.all_tasks]
        active = _assign(states, tasks) if states else {}
        placed = {
            process: KafkaStreamsAssignment.of(process, [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in held])
            for process, held in active.items()
        }
        with_standbys = task_assignment_utils.default_standby_task_assignment(application_state, placed)
        return TaskAssignment(with_standbys.values())


def _assign(states: Mapping[ProcessId, KafkaStreamsState], tasks: list[TaskId]) -> dict[ProcessId, list[TaskId]]:
    consumers = {process: states[process].num_processing_threads for process in sorted(states)}
    share, larger_shares = divmod(len(tasks), sum(consumers.values()))
    owned = _owned(states, tasks)
    active: dict[ProcessId, list[TaskId]] = {}
    # Consumers of each process with one task more than the share; at most `larger_shares` in total.
    extras: dict[ProcessId, int] = {}
    for process, count in consumers.items():
        surplus = max(0, len(owned[process]) - count * share)
        extras[process] = min(surplus, count, larger_shares - sum(extras.values()))
        active[process] = owned[process][: count * share + extras[process]]

    kept = {task for held in active.values() for task in held}
    rest = deque(task for task in tasks if task not in kept)
    # Round robin, first up to the share, then the larger shares.
    below = deque(process for process, count in consumers.items() if len(active[process]) < count * share)
    while below:
        process = below.popleft()
        active[process].append(rest.popleft())
        if len(active[process]) < consumers[process] * share:
            below.append(process)
    level = deque(process for process, count in consumers.items() if extras[process] < count)
    while rest:
        process = level.popleft()
        active[process].append(rest.popleft())
        extras[process] += 1
        if extras[process] < consumers[process]:
            level.append(process)
    return active


def _owned(states: Mapping[ProcessId, KafkaStreamsState], tasks: list[TaskId]) -> dict[ProcessId, list[TaskId]]:
    """Return the previous tasks of each process; a task that two claim counts for neither, as in the original."""
    claims = Counter(task for state in states.values() for task in state.previous_active_tasks)
    valid = {task for task in tasks if claims[task] == 1}
    return {process: [task for task in states[process].previous_active_tasks if task in valid] for process in states}
