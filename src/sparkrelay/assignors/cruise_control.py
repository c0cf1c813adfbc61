"""Cruise Control's goals in order of priority, with tasks for partitions. See KIP-441, "Cruise Control".

A list of goals is gone through from the most important to the least. Each changes the assignment until it is content,
and may only take an action that it accepts itself and that *every goal before it* accepts. So a later goal never undoes
an earlier one, and the result is satisfactory rather than optimal. Goals, in Cruise Control's default order:

1. rack awareness (hard): copies of a task on different racks; with more copies than racks, spread evenly over them
2. replica distribution (soft): copies of a process within 9 % of its share, rounded outwards
3. topic replica distribution (soft): copies of one subtopology on a process at most 180 % above its share, and in any
   case between 2 and 40 above it
4. leader replica distribution (soft): active tasks of a process within 9 % of its share

9 % and 180 % are nine tenths of the usual thresholds (1.10, 3.00, 1.10), a margin that Cruise Control keeps.
Goals about disk, network and CPU have nothing to measure here and are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from sparkrelay.assignment import AssignedTask, KafkaStreamsAssignment, TaskAssignment, TaskAssignor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkrelay.assignment import ApplicationState, ProcessId, TaskId

__all__ = ["CruiseControlTaskAssignor"]

_REPLICA_PERCENT = 9
_TOPIC_PERCENT = 180
_TOPIC_GAPS = (2, 40)
_LEADER_PERCENT = 9


class CruiseControlTaskAssignor(TaskAssignor):
    """Hard goals, then soft ones by priority; none may spoil what an earlier one has reached.

    A task is a partition, a process a broker, the active task the leader, standbys are followers. Standbys are counted
    and moved like active tasks; the leader goal prefers to swap roles with a standby, which moves no state.

    Cruise Control measures load against a broker's capacity, but its count goals treat brokers alike. Here is only one
    kind of load, so the counts do both: a process's share is in proportion to its threads.

    If the process that ran a task is gone, a copy that exists becomes the active one, as Kafka elects a leader. Copies
    that are missing go to the least loaded process that the hard goal allows, and are the first to move on. Where the
    hard goal cannot be met, Cruise Control proposes nothing at all; a group cannot do without an assignment, so here
    it is met as far as there are racks.
    """

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task."""
        cluster = _Cluster(application_state)
        if cluster.processes:
            cluster.place_missing()
            _optimize(cluster)
        return TaskAssignment(cluster.to_assignments())


class _Action(NamedTuple):
    """Move one copy, in the role it has; or, with ``leadership``, let a follower take over."""

    task: TaskId
    source: int
    target: int
    leadership: bool = False


class _Goal(Protocol):
    def accepts(self, action: _Action) -> bool:
        """Return whether this goal would be no worse off."""

    def optimize(self, attempt: Callable[[_Action], bool]) -> bool:
        """Make attempts until content; return whether any succeeded."""

    def applied(self, action: _Action) -> None:
        """Take note of an action, just before it changes the cluster."""


