"""Simulates one scenario with one assignor, from the first event until the group is at rest. Pure: one seed, no clock.

Rebalances are requested by the churn, by a pending handover, by the assignor (probing, or its own deadline) and, if the
scenario has follow-ups, by a copy that has warmed up. One takes ``rebalance_s``; like a real one it waits until the
group has noticed who is dead.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from sparkrelay.assignment.leader.follow_up_pause import FollowUpPause
from sparkrelay.simulate.churn import Action, Event, churn_events
from sparkrelay.simulate.cluster import Cluster
from sparkrelay.simulate.leader import AssignorFailed, Leader
from sparkrelay.simulate.outcome import Outcome
from sparkrelay.simulate.scenario import Churn, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.assignment import TaskAssignor

_CONVERGING = 10
_HOUR_S = 3600.0


def simulate(scenario: Scenario, assignor: TaskAssignor) -> Outcome:
    """Run one scenario; if the assignor fails, return an outcome with its error.

    The group starts with the assignor's own assignment, everything caught up.

    Args:
        scenario: The group and its churn.
        assignor: A configured, unused assignor.
    """
    return _Simulation(scenario, assignor).run()


class _Simulation:
    def __init__(self, scenario: Scenario, assignor: TaskAssignor) -> None:
        self._scenario = scenario
        self._events: list[Event] = list(churn_events(scenario))
        self._last_event_s = self._events[-1].at_s
        processes = 1 + max(scenario.clients - 1, *(event.process for event in self._events))
        chance = random.Random(scenario.seed)
        stateful = scenario.subtopologies * scenario.partitions
        spread = scenario.size_spread
        self._racks = _replica_racks(scenario, chance)
        self._cluster = Cluster(
            scenario,
            ends=[
                float(round(scenario.records_per_task * chance.uniform(1 - spread, 1 + spread)))
                for _ in range(stateful)
            ],
            replica_racks=self._racks,
            process_count=processes,
        )
        self._leader = Leader(scenario, assignor, processes)
        self._leader.place_replicas(self._racks)
        self._rebalance_at = math.inf
        self._pause = FollowUpPause(scenario.follow_up_min_interval_s)
        self._rebalances = self._rebalances_since_event = 0
        self._imbalance_worst = 0.0
        self._left_out = 0

    def run(self) -> Outcome:
        try:
            self._converge()
            converged = self._run_until_rest()
            if self._left_out:
                raise AssignorFailed(f"{self._left_out} tasks were given to no process")
        except AssignorFailed as failure:
            return Outcome(error=str(failure))
        cluster, record_bytes = self._cluster, self._scenario.bytes_per_record
        return Outcome(
            converged=converged,
            rebalances=self._rebalances,
            converge_s=max(0.0, cluster.now - self._last_event_s),
            tasks_moved=cluster.tasks_moved,
            copies_built=cluster.copies_built,
            restored_bytes=round(cluster.restored_records * record_bytes),
            down_task_s=cluster.down_task_s,
            exposed_task_s=cluster.exposed_task_s,
            imbalance_worst=self._imbalance_worst,
            imbalance_end=cluster.imbalance(),
            cross_rack_restored_bytes=round(cluster.cross_rack_restored_records * record_bytes),
            cross_rack_bytes_per_s=round(cluster.cross_rack_records_per_s() * record_bytes),
        )

    def _converge(self) -> None:
        """Install the group's initial assignment."""
        for number in range(self._scenario.clients):
            self._cluster.join(number)
        for _ in range(_CONVERGING):
            answer = self._leader.ask(self._cluster)
            self._cluster.put_in_place(answer.placed)
            if answer.look_again_s == math.inf:
                break
        self._cluster.set_standbys_back(self._scenario.initial_lag)
        self._cluster.reset_measures()

    def _run_until_rest(self) -> bool:
        cluster, scenario = self._cluster, self._scenario
        pending = self._events[::-1]
        deadline = self._last_event_s + scenario.max_hours * _HOUR_S
        while True:
            event_at = pending[-1].at_s if pending else math.inf
            change_at = cluster.now + cluster.next_change_s()
            then = min(event_at, change_at, self._rebalance_at)
            if then == math.inf:
                return not cluster.catching_up
            if then > deadline or self._rebalances_since_event >= scenario.max_rebalances:
                return False
            if cluster.advance(max(0.0, then - cluster.now)) and scenario.follow_up:
                self._request(max(cluster.now, self._pause.over_at) + scenario.rebalance_s)
            cluster.now = then
            while pending and pending[-1].at_s <= then:
                self._apply(pending.pop())
            if self._rebalance_at <= then:
                self._rebalance_at = math.inf
                self._rebalance(pending)

    def _request(self, at_s: float) -> None:
        self._rebalance_at = min(self._rebalance_at, at_s)

    def _apply(self, event: Event) -> None:
        cluster = self._cluster
        self._rebalances_since_event = 0
        match event.action:
            case Action.JOIN:
                cluster.join(event.process)
            case Action.LEAVE:
                cluster.leave(event.process)
            case Action.CRASH:
                cluster.crash(event.process)
                if self._scenario.churn == Churn.RACK_LOSS:
                    lost = {self._scenario.lost_rack}
                    left = [racks - lost or racks for racks in self._racks]
                    cluster.lose_replicas(left)
                    self._leader.place_replicas(left)
                return  # not noticed yet
            case Action.DETECT:
                cluster.detect(event.process)
            case Action.NUDGE:
                pass
        self._request(cluster.now + self._scenario.rebalance_s)

    def _rebalance(self, pending: Sequence[Event]) -> None:
        cluster, scenario = self._cluster, self._scenario
        if dead := {number for number in cluster.members if not cluster.processes[number].up}:
            # A silent member delays the rebalance until its session ends, or it returns.
            known_at = next(event.at_s for event in reversed(pending) if event.process in dead)
            self._rebalance_at = known_at + scenario.rebalance_s
            return
        if not cluster.members:
            return
        answer = self._leader.ask(cluster)
        self._rebalances += 1
        self._rebalances_since_event += 1
        waits = cluster.follow(answer.placed)
        self._pause.assigned(cluster.now)
        self._left_out = answer.left_out
        self._rebalance_at = cluster.now + answer.look_again_s + scenario.rebalance_s
        if waits:
            self._request(cluster.now + scenario.rebalance_s)
        else:
            self._imbalance_worst = max(self._imbalance_worst, cluster.imbalance())


def _replica_racks(scenario: Scenario, chance: random.Random) -> list[frozenset[int]]:
    """Return the racks of each task's partitions: of two replicas, on different racks if there are several."""
    replicas = min(2, scenario.racks)
    return [frozenset(chance.sample(range(scenario.racks), replicas)) for _ in range(scenario.tasks)]
