"""The leader of the simulated group: calls an assignor with what a real leader would pass it, and reads its answer.

States are built directly, not from encoded subscriptions; the values are those of
:mod:`sparkrelay.assignment.leader.client_states`.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.assignment import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    KafkaStreamsState,
    TaskAssignor,
    TaskInfo,
)
from sparkrelay.assignment.leader.kept import kept_assignment
from sparkrelay.assignment.validation import ask, message_of
from sparkrelay.errors import TaskAssignmentException
from sparkrelay.protocol import LATEST_OFFSET
from sparkrelay.simulate.cluster import Role
from sparkrelay.simulate.deadline import OutOfTime
from sparkrelay.types import ProcessId, TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sparkrelay.assignment import TaskAssignment
    from sparkrelay.simulate.cluster import Cluster
    from sparkrelay.simulate.scenario import Scenario

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


class AssignorFailed(Exception):  # noqa: N818 - a result of the study, not an error of ours
    """The assignor raised, or its answer is invalid."""


class Answer(NamedTuple):
    """An assignment.

    Attributes:
        placed: Active and standby tasks of every member.
        look_again_s: Seconds until the follow-up rebalance; infinite if there is none.
        left_out: Number of tasks without an owner.
    """

    placed: dict[int, tuple[set[int], set[int]]]
    look_again_s: float
    left_out: int


class Leader:
    """Asks one assignor about one scenario's group."""

    def __init__(self, scenario: Scenario, assignor: TaskAssignor, process_count: int) -> None:
        chance = random.Random(scenario.seed)
        self._scenario = scenario
        self._assignor = assignor
        self._configs = scenario.configs
        self._processes = [ProcessId(uuid.UUID(int=chance.getrandbits(128))) for _ in range(process_count)]
        self._numbers = {process: number for number, process in enumerate(self._processes)}
        subtopologies = scenario.subtopologies + scenario.stateless_subtopologies
        self._tasks = [
            TaskId(subtopology, partition)
            for subtopology in range(subtopologies)
            for partition in range(scenario.partitions)
        ]
        self._task_numbers = {task: number for number, task in enumerate(self._tasks)}
        self._consumers = [
            frozenset(f"client-{number}-{thread}" for thread in range(scenario.threads))
            for number in range(process_count)
        ]
        self._infos: frozenset[TaskInfo] = frozenset()

    def place_replicas(self, racks: Sequence[Collection[int]]) -> None:
        """Set the racks of the replicas of each task's partitions."""
        stateful = self._scenario.subtopologies * self._scenario.partitions
        infos = []
        for number, task in enumerate(self._tasks):
            source = TopicPartition(f"in-{task.subtopology}", task.partition)
            changelog = TopicPartition(f"changelog-{task.subtopology}", task.partition)
            used = [source, changelog] if number < stateful else [source]
            names = [_rack(rack) for rack in racks[number]]
            infos.append(
                TaskInfo.of(
                    task,
                    inputs=[source],
                    changelogs=used[1:],
                    stores=["store"] if number < stateful else [],
                    racks=dict.fromkeys(used, names),
                )
            )
        self._infos = frozenset(infos)

    def ask(self, cluster: Cluster) -> Answer:
        """Ask the assignor about the group as it is now.

        Raises:
            AssignorFailed: it raised, or a real leader would reject its answer.
        """
        cluster.forget_closed()
        state = self.state(cluster)
        try:
            answer, error = ask(self._assignor, state)
        except TaskAssignmentException:
            kept = self._read(cluster, kept_assignment(state, self._copied(cluster), min(state.clients)))
            return kept._replace(look_again_s=0.0)
        except (KeyboardInterrupt, OutOfTime):
            raise
        except BaseException as raised:  # a SystemExit must not end a worker, and with it the study
            raise AssignorFailed(message_of(raised)) from raised
        if error is not AssignmentError.NONE:
            raise AssignorFailed(f"its answer is invalid: {error.value}")
        return self._read(cluster, answer)

    def state(self, cluster: Cluster) -> ApplicationState:
        """Return the assignor's argument."""
        return ApplicationState(
            all_tasks=self._infos,
            clients={self._processes[n]: self._process_state(cluster, n) for n in cluster.members},
            assignment_configs=self._configs,
            compute_lags=lambda: self._lags(cluster),
        )

    def _lags(self, cluster: Cluster) -> dict[ProcessId, dict[TaskId, int]]:
        no_copies = dict(zip(self._tasks, map(int, cluster.ends), strict=False))
        lags = {}
        for number in cluster.members:
            lags[self._processes[number]] = of_one = no_copies.copy()
            for task, copy in cluster.processes[number].copies.items():
                if copy.at_end:
                    of_one[self._tasks[task]] = LATEST_OFFSET if copy.role is Role.ACTIVE else 0
                else:
                    of_one[self._tasks[task]] = max(0, math.ceil(cluster.ends[task] - copy.offset))
        return lags

    def _copied(self, cluster: Cluster) -> dict[ProcessId, dict[TaskId, int]]:
        return {
            self._processes[number]: {
                self._tasks[task]: int(cluster.ends[task] if copy.at_end else copy.offset)
                for task, copy in cluster.processes[number].copies.items()
            }
            for number in cluster.members
        }

    def _process_state(self, cluster: Cluster, number: int) -> KafkaStreamsState:
        process, names = cluster.processes[number], self._tasks
        followed = [
            names[task]
            for task, copy in process.copies.items()
            if task not in process.active and not (copy.role is Role.ACTIVE and copy.at_end)
        ]
        consumers = self._consumers[number]
        held = sorted(names[task] for task in process.copies)
        threads = len(consumers)
        return KafkaStreamsState(
            process_id=self._processes[number],
            num_processing_threads=threads,
            consumer_client_ids=consumers,
            previous_active_tasks=frozenset(names[task] for task in process.active),
            previous_standby_tasks=frozenset(followed),
            rack_id=_rack(process.rack),
            previous_tasks_by_consumer=MappingProxyType(
                {name: frozenset(held[turn::threads]) for turn, name in enumerate(sorted(consumers))}
            ),
        )

    def _read(self, cluster: Cluster, answer: TaskAssignment) -> Answer:
        placed: dict[int, tuple[set[int], set[int]]] = {number: (set(), set()) for number in cluster.members}
        again = self._scenario.probing_interval_s if answer.probing_rebalance else math.inf
        given = 0
        for entry in answer.assignment:
            active, standby = placed[self._numbers[entry.process_id]]
            for task in entry.tasks.values():
                number = self._task_numbers[task.id]
                if task.type is AssignedTask.Type.ACTIVE:
                    active.add(number)
                    given += 1
                elif number < cluster.stateful:
                    standby.add(number)
            if entry.followup_rebalance_deadline is not None:
                # Simulated time begins in 1970. A deadline by a real clock means "some time later".
                wanted = (entry.followup_rebalance_deadline - _EPOCH).total_seconds() - cluster.now
                again = min(again, max(0.0, wanted), self._scenario.probing_interval_s)
        return Answer(placed, again, len(self._tasks) - given)


def _rack(number: int) -> str:
    return f"rack-{number}"
