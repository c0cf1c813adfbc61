"""From the balanced target to a placement that can run now. See KIP-441.

If a target client is too far behind and another is ahead of it, the other runs the task for now, and the target client
gets a warm-up, at most ``max.warmup.replicas`` at a time. Each rebalance starts from the same target, so nothing is
left to move once all warm-ups have caught up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sparkrelay.assignment.lags import are_caught_up, lag_matrix
from sparkrelay.assignment.placement.java_order import java_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.placement.working_copy import Placement
    from sparkrelay.types import ProcessId


class Lags:
    """Lags of clients in the logged tasks of a placement.

    Unlike KIP-441's text Kafka has no ranks: a client is *caught up* on a task or not; apart from that clients are
    ordered by lag, then by id. An unknown offset (-3) is not caught up, but first in that order.
    """

    __slots__ = ("_caught_up", "_first", "_lags", "caught_up_counts")

    def __init__(
        self,
        states: Mapping[ProcessId, KafkaStreamsState],
        placement: Placement,
        logged: Sequence[int],
        acceptable: int,
    ) -> None:
        shape = (len(placement.processes), len(placement.tasks))
        # Stateless columns stay 0 and are never used.
        lags: NDArray[np.int64] = np.zeros(shape, np.int64)
        lags[:, logged] = lag_matrix(states, placement.processes, [placement.tasks[task] for task in logged])
        self._lags = lags
        self._caught_up = are_caught_up(lags, acceptable)
        self._first = lags.argmin(axis=0)
        self.caught_up_counts: NDArray[np.intp] = self._caught_up.sum(axis=0)

    def must_wait(self, client: int) -> NDArray[np.bool_]:
        """Return, per task, whether the client is not caught up and another is less behind."""
        best = self._lags[self._first, np.arange(self._lags.shape[1])]
        waits: NDArray[np.bool_] = ~self._caught_up[client] & (best < self._lags[client])
        return waits

    def caught_up(self, task: int) -> list[int]:
        """Return the clients that are caught up on the task, in order."""
        return [int(client) for client in np.flatnonzero(self._caught_up[:, task])]

    def first(self, task: int) -> int:
        """Return the client that is least behind."""
        return int(self._first[task])

    def ahead_of(self, client: int, task: int) -> list[int]:
        """Return the clients with a smaller lag than ``client``, least lag first."""
        column = self._lags[:, task]
        order = np.lexsort((np.arange(len(column)), column))
        return [int(other) for other in order[: int(np.flatnonzero(order == client)[0])]]


@dataclass(slots=True)
class Movements:
    """Turns a target placement into one that can run now.

    ``scheduled`` counts outstanding movements, of which any requires a follow-up rebalance; ``warm_ups`` are the extra
    copies by client.
    """

    placement: Placement
    lags: Lags
    budget: int
    scheduled: int = 0
    warm_ups: dict[int, set[int]] = field(default_factory=dict)

    def apply(self) -> None:
        """Move actives, then standbys, with a common budget of warm-ups."""
        waiting = [self.lags.must_wait(client) for client in self.placement.clients]
        self._move_actives(waiting)
        self._move_standbys(waiting)

    def _queue(self, wanted: list[tuple[int, int]]) -> list[tuple[int, int]]:
        # Tasks with the fewest caught-up clients first; among the copies of one task Java's queue decides.
        return java_order(wanted, lambda move: (self.lags.caught_up_counts[move[0]], move[0]))

    def _least_loaded(self, clients: list[int], valid: Callable[[int], bool]) -> int | None:
        return min(
            (client for client in clients if valid(client)),
            key=lambda client: (self.placement.load(client), client),
            default=None,
        )

    def _move_actives(self, waiting: list[NDArray[np.bool_]]) -> None:
        active, standby = self.placement.active, self.placement.standby
        wanted = [
            (task, client)
            for client in self.placement.clients
            for task in sorted(active[client])
            if waiting[client][task]
        ]
        self.scheduled += len(wanted)
        for task, intended in self._queue(wanted):
            ready = self.lags.caught_up(task)
            runner = self._least_loaded(ready, lambda client, task=task: task in standby[client])  # type: ignore[misc]
            if runner is None:
                runner = self._least_loaded(ready, lambda _client: True)
            if runner is None:
                runner = self.lags.first(task)
            active[intended].remove(task)
            active[runner].add(task)
            if task in standby[runner]:
                # The two swap roles, without an extra copy.
                standby[runner].remove(task)
                standby[intended].add(task)
            elif self.budget > 0:
                self.budget -= 1
                standby[intended].add(task)
                self.warm_ups.setdefault(intended, set()).add(task)

    def _move_standbys(self, waiting: list[NDArray[np.bool_]]) -> None:
        holds, standby = self.placement.holds, self.placement.standby
        wanted = [
            (task, client)
            for client in self.placement.clients
            for task in sorted(standby[client] - self.warm_ups.get(client, set()))
            if waiting[client][task]
        ]
        for task, intended in self._queue(wanted):
            source = self._least_loaded(
                self.lags.caught_up(task),
                lambda client, task=task: not holds(client, task),  # type: ignore[misc]
            )
            if source is None:
                ahead = self.lags.ahead_of(intended, task)
                source = next((client for client in ahead if not holds(client, task)), None)
            if source is None:
                continue
            self.scheduled += 1
            standby[source].add(task)
            if self.budget > 0:
                self.budget -= 1
                self.warm_ups.setdefault(intended, set()).add(task)
            else:
                standby[intended].remove(task)
