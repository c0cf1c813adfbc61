"""The cheapest even placement of copies: an exact minimum-cost flow.

Every task puts a number of copies on different clients, at a cost for each. Every client, and every client's part of
each sub-topology, has a least and a greatest number of copies. The flow is task, part, client, sink.

Successive shortest paths: start with every task at its cheapest places, which is optimal but uneven, and repair each
excess along the cheapest chain of moves; the flow stays optimal for what is repaired so far. So the work is in
proportion to the moves, which are few when a group changes. A general solver would look at all tasks x clients, and
would not let us choose among equally cheap answers, which must not alternate. Ties go to the last task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Unreachable; two of them do not overflow.
_FAR = np.int64(1 << 61)

#: Predecessors in a chain of moves other than a part of the same sub-topology.
_START, _FROM_CLIENT = -1, -2
_FROM_SINK = -3
#: The sink, in place of a client.
_AT_SINK = -4


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and greatest numbers of copies for each client, and for each sub-topology and client."""

    client_least: NDArray[np.int64]
    client_most: NDArray[np.int64]
    part_least: NDArray[np.int64]
    part_most: NDArray[np.int64]

    def without_parts(self) -> Bounds:
        """Return the same bounds for clients alone."""
        return Bounds(
            self.client_least, self.client_most, np.zeros_like(self.part_least), np.full_like(self.part_most, 1 << 40)
        )


def place_at_least_cost(
    costs: NDArray[np.int64],
    copies: int,
    group_of: NDArray[np.intp],
    bounds: Bounds,
    allowed: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_] | None:
    """Return where copies go, a boolean matrix tasks x clients, or None if the bounds contradict each other.

    Any sum of as many ``costs`` (tasks x clients) as there are clients and parts must stay below 2**60. ``copies`` of a
    task go to different clients. ``group_of`` are the tasks' sub-topologies, counted from 0. With ``allowed`` copies
    may only go there.
    """
    flow = _Flow(costs, copies, group_of, bounds, allowed)
    while flow.uneven:
        if not flow.repair():
            return None
    return flow.held


class _Flow:
    def __init__(
        self,
        costs: NDArray[np.int64],
        copies: int,
        group_of: NDArray[np.intp],
        bounds: Bounds,
        allowed: NDArray[np.bool_] | None,
    ) -> None:
        self.costs = costs if allowed is None else np.where(allowed, costs, _FAR)
        self._group_of = group_of
        self.bounds = bounds
        self.held = self._cheapest(copies)
        # One row for each copy, by task and descending client: its place, and the cost of moving it to each client. Of
        # equally cheap moves the last row's is made.
        self.task, from_the_end = np.nonzero(self.held[:, ::-1])
        self.at = costs.shape[1] - 1 - from_the_end
        self.group = group_of[self.task]
        self.move = np.empty((len(self.task), costs.shape[1]), np.int64)
        self.price(np.arange(len(self.task)))
        present = np.zeros(bounds.part_least.shape, np.int64)
        np.add.at(present, (self.group, self.at), 1)
        # Flow from parts to clients and to the sink, as close to the present copies as the bounds allow. The rest is an
        # excess of the node, or a deficit if negative.
        self.of_part = np.clip(present, bounds.part_least, bounds.part_most)
        self.part_excess = present - self.of_part
        arriving = self.of_part.sum(axis=0)
        self.of_client = np.clip(arriving, bounds.client_least, bounds.client_most)
        self.client_excess = arriving - self.of_client
        self.sink_excess = int(self.of_client.sum()) - len(self.task)

    @property
    def uneven(self) -> bool:
        """True while any node has an excess."""
        return bool(self.sink_excess > 0 or (self.client_excess > 0).any() or (self.part_excess > 0).any())

    def _cheapest(self, copies: int) -> NDArray[np.bool_]:
        """Put every task at its cheapest places, among equals where most room is."""
        bounds = self.bounds
        held = np.zeros(self.costs.shape, np.bool_)
        of_part = np.zeros(bounds.part_least.shape, np.int64)
        of_client = np.zeros(len(bounds.client_least), np.int64)
        for task, group in enumerate(self._group_of.tolist()):
            row = self.costs[task]
            limit = np.partition(row, copies - 1)[copies - 1]
            chosen = np.flatnonzero(row < limit)
            equal = np.flatnonzero(row == limit)
            if len(chosen) + len(equal) > copies:
                full = (of_part[group] >= bounds.part_most[group]) | (of_client >= bounds.client_most)
                room = bounds.client_most - of_client
                short = of_part[group] < bounds.part_least[group]
                order = np.lexsort((equal, -room[equal], ~short[equal], full[equal]))
                equal = equal[order[: copies - len(chosen)]]
            places = np.concatenate((chosen, equal))
            held[task, places] = True
            of_part[group, places] += 1
            of_client[places] += 1
        return held

    def price(self, rows: NDArray[np.intp]) -> None:
        tasks = self.task[rows]
        moved = self.costs[tasks] - self.costs[tasks, self.at[rows]][:, None]
        moved[self.held[tasks] | (self.costs[tasks] >= _FAR)] = _FAR
        self.move[rows] = moved

    def repair(self) -> bool:
        """Move one excess to the nearest deficit; return False if none is reachable."""
        search = _Search(self)
        search.run()
        return search.apply()


