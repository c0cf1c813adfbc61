"""Elasticsearch's balanced shards allocator, with tasks for shards. See KIP-441, "Elasticsearch".

The weight of a node for an index is ``theta0 * (its shards - average) + theta1 * (its shards of that index - average
for the index)``. Unassigned shards go to the least weight, primaries before replicas. Then each index, the most uneven
first, moves shards from the heaviest node to the lightest while their weights differ by more than the threshold.
Nothing else moves.

Shards that do not run move first: a replica, or a task without a runner. During a hand-over a task has no runner, and
since there is no memory of relocations it starts again from a copy at its old place. It must be the one that moves on,
or the two would alternate forever.

Weights are only compared for the same index, so averages cancel out. Factors and threshold become integers of one unit
(a twentieth for the default 0.45, 0.55 and 1.0), so that no rounding decides an assignment.
"""

from __future__ import annotations

from collections import Counter
from math import lcm
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.assignment import AssignedTask, KafkaStreamsAssignment, TaskAssignment, TaskAssignor, number_setting
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.assignment import ApplicationState, ProcessId, TaskId

__all__ = ["ElasticsearchTaskAssignor"]

_SHARD: Final = "task.assignor.elasticsearch.balance.shard"
_INDEX: Final = "task.assignor.elasticsearch.balance.index"
_THRESHOLD: Final = "task.assignor.elasticsearch.balance.threshold"

_ACTIVE = AssignedTask.Type.ACTIVE
_STANDBY = AssignedTask.Type.STANDBY


class _Balance(NamedTuple):
    """The factors of weights and the threshold, as integers of one unit."""

    of_all: int
    of_index: int
    threshold: int

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> _Balance:
        """Read ``cluster.routing.allocation.balance.shard``, ``.index`` and ``.threshold``.

        Raises:
            ConfigException: one is not a number in range, or both factors are 0.
        """
        shard = number_setting(configs, _SHARD, "0.45", least=0)
        index = number_setting(configs, _INDEX, "0.55", least=0)
        # Below 1 a move could make an equal difference in the other direction.
        threshold = number_setting(configs, _THRESHOLD, "1.0", least=1)
        if not shard + index:
            raise ConfigException(f"{_SHARD} and {_INDEX} are both 0, so that no load is ever uneven")
        unit = lcm(shard.denominator, index.denominator, (threshold * (shard + index)).denominator)
        return cls(int(shard * unit), int(index * unit), int(threshold * (shard + index) * unit))


class ElasticsearchTaskAssignor(TaskAssignor):
    """Keeps existing copies, puts missing ones on the lightest process, then evens out large differences.

    A task is a shard, its subtopology the index, an active task the primary, standbys are replicas, a process is a
    node. No process has two copies of a task (the same-shard decider). Primaries are not balanced separately: a process
    may have more active tasks and fewer standbys. Threads are ignored, since the weight function treats all nodes
    alike; give processes the same number of threads.

    If a task's process is gone, an existing copy becomes active, however far behind, as Elasticsearch presumes in-sync
    replicas. Its limit on concurrent relocations only slows down the way to the same end. It moves primaries like
    replicas, because a shard serves while it is copied. Here a task stops for a hand-over, so running tasks move only
    if moving the others is not enough.
    """

    settings = frozenset({_SHARD, _INDEX, _THRESHOLD})

    def __init__(self) -> None:
        self._balance = _Balance.of({})

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Take the factors and the threshold."""
        self._balance = _Balance.of(configs)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task."""
        cluster = _Cluster(application_state, self._balance)
        if cluster.processes:
            cluster.keep()
            cluster.allocate()
            for may_stop in (False, True):
                while cluster.rebalance(may_stop=may_stop):
                    pass
        return TaskAssignment(cluster.to_assignments())


