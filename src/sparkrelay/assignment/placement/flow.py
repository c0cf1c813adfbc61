"""Minimum-cost flow by cancelling negative cycles, in Kafka's order. See KIP-925.

The least cost is unique, its flow is not. For Java's answers the nodes, edges and the search for a cycle follow Java's
order exactly. It is slow (cycles x nodes x edges), so the search runs on flat arrays, compiled for large graphs.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

#: Relaxations in one search from which compiling pays (about a second, then cached).
_COMPILE_FROM = 2_000_000
_compiled: list[Callable[..., int]] = []


class FlowGraph:
    """A directed graph with capacities and costs; its nodes are integers, in their order."""

    def __init__(self) -> None:
        self._edges: list[tuple[int, int, int, int, int]] = []

    def add_edge(self, source: int, destination: int, *, capacity: int, cost: int, flow: int = 0) -> None:
        """Add an edge, the only one between its nodes."""
        self._edges.append((source, destination, capacity, cost, flow))

    def solve(self, source: int, sink: int, *, from_zero: bool) -> dict[tuple[int, int], int]:
        """Return the flow of every edge at least cost for the same total flow.

        With ``from_zero`` first find a maximum flow, instead of starting from the edges' flows.
        """
        residual = _Residual(self._edges)
        if from_zero:
            residual.fill(source, sink)
        residual.cancel_negative_cycles()
        return residual.flows()


class _Residual:
    """Each edge and its counter-edge in flat arrays, sorted by node and destination."""

    def __init__(self, edges: list[tuple[int, int, int, int, int]]) -> None:
        nodes = sorted({end for edge in edges for end in edge[:2]})
        position = {node: index for index, node in enumerate(nodes)}
        # (from, to, residual, cost, which edge, counter-edge?)
        rows = []
        for index, (source, destination, capacity, cost, flow) in enumerate(edges):
            rows.append((position[source], position[destination], capacity - flow, cost, index, False))
            rows.append((position[destination], position[source], flow, -cost, index, True))
        rows.sort()
        self._edges = edges
        self._position = position
        self._node_count = len(nodes)
        self._tail, self._head, self._left, self._cost = np.array([row[:4] for row in rows], np.int64).T.copy()
        self._back_at: dict[int, int] = {row[4]: at for at, row in enumerate(rows) if row[5]}
        self._counter = np.zeros(len(rows), np.int64)
        forward_at = {row[4]: at for at, row in enumerate(rows) if not row[5]}
        for index, back in self._back_at.items():
            self._counter[back], self._counter[forward_at[index]] = forward_at[index], back

    def flows(self) -> dict[tuple[int, int], int]:
        return {self._edges[index][:2]: int(self._left[back]) for index, back in self._back_at.items()}

    def fill(self, source: int, sink: int) -> None:
        """Augment along shortest paths to a maximum flow."""
        start, end = self._position[source], self._position[sink]
        leaving: list[list[int]] = [[] for _ in range(self._node_count)]
        for edge, node in enumerate(self._tail.tolist()):
            leaving[node].append(edge)
        head = self._head.tolist()
        while True:
            came_by = {start: -1}
            queue = deque([start])
            while queue:
                for edge in leaving[queue.popleft()]:
                    if self._left[edge] > 0 and head[edge] not in came_by:
                        came_by[head[edge]] = edge
                        queue.append(head[edge])
            if end not in came_by:
                return
            path = []
            node = end
            while (edge := came_by[node]) >= 0:
                path.append(edge)
                node = int(self._tail[edge])
            self._push(path)

    def cancel_negative_cycles(self) -> None:
        search = self._search()
        parents = np.full(self._node_count, -1, np.int64)
        while True:
            # Only edges with residual capacity, in the same order.
            usable = np.flatnonzero(self._left > 0)
            found = search(self._tail[usable], self._head[usable], self._cost[usable], self._node_count, parents)
            if found < 0:
                return
            by_edge = [int(usable[edge]) if edge >= 0 else -1 for edge in parents]
            node, seen = int(found), set()
            while node not in seen:
                seen.add(node)
                node = int(self._tail[by_edge[node]])
            cycle, at = [], node
            while True:
                cycle.append(by_edge[at])
                at = int(self._tail[by_edge[at]])
                if at == node:
                    break
            self._push(cycle)

    def _push(self, edges: list[int]) -> None:
        amount = min(self._left[edge] for edge in edges)
        for edge in edges:
            self._left[edge] -= amount
            self._left[self._counter[edge]] += amount

    def _search(self) -> Callable[..., int]:
        if self._node_count * len(self._tail) < _COMPILE_FROM:
            return _search_lists
        if not _compiled:
            import numba  # noqa: PLC0415 - heavy, and only large rack-aware groups need it

            _compiled.append(numba.njit(cache=True)(_find_negative_cycle))
        return _compiled[0]


def _search_lists(
    tail: NDArray[np.int64],
    head: NDArray[np.int64],
    cost: NDArray[np.int64],
    node_count: int,
    parents: NDArray[np.int64],
) -> int:
    """Search uncompiled, on lists, which are faster than arrays in Python."""
    known: Any = [-1] * node_count
    found = _find_negative_cycle(tail.tolist(), head.tolist(), cost.tolist(), node_count, known)
    parents[:] = known
    return found


def _find_negative_cycle(tail: Any, head: Any, cost: Any, node_count: int, parents: Any) -> int:
    """Return a node from which parents lead into a negative cycle, or -1.

    All distances start at 0, as if an extra node led to all others for free. Java makes as many passes as there are
    nodes, the extra one included; the edge relaxed in the last pass decides which cycle is found. A pass without
    relaxation ends early with the same answer.
    """
    distance = [0] * node_count
    for node in range(node_count):
        parents[node] = -1
    for pass_number in range(node_count + 1):
        relaxed = False
        for edge in range(len(tail)):
            reached = distance[tail[edge]] + cost[edge]
            if reached < distance[head[edge]]:
                distance[head[edge]] = reached
                parents[head[edge]] = edge
                if pass_number == node_count:
                    return int(head[edge])
                relaxed = True
        if not relaxed:
            return -1
    return -1
