"""Apache Samza's host affinity, with processes for hosts and stream threads for containers. See KIP-441, "Samza".

Samza's grouper divides tasks into containers, round robin by name at first. The groups stay until the number of
containers changes; then oversized groups give tasks from their end, which fill the undersized ones one after the other.
Its allocator requests for each container the host where it ran last and has its state (the *locality* mapping), and
takes any other host if that is unavailable.
"""

from __future__ import annotations

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

__all__ = ["SamzaHostAffinityTaskAssignor"]


class SamzaHostAffinityTaskAssignor(TaskAssignor):
    """Tasks stay with their container, and containers with the host that has their state.

    A process has one container for each of its threads, and groups differ by one task at most. Containers have no names
    in this API: the groups of a process are the tasks it ran, and a process with more than even groups keeps the larger
    ones. For tasks that nobody runs, standby tasks count as locality: a restarted host reports its state as such, and
    Samza fails over to standby containers first. Samza waits for the preferred host; an assignor cannot.

    Standbys come from ``task_assignment_utils.default_standby_task_assignment``, which like Samza never puts them on
    the host of the active task.
    """

    settings = frozenset()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task."""
        states = application_state.kafka_streams_states(compute_task_lags=False)
        groups = _Groups(states, [info.id for info in application_state.all_tasks])
        groups.place()
        placed = {
            process: KafkaStreamsAssignment.of(process, [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in held])
            for process, held in groups.held.items()
        }
        with_standbys = task_assignment_utils.default_standby_task_assignment(application_state, placed)
        return TaskAssignment(with_standbys.values())


class _Groups:
    """The tasks of each host; ``held`` are those that it runs."""

    def __init__(self, states: Mapping[ProcessId, KafkaStreamsState], tasks: list[TaskId]) -> None:
        self._containers = {process: states[process].num_processing_threads for process in sorted(states)}
        homeless = set(tasks)
        self.held: dict[ProcessId, list[TaskId]] = {}
        for process in self._containers:
            self.held[process] = [task for task in states[process].previous_active_tasks if task in homeless]
            homeless.difference_update(self.held[process])
        self._homeless = sorted(homeless)
        #: Hosts with state of tasks that nobody runs.
        self._homes: dict[TaskId, list[ProcessId]] = {task: [] for task in self._homeless}
        for process in self._containers:
            for task in states[process].previous_standby_tasks:
                if task in homeless:
                    self._homes[task].append(process)
        self._sizes = self._even_sizes(len(tasks))

    def place(self) -> None:
        if not self._containers:
            return
        if not any(self.held.values()) and not any(self._homes.values()):
            self._deal()
            return
        self._take_surplus()
        self._send_home()
        self._fill()

    def _even_sizes(self, tasks: int) -> dict[ProcessId, int]:
        """Return the group sizes of each host, with the larger groups where they are now."""
        even, larger = divmod(tasks, sum(self._containers.values()) or 1)
        first_homes = [homes[0] for homes in self._homes.values() if homes]
        sizes = {process: containers * even for process, containers in self._containers.items()}
        for wishes in (
            {process: len(held) for process, held in self.held.items()},
            {process: len(held) + first_homes.count(process) for process, held in self.held.items()},
            dict.fromkeys(self.held, tasks),
        ):
            for process, containers in self._containers.items():
                most = min(wishes[process], containers * (even + 1))
                more = min(larger, max(0, most - sizes[process]))
                sizes[process] += more
                larger -= more
        return sizes

    def _deal(self) -> None:
        """Deal tasks by name, round robin over the containers."""
        hosts = [process for process, containers in self._containers.items() for _ in range(containers)]
        for index, task in enumerate(self._homeless):
            self.held[hosts[index % len(hosts)]].append(task)

    def _take_surplus(self) -> None:
        """Take tasks from the end of oversized groups."""
        for process, size in self._sizes.items():
            surplus = self.held[process][size:]
            del self.held[process][size:]
            self._homes |= {task: [] for task in surplus}

    def _send_home(self) -> None:
        """Place tasks where their state is, if there is room."""
        for task, homes in self._homes.items():
            home = next((process for process in homes if len(self.held[process]) < self._sizes[process]), None)
            if home is not None:
                self.held[home].append(task)
        placed = {task for held in self.held.values() for task in held}
        self._homeless = sorted(self._homes.keys() - placed)

    def _fill(self) -> None:
        """Fill the groups of one host after the other with the rest."""
        start = 0
        for process, size in self._sizes.items():
            room = size - len(self.held[process])
            self.held[process] += self._homeless[start : start + room]
            start += room
