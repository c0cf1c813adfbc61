"""Exchange of tasks between clients at least cost, with the same number for each: two solvers. See KIP-925.

The least cost is unique, the placement is not. :func:`in_javas_order` gives Kafka Streams' answer, and is far too slow
for large groups. :func:`at_least_cost` costs the same and takes milliseconds. If only racks matter it is quickest: the
clients of a rack are then equivalent, and tasks are placed on racks first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkrelay.assignment.placement.balanced_placement import Bounds, place_at_least_cost
from sparkrelay.assignment.placement.flow import FlowGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

_SOURCE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Tasks to exchange; tasks and clients are positions in a placement.

    ``tasks`` are sorted; the order of ``clients`` decides ties. ``counts`` are the numbers of tasks of each client, and
    ``owner`` is the present client of each. ``cost`` of a task at a client depends on the client's rack and on whether
    it is the owner.
    """

    tasks: Sequence[int]
    clients: Sequence[int]
    counts: Sequence[int]
    owner: Mapping[int, int]
    cost: Callable[[int, int], int]
    rack_of: Sequence[int]
    subtopology_of: Sequence[int]

    def share(self, count: int, size: int) -> int:
        """Return a client's share of a sub-topology's ``size`` tasks, given its count of all tasks, as in Java."""
        return math.ceil(count / len(self.tasks) * size)


def in_javas_order(problem: Problem, *, balance: bool) -> dict[int, int]:
    """Return the client of each task, as in Kafka Streams.

    With ``balance`` no client may have more than its share of a sub-topology.
    """
    return _balance_subtopology(problem) if balance else _min_traffic(problem)


def at_least_cost(problem: Problem, *, balance: bool) -> dict[int, int]:
    """Return a client for each task at the same total cost, quickly."""
    return _place_on_clients(problem) if balance else _place_on_racks(problem)


def _min_traffic(problem: Problem) -> dict[int, int]:
    tasks, clients = problem.tasks, problem.clients
    graph, first, sink = FlowGraph(), len(tasks), len(tasks) + len(clients)
    for i, task in enumerate(tasks):
        graph.add_edge(_SOURCE, i, capacity=1, cost=0, flow=1)
        for j, client in enumerate(clients):
            here = int(problem.owner[task] == client)
            graph.add_edge(i, first + j, capacity=1, cost=problem.cost(task, client), flow=here)
    for j, count in enumerate(problem.counts):
        graph.add_edge(first + j, sink, capacity=count, cost=0, flow=count)
    flows = graph.solve(_SOURCE, sink, from_zero=False)
    return {task: client for i, task in enumerate(tasks) for j, client in enumerate(clients) if flows[i, first + j]}


def _balance_subtopology(problem: Problem) -> dict[int, int]:
    tasks, clients = problem.tasks, problem.clients
    graph, width = FlowGraph(), len(clients)
    # Java's order also counts sub-topologies without a task here.
    groups = {subtopology: g for g, subtopology in enumerate(sorted(set(problem.subtopology_of)))}
    group_of = [groups[problem.subtopology_of[task]] for task in tasks]
    first = len(tasks)
    second = first + width * len(groups)
    sink = second + width
    for i, task in enumerate(tasks):
        graph.add_edge(_SOURCE, i, capacity=1, cost=0)
        for j, client in enumerate(clients):
            graph.add_edge(i, first + width * group_of[i] + j, capacity=1, cost=problem.cost(task, client))
    for g in range(len(groups)):
        size = group_of.count(g)
        for j, count in enumerate(problem.counts):
            graph.add_edge(first + width * g + j, second + j, capacity=problem.share(count, size), cost=0)
    for j, count in enumerate(problem.counts):
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


def _place_on_racks(problem: Problem) -> dict[int, int]:
    """Choose a rack for each task; in its own rack a task stays with its owner, others fill the rest."""
    racks = sorted({problem.rack_of[client] for client in problem.clients})
    position = {rack: index for index, rack in enumerate(racks)}
    inside: list[list[int]] = [[] for _ in racks]
    room = np.zeros(len(racks), np.int64)
    for client, count in zip(problem.clients, problem.counts, strict=True):
        inside[position[problem.rack_of[client]]].append(client)
        room[position[problem.rack_of[client]]] += count
    home = [position[problem.rack_of[problem.owner[task]]] for task in problem.tasks]
    # Any client represents its rack; only the owner costs less, and tasks that stay in the rack stay there.
    costs = np.array(
        [
            [
                problem.cost(task, problem.owner[task] if rack == home[row] else inside[rack][0])
                for rack in range(len(racks))
            ]
            for row, task in enumerate(problem.tasks)
        ],
        np.int64,
    )
    placed = _on_exact_counts(costs, np.zeros(len(home), np.intp), room, np.array([room]))
    chosen = {}
    left = dict(zip(problem.clients, problem.counts, strict=True))
    arrived: list[list[int]] = [[] for _ in racks]
    for row, task in enumerate(problem.tasks):
        rack = int(placed[row].argmax())
        if rack == home[row]:
            chosen[task] = problem.owner[task]
            left[problem.owner[task]] -= 1
        else:
            arrived[rack].append(task)
    for rack, newcomers in enumerate(arrived):
        places = [client for client in inside[rack] for _ in range(left[client])]
        chosen |= dict(zip(newcomers, places, strict=True))
    return chosen


def _place_on_clients(problem: Problem) -> dict[int, int]:
    """Choose a client for each task, within the shares of sub-topologies."""
    names, groups = np.unique([problem.subtopology_of[task] for task in problem.tasks], return_inverse=True)
    sizes = np.bincount(groups, minlength=len(names)).tolist()
    most = np.array([[problem.share(count, size) for count in problem.counts] for size in sizes], np.int64)
    costs = np.array([[problem.cost(task, client) for client in problem.clients] for task in problem.tasks], np.int64)
    placed = _on_exact_counts(costs, groups.astype(np.intp), np.array(problem.counts, np.int64), most)
    return {task: problem.clients[int(placed[row].argmax())] for row, task in enumerate(problem.tasks)}


def _on_exact_counts(
    costs: NDArray[np.int64], groups: NDArray[np.intp], counts: NDArray[np.int64], most: NDArray[np.int64]
) -> NDArray[np.bool_]:
    placed = place_at_least_cost(costs, 1, groups, Bounds(counts, counts, np.zeros_like(most), most))
    if placed is None:
        raise AssertionError(f"{len(costs)} tasks cannot be placed on counts {counts.tolist()}")
    return placed
