"""The measures of one simulation: a plain row. Units are in the names; seconds are simulated ones."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measures of one assignor in one scenario, from the first event of the churn until the group is at rest.

    Attributes:
        converged: True if the group came to rest within the scenario's bounds. If not, measures end at the bound.
        error: How the assignor failed, or None. After a failure there are no measures.
        rebalances: Rebalances, including those that the churn itself caused.
        converge_s: Seconds from the last event of the churn until no rebalance is due and every copy has caught up.
        tasks_moved: Moves of active tasks to another process than the one that ran them before.
        copies_built: Copies, active or standby, that began more than the acceptable lag behind.
        restored_bytes: Bytes restored from changelogs.
        down_task_s: Task-seconds without a running task: it had no owner, or its state was being restored.
        exposed_task_s: Task-seconds of stateful tasks without a caught-up standby; 0 without standbys.
        imbalance_worst: Greatest difference in active tasks per thread between two processes after any rebalance.
        imbalance_end: That difference at rest.
        cross_rack_restored_bytes: The part of ``restored_bytes`` read from another rack than the reader's.
        cross_rack_bytes_per_s: Input and changelog traffic between racks at rest.
    """

    converged: bool = False
    error: str | None = None
    rebalances: int | None = None
    converge_s: float | None = None
    tasks_moved: int | None = None
    copies_built: int | None = None
    restored_bytes: int | None = None
    down_task_s: float | None = None
    exposed_task_s: float | None = None
    imbalance_worst: float | None = None
    imbalance_end: float | None = None
    cross_rack_restored_bytes: int | None = None
    cross_rack_bytes_per_s: int | None = None


#: The names of the measures, in the order of the table.
MEASURES = tuple(field.name for field in fields(Outcome) if field.name not in {"converged", "error"})
