"""A rebalance told as a story: who is there, who runs what now, what moves, and why."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.assignment import GroupMember
    from sparkrelay.assignment.group import GroupResult
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["tell"]


def tell(result: GroupResult, members: Sequence[GroupMember]) -> list[str]:
    """Return the lines of the story, for the leader's log."""
    if result.failure is not None:
        return [f"rebalance failed (members: {len(members)}): {result.failure}"]
    before: dict[TaskId, ProcessId] = {}
    threads: dict[ProcessId, int] = defaultdict(int)
    for member in members:
        threads[member.process_id] += 1
        for task in member.subscription.prev_tasks:
            before[task] = member.process_id
    lines = [f"rebalance (members: {len(members)}, processes: {len(threads)})"]
    if result.kept is not None:
        lines.append(f"the previous assignment is kept: {result.kept}")
    for process, assignment in sorted(result.assignments.items()):
        active = sorted(task.id for task in assignment.tasks.values() if task.type is task.Type.ACTIVE)
        warm_ups = sorted(result.warm_ups.get(process, ()))
        standby = sorted(
            task.id
            for task in assignment.tasks.values()
            if task.type is task.Type.STANDBY and task.id not in result.warm_ups.get(process, ())
        )
        moved = [task for task in active if task in before and before[task] != process]
        lines.append(
            f"  process {process}: active {_names(active)}; standby {_names(standby)}; warming up {_names(warm_ups)}"
            + (f"; takes over {_names(moved)}" if moved else "")
        )
    if result.probing_rebalance:
        lines.append("  some tasks wait for their next owner to catch up; the group looks again later")
    return lines


def _names(tasks: Sequence[TaskId]) -> str:
    return ", ".join(map(str, tasks)) or "none"
