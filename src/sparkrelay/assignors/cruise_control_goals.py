"""The goals of :mod:`sparkrelay.assignors.cruise_control`, and the cluster that they change.

A goal proposes actions, one copy at a time, and accepts or rejects those of others. It does not know the other goals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sparkrelay.assignment import AssignedTask, KafkaStreamsAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from fractions import Fraction

    from sparkrelay.assignment import ApplicationState, ProcessId, TaskId

__all__ = ["Action", "Cluster", "EvenCounts", "Goal", "RackAwareness", "limits"]


class Action(NamedTuple):
    """Move one copy in its role; or, with ``leadership``, let a follower take over."""

    task: TaskId
    source: int
    target: int
    leadership: bool = False


class Cluster:
    """The copies of tasks on processes, by position in ``processes``; the first holder of a task is its leader."""

    def __init__(self, state: ApplicationState) -> None:
        states = state.kafka_streams_states(compute_task_lags=False)
        self.processes: list[ProcessId] = sorted(states)
        self.nodes = range(len(self.processes))
        ordered = [states[process] for process in self.processes]
        self.threads = [one.num_processing_threads for one in ordered]
        # A broker without a rack counts as a rack of its own.
        self.rack = [(one.rack_id or "", 0 if one.rack_id else node) for node, one in enumerate(ordered)]
        replicas = state.assignment_configs.num_standby_replicas
        #: The intended number of copies of each task.
        self.wanted = {
            info.id: min(1 + (replicas if info.is_logged else 0), len(self.processes)) for info in state.all_tasks
        }
        #: Processes with a copy before, even if only on disk.
        self.origin: dict[TaskId, frozenset[int]] = {
            task: frozenset(
                node
                for node, one in enumerate(ordered)
                if task in one.previous_active_tasks or task in one.previous_standby_tasks
            )
            for task in self.wanted
        }
        #: Who runs it now; nobody during a hand-over.
        self.runner: dict[TaskId, int] = {}
        for node, one in enumerate(ordered):
            for task in one.previous_active_tasks:
                if task in self.wanted:
                    self.runner.setdefault(task, node)
        self.holders: dict[TaskId, list[int]] = {task: [] for task in self.wanted}
        self.copies: list[set[TaskId]] = [set() for _ in self.nodes]

    def add(self, task: TaskId, node: int) -> None:
        """Add a copy; the first is the leader."""
        self.holders[task].append(node)
        self.copies[node].add(task)

    def drop_followers(self) -> None:
        """Remove all followers."""
        for task, holders in self.holders.items():
            for node in holders[1:]:
                self.copies[node].remove(task)
            del holders[1:]

    def load(self, node: int) -> float:
        """Return copies per thread."""
        return len(self.copies[node]) / self.threads[node]

    def apply(self, action: Action) -> None:
        """Carry out an action."""
        holders = self.holders[action.task]
        at = holders.index(action.source)
        if action.leadership:
            other = holders.index(action.target)
            holders[at], holders[other] = action.target, action.source
        else:
            holders[at] = action.target
            self.copies[action.source].remove(action.task)
            self.copies[action.target].add(action.task)

    def is_leader(self, task: TaskId, node: int) -> bool:
        """Return whether the process leads the task."""
        return self.holders[task][0] == node

    def interrupts(self, action: Action) -> bool:
        """Return whether the action moves a running task."""
        return self.is_leader(action.task, action.source) and self.runner.get(action.task) == action.source

    def is_legitimate(self, action: Action) -> bool:
        """Return whether the action is possible, without two copies on one process."""
        held = action.task in self.copies[action.target]
        return held and self.is_leader(action.task, action.source) if action.leadership else not held

    def to_assignments(self) -> list[KafkaStreamsAssignment]:
        """Return leaders as active tasks and followers as standbys."""
        active, standby = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY
        return [
            KafkaStreamsAssignment.of(
                process,
                [AssignedTask(task, active if self.is_leader(task, node) else standby) for task in self.copies[node]],
            )
            for node, process in enumerate(self.processes)
        ]


class RackAwareness:
    """A hard goal: copies of a task are spread evenly over racks. See :class:`EvenCounts` for the methods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._racks = len(set(cluster.rack))
        #: False if every process is its own rack.
        self._matters = self._racks < len(cluster.processes)

    def has_room(self, task: TaskId, node: int) -> bool:
        """Return whether a process's rack may get another copy."""
        return not self._matters or self._in_rack(task, node) < self._most(task)

    def accepts(self, action: Action) -> bool:
        """Return whether the target is in the same rack, or its rack has room."""
        rack = self._cluster.rack
        if action.leadership or not self._matters or rack[action.source] == rack[action.target]:
            return True
        return self.has_room(action.task, action.target)

    def optimize(self, attempt: Callable[[Action], bool]) -> bool:
        """Move copies out of racks that have too many."""
        if not self._matters:
            return False
        moved = False
        cluster = self._cluster
        for node in cluster.nodes:
            for task in sorted(cluster.copies[node]):
                if self._in_rack(task, node) > self._most(task):
                    moved |= any(
                        attempt(Action(task, node, target))
                        for target in cluster.nodes
                        if cluster.rack[target] != cluster.rack[node]
                    )
        return moved

    def applied(self, action: Action) -> None:
        """Do nothing: racks are counted on demand."""

    def _in_rack(self, task: TaskId, node: int) -> int:
        rack = self._cluster.rack
        return sum(rack[holder] == rack[node] for holder in self._cluster.holders[task])

    def _most(self, task: TaskId) -> int:
        return -(-self._cluster.wanted[task] // self._racks)


class EvenCounts:
    """A soft goal: each process has a number of copies near its share, in total or for each kind of tasks."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Callable[[TaskId], int],
        *,
        percent: Fraction,
        gaps: tuple[int, int] | None = None,
        leaders_only: bool = False,
    ) -> None:
        self._cluster = cluster
        self._kind = kind
        self._leaders_only = leaders_only
        self._counts: dict[int, list[int]] = {kind(task): [0] * len(cluster.nodes) for task in cluster.holders}
        for task, holders in cluster.holders.items():
            for node in holders[:1] if leaders_only else holders:
                self._counts[kind(task)][node] += 1
        threads = sum(cluster.threads)
        self._upper: dict[int, list[int]] = {}
        self._lower: dict[int, list[int]] = {}
        for each, counts in self._counts.items():
            total = sum(counts)
            both = [limits(total * count, threads, percent, gaps) for count in cluster.threads]
            self._lower[each], self._upper[each] = map(list, zip(*both, strict=True))

    def accepts(self, action: Action) -> bool:
        """Return whether an action does not worsen the goal: no process leaves its limits, or moves further away."""
        if not self._concerns(action):
            return True
        kind = self._kind(action.task)
        counts = self._counts[kind]
        return (
            counts[action.target] < self._upper[kind][action.target]
            and counts[action.source] > self._lower[kind][action.source]
        )

    def applied(self, action: Action) -> None:
        """Update the counts, just before an action changes the cluster."""
        if self._concerns(action):
            counts = self._counts[self._kind(action.task)]
            counts[action.source] -= 1
            counts[action.target] += 1

    def optimize(self, attempt: Callable[[Action], bool]) -> bool:
        """Attempt actions until all processes are within their limits; return whether any succeeded."""
        moved = False
        for kind in sorted(self._counts):
            counts, upper, lower = self._counts[kind], self._upper[kind], self._lower[kind]
            for node in self._cluster.nodes:
                if counts[node] > upper[node]:
                    moved |= self._move_out(kind, node, attempt)
                elif counts[node] < lower[node]:
                    moved |= self._move_in(kind, node, attempt)
        return moved

    def _concerns(self, action: Action) -> bool:
        if self._leaders_only:
            return self._cluster.is_leader(action.task, action.source)
        return not action.leadership

    def _move_out(self, kind: int, node: int, attempt: Callable[[Action], bool]) -> bool:
        moved = False
        counts, upper = self._counts[kind], self._upper[kind]
        for leadership in (True, False) if self._leaders_only else (False,):
            for task in self._movable(kind, node):
                if counts[node] <= upper[node]:
                    return moved
                targets = self._cluster.holders[task][1:] if leadership else self._cluster.nodes
                below = [target for target in targets if counts[target] < upper[target]]
                below.sort(key=self._filled(kind))
                moved |= any(attempt(Action(task, node, target, leadership)) for target in below)
        return moved

    def _move_in(self, kind: int, node: int, attempt: Callable[[Action], bool]) -> bool:
        moved = False
        counts, lower = self._counts[kind], self._lower[kind]
        if self._leaders_only:
            for task in sorted(task for task in self._cluster.copies[node] if self._kind(task) == kind):
                if counts[node] >= lower[node]:
                    return moved
                leader = self._cluster.holders[task][0]
                moved |= leader != node and attempt(Action(task, leader, node, leadership=True))
        gave = True
        while gave and counts[node] < lower[node]:
            sources = [source for source in self._cluster.nodes if counts[source] > lower[source]]
            sources.sort(key=self._filled(kind), reverse=True)
            gave = any(
                attempt(Action(task, source, node)) for source in sources for task in self._movable(kind, source)
            )
            moved |= gave
        return moved

    def _movable(self, kind: int, node: int) -> Iterable[TaskId]:
        """Return the counted copies of a process, new ones first, running tasks last."""
        cluster = self._cluster
        counted = [
            task
            for task in cluster.copies[node]
            if self._kind(task) == kind and (not self._leaders_only or cluster.is_leader(task, node))
        ]
        return sorted(counted, key=lambda task: (cluster.runner.get(task) == node, node in cluster.origin[task], task))

    def _filled(self, kind: int) -> Callable[[int], float]:
        counts, threads = self._counts[kind], self._cluster.threads
        return lambda node: counts[node] / threads[node]


Goal: TypeAlias = RackAwareness | EvenCounts


def limits(share: int, parts: int, percent: Fraction, gaps: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return the limits around ``share / parts``, rounded outwards."""
    lower = max(0, share * (100 - percent) // (100 * parts))
    upper = -(-share * (100 + percent) // (100 * parts))
    if gaps is not None:
        floor, ceiling = share // parts, -(-share // parts)
        least, most = gaps
        lower = max(0, floor - most, min(lower, floor - least))
        upper = max(ceiling + least, min(upper, ceiling + most))
    return lower, upper
