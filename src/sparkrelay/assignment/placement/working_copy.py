"""The working copy of an assignment: which client has which task in which role.

Clients and tasks are small integers, in process and task order, so that comparing them compares their ids. The public
types would cost a new object for each move.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_assignment import in_roles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkrelay.assignment.kafka_streams_assignment import KafkaStreamsAssignment
    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.types import ProcessId, TaskId


class Placement:
    """Tasks on clients while they are being placed.

    Attributes:
        processes: The clients, sorted; a client is a position here.
        tasks: The tasks, sorted; a task is a position here.
        position: The position of each task.
        threads: Threads of each client.
        active: Active tasks of each client.
        standby: Standby tasks of each client.
    """

    __slots__ = ("active", "position", "processes", "standby", "tasks", "threads")

    def __init__(self, states: Mapping[ProcessId, KafkaStreamsState], tasks: Iterable[TaskId]) -> None:
        self.processes: Sequence[ProcessId] = sorted(states)
        self.tasks: Sequence[TaskId] = sorted(tasks)
        self.position = {task: index for index, task in enumerate(self.tasks)}
        self.threads = [states[process].num_processing_threads for process in self.processes]
        self.active: list[set[int]] = [set() for _ in self.processes]
        self.standby: list[set[int]] = [set() for _ in self.processes]

    @property
    def clients(self) -> range:
        """All clients, by position."""
        return range(len(self.processes))

    def holds(self, client: int, task: int) -> bool:
        """Return whether the client has the task, in either role."""
        return task in self.active[client] or task in self.standby[client]

    def count(self, client: int) -> int:
        """Return the client's number of tasks, in both roles."""
        return len(self.active[client]) + len(self.standby[client])

    def load(self, client: int) -> float:
        """Return the client's tasks per thread, in both roles."""
        return self.count(client) / self.threads[client]

    def give(self, client: int, active: Iterable[TaskId], standby: Iterable[TaskId]) -> None:
        """Give a client tasks by id, ignoring unknown ones."""
        for held, tasks in ((self.active, active), (self.standby, standby)):
            held[client] |= {self.position[task] for task in tasks if task in self.position}

    def deal(self, tasks: Iterable[int]) -> None:
        """Deal active tasks round robin, regardless of previous owners."""
        clients = len(self.processes)
        for position, task in enumerate(tasks):
            self.active[position % clients].add(task)

    def balance(self, held: Sequence[set[int]], may_move: Callable[[int, int, int], bool] | None = None) -> None:
        """Move tasks of a role (``self.active`` or ``self.standby``) to less loaded clients while a single move helps.

        For each source and destination in order, tasks move while the source with one less has at least the load of the
        destination with one more. Loads count both roles. The order is Kafka's; it decides which tasks end up where.
        ``may_move`` gets a task, source and destination.
        """
        # The load of each client with one task more. A source whose load with one less is below all of these cannot
        # give anything, which skips nearly all pairs.
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
        """Give each copy of a task to the least loaded client without the task."""
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
        """Give each task to the client with the fewest active tasks per thread: standbys cost no processing."""
        queue = [(len(self.active[client]) / self.threads[client], client) for client in self.clients]
        heapq.heapify(queue)
        for task in tasks:
            chosen = queue[0][1]
            self.active[chosen].add(task)
            heapq.heapreplace(queue, (len(self.active[chosen]) / self.threads[chosen], chosen))

    def to_assignments(self) -> list[KafkaStreamsAssignment]:
        """Return the result in the public types, one entry for each client."""
        return [
            in_roles(process, *([self.tasks[task] for task in held[client]] for held in (self.active, self.standby)))
            for client, process in enumerate(self.processes)
        ]
