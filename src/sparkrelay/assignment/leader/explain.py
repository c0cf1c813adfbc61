"""Why an assignment is what it is: each change as a value, found from outside, so that it works for any assignor.

An assignor answers with places, not with reasons. Most reasons can be read off what it was given: who ran the task
before, whose copy is caught up, how many copies were asked for. What cannot be seen from outside is not guessed: a
change that lags do not explain is called a matter of balance. See KIP-441 for *caught up* and *warm-up*.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.assignment.lags import is_caught_up
from sparkrelay.protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.task_assignor import TaskAssignment
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["Decision", "Kind", "Reason", "explain", "withheld_decisions"]


class Kind(enum.Enum):
    """What was decided. A task that stays where it is and runs is no decision."""

    #: It runs on ``process``; nobody in the group ran it.
    STARTS = "starts"
    #: It runs on ``process`` instead of ``previous``.
    MOVES = "moves"
    #: It stays on ``process``, which has to restore it first.
    RESTORES = "restores"
    #: Nobody runs it; ``previous`` did, if anybody.
    NOT_RUN = "not run"
    #: ``process`` copies it so that it can take over soon; ``previous`` runs it meanwhile.
    WARM_UP = "warm-up"
    #: ``process`` is a new standby.
    STANDBY_PLACED = "standby placed"
    #: ``process`` has a copy that it need not keep up: a standby that was, or state that is left from earlier.
    STANDBY_DROPPED = "standby dropped"
    #: It has fewer standbys than ``num.standby.replicas``; there is no ``process``.
    STANDBY_LEFT_OUT = "standby left out"
    #: ``process`` is to run it, but may not yet; ``previous`` still owns its partitions, if it is in the group.
    WITHHELD = "withheld"


class Reason(enum.Enum):
    """Why, as far as it can be seen from outside the assignor."""

    #: The process's copy is within ``acceptable.recovery.lag``.
    CAUGHT_UP = "its copy is caught up"
    #: It has no copy, but the whole changelog is within ``acceptable.recovery.lag``.
    LITTLE_TO_RESTORE = "there is little or nothing to restore"
    #: Nobody is caught up, and nobody is nearer.
    NOBODY_CAUGHT_UP = "nobody is caught up, and nobody is nearer"
    #: The copy of a warm-up is beyond ``acceptable.recovery.lag``.
    NOT_CAUGHT_UP = "its copy is not caught up"
    #: Lags do not ask for it: the assignor's own rule, as a rule even load.
    BALANCE = "the assignor's balance"
    #: There is no changelog, so any process can run it at once.
    STATELESS = "it has no state to restore"
    #: Lags could not be computed.
    LAGS_UNKNOWN = "lags are unknown"
    #: It ran here, so its state is here.
    RAN_HERE = "it ran here, so its state is here"
    #: ``num.standby.replicas`` asks for it.
    REPLICAS_WANTED = "num.standby.replicas asks for it"
    #: There are as many standbys without it as ``num.standby.replicas`` asks for.
    ENOUGH_COPIES = "there are enough standbys without it"
    #: A process holds a task once, and there are fewer processes than copies.
    TOO_FEW_PROCESSES = "there are too few processes"
    #: No process is left with other values of the tags in ``rack.aware.assignment.tags``.
    TAGS_USED_UP = "no process is left with other client tags"
    #: The assignor did not place it.
    LEFT_OUT = "the assignor left it out"
    #: Cooperative rule: a partition is let go of in one rebalance and given in the next (KIP-429).
    STILL_OWNED = "another consumer has to let go of its partitions first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One change, and why.

    Attributes:
        task: What it is about.
        kind: What was decided.
        reason: Why.
        process: Where; None if nowhere.
        previous: See :class:`Kind`; None otherwise.
        lag: How many offsets ``process`` is behind; None if that is unknown or means nothing.
    """

    task: TaskId
    kind: Kind
    reason: Reason
    process: ProcessId | None = None
    previous: ProcessId | None = None
    lag: int | None = None

    def line(self, names: Mapping[ProcessId, str] | None = None) -> str:
        """Return the decision in plain words, on one line.

        Args:
            names: How processes are called; by their ids if left out.
        """
        known = names or {}
        where, other = (known.get(p, str(p)) if p is not None else "nobody" for p in (self.process, self.previous))
        what = {
            Kind.STARTS: f"starts on {where}; nobody runs it now",
            Kind.MOVES: f"moves from {other} to {where}",
            Kind.RESTORES: f"stays on {where}, which restores it",
            Kind.NOT_RUN: f"is run by nobody; before: {other}",
            Kind.WARM_UP: f"warms up on {where}; {other} runs it meanwhile",
            Kind.STANDBY_PLACED: f"gets a standby on {where}",
            Kind.STANDBY_DROPPED: f"need not be kept up on {where}",
            Kind.STANDBY_LEFT_OUT: "has fewer standbys than asked for",
            Kind.WITHHELD: f"waits for the next rebalance to run on {where}",
        }[self.kind]
        behind = f" ({self.lag:,} offsets behind)" if self.lag else ""
        return f"task {self.task} {what}: {self.reason.value}{behind}"


