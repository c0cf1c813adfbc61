"""The simulated group: processes with copies of tasks, growing changelogs, and copies that catch up over time.

Plain numbers and small objects: between two rebalances only a few copies lag, and walking those is cheaper than numpy
on all of them. Tasks and processes are numbers here; :mod:`sparkrelay.simulate.leader` has their names.

The model's rules:

* A task runs if its owner is alive and its copy is at the end of the changelog. Only then the changelog grows.
* A process restores at a fixed speed, shared equally by its restoring actives, or, if it has none, by its standbys.
* A caught-up standby keeps up at no cost. A closed copy stays on disk as it was.
* A task that its owner must give up has no owner until the next rebalance hands it over.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkrelay.simulate.scenario import Scenario

#: Records; a restore this close to its goal is done: floats do not add up exactly.
_CLOSE = 1e-3


class Role(enum.Enum):
    """The use of a copy; a closed one lies on disk and does not follow its changelog."""

    ACTIVE = "active"
    STANDBY = "standby"
    CLOSED = "closed"


@dataclass(slots=True, eq=False)
class Copy:
    """One process's state of one task.

    Attributes:
        role: Its use.
        offset: Records of the changelog that it has; not updated while ``at_end``.
        at_end: It follows the end of the changelog.
        cold: It lagged too far when it was placed, and has not warmed up since.
        closed_at: When it was closed, simulated seconds.
    """

    role: Role = Role.CLOSED
    offset: float = 0.0
    at_end: bool = False
    cold: bool = False
    closed_at: float = 0.0


@dataclass(slots=True)
class Process:
    """One process.

    Attributes:
        rack: The number of its rack.
        up: It is alive.
        member: The group counts it as a member.
        active: The tasks it owns, with and without state.
        copies: Its copies by task, including closed ones.
    """

    rack: int
    up: bool = False
    member: bool = False
    active: set[int] = field(default_factory=set)
    copies: dict[int, Copy] = field(default_factory=dict)


class _Restore(NamedTuple):
    copy: Copy
    task: int
    speed: float
    closing: float
    across_racks: bool


class Cluster:
    """The group and its changelogs at one moment.

    Attributes:
        now: Simulated seconds since the churn began.
        processes: All processes, also future ones.
        stateful: Tasks 0 .. stateful - 1 have a changelog, the others have no state.
        ends: Length of each changelog, records.
        owner: The owner of each task, or None.
        running: Whether each task runs.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        ends: Sequence[float],
        replica_racks: Sequence[Collection[int]],
        process_count: int,
    ) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.ends = list(ends)
        self.stateful = len(ends)
        self.processes = [Process(rack=number % scenario.racks) for number in range(process_count)]
        self.owner: list[int | None] = [None] * scenario.tasks
        self.running = [False] * scenario.tasks
        self._last_runner: list[int | None] = [None] * scenario.tasks
        #: Racks of the replicas of each task's partitions.
        self._replica_racks = replica_racks
        self._growth = float(scenario.input_rate)
        self._warm = scenario.acceptable_lag // 2
        self._restores: list[_Restore] | None = None
        self._exposed = 0
        self.reset_measures()

    def reset_measures(self) -> None:
        """Set all measures to 0."""
        self.tasks_moved = 0
        self.copies_built = 0
        self.restored_records = 0.0
        self.cross_rack_restored_records = 0.0
        self.down_task_s = 0.0
        self.exposed_task_s = 0.0

    @property
    def members(self) -> list[int]:
        """The processes in the group."""
        return [number for number, process in enumerate(self.processes) if process.member]

    def lose_replicas(self, racks: Sequence[Collection[int]]) -> None:
        """Replace the racks of each task's replicas."""
        self._replica_racks = racks
        self._restores = None

    # -- time

    def next_change_s(self) -> float:
        """Return the seconds until a copy warms up or catches up; infinite if nothing is being restored."""
        soonest = math.inf
        for copy, task, _, closing, _ in self._now_restoring():
            if closing <= 0:
                continue
            gap = self.ends[task] - copy.offset
            if copy.cold and gap - self._warm > _CLOSE:
                gap -= self._warm
            soonest = min(soonest, gap / closing)
        return max(0.0, soonest)

    def advance(self, seconds: float) -> bool:
        """Let time pass, at most until the next change; return whether a cold standby has warmed up."""
        restores = self._now_restoring()
        self.now += seconds
        self.down_task_s += seconds * self.running.count(False)
        self.exposed_task_s += seconds * self._exposed
        grown = self._growth * seconds
        if grown:
            ends, running = self.ends, self.running
            for task in range(self.stateful):
                if running[task]:
                    ends[task] += grown
        warmed = changed = False
        for copy, task, speed, _, across in restores:
            read = speed * seconds
            copy.offset += read
            self.restored_records += read
            if across:
                self.cross_rack_restored_records += read
            gap = self.ends[task] - copy.offset
            if copy.cold and gap - self._warm <= _CLOSE:
                copy.cold = False
                warmed |= copy.role is Role.STANDBY
            if gap <= _CLOSE:
                copy.at_end = changed = True
                if copy.role is Role.ACTIVE:
                    self.running[task] = True
        if changed:
            self._restores = None
        return warmed

    @property
    def catching_up(self) -> bool:
        """True while a copy is being restored."""
        return bool(self._now_restoring())

    def _now_restoring(self) -> list[_Restore]:
        if self._restores is not None:
            return self._restores
        restores: list[_Restore] = []
        hot = [False] * self.stateful
        for process in self.processes:
            if not process.up:
                continue
            restoring: list[int] = []
            following: list[int] = []
            for task, copy in process.copies.items():
                if copy.role is Role.STANDBY:
                    if copy.at_end:
                        hot[task] = True
                    else:
                        following.append(task)
                elif copy.role is Role.ACTIVE and not copy.at_end:
                    restoring.append(task)
            busy = restoring or following
            for task in busy:
                speed = self.scenario.restore_rate / len(busy)
                closing = speed - (self._growth if self.running[task] else 0.0)
                across = process.rack not in self._replica_racks[task]
                restores.append(_Restore(process.copies[task], task, speed, closing, across))
        self._restores = restores
        self._exposed = hot.count(False) if self.scenario.standbys else 0
        return restores

    # -- churn

    def join(self, number: int) -> None:
        """A process starts, or returns with the copies on its disk, and joins without owning anything."""
        self.detect(number)
        process = self.processes[number]
        process.up = process.member = True

    def leave(self, number: int) -> None:
        """A process stops and the group knows at once."""
        self.crash(number)
        self.detect(number)

    def crash(self, number: int) -> None:
        """A process dies; the group still counts it as a member."""
        process = self.processes[number]
        process.up = False
        for task in process.active:
            self.running[task] = False
        for task, copy in process.copies.items():
            self._close(task, copy)
        self._restores = None

    def detect(self, number: int) -> None:
        """The group drops a dead process."""
        process = self.processes[number]
        process.member = False
        for task in process.active:
            self.owner[task] = None
        process.active = set()
        self._restores = None

    # -- assignments

    def follow(self, placed: Mapping[int, tuple[set[int], set[int]]]) -> bool:
        """Let every member follow its assignment, active and standby tasks; return whether a handover is pending."""
        self._restores = None
        # Members first give up the tasks they lose; a task that is given up in this rebalance is free in the next.
        withheld: set[int] = set()
        for number, (active, standby) in placed.items():
            process = self.processes[number]
            for task in process.active - active:
                withheld.add(task)
                self.owner[task] = None
                self.running[task] = False
            process.active &= active
            for task, copy in process.copies.items():
                if task in active:
                    continue
                if task not in standby:
                    self._close(task, copy)
                elif copy.role is Role.ACTIVE:
                    copy.role = Role.STANDBY
        waits = False
        for number, (active, standby) in placed.items():
            process = self.processes[number]
            for task in active:
                if task in process.active:
                    continue
                if task in withheld:
                    # Its copy, if there is one, keeps following.
                    waits = True
                    continue
                self._take(number, task)
            for task in standby:
                self._open(process, task, Role.STANDBY)
        return waits

    def put_in_place(self, placed: Mapping[int, tuple[set[int], set[int]]]) -> None:
        """Install an assignment as if it had always been there: everything has caught up."""
        self.owner = [None] * len(self.owner)
        for number, process in enumerate(self.processes):
            active, standby = placed.get(number, (set(), set()))
            process.active = set(active)
            process.copies = {}
            for task in sorted(active):
                self.owner[task] = self._last_runner[task] = number
                self.running[task] = True
            for task in sorted(active | standby):
                if task < self.stateful:
                    copy = process.copies[task] = Copy()
                    copy.role = Role.ACTIVE if task in active else Role.STANDBY
                    copy.at_end = True
        self._restores = None

    def set_standbys_back(self, records: float) -> None:
        """Put every standby this many records behind."""
        for process in self.processes:
            for task, copy in process.copies.items():
                if copy.role is Role.STANDBY and records > 0:
                    copy.at_end = False
                    copy.offset = max(0.0, self.ends[task] - records)
                    copy.cold = self.ends[task] - copy.offset > self.scenario.acceptable_lag
        self._restores = None

    def forget_closed(self) -> None:
        """Drop copies closed for longer than the cleanup delay."""
        oldest = self.now - self.scenario.cleanup_delay_s
        for process in self.processes:
            if process.up:
                gone = [t for t, c in process.copies.items() if c.role is Role.CLOSED and c.closed_at < oldest]
                for task in gone:
                    del process.copies[task]

    def _take(self, number: int, task: int) -> None:
        process = self.processes[number]
        process.active.add(task)
        self.owner[task] = number
        if self._last_runner[task] not in {None, number}:
            self.tasks_moved += 1
        self._last_runner[task] = number
        if task < self.stateful:
            self._open(process, task, Role.ACTIVE)
            self.running[task] = process.copies[task].at_end
        else:
            self.running[task] = True

    def _open(self, process: Process, task: int, role: Role) -> None:
        copy = process.copies.get(task)
        if copy is None:
            copy = process.copies[task] = Copy()
        was_closed = copy.role is Role.CLOSED
        copy.role = role
        if not was_closed:
            return
        gap = self.ends[task] - copy.offset
        copy.at_end = gap <= _CLOSE
        copy.cold = gap > self.scenario.acceptable_lag
        self.copies_built += copy.cold

    def _close(self, task: int, copy: Copy) -> None:
        if copy.role is Role.CLOSED:
            return
        if copy.at_end:
            copy.offset = self.ends[task]
            copy.at_end = False
        copy.role = Role.CLOSED
        copy.cold = False
        copy.closed_at = self.now

    # -- measures

    def imbalance(self) -> float:
        """Return the greatest difference in active tasks per thread between two members."""
        loads = [len(process.active) / self.scenario.threads for process in self.processes if process.member]
        return max(loads) - min(loads) if loads else 0.0

    def cross_rack_records_per_s(self) -> float:
        """Return the cross-rack traffic of all members: input of running tasks, changelogs of standbys."""
        readers = 0
        for process in self.processes:
            if process.up:
                standbys = (task for task, copy in process.copies.items() if copy.role is Role.STANDBY)
                readers += sum(process.rack not in self._replica_racks[task] for task in (*process.active, *standbys))
        return self._growth * readers
