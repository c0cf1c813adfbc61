"""Assignors that leave tasks where they are, as far as balance allows, without waiting for state.

Kafka has two with slightly different rules for ties and full clients: the *public* ``StickyTaskAssignor``, and an older
*internal* one. The fallback of the high-availability assignor, while lags cannot be computed, is made of the latter.
"""

from __future__ import annotations

import datetime as dt
import functools
from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_assignment import in_roles
from sparkrelay.assignment.placement.java_order import process_hash_order, task_hash_order
from sparkrelay.assignment.placement.rack_awareness import STATELESS, RackAwareness, configured_costs, racks_known
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.assignment.task_assignor import TaskAssignment, TaskAssignor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.kafka_streams_assignment import KafkaStreamsAssignment
    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.placement.rack_awareness import Costs
    from sparkrelay.types import ProcessId, TaskId

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


class StickyTaskAssignor(TaskAssignor):
    """Gives tasks back to their previous owners up to an even share, the rest to the least loaded.

    Args:
        must_preserve_active_task_assignment: Leave every task with its owner, however uneven that is, and request a
            rebalance at once, to make it even.
    """

    settings = frozenset()

    def __init__(self, *, must_preserve_active_task_assignment: bool = False) -> None:
        self._preserve = must_preserve_active_task_assignment

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task."""
        plan = _Plan(application_state, preserve=self._preserve, legacy=False)
        plan.place_actives()
        plan.optimize_actives()
        plan.place_standbys()
        plan.optimize_standbys()
        entries = plan.to_assignments()
        if self._preserve and entries:
            entries[0] = entries[0].with_followup_rebalance(_EPOCH)
        return TaskAssignment(entries)


class FallbackPriorTaskAssignor(TaskAssignor):
    """Keeps every task with its previous owner while lags are unknown, and requests a probing rebalance."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task without lags."""
        plan = _Plan(application_state, preserve=True, legacy=True)
        plan.place_actives()
        plan.place_standbys()
        return TaskAssignment(plan.to_assignments(), probing_rebalance=True)


