"""The balanced target placement with the least state to move.

Balance is KIP-441's, per thread: every process has its fair share of active tasks, of all copies, and of each
sub-topology's, rounded down or up. (KIP-441 counts the instances that run a sub-topology; with such shares it is run by
as many as possible.)

The offsets to restore do not depend on a copy's role. So first all holders of a task are chosen together at least
cost, then which of them runs it. Both steps are exact (``balanced_placement``). The second always finds a balanced
answer: an equal part of a task for each holder gives every process its share, and a fractional flow implies an integer
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkrelay.assignment.placement.balanced_placement import Bounds, place_at_least_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Bound on the sum of costs; to keep it, lags are rounded up to a multiple of a power of two.
_MOST = 1 << 60


@dataclass(frozen=True, slots=True)
class Target:
    """The target of logged tasks: two boolean matrices tasks x clients."""

    holders: NDArray[np.bool_]
    runners: NDArray[np.bool_]


def fair_shares(threads: Sequence[int], copies: int, tasks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each client's share of ``tasks`` x ``copies``, rounded down and rounded up.

    Shares are in proportion to threads, with at most one copy of each task; the excess goes to the others, in
    proportion.
    """
    least, most = np.zeros(len(threads), np.int64), np.zeros(len(threads), np.int64)
    open_clients, left = list(range(len(threads))), copies
    while True:
        total = sum(threads[client] for client in open_clients)
        capped = [client for client in open_clients if left * threads[client] >= total]
        if not capped:
            break
        for client in capped:
            least[client] = most[client] = tasks
        open_clients = [client for client in open_clients if client not in capped]
        left -= len(capped)
        if not open_clients or left <= 0:
            return least, most
    for client in open_clients:
        whole, rest = divmod(tasks * left * threads[client], total)
        least[client], most[client] = whole, whole + (rest > 0)
    return least, most


def choose_holders(
    lags: NDArray[np.int64],
    previous_active: NDArray[np.bool_],
    previous_standby: NDArray[np.bool_],
    *,
    group_of: NDArray[np.intp],
    threads: Sequence[int],
    copies: int,
) -> NDArray[np.bool_]:
    """Return who should hold each task, in any role, at the least sum of ``lags`` (offsets to restore).

    Among the cheapest answers it prefers few new holders, then few that lose a task they run. Of a process that runs
    more than its share, the last tasks count like standbys. So a moving task without an owner for one rebalance does
    not change the holders.
    """
    tasks = lags.shape[0]
    bounds = _bounds(group_of, threads, copies)
    surplus = _surplus(previous_active, group_of, threads)
    change = np.where(previous_active & ~surplus, 0, np.where(previous_standby | previous_active, 1, 2))
    weight = 2 * tasks * copies + 1
    held = place_at_least_cost(_weighed(lags, weight, bounds) + change, copies, group_of, bounds)
    if held is None:
        raise AssertionError(f"no balanced placement of {tasks} tasks x {copies} on {len(threads)} clients")
    return held


def choose_runners(
    holders: NDArray[np.bool_],
    ranks: NDArray[np.int64],
    previous_active: NDArray[np.bool_],
    group_of: NDArray[np.intp],
    threads: Sequence[int],
) -> NDArray[np.bool_]:
    """Return which holder should run each task: in order its runner, a caught-up one, the one least behind."""
    first = np.zeros_like(holders)
    first[np.arange(len(ranks)), ranks.argmin(axis=1)] = True
    reluctance = np.where(previous_active, 0, np.where(ranks == 0, 1, np.where(first, 2, 3))).astype(np.int64)
    bounds = _bounds(group_of, threads, 1)
    return _place_as_evenly_as_possible(reluctance, group_of, bounds, holders)


def place_unlogged(
    previous_active: NDArray[np.bool_],
    group_of: NDArray[np.intp],
    threads: Sequence[int],
    logged: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return who runs the tasks without state, with few moves; matrices and vectors are as above.

    ``logged`` is each client's number of active logged tasks; together with these the clients are balanced.
    """
    parts = _bounds(group_of, threads, 1)
    least, most = fair_shares(threads, 1, len(group_of) + int(logged.sum()))
    bounds = Bounds(np.maximum(least - logged, 0), np.maximum(most - logged, 0), parts.part_least, parts.part_most)
    return _place_as_evenly_as_possible((~previous_active).astype(np.int64), group_of, bounds, None)


def _place_as_evenly_as_possible(
    costs: NDArray[np.int64], group_of: NDArray[np.intp], bounds: Bounds, allowed: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """Place one copy of each task within the bounds; if these contradict each other, parts yield to clients."""
    anything = Bounds(
        np.zeros_like(bounds.client_least),
        np.full_like(bounds.client_most, len(group_of)),
        bounds.part_least,
        bounds.part_most,
    ).without_parts()
    for attempt in (bounds, bounds.without_parts(), anything):
        placed = place_at_least_cost(costs, 1, group_of, attempt, allowed)
        if placed is not None:
            return placed
    raise AssertionError("a placement without bounds failed")


def _bounds(group_of: NDArray[np.intp], threads: Sequence[int], copies: int) -> Bounds:
    sizes = np.bincount(group_of)
    parts = [fair_shares(threads, copies, int(size)) for size in sizes]
    least, most = fair_shares(threads, copies, len(group_of))
    shape = (len(sizes), len(threads))
    return Bounds(
        least,
        most,
        np.array([part[0] for part in parts], np.int64).reshape(shape),
        np.array([part[1] for part in parts], np.int64).reshape(shape),
    )


def _surplus(active: NDArray[np.bool_], group_of: NDArray[np.intp], threads: Sequence[int]) -> NDArray[np.bool_]:
    """Return the last tasks that clients run beyond their share, of a sub-topology or in total."""
    bounds = _bounds(group_of, threads, 1)
    surplus = np.zeros_like(active)
    for client in np.flatnonzero(active.any(axis=0)):
        kept = np.zeros(len(bounds.part_most), np.int64)
        for task in np.flatnonzero(active[:, client]):
            group = group_of[task]
            if kept[group] >= bounds.part_most[group, client] or kept.sum() >= bounds.client_most[client]:
                surplus[task, client] = True
            else:
                kept[group] += 1
    return surplus


def _weighed(lags: NDArray[np.int64], weight: int, bounds: Bounds) -> NDArray[np.int64]:
    """Return lags times ``weight``, rounded up to a coarser unit if sums could overflow."""
    nodes = bounds.part_least.size + bounds.client_least.size + 1
    limit = _MOST // nodes // weight - 1
    largest = int(lags.max(initial=0))
    shift = max(0, (largest // max(limit, 1)).bit_length())
    return ((lags >> shift) + ((lags & ((1 << shift) - 1)) > 0)) * np.int64(weight)
