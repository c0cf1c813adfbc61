"""KIP-441 with as little state moved as balance allows.

KIP-441 leaves the algorithm open and asks for six properties. Kafka's own high-availability assignor deals all tasks
anew, whoever ran them: a newcomer whose id sorts early shifts most tasks, two at a time. Here the target is the
balanced placement with the least to restore (``least_movement_target``): a newcomer moves about tasks / processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkrelay.assignment.kafka_streams_assignment import in_roles
from sparkrelay.assignment.lags import are_caught_up, lag_matrix
from sparkrelay.assignment.placement.least_movement_target import (
    Target,
    choose_holders,
    choose_runners,
    place_unlogged,
)
from sparkrelay.assignment.task_assignor import TaskAssignment, TaskAssignor
from sparkrelay.errors import TaskAssignmentException
from sparkrelay.protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.types import ProcessId, TaskId


class LeastMovementTaskAssignor(TaskAssignor):
    """Balances processes and sub-topologies per thread with the least state to restore.

    1. The target: among balanced placements of all copies of logged tasks, one that restores the fewest offsets (an
       unknown lag counts as 1), and of these one with few changes.
    2. For now, each task runs on a most-caught-up process, and its standbys on the next ones; the target decides ties.
       The target's other copies warm up, ``max.warmup.replicas`` at a time, active tasks first, then the shortest
       lags. Until all have caught up it requests probing rebalances.
    3. Tasks without a changelog stay as far as balance allows.

    A balanced group does not change. Racks and client tags are ignored.
    """

    settings = frozenset()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task; request a probing rebalance while movements are outstanding."""
        states = application_state.kafka_streams_states(False)
        if not states:
            return TaskAssignment([])
        group = _Group.of(application_state)
        configs = application_state.assignment_configs
        target = group.target(1 + configs.num_standby_replicas)
        now = _Now(group, target)
        warm_ups = now.warm_ups(configs.max_warmup_replicas)
        unlogged = group.place_unlogged(target)
        return TaskAssignment(
            [
                in_roles(
                    process,
                    [*group.named(now.runners, client), *(group.unlogged[task] for task in unlogged[client])],
                    group.named(now.standbys, client),
                )
                for client, process in enumerate(group.processes)
            ],
            probing_rebalance=now.waiting,
            warm_ups={
                process: frozenset(group.logged[task] for task, at in warm_ups if at == client)
                for client, process in enumerate(group.processes)
                if any(at == client for _task, at in warm_ups)
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The group as matrices of logged tasks x clients, both sorted.

    ``lags`` are offsets to restore; ``ranks`` are 0 if caught up, else the lag (KIP-441, "Computing the most-caught-up
    instances").
    """

    processes: Sequence[ProcessId]
    threads: Sequence[int]
    logged: Sequence[TaskId]
    unlogged: Sequence[TaskId]
    lags: NDArray[np.int64]
    ranks: NDArray[np.int64]
    previous_active: NDArray[np.bool_]
    previous_standby: NDArray[np.bool_]
    unlogged_before: NDArray[np.bool_]

    @classmethod
    def of(cls, state: ApplicationState) -> _Group:
        states = state.kafka_streams_states(False)
        processes = sorted(states)
        logged = [info.id for info in state.all_tasks if info.is_logged]
        unlogged = [info.id for info in state.all_tasks if not info.is_logged]
        active = _matrix(logged, [states[process].previous_active_tasks for process in processes])
        standby = _matrix(logged, [states[process].previous_standby_tasks for process in processes])
        try:
            lags = lag_matrix(state.kafka_streams_states(True), processes, logged).T
        except TaskAssignmentException:
            # Only previous owners are known: prefer them, and count tasks instead of offsets.
            lags = np.where(active, LATEST_OFFSET, UNKNOWN_OFFSET_SUM).astype(np.int64)
            ranks = np.where(active, 0, np.where(standby, 1, 2)).astype(np.int64)
        else:
            acceptable = state.assignment_configs.acceptable_recovery_lag
            known = np.where(lags == UNKNOWN_OFFSET_SUM, min(acceptable, (1 << 62)) + 1, np.maximum(lags, 0))
            ranks = np.where(are_caught_up(lags, acceptable), 0, known)
        return cls(
            processes=processes,
            threads=[states[process].num_processing_threads for process in processes],
            logged=logged,
            unlogged=unlogged,
            lags=np.where(ranks == 0, 0, np.where(lags == UNKNOWN_OFFSET_SUM, 1, np.maximum(lags, 0))),
            ranks=ranks,
            previous_active=active,
            previous_standby=standby,
            unlogged_before=_matrix(unlogged, [states[process].previous_active_tasks for process in processes]),
        )

    def target(self, copies: int) -> Target:
        if not self.logged:
            nobody = np.zeros((0, len(self.processes)), np.bool_)
            return Target(nobody, nobody)
        groups = _subtopologies(self.logged)
        holders = choose_holders(
            self.lags,
            self.previous_active,
            self.previous_standby,
            group_of=groups,
            threads=self.threads,
            copies=min(copies, len(self.processes)),
        )
        runners = choose_runners(holders, self.ranks, self.previous_active, groups, self.threads)
        return Target(holders, runners)

    def place_unlogged(self, target: Target) -> list[list[int]]:
        if not self.unlogged:
            return [[] for _ in self.processes]
        placed = place_unlogged(
            self.unlogged_before, _subtopologies(self.unlogged), self.threads, target.runners.sum(axis=0)
        )
        return [np.flatnonzero(placed[:, client]).tolist() for client in range(len(self.processes))]

    def named(self, matrix: NDArray[np.bool_], client: int) -> Iterable[TaskId]:
        return (self.logged[task] for task in np.flatnonzero(matrix[:, client]).tolist())


class _Now:
    """The placement for now: most-caught-up processes have the tasks, the target's others warm up."""

    def __init__(self, group: _Group, target: Target) -> None:
        self._group = group
        self._target = target
        self.runners = target.runners.copy()
        self.standbys = target.holders & ~target.runners
        ranks = group.ranks
        behind = np.where(target.runners, ranks, 0).max(axis=1, initial=0) > ranks.min(axis=1, initial=1 << 62)
        farthest = np.where(target.holders, ranks, 0).max(axis=1, initial=0)
        nearest_other = np.where(target.holders, np.int64((1 << 63) - 1), ranks).min(axis=1, initial=(1 << 63) - 1)
        unready = np.flatnonzero(behind | (farthest > nearest_other))
        self.runners[unready] = self.standbys[unready] = False
        self._counts = (self.runners | self.standbys).sum(axis=0)
        for task in unready:
            self._place(int(task))
        self._missing = target.holders & ~(self.runners | self.standbys)
        if self._missing.any():
            self._leave_running_tasks()
        #: True until the placement is the target.
        self.waiting = bool(self._missing.any() or (self.runners != target.runners).any())

    def _leave_running_tasks(self) -> None:
        """Undo moves between caught-up processes while other copies warm up.

        Each move leaves its task without an owner for a rebalance (KIP-429), and with other owners the next target may
        be another one of equal cost. So all moves happen together in the end.
        """
        ranks, before = self._group.ranks, self._group.previous_active
        ready = before & self._target.holders & (ranks == ranks.min(axis=1, keepdims=True))
        for task in np.flatnonzero(ready.any(axis=1) & ~(ready & self.runners).any(axis=1)):
            self._counts -= self.runners[task] | self.standbys[task]
            self.runners[task] = self.standbys[task] = False
            self._place(int(task), stay=True)
        self._missing = self._target.holders & ~(self.runners | self.standbys)

    def _place(self, task: int, *, stay: bool = False) -> None:
        group, target = self._group, self._target
        copies = int(target.holders[task].sum())
        holder, before = target.holders[task], group.previous_active[task] | group.previous_standby[task]
        load = self._counts / np.array(group.threads)
        order = np.lexsort((load, ~before, ~holder, group.ranks[task]))
        ready = order[group.ranks[task][order] == group.ranks[task][order[0]]]
        running = np.lexsort((load[ready], ~holder[ready], ~group.previous_active[task][ready]))
        wanted = int(target.runners[task].argmax())
        runner = wanted if wanted in ready and not stay else int(ready[running[0]])
        self.runners[task, runner] = True
        self.standbys[task, order[order != runner][: copies - 1]] = True
        self._counts += self.runners[task] | self.standbys[task]

    def warm_ups(self, budget: int) -> list[tuple[int, int]]:
        """Add up to ``budget`` warm-ups to the standbys; return them as (task, client)."""
        wanted = [(int(task), int(client)) for task, client in zip(*np.nonzero(self._missing), strict=True)]
        runners, lags = self._target.runners, self._group.lags
        wanted.sort(key=lambda copy: (not runners[copy], lags[copy], copy))
        chosen = wanted[:budget]
        for copy in chosen:
            self.standbys[copy] = True
        return chosen


def _matrix(tasks: Sequence[TaskId], held: Sequence[Iterable[TaskId]]) -> NDArray[np.bool_]:
    position = {task: row for row, task in enumerate(tasks)}
    matrix = np.zeros((len(tasks), len(held)), np.bool_)
    for client, own in enumerate(held):
        matrix[[position[task] for task in own if task in position], client] = True
    return matrix


def _subtopologies(tasks: Sequence[TaskId]) -> NDArray[np.intp]:
    """Return the sub-topology of each task, counted from 0."""
    return np.unique([task.subtopology for task in tasks], return_inverse=True)[1].astype(np.intp)
