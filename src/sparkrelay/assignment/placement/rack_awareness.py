"""Rack-aware exchange of tasks that keeps each client's number of tasks. See KIP-925.

Costs are for each partition without a replica in the client's rack (traffic), and for each moved task (non-overlap).
``min_traffic`` only minimises them; ``balance_subtopology`` also spreads each sub-topology over the clients. Groups up
to ``_JAVAS_ORDER_UP_TO`` get exactly Kafka Streams' answers, larger ones answers of the same cost (``rack_solvers``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparkrelay.assignment.placement.java_order import process_hash_order
from sparkrelay.assignment.placement.rack_solvers import Problem, at_least_cost, in_javas_order
from sparkrelay.errors import TaskAssignmentException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.assignment.assignment_configs import AssignmentConfigs
    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.placement.working_copy import Placement
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId, TaskId, TopicPartition

_STANDBY_ROUNDS = 4
#: Tasks x clients up to which Java's order is followed.
_JAVAS_ORDER_UP_TO = 400


class Costs(NamedTuple):
    """The cost of reading a partition across racks, and of moving a task."""

    traffic_cost: int
    non_overlap_cost: int


#: Tasks without state cost nothing to move.
STATELESS = Costs(1, 0)


def configured_costs(
    configs: AssignmentConfigs, traffic_cost: int | None = None, non_overlap_cost: int | None = None
) -> Costs | None:
    """Return the configured costs, or the given ones instead; None unless a strategy and both costs are configured."""
    configured = configs.traffic_cost, configs.non_overlap_cost
    if configs.rack_aware_assignment_strategy == "none" or configured[0] is None or configured[1] is None:
        return None
    return Costs(
        configured[0] if traffic_cost is None else traffic_cost,
        configured[1] if non_overlap_cost is None else non_overlap_cost,
    )


def racks_known(states: Mapping[ProcessId, KafkaStreamsState], infos: Iterable[TaskInfo], *, changelogs: bool) -> bool:
    """Return whether every process and every partition concerned has a rack.

    If racks cannot be listed now they count as unknown, as in Kafka Streams.
    """
    try:
        return all(state.rack_id is not None for state in states.values()) and all(
            bool(partition.rack_ids)
            for info in infos
            for partition in info.topic_partitions
            if partition.is_source or changelogs
        )
    except TaskAssignmentException:
        return False


def cross_rack(info: TaskInfo, partitions: Iterable[TopicPartition], rack: str | None) -> int:
    """Return how many of a task's partitions have no replica in the rack."""
    return sum(rack not in info.partition_to_rack_ids.get(partition, ()) for partition in partitions)


