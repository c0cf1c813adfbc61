"""The report of a what-if, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from sparkrelay.assignment.leader.explain import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from sparkrelay.assignment.leader.explain import Decision
    from sparkrelay.planning.what_if import Held, Pause, ProcessChange, Restore, WhatIf
    from sparkrelay.types import ProcessId, TaskId

_SHORT = 8
_MOST_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A what-if with the context of its report.

    Attributes:
        title: The name of the group.
        joining: The made-up ids of instances that join.
        tasks: The group's number of tasks.
        restore_rate: Records that one process restores, per second.
        rate_is_given: False if the rate is our measurement.
        moves: The least and the most tasks that move, by the places of new ids; None if nobody joins.
        notes: The origin of the group, and assumptions.
    """

    outcome: WhatIf
    title: str
    joining: tuple[ProcessId, ...]
    tasks: int
    restore_rate: float
    rate_is_given: bool
    moves: tuple[int, int] | None
    notes: tuple[str, ...]

    def names(self) -> dict[ProcessId, str]:
        """Return short names: prefixes of ids if these are unique, and ``new-1``, ... for instances that join."""
        present = [str(one.process) for one in self.outcome.processes if not one.added]
        short = _SHORT if len({text[:_SHORT] for text in present}) == len(present) else None
        named = {one.process: str(one.process)[:short] for one in self.outcome.processes}
        return named | {process: f"new-{number}" for number, process in enumerate(self.joining, 1)}

    def renderables(self) -> list[RenderableType]:
        """Return the parts of the text."""
        leaving = sum(one.removed for one in self.outcome.processes)
        changes = [f"{len(self.joining)} joining"] * bool(self.joining) + [f"{leaving} leaving"] * bool(leaving)
        head = f"{self.title}, instances: {' and '.join(changes) or 'none joining or leaving'}"
        return [Text(head, style="bold"), "", self._table(), "", *self._rounds(), "", self._summary(), *self._notes()]

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON; times in seconds, records in offsets."""
        outcome, rate = self.outcome, self.restore_rate
        return {
            "settled": outcome.converged,
            "rebalances": outcome.rebalances,
            "moved_tasks": list(map(str, outcome.moved)),
            "moves_by_id": None if self.moves is None else {"least": self.moves[0], "most": self.moves[1]},
            "restore_rate": rate,
            "restore": _restore_json(outcome.restore),
            "seconds_until_warm": outcome.seconds(rate),
            "tasks_run_by_nobody": [str(task) for task in outcome.not_run],
            "pauses": [_pause_json(pause, rate) for pause in outcome.pauses],
            "processes": [_process_json(one, rate) for one in outcome.processes],
            "rounds": [
                {
                    "hands_over": one.hands_over,
                    "decisions": [_decision_json(decision) for decision in one.decisions],
                    "restores": {str(process): _restore_json(left) for process, left in one.restores.items()},
                    "seconds": one.seconds(rate),
                }
                for one in outcome.rounds
            ],
            "notes": list(self.notes),
        }

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("process", "threads", "active before", "after", "standby before", "after", "records to restore"):
            table.add_column(column, justify="right" if column in {"threads", "records to restore"} else "left")
        names = self.names()
        for one in self.outcome.processes:
            table.add_row(
                Text(names[one.process] + (" (leaves)" if one.removed else "")),
                str(one.threads),
                _tasks(one.before.active),
                _tasks(one.after.active),
                _tasks(one.before.standby),
                _tasks(one.after.standby),
                _records(one.restore),
            )
        return table

    def _rounds(self) -> list[RenderableType]:
        names, lines = self.names(), []
        number = 0
        for one in self.outcome.rounds:
            number += 1
            lines.append(f"Rebalance {number}" + (", and one more to hand tasks over" if one.hands_over else ""))
            number += one.hands_over
            lines += [f"  {line}" for line in _lines(one.decisions, names)] or ["  nothing changes"]
            for process, restore in one.restores.items():
                seconds = restore.records / self.restore_rate
                lines.append(f"  {names[process]} restores records: {_records(restore)}, {_time(seconds)}")
        return [Text(line) for line in lines]

    def _summary(self) -> Table:
        outcome, names = self.outcome, self.names()
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        moved = f"{len(outcome.moved)} of {self.tasks} tasks"
        table.add_row("moves", moved + (f": {_tasks(outcome.moved)}" if outcome.moved else ""))
        if self.moves is not None and self.moves[0] != self.moves[1]:
            table.add_row(
                "", f"a new instance's id is random: depending on where it sorts, {self.moves[0]} to {self.moves[1]}"
            )
        changes = any(one.added or one.removed or one.before != one.after for one in outcome.processes)
        table.add_row("rebalances", str(outcome.rebalances) if changes else "none needed")
        table.add_row("records to restore", _records(outcome.restore))
        rate = f"{self.restore_rate:,.0f} records/s in each instance"
        why = "" if self.rate_is_given else ", measured once on 2 cores: give your own by --restore-rate"
        unknown = "; copies of unknown length not counted" if outcome.restore.unknown else ""
        table.add_row("all warm after", f"{_time(outcome.seconds(self.restore_rate))} at {rate}{why}{unknown}")
        table.add_row("without service", self._without_service(names))
        if not outcome.converged:
            table.add_row("not settled", "the assignor goes on asking for rebalances")
        return table

    def _without_service(self, names: dict[ProcessId, str]) -> Text:
        pauses, not_run = self.outcome.pauses, self.outcome.not_run
        if not_run:
            return Text(f"{len(not_run)} tasks, which the assignor leaves to nobody, for good: {_tasks(not_run)}")
        if not pauses:
            return Text("no task: each is run by a complete copy from the rebalance on")
        times = []
        for pause in pauses[:_MOST_NAMES]:
            left = "an unknown time" if pause.records is None else _time(pause.records / self.restore_rate)
            times.append(f"{pause.task} for {left} on {names[pause.process]}")
        more = f", and {len(pauses) - _MOST_NAMES} more" if len(pauses) > _MOST_NAMES else ""
        which = "1 task while it is" if len(pauses) == 1 else f"{len(pauses)} tasks while they are"
        return Text(f"{which} restored: {', '.join(times)}{more}")

    def _notes(self) -> list[RenderableType]:
        return [Text(""), *(Text(f"- {note}") for note in self.notes)] if self.notes else []


def _lines(decisions: Iterable[Decision], names: dict[ProcessId, str]) -> list[str]:
    """Return a line for each decision; missing standbys share one line for each reason."""
    left_out: dict[str, list[TaskId]] = {}
    lines = []
    for decision in decisions:
        if decision.kind is Kind.STANDBY_LEFT_OUT:
            left_out.setdefault(decision.reason.value, []).append(decision.task)
        else:
            lines.append(decision.line(names))
    return lines + [f"fewer standbys than asked for: {why} ({_tasks(tasks)})" for why, tasks in left_out.items()]


def _tasks(tasks: Iterable[TaskId]) -> str:
    listed = list(map(str, tasks))
    more = [f"and {len(listed) - _MOST_NAMES} more"] if len(listed) > _MOST_NAMES else []
    return " ".join(listed[:_MOST_NAMES] + more) or "-"


def _records(restore: Restore) -> str:
    if not restore.tasks:
        return "-"
    known = f"{restore.records:,}" if restore.tasks > restore.unknown else "unknown"
    return f"{known} (copies: {restore.tasks}" + (f", {restore.unknown} of unknown length)" if restore.unknown else ")")


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _restore_json(restore: Restore) -> dict[str, int]:
    return {"tasks": restore.tasks, "records": restore.records, "tasks_of_unknown_length": restore.unknown}


def _pause_json(pause: Pause, rate: float) -> dict[str, Any]:
    seconds = None if pause.records is None else pause.records / rate
    return {"task": str(pause.task), "process": str(pause.process), "records": pause.records, "seconds": seconds}


def _process_json(one: ProcessChange, rate: float) -> dict[str, Any]:
    def held(tasks: Held) -> dict[str, list[str]]:
        return {"active": list(map(str, tasks.active)), "standby": list(map(str, tasks.standby))}

    return {
        "process": str(one.process),
        "threads": one.threads,
        "added": one.added,
        "removed": one.removed,
        "before": held(one.before),
        "after": held(one.after),
        "restore": _restore_json(one.restore),
        "seconds": one.restore.records / rate,
    }


def _decision_json(decision: Decision) -> dict[str, Any]:
    return {
        "task": str(decision.task),
        "kind": decision.kind.name,
        "reason": decision.reason.name,
        "process": None if decision.process is None else str(decision.process),
        "previous": None if decision.previous is None else str(decision.previous),
        "lag": decision.lag,
    }
