"""Cruise Control's goals in order of priority, with tasks for partitions. See KIP-441, "Cruise Control".

Each goal changes the assignment until it is satisfied, by actions that it accepts itself and that *every goal before
it* accepts. So later goals never undo earlier ones, and the result is satisfactory, not optimal. In Cruise Control's
order:

1. rack awareness (hard): copies of a task on different racks, spread evenly if there are more copies than racks
2. replica distribution (soft): copies of a process within 9 % of its share, rounded outwards
3. topic replica distribution (soft): copies of one subtopology on a process at most 180 % above its share, and in any
   case between 2 and 40 above it
4. leader replica distribution (soft): active tasks of a process within 9 % of its share

9 % and 180 % are nine tenths of the default thresholds (1.10, 3.00, 1.10), as in Cruise Control. Its goals for disk,
network and CPU have nothing to measure here.

One difference: leaders are placed first, by goals 4 and 3, and followers around them, by goals 1 to 3. Cruise Control
moves a leader like any replica, because it keeps leading while it is copied, and plans again after the move. Here a
task stops for one rebalance when it is handed over, and the next plan, made in between, must come to the same result.
If leaders depended on the places of all copies, each rebalance could hand over another task, without an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.assignment import TaskAssignment, TaskAssignor, number_setting
from sparkrelay.assignors.cruise_control_goals import Action, Cluster, EvenCounts, Goal, RackAwareness, limits
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from fractions import Fraction

    from sparkrelay.assignment import ApplicationState, TaskId

__all__ = ["CruiseControlTaskAssignor"]

_PREFIX: Final = "task.assignor.cruise.control."
_REPLICAS: Final = f"{_PREFIX}replica.count.balance.threshold"
_TOPIC: Final = f"{_PREFIX}topic.replica.count.balance.threshold"
_TOPIC_MIN_GAP: Final = f"{_PREFIX}topic.replica.count.balance.min.gap"
_TOPIC_MAX_GAP: Final = f"{_PREFIX}topic.replica.count.balance.max.gap"
_LEADERS: Final = f"{_PREFIX}leader.replica.count.balance.threshold"


class _Limits(NamedTuple):
    """Allowed distances of a process from its share, in percent and in copies."""

    replicas: Fraction
    topic: Fraction
    topic_gaps: tuple[int, int]
    leaders: Fraction

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> _Limits:
        """Return nine tenths of the thresholds' excess over 1; raises ConfigException."""

        def percent(key: str, default: str) -> Fraction:
            return (number_setting(configs, key, default, least=1) - 1) * 90

        gaps = (
            number_setting(configs, _TOPIC_MIN_GAP, "2", least=0),
            number_setting(configs, _TOPIC_MAX_GAP, "40", least=0),
        )
        if gaps[0] > gaps[1]:
            raise ConfigException(f"{_TOPIC_MIN_GAP}={gaps[0]} is more than {_TOPIC_MAX_GAP}={gaps[1]}")
        return cls(
            percent(_REPLICAS, "1.10"), percent(_TOPIC, "3.00"), (int(gaps[0]), int(gaps[1])), percent(_LEADERS, "1.10")
        )


class CruiseControlTaskAssignor(TaskAssignor):
    """Hard goals, then soft ones by priority; none undoes an earlier one.

    A task is a partition, a process a broker, the active task the leader, standbys are followers. The leader goal
    prefers to swap roles with an existing copy, which moves no state. Rack and count goals move only standbys, which
    interrupts nothing. Cruise Control's count goals treat brokers alike; here a process's share is in proportion to its
    threads.

    A task that nobody runs, because its process is gone or has just released it, is led by an existing copy, as Kafka
    elects a leader: the one whose process leads least. If all such tasks are needed to bring processes up to their
    least share, they go there, with a copy or not, so that no running task has to move. Running tasks move only if
    moving the others is not enough.

    Missing copies go to the least loaded process that the hard goal allows, and are the first to move. If the hard goal
    cannot be met, Cruise Control proposes nothing; here it is met as far as there are racks.
    """

    settings = frozenset({_REPLICAS, _TOPIC, _TOPIC_MIN_GAP, _TOPIC_MAX_GAP, _LEADERS})

    def __init__(self) -> None:
        self._limits = _Limits.of({})

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Take the thresholds."""
        self._limits = _Limits.of(configs)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task."""
        cluster = Cluster(application_state)
        if cluster.processes:
            _place_leaders(cluster, self._limits)
            _place_followers(cluster, self._limits)
        return TaskAssignment(cluster.to_assignments())