class _Cluster:
    """Who holds a copy of what. A process is a position in ``processes``; the first holder of a task is its leader."""

    def __init__(self, state: ApplicationState) -> None:
        states = state.kafka_streams_states(compute_task_lags=False)
        self.processes: list[ProcessId] = sorted(states)
        self.nodes = range(len(self.processes))
        self.threads = [states[process].num_processing_threads for process in self.processes]
        # A broker without a rack counts as a rack of its own.
        self.rack = [
            (states[process].rack_id or "", 0 if states[process].rack_id else node)
            for node, process in enumerate(self.processes)
        ]
        replicas = state.assignment_configs.num_standby_replicas
        self.wanted = {
            info.id: min(1 + (replicas if info.is_logged else 0), len(self.processes)) for info in state.all_tasks
        }
        self.holders: dict[TaskId, list[int]] = {task: [] for task in self.wanted}
        self.copies: list[set[TaskId]] = [set() for _ in self.nodes]
        for role in ("previous_active_tasks", "previous_standby_tasks"):
            for node, process in enumerate(self.processes):
                for task in getattr(states[process], role):
                    if len(self.holders.get(task, ())) < self.wanted.get(task, 0) and task not in self.copies[node]:
                        self._add(task, node)
        self.origin = {task: frozenset(nodes) for task, nodes in self.holders.items()}

    def place_missing(self) -> None:
        """Make the copies that are missing, all leaders first."""
        racks = _RackAwareness(self)
        for leaders in (True, False):
            for task, holders in self.holders.items():
                while len(holders) < (1 if leaders else self.wanted[task]):
                    free = [node for node in self.nodes if task not in self.copies[node]]
                    allowed = [node for node in free if racks.has_room(task, node)]
                    self._add(task, min(allowed or free, key=self._load))

    def apply(self, action: _Action) -> None:
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
        return self.holders[task][0] == node

    def is_legitimate(self, action: _Action) -> bool:
        """Return whether the action is possible at all; never two copies on one process."""
        held = action.task in self.copies[action.target]
        return held and self.is_leader(action.task, action.source) if action.leadership else not held

    def to_assignments(self) -> list[KafkaStreamsAssignment]:
        active, standby = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY
        return [
            KafkaStreamsAssignment.of(
                process,
                [AssignedTask(task, active if self.is_leader(task, node) else standby) for task in self.copies[node]],
            )
            for node, process in enumerate(self.processes)
        ]

    def _add(self, task: TaskId, node: int) -> None:
        self.holders[task].append(node)
        self.copies[node].add(task)

    def _load(self, node: int) -> float:
        return len(self.copies[node]) / self.threads[node]


def _optimize(cluster: _Cluster) -> None:
    """Go through the goals by priority, again and again until none finds anything to do.

    Cruise Control goes through them once and looks again later; this is the state it comes to rest in. It does come to
    rest: an action makes its own goal better off and leaves none before it worse off.
    """
    goals: list[_Goal] = [
        _RackAwareness(cluster),
        _EvenCounts(cluster, lambda _task: 0, percent=_REPLICA_PERCENT),
        _EvenCounts(cluster, lambda task: task.subtopology, percent=_TOPIC_PERCENT, gaps=_TOPIC_GAPS),
        _EvenCounts(cluster, lambda _task: 0, percent=_LEADER_PERCENT, leaders_only=True),
    ]

    def attempt_with(earlier: list[_Goal]) -> Callable[[_Action], bool]:
        def attempt(action: _Action) -> bool:
            if not (cluster.is_legitimate(action) and all(goal.accepts(action) for goal in earlier)):
                return False
            for goal in goals:
                goal.applied(action)
            cluster.apply(action)
            return True

        return attempt

    moved = True
    while moved:
        moved = False
        for index, goal in enumerate(goals):
            # A goal is among those that must accept its actions.
            moved |= goal.optimize(attempt_with(goals[: index + 1]))


