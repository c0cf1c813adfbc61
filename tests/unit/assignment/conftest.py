"""Small groups in short notation: tasks as ``"0_0 0_1"``, processes as numbers, answers as tables.

Every task and every process has a rack, so that the same group can be assigned with any rack-aware strategy.
"""

from __future__ import annotations

from collections import Counter

import pytest

from sparkrelay.assignment import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    AssignmentError,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    TaskInfo,
    validate,
)
from sparkrelay.protocol import LATEST_OFFSET
from sparkrelay.types import ProcessId, TaskId, TopicPartition

RACKS = ("a", "b", "c")


class Groups:
    """Makes groups and reads answers; ``END`` is the lag of a process that has nothing of a task."""

    END = 100_000

    @staticmethod
    def process(number):
        return ProcessId.parse(f"00000000-0000-0000-0000-{number:012x}")

    @staticmethod
    def ids(text):
        return frozenset(map(TaskId.parse, text.split()))

    @staticmethod
    def names(tasks):
        return " ".join(map(str, sorted(tasks)))

    @staticmethod
    def task(name, *, logged=True, racks=None, log_racks=None):
        """Make a task with one input and, if logged, one changelog partition; their racks are ``"ab"`` or a set."""
        id_ = TaskId.parse(name) if isinstance(name, str) else name
        place = id_.subtopology + id_.partition
        source = TopicPartition(f"in-{id_.subtopology}", id_.partition)
        log = TopicPartition(f"cl-{id_.subtopology}", id_.partition)
        usual = {RACKS[place % 3], RACKS[(place + 1) % 3]}
        return TaskInfo.of(
            id_,
            inputs=[source],
            changelogs=[log] if logged else [],
            stores=["store"] if logged else [],
            racks={source: racks or usual, log: log_racks or racks or usual},
        )

    def tasks(self, logged="", stateless=""):
        return [self.task(name) for name in logged.split()] + [
            self.task(name, logged=False) for name in stateless.split()
        ]

    def client(self, number, *, active="", standby="", threads=1, lags=None, **more):
        """Make a process; ``lags`` are those that its previous tasks do not say."""
        more.setdefault("rack_id", RACKS[number % 3])
        reported = {TaskId.parse(name): lag for name, lag in (lags or {}).items()}
        return KafkaStreamsState(
            process_id=self.process(number),
            num_processing_threads=threads,
            previous_active_tasks=self.ids(active),
            previous_standby_tasks=self.ids(standby),
            task_lags=dict.fromkeys(self.ids(standby), 0) | dict.fromkeys(self.ids(active), LATEST_OFFSET) | reported,
            **more,
        )

    def state(self, tasks, clients, *, strategy="none", **configs):
        """Make the state; what a client says nothing about it has nothing of."""
        infos = self.tasks(tasks) if isinstance(tasks, str) else list(tasks)
        logged = [info.id for info in infos if info.is_logged]
        full = {}
        for client in clients:
            known = {task: client.task_lags.get(task, self.END) for task in logged}
            full[client.process_id] = KafkaStreamsState(
                **{
                    name: getattr(client, name)
                    for name in KafkaStreamsState.__dataclass_fields__
                    if name != "task_lags"
                },
                task_lags=known,
            )
        return ApplicationState(
            all_tasks=frozenset(infos),
            clients=full,
            assignment_configs=AssignmentConfigs(rack_aware_assignment_strategy=strategy, **configs),
        )

    def entry(self, number, *, active="", standby=""):
        return KafkaStreamsAssignment.of(
            self.process(number),
            [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in self.ids(active)]
            + [AssignedTask(task, AssignedTask.Type.STANDBY) for task in self.ids(standby)],
        )

    def entries(self, **of):
        """Make entries from ``p1="0_0 0_1"`` or ``p1=("active", "standby")``."""
        made = {}
        for name, tasks in of.items():
            active, standby = (tasks, "") if isinstance(tasks, str) else tasks
            number = int(name[1:])
            made[self.process(number)] = self.entry(number, active=active, standby=standby)
        return made

    def table(self, answer):
        """Return active and standby tasks by process number."""
        entries = answer.values() if hasattr(answer, "values") else answer.assignment
        return {
            entry.process_id.id.int: (self.names(entry.active_tasks), self.names(entry.standby_tasks))
            for entry in entries
        }

    def active(self, answer):
        return {number: active for number, (active, _standby) in self.table(answer).items()}

    def standby(self, answer):
        return {number: standby for number, (_active, standby) in self.table(answer).items()}

    def counts(self, answer):
        """Return how many active and standby tasks each process has, by number."""
        return {
            number: (len(active.split()), len(standby.split()))
            for number, (active, standby) in self.table(answer).items()
        }

    def actives(self, answer):
        return [active for active, _standby in self.counts(answer).values()]

    def totals(self, answer):
        return [active + standby for active, standby in self.counts(answer).values()]

    @staticmethod
    def check(state, answer, *, extra=0):
        """Every task runs once and has its standbys where there is room, and up to ``extra`` warm-ups in all."""
        assert validate(state, answer) is AssignmentError.NONE
        actives = sorted(task for entry in answer.assignment for task in entry.active_tasks)
        assert actives == sorted(info.id for info in state.all_tasks)
        copies = Counter(task for entry in answer.assignment for task in entry.standby_tasks)
        logged = {info.id for info in state.all_tasks if info.is_logged}
        assert copies.keys() <= logged
        wanted = min(state.assignment_configs.num_standby_replicas, len(state.clients) - 1)
        above = {task: copies[task] - wanted for task in logged}
        assert all(count >= 0 for count in above.values())
        assert sum(above.values()) <= extra


@pytest.fixture(scope="session")
def groups():
    return Groups()


@pytest.fixture(scope="session", params=["none", "min_traffic", "balance_subtopology"])
def strategy(request):
    """Return each rack-aware strategy."""
    return request.param