def explain(state: ApplicationState, answer: TaskAssignment) -> tuple[Decision, ...]:
    """Return what an assignor's answer changes, in task order, with the reasons.

    Args:
        state: What the assignor was given.
        answer: What it answered; expected to be valid (``sparkrelay.assignment.validate``).
    """
    return _Story(state, answer).decisions()


def withheld_decisions(state: ApplicationState, withheld: Mapping[ProcessId, Iterable[TaskId]]) -> tuple[Decision, ...]:
    """Return the tasks that their new process may not run yet (``GroupResult.withheld``)."""
    decisions = []
    for process, tasks in withheld.items():
        for task in tasks:
            owners = sorted(p for p, client in state.clients.items() if task in client.previous_active_tasks)
            decisions.append(
                Decision(
                    task=task,
                    kind=Kind.WITHHELD,
                    reason=Reason.STILL_OWNED,
                    process=process,
                    previous=owners[0] if owners else None,
                )
            )
    return tuple(sorted(decisions, key=lambda decision: decision.task))


class _Story:
    """One state and one answer, turned inside out: by task instead of by process."""

    def __init__(self, state: ApplicationState, answer: TaskAssignment) -> None:
        self._clients = state.clients
        self._tasks = state.all_tasks
        self._configs = state.assignment_configs
        self._owners: dict[TaskId, list[ProcessId]] = defaultdict(list)
        self._copies: dict[TaskId, set[ProcessId]] = defaultdict(set)
        for process, client in sorted(state.clients.items()):
            for task in client.previous_active_tasks:
                self._owners[task].append(process)
            for task in client.previous_standby_tasks - client.previous_active_tasks:
                self._copies[task].add(process)
        self._runner: dict[TaskId, ProcessId] = {}
        self._standbys: dict[TaskId, set[ProcessId]] = defaultdict(set)
        for entry in answer.assignment:
            self._runner |= dict.fromkeys(entry.active_tasks, entry.process_id)
            for task in entry.standby_tasks:
                self._standbys[task].add(entry.process_id)
        self._warm_ups: dict[TaskId, set[ProcessId]] = defaultdict(set)
        for process, tasks in answer.warm_ups.items():
            for task in tasks:
                self._warm_ups[task].add(process)

    def decisions(self) -> tuple[Decision, ...]:
        found: list[Decision] = []
        for info in self._tasks:
            found += self._active(info.id, logged=info.is_logged)
            found += self._warming(info.id)
            found += self._followers(info.id, logged=info.is_logged)
        return tuple(found)

    def _active(self, task: TaskId, *, logged: bool) -> list[Decision]:
        owners, runner = self._owners[task], self._runner.get(task)
        previous = owners[0] if owners else None
        if runner is None:
            return [Decision(task=task, kind=Kind.NOT_RUN, reason=Reason.LEFT_OUT, previous=previous)]
        lag = self._lag(runner, task) if logged else None
        stays = runner in owners
        if stays and (not logged or lag is None or self._is_caught_up(lag)):
            return []
        kind = Kind.RESTORES if stays else Kind.MOVES if owners else Kind.STARTS
        reason = self._why_here(runner, task, lag) if logged else Reason.STATELESS
        before = previous if kind is Kind.MOVES else None
        return [Decision(task=task, kind=kind, reason=reason, process=runner, previous=before, lag=lag)]

    def _why_here(self, runner: ProcessId, task: TaskId, lag: int | None) -> Reason:
        if lag is None:
            return Reason.LAGS_UNKNOWN
        if self._is_caught_up(lag):
            has_copy = runner in self._copies[task] or runner in self._owners[task]
            return Reason.CAUGHT_UP if has_copy else Reason.LITTLE_TO_RESTORE
        lags = [known for process in self._clients if (known := self._lag(process, task)) is not None]
        nobody = not any(map(self._is_caught_up, lags)) and lag == min(lags)
        return Reason.NOBODY_CAUGHT_UP if nobody else Reason.BALANCE

    def _warming(self, task: TaskId) -> list[Decision]:
        return [
            Decision(
                task=task,
                kind=Kind.WARM_UP,
                reason=Reason.NOT_CAUGHT_UP,
                process=process,
                previous=self._runner.get(task),
                lag=self._lag(process, task),
            )
            for process in sorted(self._warm_ups[task])
        ]

    def _followers(self, task: TaskId, *, logged: bool) -> list[Decision]:
        if not logged:
            return []
        wanted = self._configs.num_standby_replicas
        lasting = self._standbys[task] - self._warm_ups[task]
        holders = self._standbys[task] | {self._runner.get(task)}
        found = []
        for process in sorted(lasting - self._copies[task]):
            ran_here = process in self._owners[task]
            found.append(
                Decision(
                    task=task,
                    kind=Kind.STANDBY_PLACED,
                    reason=Reason.RAN_HERE if ran_here else self._why_follow(len(lasting), wanted),
                    process=process,
                    lag=self._lag(process, task),
                )
            )
        enough = Reason.ENOUGH_COPIES if len(lasting) >= wanted else Reason.BALANCE
        found += [
            Decision(task=task, kind=Kind.STANDBY_DROPPED, reason=enough, process=process, lag=self._lag(process, task))
            for process in sorted(self._copies[task] - holders)
        ]
        if len(lasting) < wanted:
            found.append(Decision(task=task, kind=Kind.STANDBY_LEFT_OUT, reason=self._why_not_placed(wanted)))
        return found

    @staticmethod
    def _why_follow(placed: int, wanted: int) -> Reason:
        return Reason.REPLICAS_WANTED if placed <= wanted else Reason.BALANCE

    def _why_not_placed(self, wanted: int) -> Reason:
        if len(self._clients) <= wanted:
            return Reason.TOO_FEW_PROCESSES
        return Reason.TAGS_USED_UP if self._configs.rack_aware_assignment_tags else Reason.LEFT_OUT

    def _lag(self, process: ProcessId, task: TaskId) -> int | None:
        """Return how far behind a process is, in offsets: 0 if it runs the task, None if unknown."""
        client = self._clients.get(process)
        lag = None if client is None or client.task_lags is None else client.task_lags.get(task)
        if lag == LATEST_OFFSET:
            return 0
        return None if lag == UNKNOWN_OFFSET_SUM else lag

    def _is_caught_up(self, lag: int) -> bool:
        return is_caught_up(lag, self._configs.acceptable_recovery_lag)
