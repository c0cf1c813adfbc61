"""Moving tasks to where their partitions are, without changing how many anybody has. See KIP-925.

Costs: ``traffic`` for each partition without a replica in the client's rack, ``non_overlap`` for a task that moves.
``min_traffic`` only minimises; ``balance_subtopology`` also spreads each subtopology over the clients.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, TypedDict

from sparkrelay.assignment.flow import FlowGraph
from sparkrelay.assignment.hash_order import process_hash_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.placement import Placement
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId, TaskId, TopicPartition

__all__ = ["Costs", "RackAwareness", "cross_rack", "racks_known"]

_STANDBY_ROUNDS = 4
_SOURCE = -1


class Costs(TypedDict):
    """What reading a partition across racks costs, and what moving a task costs."""

    traffic_cost: int
    non_overlap_cost: int


def racks_known(states: Mapping[ProcessId, KafkaStreamsState], infos: Iterable[TaskInfo], *, changelogs: bool) -> bool:
    """Return whether every process has a rack and every partition that is looked at has racks."""
    return all(state.rack_id is not None for state in states.values()) and all(
        partition.rack_ids is not None
        for info in infos
        for partition in info.topic_partitions
        if partition.is_source or changelogs
    )


def cross_rack(info: TaskInfo, partitions: Iterable[TopicPartition], rack: str | None) -> int:
    """Return how many of the task's partitions have no replica in the rack."""
    return sum(rack not in info.partition_to_rack_ids.get(partition, ()) for partition in partitions)


class RackAwareness:
    """Optimises a placement whose balance is settled.

    Args:
        placement: The placement to change.
        states: The processes, each with its rack.
        infos: The tasks, with racks of their partitions.
        strategy: ``min_traffic`` or ``balance_subtopology``.
        public: Decide as Java's public utilities do: changelogs count for actives too, clients in hash order.
    """

    def __init__(
        self,
        placement: Placement,
        states: Mapping[ProcessId, KafkaStreamsState],
        infos: Mapping[TaskId, TaskInfo],
        strategy: str,
        *,
        public: bool = False,
    ) -> None:
        self._placement = placement
        self._infos = [infos[task] for task in placement.tasks]
        self._racks = [states[process].rack_id for process in placement.processes]
        self._strategy = strategy
        self._all_partitions = public
        order = process_hash_order(placement.processes) if public else placement.processes
        position = {process: client for client, process in enumerate(placement.processes)}
        self._clients = [position[process] for process in order]
        self._subtopologies = sorted({task.subtopology for task in placement.tasks})

    def optimize_actives(self, tasks: Sequence[int], *, traffic_cost: int, non_overlap_cost: int) -> None:
        """Exchange active tasks between all clients."""
        self._solve(
            sorted(tasks),
            self._clients,
            self._placement.active,
            self._strategy,
            lambda task, client: (
                traffic_cost * self._active_traffic(task, client)
                + (0 if task in self._placement.active[client] else non_overlap_cost)
            ),
        )

    def optimize_standbys(
        self,
        *,
        traffic_cost: int,
        non_overlap_cost: int,
        may_move: Callable[[int, int, int], bool] | None = None,
        strategy: str = "min_traffic",
    ) -> None:
        """Exchange standbys between clients of different racks, pair by pair, while anything moves."""
        placement = self._placement

        def cost(task: int, client: int) -> int:
            changelogs = self._infos[task].changelog_topic_partitions
            away = cross_rack(self._infos[task], changelogs, self._racks[client])
            return traffic_cost * away + (0 if task in placement.standby[client] else non_overlap_cost)

        def movable(source: int, destination: int) -> list[int]:
            return [
                task
                for task in sorted(placement.standby[source])
                if not placement.holds(destination, task) and (may_move is None or may_move(task, source, destination))
            ]

        for _ in range(_STANDBY_ROUNDS):
            moved = False
            for one, other in itertools.combinations(self._clients, 2):
                if self._racks[one] == self._racks[other]:
                    continue
                mine, theirs = movable(one, other), movable(other, one)
                if mine and theirs:
                    tasks = sorted(mine + theirs)
                    moved |= self._solve(tasks, [one, other], placement.standby, strategy, cost)
            if not moved:
                break

    def _active_traffic(self, task: int, client: int) -> int:
        info = self._infos[task]
        partitions = info.input_topic_partitions
        if self._all_partitions:
            partitions |= info.changelog_topic_partitions
        return cross_rack(info, partitions, self._racks[client])

    def _solve(
        self,
        tasks: Sequence[int],
        clients: Sequence[int],
        held: Sequence[set[int]],
        strategy: str,
        cost: Callable[[int, int], int],
    ) -> bool:
        """Place ``tasks`` on ``clients`` at least cost, each client keeping its number; return if any moved."""
        if not tasks:
            return False
        owner = {task: client for client in clients for task in held[client]}
        counts = [sum(owner[task] == client for task in tasks) for client in clients]
        build = self._min_traffic if strategy == "min_traffic" else self._balance_subtopology
        chosen = build(tasks, clients, counts, owner, cost)
        moved = False
        for task, client in chosen.items():
            if client != owner[task]:
                held[owner[task]].remove(task)
                held[client].add(task)
                moved = True
        return moved

    def _min_traffic(
        self,
        tasks: Sequence[int],
        clients: Sequence[int],
        counts: Sequence[int],
        owner: Mapping[int, int],
        cost: Callable[[int, int], int],
    ) -> dict[int, int]:
        graph, first, sink = FlowGraph(), len(tasks), len(tasks) + len(clients)
        for i, task in enumerate(tasks):
            graph.add_edge(_SOURCE, i, capacity=1, cost=0, flow=1)
            for j, client in enumerate(clients):
                here = int(owner[task] == client)
                graph.add_edge(i, first + j, capacity=1, cost=cost(task, client), flow=here)
        for j, count in enumerate(counts):
            graph.add_edge(first + j, sink, capacity=count, cost=0, flow=count)
        flows = graph.solve(_SOURCE, sink, from_zero=False)
        return {task: client for i, task in enumerate(tasks) for j, client in enumerate(clients) if flows[i, first + j]}

    def _balance_subtopology(
        self,
        tasks: Sequence[int],
        clients: Sequence[int],
        counts: Sequence[int],
        _owner: Mapping[int, int],
        cost: Callable[[int, int], int],
    ) -> dict[int, int]:
        graph, width = FlowGraph(), len(clients)
        groups = {subtopology: g for g, subtopology in enumerate(self._subtopologies)}
        group_of = [groups[self._infos[task].id.subtopology] for task in tasks]
        first = len(tasks)
        second = first + width * len(groups)
        sink = second + width
        for i, task in enumerate(tasks):
            graph.add_edge(_SOURCE, i, capacity=1, cost=0)
            for j, client in enumerate(clients):
                graph.add_edge(i, first + width * group_of[i] + j, capacity=1, cost=cost(task, client))
        for g in range(len(groups)):
            size = group_of.count(g)
            for j, count in enumerate(counts):
                share = math.ceil(count / len(tasks) * size)
                graph.add_edge(first + width * g + j, second + j, capacity=share, cost=0)
        for j, count in enumerate(counts):
            graph.add_edge(second + j, sink, capacity=count, cost=0)
        flows = graph.solve(_SOURCE, sink, from_zero=True)
        chosen = {
            task: client
            for i, task in enumerate(tasks)
            for j, client in enumerate(clients)
            if flows[i, first + width * group_of[i] + j]
        }
        if len(chosen) != len(tasks):
            raise AssertionError(f"only {len(chosen)} of {len(tasks)} tasks could be placed by subtopology")
        return chosen