class _RackAwareness:
    """Hard: no more copies of a task in one rack than even spreading needs."""

    def __init__(self, cluster: _Cluster) -> None:
        self._cluster = cluster
        self._racks = len(set(cluster.rack))
        #: If every process has a rack of its own, different processes are different racks.
        self._matters = self._racks < len(cluster.processes)

    def has_room(self, task: TaskId, node: int) -> bool:
        return not self._matters or self._in_rack(task, node) < self._most(task)

    def accepts(self, action: _Action) -> bool:
        rack = self._cluster.rack
        if action.leadership or not self._matters or rack[action.source] == rack[action.target]:
            return True
        return self.has_room(action.task, action.target)

    def optimize(self, attempt: Callable[[_Action], bool]) -> bool:
        if not self._matters:
            return False
        moved = False
        cluster = self._cluster
        for node in cluster.nodes:
            for task in sorted(cluster.copies[node]):
                if self._in_rack(task, node) > self._most(task):
                    moved |= any(
                        attempt(_Action(task, node, target))
                        for target in cluster.nodes
                        if cluster.rack[target] != cluster.rack[node]
                    )
        return moved

    def applied(self, action: _Action) -> None:
        """Nothing is remembered: racks are counted when they are asked for."""

    def _in_rack(self, task: TaskId, node: int) -> int:
        rack = self._cluster.rack
        return sum(rack[holder] == rack[node] for holder in self._cluster.holders[task])

    def _most(self, task: TaskId) -> int:
        return -(-self._cluster.wanted[task] // self._racks)


class _EvenCounts:
    """Soft: on each process, a number of copies near its share; counted over all tasks or for each kind of them."""

    def __init__(
        self,
        cluster: _Cluster,
        kind: Callable[[TaskId], int],
        *,
        percent: int,
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
            # A share is a fraction: so many in `threads`.
            limits = [_limits(total * count, threads, percent, gaps) for count in cluster.threads]
            self._lower[each], self._upper[each] = map(list, zip(*limits, strict=True))

    def accepts(self, action: _Action) -> bool:
        if not self._concerns(action):
            return True
        kind = self._kind(action.task)
        counts = self._counts[kind]
        return (
            counts[action.target] < self._upper[kind][action.target]
            and counts[action.source] > self._lower[kind][action.source]
        )

    def applied(self, action: _Action) -> None:
        if self._concerns(action):
            counts = self._counts[self._kind(action.task)]
            counts[action.source] -= 1
            counts[action.target] += 1

    def optimize(self, attempt: Callable[[_Action], bool]) -> bool:
        moved = False
        for kind in sorted(self._counts):
            counts, upper, lower = self._counts[kind], self._upper[kind], self._lower[kind]
            for node in self._cluster.nodes:
                if counts[node] > upper[node]:
                    moved |= self._move_out(kind, node, attempt)
                elif counts[node] < lower[node]:
                    moved |= self._move_in(kind, node, attempt)
        return moved

    def _concerns(self, action: _Action) -> bool:
        if self._leaders_only:
            return self._cluster.is_leader(action.task, action.source)
        return not action.leadership

    def _move_out(self, kind: int, node: int, attempt: Callable[[_Action], bool]) -> bool:
        moved = False
        counts, upper = self._counts[kind], self._upper[kind]
        for leadership in (True, False) if self._leaders_only else (False,):
            for task in self._movable(kind, node):
                if counts[node] <= upper[node]:
                    return moved
                targets = self._cluster.holders[task][1:] if leadership else self._cluster.nodes
                below = [target for target in targets if counts[target] < upper[target]]
                below.sort(key=self._filled(kind))
                moved |= any(attempt(_Action(task, node, target, leadership)) for target in below)
        return moved

    def _move_in(self, kind: int, node: int, attempt: Callable[[_Action], bool]) -> bool:
        moved = False
        counts, lower = self._counts[kind], self._lower[kind]
        if self._leaders_only:
            for task in sorted(self._cluster.copies[node]):
                if counts[node] >= lower[node]:
                    return moved
                leader = self._cluster.holders[task][0]
                moved |= leader != node and attempt(_Action(task, leader, node, leadership=True))
        gave = True
        while gave and counts[node] < lower[node]:
            sources = [source for source in self._cluster.nodes if counts[source] > lower[source]]
            sources.sort(key=self._filled(kind), reverse=True)
            gave = any(
                attempt(_Action(task, source, node)) for source in sources for task in self._movable(kind, source)
            )
            moved |= gave
        return moved

    def _movable(self, kind: int, node: int) -> Iterable[TaskId]:
        """Return the copies that count on a process, those first that are new there."""
        cluster = self._cluster
        counted = [
            task
            for task in cluster.copies[node]
            if self._kind(task) == kind and (not self._leaders_only or cluster.is_leader(task, node))
        ]
        return sorted(counted, key=lambda task: (node in cluster.origin[task], task))

    def _filled(self, kind: int) -> Callable[[int], float]:
        counts, threads = self._counts[kind], self._cluster.threads
        return lambda node: counts[node] / threads[node]


def _limits(share: int, parts: int, percent: int, gaps: tuple[int, int] | None) -> tuple[int, int]:
    """Return the least and the most that is near ``share / parts``, rounded outwards."""
    lower = max(0, share * (100 - percent) // (100 * parts))
    upper = -(-share * (100 + percent) // (100 * parts))
    if gaps is not None:
        floor, ceiling = share // parts, -(-share // parts)
        least, most = gaps
        lower = max(0, floor - most, min(lower, floor - least))
        upper = max(ceiling + least, min(upper, ceiling + most))
    return lower, upper
