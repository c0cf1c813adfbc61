"""The working copy that an assignor changes until it is right: who holds which task in which role.

Clients and tasks are small integers here, in process and task order, so that comparing two of them *is* comparing
their ids; names come back in :meth:`Placement.to_assignments`. Values of the public types would cost a new object a
move.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_assignment import AssignedTask, KafkaStreamsAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["Placement"]


class Placement:
    """Tasks on clients while they are being placed.

    Attributes:
        processes: The clients, sorted; everything below is indexed by position here.
        tasks: The tasks, sorted; a task below is a position here.
        threads: Threads of each client.
        active: Tasks each client runs.
        standby: Tasks each client follows.
    """

    __slots__ = ("active", "processes", "standby", "tasks", "threads")

    def __init__(self, states: Mapping[ProcessId, KafkaStreamsState], tasks: Iterable[TaskId]) -> None:
        self.processes: Sequence[ProcessId] = sorted(states)
        self.tasks: Sequence[TaskId] = sorted(tasks)
        self.threads = [states[process].num_processing_threads for process in self.processes]
        self.active: list[set[int]] = [set() for _ in self.processes]
        self.standby: list[set[int]] = [set() for _ in self.processes]

    @property
    def clients(self) -> range:
        """All clients, by position."""
        return range(len(self.processes))

    def holds(self, client: int, task: int) -> bool:
        """Return whether the client has the task in either role."""
        return task in self.active[client] or task in self.standby[client]

    def count(self, client: int) -> int:
        """Return how many tasks the client has in both roles."""
        return len(self.active[client]) + len(self.standby[client])

    def load(self, client: int) -> float:
        """Return tasks in both roles per thread."""
        return self.count(client) / self.threads[client]

    def deal(self, tasks: Iterable[int]) -> None:
        """Give active tasks round robin, whoever ran them before."""
        clients = len(self.processes)
        for position, task in enumerate(tasks):
            self.active[position % clients].add(task)

    def balance(self, held: Sequence[set[int]], may_move: Callable[[int, int, int], bool] | None = None) -> None:
        """Move tasks of one role to less loaded clients until no single move helps.

        For each source and each destination in order, a task moves as long as the source, one poorer, still has at
        least the load of the destination, one richer. The order is Kafka's: it decides which tasks end up where.

        Args:
            held: ``self.active`` or ``self.standby``: the role that moves. Loads count both.
            may_move: Called with task, source and destination; False leaves that task where it is.
        """
        # Load of each client if it had one task more. A source whose load with one task less is below all of these
        # cannot give anything, which spares nearly all of the pairs.
        richer = [(self.count(client) + 1) / self.threads[client] for client in self.clients]
        moved = True
        while moved:
            moved = False
            for source in self.clients:
                poorer = (self.count(source) - 1) / self.threads[source]
                if not held[source] or min(richer) > poorer:
                    continue
                for destination in self.clients:
                    if richer[destination] > poorer or source == destination:
                        continue
                    for task in sorted(held[source]):
                        if richer[destination] > poorer:
                            break
                        if self.holds(destination, task) or (
                            may_move is not None and not may_move(task, source, destination)
                        ):
                            continue
                        held[source].remove(task)
                        held[destination].add(task)
                        moved = True
                        richer[source] = (self.count(source) + 1) / self.threads[source]
                        richer[destination] = (self.count(destination) + 1) / self.threads[destination]
                        poorer = (self.count(source) - 1) / self.threads[source]

    def place_standbys(self, tasks: Iterable[int], replicas: int) -> None:
        """Give each task's copies, one after the other, to the least loaded client that does not hold it yet."""
        queue = [(self.load(client), client) for client in self.clients]
        heapq.heapify(queue)
        for task in tasks:
            for _ in range(replicas):
                holders = []
                while queue and self.holds(queue[0][1], task):
                    holders.append(heapq.heappop(queue))
                if queue:
                    chosen = queue[0][1]
                    self.standby[chosen].add(task)
                    heapq.heapreplace(queue, (self.load(chosen), chosen))
                for entry in holders:
                    heapq.heappush(queue, entry)
                if len(holders) == len(self.processes):
                    break

    def place_stateless(self, tasks: Iterable[int]) -> None:
        """Give each task to the client with the least active tasks per thread: standbys cost no processing."""
        queue = [(len(self.active[client]) / self.threads[client], client) for client in self.clients]
        heapq.heapify(queue)
        for task in tasks:
            chosen = queue[0][1]
            self.active[chosen].add(task)
            heapq.heapreplace(queue, (len(self.active[chosen]) / self.threads[chosen], chosen))

    def to_assignments(self) -> list[KafkaStreamsAssignment]:
        """Return the result in the public types, one entry for each client."""
        return [
            KafkaStreamsAssignment.of(
                process,
                [
                    *(AssignedTask(self.tasks[task], AssignedTask.Type.ACTIVE) for task in self.active[client]),
                    *(AssignedTask(self.tasks[task], AssignedTask.Type.STANDBY) for task in self.standby[client]),
                ],
            )
            for client, process in enumerate(self.processes)
        ]