def _place_leaders(cluster: Cluster, near: _Limits) -> None:
    """Place active tasks; standbys matter only as copies that could take over."""
    _elect(cluster, near)
    for task, nodes in cluster.origin.items():
        for node in sorted(nodes - set(cluster.holders[task])):
            cluster.add(task, node)
    goals: list[Goal] = [
        EvenCounts(cluster, lambda _task: 0, percent=near.leaders, leaders_only=True),
        EvenCounts(cluster, _subtopology, percent=near.topic, gaps=near.topic_gaps, leaders_only=True),
    ]
    _optimize(cluster, goals, lambda action: not cluster.interrupts(action))
    _optimize(cluster, goals, lambda _action: True)
    cluster.drop_followers()


def _elect(cluster: Cluster, near: _Limits) -> None:
    """Keep running tasks, and give the others a leader."""
    led = [0] * len(cluster.processes)

    def lead(task: TaskId, node: int) -> None:
        cluster.add(task, node)
        led[node] += 1

    for task, node in cluster.runner.items():
        lead(task, node)
    tasks, threads = len(cluster.wanted), sum(cluster.threads)
    fewest = [limits(tasks * count, threads, near.leaders)[0] for count in cluster.threads]
    waiting = [task for task in cluster.wanted if task not in cluster.runner]
    for done, task in enumerate(waiting):
        poor = [node for node in cluster.nodes if led[node] < fewest[node]]
        short = sum(fewest[node] - led[node] for node in poor)
        choice = poor if short >= len(waiting) - done else cluster.nodes
        with_copy = [node for node in choice if node in cluster.origin[task]]
        lead(task, min(with_copy or choice, key=lambda node: (node not in poor, led[node] / cluster.threads[node])))


def _place_followers(cluster: Cluster, near: _Limits) -> None:
    """Keep existing copies, add missing ones, and move them by the goals."""
    racks = RackAwareness(cluster)
    for make in (False, True):
        for task, holders in cluster.holders.items():
            while len(holders) < cluster.wanted[task]:
                free = [n for n in cluster.nodes if n not in holders and (make or n in cluster.origin[task])]
                if not free:
                    break
                cluster.add(task, min(free, key=lambda node: (not racks.has_room(task, node), cluster.load(node))))
    goals: list[Goal] = [
        racks,
        EvenCounts(cluster, lambda _task: 0, percent=near.replicas),
        EvenCounts(cluster, _subtopology, percent=near.topic, gaps=near.topic_gaps),
    ]
    _optimize(cluster, goals, lambda action: not cluster.is_leader(action.task, action.source))


def _optimize(cluster: Cluster, goals: list[Goal], allowed: Callable[[Action], bool]) -> None:
    """Apply the goals by priority, repeatedly until none finds an action.

    Cruise Control applies them once and runs again later; this is where it comes to rest. It terminates, because an
    action improves its own goal and worsens none before it.
    """

    def attempt_with(earlier: list[Goal]) -> Callable[[Action], bool]:
        def attempt(action: Action) -> bool:
            possible = cluster.is_legitimate(action) and allowed(action)
            if not (possible and all(goal.accepts(action) for goal in earlier)):
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
            # A goal must also accept its own actions.
            moved |= goal.optimize(attempt_with(goals[: index + 1]))


def _subtopology(task: TaskId) -> int:
    return task.subtopology