class _Search:
    """Bellman-Ford from all excesses at once, on parts, clients and sink."""

    def __init__(self, flow: _Flow) -> None:
        bounds = flow.bounds
        self._flow = flow
        self._part = np.where(flow.part_excess > 0, np.int64(0), _FAR)
        self._client = np.where(flow.client_excess > 0, np.int64(0), _FAR)
        self._sink = np.int64(0) if flow.sink_excess > 0 else _FAR
        self._part_from = np.full(self._part.shape, _START, np.int64)
        self._client_from = np.full(self._client.shape, _START, np.int64)
        self._sink_from = _START
        # Within its bounds a flow grows and shrinks for free.
        self._part_grows = flow.of_part < bounds.part_most
        self._part_shrinks = flow.of_part > bounds.part_least
        self._client_grows = flow.of_client < bounds.client_most
        self._client_shrinks = flow.of_client > bounds.client_least

    def run(self) -> None:
        fresh = self._part < _FAR
        while True:
            changed = self._through_tasks(fresh) if fresh.any() else np.zeros_like(fresh)
            changed |= self._through_clients()
            if not changed.any():
                return
            fresh = changed

    def _through_tasks(self, fresh: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Move a copy from one client's part of its sub-topology to another's."""
        flow = self._flow
        rows = np.flatnonzero(fresh[flow.group, flow.at])
        groups = flow.group[rows]
        reached = flow.move[rows] + self._part[groups, flow.at[rows]][:, None]
        best = self._part.copy()
        np.minimum.at(best, groups, reached)
        better = best < self._part
        if better.any():
            row, client = np.nonzero((reached == best[groups]) & better[groups])
            self._part_from[groups[row], client] = rows[row]  # the last of equals: the last task
            self._part = best
        return better

    def _through_clients(self) -> NDArray[np.bool_]:
        """Change the flows of parts to their clients, and of clients to the sink."""
        clients = np.arange(len(self._client))
        arriving = np.where(self._part_grows, self._part, _FAR)
        source = arriving.argmin(axis=0)
        nearest = arriving[source, clients]
        better = nearest < self._client
        self._client = np.where(better, nearest, self._client)
        self._client_from = np.where(better, source, self._client_from)
        leaving = np.where(self._client_grows, self._client, _FAR)
        last = int(leaving.argmin())
        if leaving[last] < self._sink:
            self._sink = leaving[last]
            self._sink_from = last
        back = self._client_shrinks & (self._sink < self._client)
        self._client = np.where(back, self._sink, self._client)
        self._client_from = np.where(back, _FROM_SINK, self._client_from)
        given_back = self._part_shrinks & (self._client < self._part)
        self._part = np.where(given_back, self._client, self._part)
        self._part_from = np.where(given_back, _FROM_CLIENT, self._part_from)
        return given_back

    def apply(self) -> bool:
        """Make the moves of the shortest path to a deficit; return False if there is none."""
        flow = self._flow
        parts = np.where(flow.part_excess < 0, self._part, _FAR)
        clients = np.where(flow.client_excess < 0, self._client, _FAR)
        sink = self._sink if flow.sink_excess < 0 else _FAR
        least = min(parts.min(initial=_FAR), clients.min(initial=_FAR), sink)
        if least >= _FAR:
            return False
        if sink == least:
            flow.sink_excess += 1
            self._walk_back(_AT_SINK)
        elif clients.min() == least:
            client = int(clients.argmin())
            flow.client_excess[client] += 1
            self._walk_back(client)
        else:
            group, client = divmod(int(parts.argmin()), parts.shape[1])
            flow.part_excess[group, client] += 1
            self._walk_back(client, group)
        return True

    def _walk_back(self, client: int, group: int | None = None) -> None:
        """Change flows and move copies along the path that leads here."""
        flow = self._flow
        while True:
            if client == _AT_SINK:
                if self._sink_from == _START:
                    flow.sink_excess -= 1
                    return
                client = self._sink_from
                flow.of_client[client] += 1
            elif group is None:
                came = int(self._client_from[client])
                if came == _START:
                    flow.client_excess[client] -= 1
                    return
                if came == _FROM_SINK:
                    flow.of_client[client] -= 1
                    client = _AT_SINK
                else:
                    group = came
                    flow.of_part[group, client] += 1
            else:
                came = int(self._part_from[group, client])
                if came == _START:
                    flow.part_excess[group, client] -= 1
                    return
                if came == _FROM_CLIENT:
                    flow.of_part[group, client] -= 1
                    group = None
                else:
                    client = self._move_copy(came, client)

    def _move_copy(self, copy: int, client: int) -> int:
        """Move one copy to ``client``; return its former client."""
        flow = self._flow
        source, task = int(flow.at[copy]), int(flow.task[copy])
        flow.held[task, source] = False
        flow.held[task, client] = True
        flow.at[copy] = client
        flow.price(np.flatnonzero(flow.task == task))
        return source