class _Plan:
    """One run of the sticky rules, in Java's hash order where Kafka iterates over a hash table."""

    def __init__(self, state: ApplicationState, *, preserve: bool, legacy: bool) -> None:
        states: Mapping[ProcessId, KafkaStreamsState] = state.kafka_streams_states(False)
        self._state = state
        self._states = states
        self._preserve = preserve
        self._legacy = legacy
        self._clients = process_hash_order(states)
        self._tasks = [info.id for info in state.all_tasks]
        self._logged = [info.id for info in state.all_tasks if info.is_logged]
        self._replicas = state.assignment_configs.num_standby_replicas
        self._threads = {process: states[process].num_processing_threads for process in states}
        self._active: dict[ProcessId, set[TaskId]] = {process: set() for process in states}
        self._standby: dict[ProcessId, set[TaskId]] = {process: set() for process in states}
        self._previous_active: dict[TaskId, ProcessId] = {}
        self._previous_standby: dict[TaskId, list[ProcessId]] = {}
        for process in self._clients:
            self._previous_active |= dict.fromkeys(states[process].previous_active_tasks, process)
            for task in states[process].previous_standby_tasks:
                self._previous_standby.setdefault(task, []).append(process)
        #: Tasks that share a client, smaller id first: new pairs are preferred to known ones.
        self._pairs: set[tuple[TaskId, TaskId]] = set()
        self._all_pairs = len(self._tasks) * (len(self._tasks) - 1) // 2

    def place_actives(self) -> None:
        if not self._clients:
            return
        share = len(self._tasks) // sum(self._threads.values())
        rest = set(self._tasks)

        def has_room(client: ProcessId) -> bool:
            return len(self._active[client]) < share * self._threads[client]

        for task in task_hash_order(sorted(self._previous_active)):
            owner = self._previous_active[task]
            if task in rest and (self._preserve or has_room(owner)):
                self._give(task, owner, self._active)
                rest.remove(task)
        for task in task_hash_order(sorted(rest)):
            follower = next(filter(has_room, self._previous_standby.get(task, ())), None)
            if follower is not None:
                self._give(task, follower, self._active)
                rest.remove(task)
        for task in sorted(rest):
            self._give(task, self._choose(task, self._clients), self._active)

    def place_standbys(self) -> None:
        for task in task_hash_order(self._logged):
            for _ in range(self._replicas):
                without = [client for client in self._clients if task not in self._held(client)]
                if not without:
                    break
                self._give(task, self._choose(task, without), self._standby)

    def optimize_actives(self) -> None:
        if (costs := self._costs) is None:
            return
        placement, racks = self._for_racks()
        logged = {placement.position[task] for task in self._logged}
        racks.optimize_actives(sorted(logged), costs)
        racks.optimize_actives([task for task in range(len(self._tasks)) if task not in logged], STATELESS)
        self._take_over(placement)

    def optimize_standbys(self) -> None:
        if self._replicas <= 0 or (costs := self._costs) is None:
            return
        placement, racks = self._for_racks()
        racks.optimize_standbys(costs, strategy=self._state.assignment_configs.rack_aware_assignment_strategy)
        self._take_over(placement)

    @functools.cached_property
    def _costs(self) -> Costs | None:
        costs = configured_costs(self._state.assignment_configs)
        known = costs is not None and racks_known(self._states, self._state.all_tasks, changelogs=True)
        return costs if known else None

    def _for_racks(self) -> tuple[Placement, RackAwareness]:
        infos = {info.id: info for info in self._state.all_tasks}
        placement = Placement(self._states, infos)
        for client, process in enumerate(placement.processes):
            placement.give(client, self._active[process], self._standby[process])
        strategy = self._state.assignment_configs.rack_aware_assignment_strategy
        return placement, RackAwareness(placement, self._states, infos, strategy, public=True)

    def _take_over(self, placement: Placement) -> None:
        for client, process in enumerate(placement.processes):
            self._active[process] = {placement.tasks[task] for task in placement.active[client]}
            self._standby[process] = {placement.tasks[task] for task in placement.standby[client]}

    def to_assignments(self) -> list[KafkaStreamsAssignment]:
        return [in_roles(process, self._active[process], self._standby[process]) for process in sorted(self._clients)]

    def _held(self, client: ProcessId) -> set[TaskId]:
        return self._active[client] | self._standby[client]

    def _count(self, client: ProcessId) -> int:
        return len(self._active[client]) + len(self._standby[client])

    def _load(self, client: ProcessId) -> float:
        return self._count(client) / self._threads[client]

    def _give(self, task: TaskId, client: ProcessId, role: dict[ProcessId, set[TaskId]]) -> None:
        self._pairs |= {_pair(task, other) for other in self._held(client)}
        role[client].add(task)

    def _choose(self, task: TaskId, among: list[ProcessId]) -> ProcessId:
        if len(among) == 1:
            return among[0]
        owner = self._previous_active.get(task)
        previous = owner if owner in among else self._least_loaded_follower(task, among)
        if previous is not None and not self._should_shed(previous):
            return previous
        if previous is not None:
            follower = self._least_loaded_follower(task, among)
            if follower is not None and not self._should_shed(follower):
                return follower
        chosen = self._least_loaded(task, among)
        assert chosen is not None, f"no client among {len(among)} for task {task}"
        return chosen

    def _should_shed(self, client: ProcessId) -> bool:
        """Return whether the client is full while another is less loaded."""
        if self._count(client) < self._threads[client]:
            return False
        return any(self._is_emptier(other, client) for other in self._clients)

    def _is_emptier(self, one: ProcessId, other: ProcessId) -> bool:
        mine, theirs = self._load(one), self._load(other)
        if mine == theirs and self._legacy:
            return self._threads[one] > self._threads[other]
        return mine < theirs

    def _least_loaded_follower(self, task: TaskId, among: Iterable[ProcessId]) -> ProcessId | None:
        followers = self._previous_standby.get(task)
        if not followers:
            return None
        allowed = set(among)
        return self._least_loaded(task, process_hash_order(client for client in followers if client in allowed))

    def _least_loaded(self, task: TaskId, among: list[ProcessId]) -> ProcessId | None:
        with_new_pair = self._emptiest(among, lambda client: self._makes_new_pair(task, client))
        return with_new_pair or self._emptiest(among, lambda _client: True)

    def _emptiest(self, among: list[ProcessId], valid: Callable[[ProcessId], bool]) -> ProcessId | None:
        best: ProcessId | None = None
        for client in among:
            if self._count(client) == 0:
                return client
            if (best is None or self._is_emptier(client, best)) and valid(client):
                best = client
        return best

    def _makes_new_pair(self, task: TaskId, client: ProcessId) -> bool:
        if len(self._pairs) == self._all_pairs:
            return False
        return any(_pair(task, other) not in self._pairs for other in self._held(client))


def _pair(one: TaskId, other: TaskId) -> tuple[TaskId, TaskId]:
    return (one, other) if one < other else (other, one)