class RackAwareness:
    """Optimises a balanced placement, by ``min_traffic`` or ``balance_subtopology``.

    ``public`` behaves as Java's public utilities: changelogs count for actives too, clients are in hash order.
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
        racks = sorted({states[process].rack_id or "" for process in placement.processes})
        self._rack_of = [racks.index(states[process].rack_id or "") for process in placement.processes]
        self._racks = racks
        self._strategy = strategy
        self._all_partitions = public
        self._exact = len(placement.tasks) * len(placement.processes) <= _JAVAS_ORDER_UP_TO
        order = process_hash_order(placement.processes) if public else placement.processes
        position = {process: client for client, process in enumerate(placement.processes)}
        self._clients = [position[process] for process in order]

    def optimize_actives(self, tasks: Sequence[int], costs: Costs) -> None:
        """Exchange active tasks among all clients."""

        def partitions(info: TaskInfo) -> frozenset[TopicPartition]:
            sources = info.input_topic_partitions
            return sources | info.changelog_topic_partitions if self._all_partitions else sources

        exchange = _Exchange(self._placement.active, self._away(tasks, partitions), costs)
        self._solve(sorted(tasks), self._clients, exchange, self._strategy)

    def optimize_standbys(
        self, costs: Costs, *, may_move: Callable[[int, int, int], bool] | None = None, strategy: str = "min_traffic"
    ) -> None:
        """Exchange standbys between clients of different racks, pair by pair, while anything moves."""
        placement = self._placement
        followed = sorted(set().union(*placement.standby))
        away = self._away(followed, lambda info: info.changelog_topic_partitions)
        exchange = _Exchange(placement.standby, away, costs)
        rack_of = np.array(self._rack_of)
        # The most that one move from a client to a rack can save; pairs that cannot save anything are skipped.
        hope = np.array([self._hope(exchange, client) for client in placement.clients], np.int64)
        # Java starts from zero flow, which may also exchange tasks at equal cost.
        always = strategy != "min_traffic" and self._exact

        def movable(source: int, destination: int) -> list[int]:
            return [
                task
                for task in sorted(placement.standby[source])
                if not placement.holds(destination, task) and (may_move is None or may_move(task, source, destination))
            ]

        order = np.array(self._clients)
        for _ in range(_STANDBY_ROUNDS):
            moved = False
            for at, one in enumerate(self._clients):
                after = at + 1
                while after < len(order):
                    others = order[after:]
                    promising = hope[one, rack_of[others]] + hope[others, rack_of[one]] > 0
                    promising = (promising | always) & (rack_of[others] != rack_of[one])
                    if not promising.any():
                        break
                    after += int(promising.argmax()) + 1
                    other = int(order[after - 1])
                    mine, theirs = movable(one, other), movable(other, one)
                    if mine and theirs and self._solve(sorted(mine + theirs), [one, other], exchange, strategy):
                        moved = True
                        hope[one], hope[other] = self._hope(exchange, one), self._hope(exchange, other)
            if not moved:
                break

    def _away(
        self, tasks: Iterable[int], partitions: Callable[[TaskInfo], Iterable[TopicPartition]]
    ) -> dict[int, NDArray[np.int64]]:
        """Return, for each task, how many of its partitions have no replica in each rack."""
        return {
            task: np.array([cross_rack(info, looked_at, rack) for rack in self._racks], np.int64)
            for task in tasks
            for info in (self._infos[task],)
            for looked_at in (list(partitions(info)),)
        }

    def _hope(self, exchange: _Exchange, client: int) -> NDArray[np.int64]:
        here = self._rack_of[client]
        saved = [exchange.away[task][here] - exchange.away[task] for task in exchange.held[client]]
        if not saved:
            return np.full(len(self._racks), -(1 << 40))
        best: NDArray[np.int64] = exchange.costs.traffic_cost * np.max(saved, axis=0) - exchange.costs.non_overlap_cost
        return best

    def _solve(self, tasks: Sequence[int], clients: Sequence[int], exchange: _Exchange, strategy: str) -> bool:
        """Place ``tasks`` on ``clients`` at least cost, with the same number for each; return whether any moved."""
        if not tasks:
            return False
        held, costs = exchange.held, exchange.costs
        owner = {task: client for client in clients for task in held[client]}

        def cost(task: int, client: int) -> int:
            overlap = 0 if client == owner[task] else costs.non_overlap_cost
            return int(costs.traffic_cost * exchange.away[task][self._rack_of[client]]) + overlap

        problem = Problem(
            tasks=tasks,
            clients=clients,
            counts=[sum(owner[task] == client for task in tasks) for client in clients],
            owner=owner,
            cost=cost,
            rack_of=self._rack_of,
            subtopology_of=[info.id.subtopology for info in self._infos],
        )
        solve = in_javas_order if self._exact else at_least_cost
        moved = False
        for task, client in solve(problem, balance=strategy != "min_traffic").items():
            if client != owner[task]:
                held[owner[task]].remove(task)
                held[client].add(task)
                moved = True
        return moved


class _Exchange(NamedTuple):
    """Tasks of one role by client, and by task and rack their partitions without a replica there."""

    held: Sequence[set[int]]
    away: Mapping[int, NDArray[np.int64]]
    costs: Costs
