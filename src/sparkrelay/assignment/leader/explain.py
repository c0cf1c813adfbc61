"""Reasons for an assignment, derived from outside, so that it works for any assignor.

An answer has no reasons. Most follow from its input: who ran the task before, which copies are caught up, how many were
requested. A change that lags do not explain is attributed to balance. See KIP-441 for *caught up* and *warm-up*.
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


class Kind(enum.Enum):
    """What was decided. A task that keeps running where it is makes no decision."""

    #: It runs on ``process``; nobody in the group ran it.
    STARTS = "starts"
    #: It runs on ``process`` instead of ``previous``.
    MOVES = "moves"
    #: It stays on ``process``, which has to restore it first.
    RESTORES = "restores"
    #: Nobody runs it; ``previous`` did, if anybody.
    NOT_RUN = "not run"
    #: ``process`` copies it to take it over soon; ``previous`` runs it.
    WARM_UP = "warm-up"
    #: ``process`` is a new standby.
    STANDBY_PLACED = "standby placed"
    #: ``process`` no longer follows it: a former standby, or a copy from earlier.
    STANDBY_DROPPED = "standby dropped"
    #: It has fewer standbys than ``num.standby.replicas``; ``process`` is None.
    STANDBY_LEFT_OUT = "standby left out"
    #: ``process`` may not run it yet, because ``previous`` still owns its partitions, if it is in the group.
    WITHHELD = "withheld"


class Reason(enum.Enum):
    """Why, as far as can be derived."""

    #: Within ``acceptable.recovery.lag``.
    CAUGHT_UP = "its copy is caught up"
    #: Without a copy, but the whole changelog is within ``acceptable.recovery.lag``.
    LITTLE_TO_RESTORE = "there is little or nothing to restore"
    NOBODY_CAUGHT_UP = "nobody is caught up, and nobody is nearer"
    NOT_CAUGHT_UP = "its copy is not caught up"
    #: Not explained by lags: the assignor's own rule, usually even load.
    BALANCE = "the assignor's balance"
    STATELESS = "it has no state to restore"
    LAGS_UNKNOWN = "lags are unknown"
    RAN_HERE = "it ran here, so its state is here"
    REPLICAS_WANTED = "num.standby.replicas asks for it"
    ENOUGH_COPIES = "there are enough standbys without it"
    #: A process has a task at most once.
    TOO_FEW_PROCESSES = "there are too few processes"
    #: See ``rack.aware.assignment.tags``.
    TAGS_USED_UP = "no process is left with other client tags"
    LEFT_OUT = "the assignor left it out"
    #: Partitions are revoked in one rebalance and assigned in the next (KIP-429).
    STILL_OWNED = "another consumer has to let go of its partitions first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One change, and why.

    Attributes:
        task: The task.
        kind: What was decided.
        reason: Why.
        process: Where; None if nowhere.
        previous: See :class:`Kind`; else None.
        lag: How many offsets ``process`` is behind; None if unknown or meaningless.
    """

    task: TaskId
    kind: Kind
    reason: Reason
    process: ProcessId | None = None
    previous: ProcessId | None = None
    lag: int | None = None

    def line(self, names: Mapping[ProcessId, str] | None = None) -> str:
        """Return the decision in words, on one line; ``names`` of processes are their ids by default."""
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
    """Return the changes of a valid answer to the input ``state``, in task order, with reasons."""
    return _Explanation(state, answer).decisions()


def withheld_decisions(state: ApplicationState, withheld: Mapping[ProcessId, Iterable[TaskId]]) -> tuple[Decision, ...]:
    """Return decisions for withheld tasks (``GroupResult.withheld``)."""
    decisions = []
    for task, process in sorted((task, process) for process, tasks in withheld.items() for task in tasks):
        owner = min((p for p, client in state.clients.items() if task in client.previous_active_tasks), default=None)
        decisions.append(
            Decision(task=task, kind=Kind.WITHHELD, reason=Reason.STILL_OWNED, process=process, previous=owner)
        )
    return tuple(decisions)


class _Explanation:
    """A state and an answer, by task instead of by process."""

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
        why = Reason.REPLICAS_WANTED if len(lasting) <= wanted else Reason.BALANCE
        found = [
            Decision(
                task=task,
                kind=Kind.STANDBY_PLACED,
                reason=Reason.RAN_HERE if process in self._owners[task] else why,
                process=process,
                lag=self._lag(process, task),
            )
            for process in sorted(lasting - self._copies[task])
        ]
        enough = Reason.ENOUGH_COPIES if len(lasting) >= wanted else Reason.BALANCE
        found += [
            Decision(task=task, kind=Kind.STANDBY_DROPPED, reason=enough, process=process, lag=self._lag(process, task))
            for process in sorted(self._copies[task] - holders)
        ]
        if len(lasting) < wanted:
            tags = self._configs.rack_aware_assignment_tags
            few = len(self._clients) <= wanted
            why_not = Reason.TOO_FEW_PROCESSES if few else Reason.TAGS_USED_UP if tags else Reason.LEFT_OUT
            found.append(Decision(task=task, kind=Kind.STANDBY_LEFT_OUT, reason=why_not))
        return found

    def _lag(self, process: ProcessId, task: TaskId) -> int | None:
        """Return the lag of a process in offsets: 0 if it runs the task, None if unknown."""
        client = self._clients.get(process)
        lag = None if client is None or client.task_lags is None else client.task_lags.get(task)
        if lag == LATEST_OFFSET:
            return 0
        return None if lag == UNKNOWN_OFFSET_SUM else lag

    def _is_caught_up(self, lag: int) -> bool:
        return is_caught_up(lag, self._configs.acceptable_recovery_lag)
