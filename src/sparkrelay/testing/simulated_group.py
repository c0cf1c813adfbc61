"""A simulated group that rebalances without a broker: each process reports the tasks that it was assigned.

For testing an assignor: add and remove processes, let copies catch up, and inspect the assignment. There is no clock;
the test decides how far copies get between two rebalances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkrelay.assignment import (
    ApplicationState,
    AssignmentConfigs,
    KafkaStreamsState,
    TaskAssignment,
    TaskInfo,
)
from sparkrelay.assignment.validation import ask_for_valid
from sparkrelay.errors import StreamsException
from sparkrelay.protocol import LATEST_OFFSET
from sparkrelay.types import ProcessId, TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.assignment import TaskAssignor


def task(name: str, *, logged: bool = True) -> TaskInfo:
    """Return a task by its name, such as ``0_3``, with a store and a changelog, or with neither."""
    subtopology, _, partition = name.partition("_")
    task_id = TaskId(int(subtopology), int(partition))
    at = task_id.partition
    return TaskInfo.of(
        task_id,
        inputs=[TopicPartition(f"in-{subtopology}", at)],
        changelogs=[TopicPartition(f"changelog-{subtopology}", at)] if logged else (),
        stores=[f"store-{subtopology}"] if logged else (),
    )


@dataclass(slots=True)
class SimulatedProcess:
    """A process: its threads, its tasks, and the changelog offset of each copy."""

    threads: int = 1
    active: set[TaskId] = field(default_factory=set)
    standby: set[TaskId] = field(default_factory=set)
    offsets: dict[TaskId, int] = field(default_factory=dict)


class SimulatedGroup:
    """Processes by number, and the tasks that they share.

    Args:
        tasks: all tasks of the application.
        configs: settings of the group.
        end: end offset of every changelog.

    Attributes:
        processes: the processes, by number.
        answer: the assignor's last answer, or None.
        history: the events so far, to print when a test fails.
    """

    def __init__(
        self, tasks: Iterable[TaskInfo], configs: AssignmentConfigs | None = None, *, end: int = 100_000
    ) -> None:
        self.tasks = {info.id: info for info in tasks}
        self.configs = configs or AssignmentConfigs()
        self.ends = {name: end for name, info in sorted(self.tasks.items()) if info.is_logged}
        self.processes: dict[int, SimulatedProcess] = {}
        self.answer: TaskAssignment | None = None
        self.history: list[str] = []

    def add(
        self,
        number: int,
        *,
        threads: int = 1,
        active: Iterable[str] = (),
        standby: Iterable[str] = (),
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        """Add a process with previous active and standby tasks; ``offsets`` are those of lagging copies."""
        added = SimulatedProcess(threads, {task(name).id for name in active}, {task(name).id for name in standby})
        added.offsets = {name: self.ends[name] for name in added.active | added.standby if name in self.ends}
        added.offsets |= {task(name).id: offset for name, offset in (offsets or {}).items()}
        self.processes[number] = added
        self.history.append(f"process {number} joins with {threads} threads")

    def remove(self, number: int) -> None:
        """Remove a process with its state."""
        del self.processes[number]
        self.history.append(f"process {number} is gone")

    def state(self) -> ApplicationState:
        """Return the state that the leader would pass to an assignor now."""
        return ApplicationState(
            all_tasks=frozenset(self.tasks.values()),
            clients={_process_id(number): self._state(number) for number in self.processes},
            assignment_configs=self.configs,
            compute_lags=lambda: {_process_id(number): self._lags(number) for number in self.processes},
        )

    def rebalance(self, assignor: TaskAssignor) -> TaskAssignment:
        """Apply the assignment of ``assignor``: new copies begin empty, unassigned ones are deleted.

        Raises:
            StreamsException: the assignment is not valid, or leaves tasks out.
            TypeError, ValueError: a value in the assignment has the wrong type.
        """
        state = self.state()
        answer = ask_for_valid(assignor, state)
        for entry in answer.assignment:
            process = self.processes[entry.process_id.id.int]
            process.active, process.standby = set(entry.active_tasks), set(entry.standby_tasks)
            process.offsets = {name: process.offsets.get(name, 0) for name in entry.tasks if name in self.ends}
        left_out = self.tasks.keys() - {name for process in self.processes.values() for name in process.active}
        if left_out:
            raise StreamsException(f"{type(assignor).__name__} leaves out {', '.join(map(str, sorted(left_out)))}")
        self.answer = answer
        self.history.append(f"rebalance: {self.table()}{', look again' if answer.probing_rebalance else ''}")
        return answer

    def catch_up(self, *names: str) -> None:
        """Let all copies, or those of the named tasks, reach the end of their changelogs."""
        wanted = {task(name).id for name in names} or self.ends.keys()
        for process in self.processes.values():
            process.offsets |= {name: self.ends[name] for name in process.offsets.keys() & wanted}
        self.history.append(f"{', '.join(names) or 'all copies'} caught up")

    def converge(self, assignor: TaskAssignor, *, rounds: int) -> int:
        """Rebalance and catch up until no probing rebalance is wanted; return the number of rebalances.

        Raises:
            StreamsException: it is not stable after ``rounds`` rebalances.
        """
        for number in range(1, rounds + 1):
            if not self.rebalance(assignor).probing_rebalance:
                return number
            self.catch_up()
        raise StreamsException(f"not stable after {rounds} rebalances: {self.history}")

    def table(self) -> dict[int, tuple[str, str]]:
        """Return the active and standby tasks of each process, in task order, as ``0_1 0_2``."""
        return {
            number: (" ".join(map(str, sorted(process.active))), " ".join(map(str, sorted(process.standby))))
            for number, process in sorted(self.processes.items())
        }

    def _state(self, number: int) -> KafkaStreamsState:
        process = self.processes[number]
        return KafkaStreamsState(
            process_id=_process_id(number),
            num_processing_threads=process.threads,
            previous_active_tasks=frozenset(process.active & self.tasks.keys()),
            previous_standby_tasks=frozenset(process.standby & self.ends.keys()),
        )

    def _lags(self, number: int) -> dict[TaskId, int]:
        process = self.processes[number]
        lags = {}
        for name, end in self.ends.items():
            lag = end - min(process.offsets.get(name, 0), end)
            lags[name] = LATEST_OFFSET if name in process.active and lag == 0 else lag
        return lags


def _process_id(number: int) -> ProcessId:
    return ProcessId.parse(f"{number:032x}")