class _Cluster:
    """Shards on nodes; a node is a position in ``processes``."""

    def __init__(self, state: ApplicationState, balance: _Balance) -> None:
        self._balance = balance
        self._states = state.kafka_streams_states(compute_task_lags=False)
        self.processes: list[ProcessId] = sorted(self._states)
        self._nodes = range(len(self.processes))
        self._tasks = {info.id: info for info in state.all_tasks}
        self._replicas = state.assignment_configs.num_standby_replicas
        self._primary: dict[TaskId, int] = {}
        #: Who runs a task now; nobody during a hand-over.
        self._runner: dict[TaskId, int] = {}
        self._followers: dict[TaskId, set[int]] = {task: set() for task in self._tasks}
        #: Index -> shards of each node, in both roles.
        self._shards: dict[int, list[set[TaskId]]] = {
            task.subtopology: [set() for _ in self._nodes] for task in self._tasks
        }
        self._highest_primary: Counter[tuple[int, int]] = Counter()
        self._total = [0] * len(self.processes)

    def keep(self) -> None:
        """Start from existing primaries, or a copy in place of a lost one, and replicas on the lightest nodes."""
        for node, process in enumerate(self.processes):
            for task in self._states[process].previous_active_tasks:
                if task in self._tasks and task not in self._primary:
                    self._add_primary(task, node)
        self._runner = dict(self._primary)
        held: dict[TaskId, list[int]] = {task: [] for task in self._tasks}
        for node, process in enumerate(self.processes):
            state = self._states[process]
            for task in state.previous_active_tasks | state.previous_standby_tasks:
                if task in held:
                    held[task].append(node)
        for task, nodes in held.items():
            if nodes and task not in self._primary:
                self._add_primary(task, self._by_weight(task.subtopology, nodes)[0])
        for task, nodes in held.items():
            others = [node for node in nodes if node != self._primary[task]]
            for node in self._by_weight(task.subtopology, others)[: self._wanted(task)]:
                self._add_replica(task, node)

    def allocate(self) -> None:
        """Put missing shards on the lightest nodes: all primaries, then one replica of each shard at a time."""
        for task in sorted(self._tasks.keys() - self._primary.keys()):
            node = self._lightest(task)
            assert node is not None
            self._add_primary(task, node)
        missing = [task for task in self._tasks if len(self._followers[task]) < self._wanted(task)]
        while missing:
            again = []
            for task in missing:
                node = self._lightest(task)
                if node is None:
                    continue
                self._add_replica(task, node)
                if len(self._followers[task]) < self._wanted(task):
                    again.append(task)
            missing = again

    def rebalance(self, *, may_stop: bool) -> bool:
        """Even out each index once, the most uneven first, with ``may_stop`` also by moving running tasks.

        Returns:
            Whether anything moved.
        """
        spreads = {index: self._spread(index) for index in self._shards}
        moved = False
        for index in sorted(self._shards, key=lambda index: (-spreads[index], index)):
            moved |= self._even_out(index, may_stop=may_stop)
        return moved

    def to_assignments(self) -> list[KafkaStreamsAssignment]:
        tasks: list[list[AssignedTask]] = [[] for _ in self._nodes]
        for task, node in self._primary.items():
            tasks[node].append(AssignedTask(task, _ACTIVE))
            for follower in self._followers[task]:
                tasks[follower].append(AssignedTask(task, _STANDBY))
        return [KafkaStreamsAssignment.of(process, tasks[node]) for node, process in enumerate(self.processes)]

    def _wanted(self, task: TaskId) -> int:
        return self._replicas if self._tasks[task].is_logged else 0

    def _add_primary(self, task: TaskId, node: int) -> None:
        self._primary[task] = node
        # Plus one, so that 0 is "none".
        at = task.subtopology, node
        self._highest_primary[at] = max(self._highest_primary[at], task.partition + 1)
        self._add(task, node)

    def _add_replica(self, task: TaskId, node: int) -> None:
        self._followers[task].add(node)
        self._add(task, node)

    def _add(self, task: TaskId, node: int) -> None:
        self._shards[task.subtopology][node].add(task)
        self._total[node] += 1

    def _weight(self, index: int, node: int) -> int:
        return self._balance.of_all * self._total[node] + self._balance.of_index * len(self._shards[index][node])

    def _spread(self, index: int) -> int:
        weights = [self._weight(index, node) for node in self._nodes]
        return max(weights) - min(weights)

    def _lightest(self, task: TaskId) -> int | None:
        """Return the node of least weight without a copy of the shard, or None.

        Ties go to the node whose highest primary of the index follows the shard next, in a ring, which shifts replicas
        against primaries.
        """
        best, best_weight = None, 0
        shards = self._shards[task.subtopology]
        for node in self._nodes:
            if task in shards[node]:
                continue
            weight = self._weight(task.subtopology, node)
            if best is None or weight < best_weight or (weight == best_weight and self._comes_next(task, node, best)):
                best, best_weight = node, weight
        return best

    def _comes_next(self, task: TaskId, node: int, other: int) -> bool:
        here = task.partition + 1
        mine = self._highest_primary[task.subtopology, node]
        theirs = self._highest_primary[task.subtopology, other]
        if (mine > here and theirs > here) or (mine < here and theirs < here):
            return mine < theirs
        return mine > here > theirs

    def _even_out(self, index: int, *, may_stop: bool) -> bool:
        """Move shards of one index from heavy to light nodes; return whether any moved.

        The window of nodes shrinks if the heaviest has nothing for the lightest.
        """
        moved = False
        order = self._by_weight(index, self._nodes)
        low, high = 0, len(order) - 1
        while low < high:
            lightest, heaviest = order[low], order[high]
            if self._shards[index][heaviest]:
                if self._weight(index, heaviest) - self._weight(index, lightest) <= self._balance.threshold:
                    second = self._weight(index, order[high - 1]) - self._weight(index, order[0])
                    if not (low > 0 and high > 1 and second > self._balance.threshold):
                        break
                elif self._relocate(index, heaviest, lightest, may_stop=may_stop):
                    moved = True
                    order = self._by_weight(index, self._nodes)
                    low, high = 0, len(order) - 1
                    continue
            if low < high - 1:
                low += 1
            elif low > 0:
                low, high = 0, high - 1
            else:
                break
        return moved

    def _by_weight(self, index: int, nodes: Iterable[int]) -> list[int]:
        return sorted(nodes, key=lambda node: self._weight(index, node))

    def _relocate(self, index: int, source: int, target: int, *, may_stop: bool) -> bool:
        shards = self._shards[index]
        movable = shards[source] - shards[target]
        # Replicas and primaries without a runner move before running tasks.
        idle = {task for task in movable if self._primary[task] != source or self._runner.get(task) != source}
        movable = movable if may_stop and not idle else idle
        if not movable:
            return False
        task = min(movable)
        shards[source].remove(task)
        shards[target].add(task)
        self._total[source] -= 1
        self._total[target] += 1
        if self._primary[task] == source:
            self._primary[task] = target
        else:
            self._followers[task].remove(source)
            self._followers[task].add(target)
        return True
