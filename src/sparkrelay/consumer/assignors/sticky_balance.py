"""The best assignment: as even as subscriptions allow, then near, then with as few moves as possible.

Kafka's sticky assignors search by trial and stop at the first assignment that no single move improves. This is the
exact solution, with the same priorities: loads as even as subscriptions allow, then as many partitions as possible in
their reader's rack (KIP-881), then as few moves as possible. So a group led by us is never less even, and never moves
more, than one led by Java.

It is a minimum cost flow. Members are the nodes; an arc leads from one to another if the first holds a partition that
the other may take, and its price is the cost of the move (leaving the rack; leaving home, or returning). Two rules
characterize the optimum (Harvey et al., "Semi-matchings for bipartite graphs and load balancing"; Klein, "A primal
method for minimal cost flows"):

- no path leads from a member to one that has two partitions less, and
- no cycle has a negative price, where a path to a member that has one partition less counts as closed.

Cheap passes (keep, fill, level) do most of the work, so that few paths and cycles remain. numpy does the searches: 200
members and 5,000 partitions take a fraction of a second.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sparkrelay.consumer.assignors.range_assignor import rack_aware
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from sparkrelay.consumer.base.assignor import ClusterView, MemberSubscription

#: Prices, see ``_Prices``. Leaving home costs one, so no number of those outweighs a rack.
_NEVER: Final = 1 << 50
_FAR: Final = 1 << 30
_AWAY: Final = 1
_NOBODY: Final = -1
_MOST_LOADS: Final = 1 << 32
_NOBODY_ELSE: Final = 1 << 62


class _Kind(NamedTuple):
    """Interchangeable partitions: equal prices for all members, and the same home."""

    group: int
    home: int


def balanced(
    cluster: ClusterView, holders: Mapping[TopicPartition, str], members: Mapping[str, MemberSubscription]
) -> dict[str, set[TopicPartition]]:
    """Return the partitions of each member.

    ``holders`` are the present holders of partitions, each of which may take what it holds.
    """
    names = sorted(members)
    flow = _Flow(cluster, holders, members, names)
    flow.fill()
    flow.level()
    flow.even_out()
    flow.cheapen()
    return {name: set(flow.held(index)) for index, name in enumerate(names)}


class _Flow:
    """Partitions at members, and the prices of moves. Members are numbered in the order of their names."""

    def __init__(
        self,
        cluster: ClusterView,
        holders: Mapping[TopicPartition, str],
        members: Mapping[str, MemberSubscription],
        names: list[str],
    ) -> None:
        number = {name: index for index, name in enumerate(names)}
        self._size = len(names)
        self.loads: NDArray[np.int64] = np.zeros(self._size, np.int64)
        self._at: list[dict[_Kind, list[TopicPartition]]] = [{} for _ in names]
        self._loose: list[tuple[TopicPartition, _Kind]] = []
        prices = _Prices(cluster, members, names)
        for partition in prices.partitions:
            group = prices.group_of(partition)
            home = number[holders[partition]] if partition in holders else _NOBODY
            if prices.rows[group].min() < _NEVER:
                kind = _Kind(group, home)
                if home != _NOBODY and prices.rows[group][home] == 0:
                    self._put(home, kind, partition)
                else:  # far from its holder: assigned anew, perhaps to the same member
                    self._loose.append((partition, kind))
        self._prices: NDArray[np.int64] = np.array(prices.rows).reshape(-1, self._size)
        #: The cheapest move from row to column, and the kind of partition to move.
        self._arcs: NDArray[np.int64] = np.full((self._size, self._size), _NEVER)
        self._movers: list[list[_Kind]] = [[] for _ in names]
        self._choice: NDArray[np.int64] = np.zeros((self._size, self._size), np.int64)

    def held(self, member: int) -> Iterator[TopicPartition]:
        """Yield a member's partitions."""
        for partitions in self._at[member].values():
            yield from partitions

    # -- the cheap passes ---------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Give unheld partitions to the least loaded of the near members, or else of those that may take them."""
        few = (self._prices < _NEVER).sum(axis=1)
        # Those that few members can take come first.
        for partition, kind in sorted(self._loose, key=lambda item: (few[item[1].group], item[0])):
            row = self._row(kind)
            near_first = (row >= _FAR) * _MOST_LOADS + (row >= _NEVER) * _NOBODY_ELSE
            self._put(int(np.argmin(near_first + self.loads * 2 + row % _FAR)), kind, partition)

    def level(self) -> None:
        """Move partitions from full members to emptier ones, one step at a time, while that evens out loads."""
        queue = [(-int(load), member) for member, load in enumerate(self.loads)]
        heapq.heapify(queue)
        while queue:
            load, member = heapq.heappop(queue)
            if -load != self.loads[member] or -load - 2 < self.loads.min():
                continue
            # Partitions away from home first.
            for kind in sorted(self._at[member], key=lambda kind: (kind.home == member, kind)):
                row = self._row(kind)
                while kind in self._at[member]:
                    to = int(np.argmin(np.where(row < _NEVER, self.loads * 2 * _FAR + row, _NOBODY_ELSE)))
                    if self.loads[to] > self.loads[member] - 2:
                        break
                    self._move(member, to, kind)
                    heapq.heappush(queue, (-int(self.loads[to]), to))

    # -- the exact passes ---------------------------------------------------------------------------------------------

    def even_out(self) -> None:
        """Move partitions along paths: what a takes from b, b takes from c, until no path evens out loads."""
        for member in range(self._size):
            self._look(member)
        moved = True
        while moved:
            moved = False
            for member in sorted(range(self._size), key=lambda m: (-self.loads[m], m)):
                while self.loads[member] - 2 >= self.loads.min() and (path := self._path_down(member)) is not None:
                    self._shift(path)
                    moved = True

    def cheapen(self) -> None:
        """Turn cycles of negative price until there are none."""
        while cycles := self._negative_pairs() or self._negative_cycles():
            for cycle in cycles:
                self._shift(cycle)

    def _path_down(self, start: int) -> list[int] | None:
        """Return the shortest path to a member that has two partitions less, the emptiest of those."""
        come_from = np.full(self._size, _NOBODY)
        come_from[start] = start
        front = np.array([start])
        while front.size:
            reached = self._arcs[front] < _NEVER
            new = np.flatnonzero(reached.any(axis=0) & (come_from == _NOBODY))
            come_from[new] = front[np.argmax(reached[:, new], axis=0)]
            low = new[self.loads[new] <= self.loads[start] - 2]
            if low.size:
                return _walk_back(come_from, int(low[np.argmin(self.loads[low])]), start)
            front = new
        return None

    def _negative_cycles(self) -> list[list[int]]:
        """Return cycles of members, first again as last: Bellman and Ford's search from all."""
        arcs = self._arcs_of_cycles()
        price: NDArray[np.int64] = np.zeros(self._size, np.int64)
        come_from = np.full(self._size, _NOBODY)
        columns = np.arange(self._size)
        for _ in range(self._size + 1):
            paths = price[:, None] + arcs
            best = paths.argmin(axis=0)
            cheaper = paths[best, columns] < price
            if not cheaper.any():
                return []
            price = np.where(cheaper, paths[best, columns], price)
            come_from = np.where(cheaper, best, come_from)
            if cycles := _circles(come_from):
                return cycles
        return []

    def _negative_pairs(self) -> list[list[int]]:
        """Return negative cycles of two, the most frequent ones, no two of which share a member."""
        arcs = self._arcs_of_cycles()
        both = arcs + arcs.T
        pairs = []
        for one in np.flatnonzero((both < 0).any(axis=1)).tolist():
            other = int(both[one].argmin())
            if both[one, other] < 0:
                pairs.append([one, other, one])
                both[:, [one, other]] = both[[one, other]] = 0
        return pairs

    def _arcs_of_cycles(self) -> NDArray[np.int64]:
        """Return the prices of arcs. An arc to a member with one partition more is free: it swaps their loads."""
        swap = self.loads[None, :] == self.loads[:, None] + 1
        return np.where(swap & (self._arcs > 0), 0, self._arcs)

    # -- moving -------------------------------------------------------------------------------------------------------

    def _shift(self, path: list[int]) -> None:
        """Move one partition along each arc; free arcs move nothing."""
        moves = []
        for source, target in pairwise(path):
            free = self.loads[target] == self.loads[source] + 1 and path[0] == path[-1]
            if not (free and self._arcs[source, target] > 0):
                moves.append((source, target, self._movers[source][self._choice[source, target]]))
        for source, target, kind in moves:
            self._move(source, target, kind)
        for member in set(path):
            self._look(member)

    def _look(self, member: int) -> None:
        """Find the cheapest move from a member to each other one."""
        kinds = sorted(self._at[member])
        self._movers[member] = kinds
        if not kinds:
            self._arcs[member] = _NEVER
            return
        rows = np.array([self._row(kind) for kind in kinds])
        rows -= rows[:, member : member + 1]
        self._choice[member] = choice = rows.argmin(axis=0)
        self._arcs[member] = np.where((best := rows[choice, np.arange(self._size)]) < _NEVER // 2, best, _NEVER)
        self._arcs[member, member] = _NEVER

    def _row(self, kind: _Kind) -> NDArray[np.int64]:
        """Return the price of a partition of this kind at each member."""
        row: NDArray[np.int64] = self._prices[kind.group] + (_AWAY if kind.home != _NOBODY else 0)
        if kind.home != _NOBODY:
            row[kind.home] -= _AWAY
        return row

    def _put(self, member: int, kind: _Kind, partition: TopicPartition) -> None:
        self._at[member].setdefault(kind, []).append(partition)
        self.loads[member] += 1

    def _move(self, source: int, target: int, kind: _Kind) -> None:
        partitions = self._at[source][kind]
        self._put(target, kind, partitions.pop())
        self.loads[source] -= 1
        if not partitions:
            del self._at[source][kind]


class _Prices:
    """Prices of partitions at members, without home: zero, ``_FAR`` if no copy is in its rack, or ``_NEVER``."""

    def __init__(self, cluster: ClusterView, members: Mapping[str, MemberSubscription], names: list[str]) -> None:
        self.partitions = [TopicPartition(t, p) for t in sorted(cluster.partitions) for p in cluster.partitions[t]]
        self.rows: list[NDArray[np.int64]] = []
        self._members, self._names = members, names
        self._racks: Mapping[TopicPartition, frozenset[str]] = {}
        if cluster.racks and rack_aware(
            (m.rack for m in members.values()), [cluster.racks.get(p, frozenset()) for p in self.partitions]
        ):
            self._racks = cluster.racks
        self._takers: dict[str, bytes] = {}
        self._groups: dict[tuple[bytes, frozenset[str]], int] = {}

    def group_of(self, partition: TopicPartition) -> int:
        """Return the row number of a partition's prices; equal rows are one."""
        topic = partition.topic
        if topic not in self._takers:
            self._takers[topic] = bytes(topic in self._members[name].topics for name in self._names)
        key = self._takers[topic], self._racks.get(partition, frozenset())
        if key not in self._groups:
            self._groups[key] = len(self.rows)
            self.rows.append(self._price(*key))
        return self._groups[key]

    def _price(self, takers: bytes, racks: frozenset[str]) -> NDArray[np.int64]:
        row: NDArray[np.int64] = np.where(np.frombuffer(takers, np.uint8) > 0, 0, _NEVER).astype(np.int64)
        if self._racks:
            far = [bool(rack) and rack not in racks for rack in (self._members[name].rack for name in self._names)]
            row[np.array(far) & (row == 0)] = _FAR
        return row


def _walk_back(come_from: NDArray[Any], end: int, start: int) -> list[int]:
    path = [end]
    while path[-1] != start:
        path.append(int(come_from[path[-1]]))
    return path[::-1]


def _circles(come_from: NDArray[Any]) -> list[list[int]]:
    """Return the cycles among predecessors, in the direction of the arcs; no two share a member."""
    before: list[int] = come_from.tolist()
    seen = [_NOBODY] * len(before)
    circles = []
    for start in range(len(before)):
        at = start
        while at != _NOBODY and seen[at] == _NOBODY:
            seen[at] = start
            at = before[at]
        if at != _NOBODY and seen[at] == start:
            circle, end = [at], at
            while (at := before[at]) != end:
                circle.append(at)
            circles.append([end, *circle[:0:-1], end])
    return circles
