"""The leader's log of a rebalance: a one-line summary, and each decision with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.assignment.leader.explain import Kind, explain, withheld_decisions
from sparkrelay.assignment.task_assignor import TaskAssignment
from sparkrelay.runtime.group.assignment_log import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkrelay.assignment import GroupMember
    from sparkrelay.assignment.leader.explain import Decision, Reason
    from sparkrelay.assignment.leader.group import GroupResult
    from sparkrelay.types import TaskId

#: Tasks named for each kind of decision.
_NAMED: Final = 5


def summarise(result: GroupResult) -> str:
    """Return the decisions on one line: ``moves 0_1; warm-up 0_3, 0_4``."""
    if result.failure is not None:
        return f"it failed: {result.failure}"
    kept = "" if result.kept is None else f"the previous assignment is kept ({result.kept}); "
    kinds: dict[Kind, list[TaskId]] = {}
    for decision in _decisions(result):
        kinds.setdefault(decision.kind, []).append(decision.task)
    return kept + (
        "; ".join(f"{kind.value} {listed(tasks, _NAMED)}" for kind, tasks in kinds.items()) or "nothing changes"
    )


def _decisions(result: GroupResult) -> tuple[Decision, ...]:
    if result.state is None:
        return ()
    answer = TaskAssignment(result.assignments.values(), warm_ups=result.warm_ups)
    return (*explain(result.state, answer), *withheld_decisions(result.state, result.withheld))


def lines_of(result: GroupResult, members: Sequence[GroupMember]) -> list[str]:
    """Return the decisions, one line each."""
    if result.failure is not None:
        return [f"rebalance failed (members: {len(members)}): {result.failure}"]
    processes = len({member.process_id for member in members})
    lines = [f"rebalance (members: {len(members)}, processes: {processes})"]
    if result.kept is not None:
        lines.append(f"the previous assignment is kept: {result.kept}")
    if result.state is None:
        return lines
    decisions = _decisions(result)
    lines += [f"  {decision.line()}" for decision in decisions if decision.kind is not Kind.STANDBY_LEFT_OUT]
    lines += [f"  {line}" for line in _left_out(decisions)]
    if not decisions:
        lines.append("  nothing changes")
    if result.probing_rebalance:
        lines.append("  some tasks wait for their next owner to catch up; the group looks again later")
        most = result.state.assignment_configs.max_warmup_replicas
        if sum(map(len, result.warm_ups.values())) >= most:
            lines.append(f"  max.warmup.replicas={most} are warming up; further moves would have to wait")
    return lines


def _left_out(decisions: Iterable[Decision]) -> list[str]:
    """Return one line for each reason: with too few processes every task lacks a standby."""
    tasks: dict[Reason, list[TaskId]] = {}
    for decision in decisions:
        if decision.kind is Kind.STANDBY_LEFT_OUT:
            tasks.setdefault(decision.reason, []).append(decision.task)
    return [
        f"fewer standbys than num.standby.replicas asks for: {reason.value} (tasks {', '.join(map(str, named))})"
        for reason, named in tasks.items()
    ]
