"""What one simulation measured: a plain row. Units are in the names; seconds are simulated ones."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MEASURES", "Outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measures of one assignor in one scenario, from the first event of the churn until nothing is left to do.

    Attributes:
        converged: True if the group came to rest within the scenario's bounds. If not, the measures are those up to
            the bound.
        error: How the assignor failed, or None. After a failure there are no measures.
        rebalances: Rebalances, those that the churn itself caused included.
        converge_s: Seconds from the last event of the churn until no rebalance is due and every copy has caught up.
        tasks_moved: Times that an active task went to another process than the one that ran it before.
        copies_built: Copies begun, active or standby, that were more than the acceptable lag behind.
        restored_bytes: Bytes restored from changelogs by copies that were behind.
        down_task_s: Task-seconds during which a task was not running: nobody had it, or its state was being restored.
        exposed_task_s: Task-seconds during which a stateful task had no caught-up standby; 0 without standbys.
        imbalance_worst: Greatest difference of active tasks per thread between two processes, after any rebalance.
        imbalance_end: The same difference once the group is at rest.
        cross_rack_restored_bytes: The part of ``restored_bytes`` read from a rack that is not the reader's.
        cross_rack_bytes_per_s: Input and changelog traffic between racks once the group is at rest.
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
MEASURES = (
    "rebalances",
    "converge_s",
    "tasks_moved",
    "copies_built",
    "restored_bytes",
    "down_task_s",
    "exposed_task_s",
    "imbalance_worst",
    "imbalance_end",
    "cross_rack_restored_bytes",
    "cross_rack_bytes_per_s",
)
