"""Standbys spread over the values of client tags, such as zones. See KIP-708.

Each copy of a task goes to a client whose values of the configured tags no other copy of the task uses. A tag with
fewer values than copies starts over once all its values are used. Copies without such a client go to the least loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment.placement.java_order import task_hash_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.assignment.assignment_configs import AssignmentConfigs
    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.placement.working_copy import Placement
    from sparkrelay.types import ProcessId


def place_standbys(
    placement: Placement,
    states: Mapping[ProcessId, KafkaStreamsState],
    tasks: Sequence[int],
    configs: AssignmentConfigs,
) -> TagStandbys | None:
    """Place ``num.standby.replicas`` copies of each task, by tags if configured, else by load.

    Returns:
        The rules for moving the copies; None without tags.
    """
    if not configs.rack_aware_assignment_tags:
        placement.place_standbys(tasks, configs.num_standby_replicas)
        return None
    tags = [states[process].client_tags for process in placement.processes]
    by_tags = TagStandbys(placement, tags, configs.rack_aware_assignment_tags)
    by_tags.place(tasks, configs.num_standby_replicas)
    return by_tags


class TagStandbys:
    """Places the standbys of a placement, whose logged tasks are active, by the clients' tags.

    Only ``keys`` (``rack.aware.assignment.tags``) count: each process has its own ``host``, so that no standby could
    ever move for balance.
    """

    def __init__(self, placement: Placement, tags: Sequence[Mapping[str, str]], keys: Iterable[str]) -> None:
        counted = frozenset(keys)
        self._placement = placement
        self._tags = [{key: value for key, value in own.items() if key in counted} for own in tags]
        self._values: dict[str, set[str]] = {}
        self._sharing: dict[tuple[str, str], set[int]] = {}
        for client, own in enumerate(self._tags):
            for key, value in own.items():
                self._values.setdefault(key, set()).add(value)
                self._sharing.setdefault((key, value), set()).add(client)

    def place(self, tasks: Iterable[int], replicas: int) -> None:
        """Place ``replicas`` copies of each task."""
        pending: dict[int, int] = {}
        owner = {task: client for client in self._placement.clients for task in self._placement.active[client]}
        for task in tasks:
            if task in owner and (left := self._place_apart(task, owner[task], replicas)):
                pending[task] = left
        for name in task_hash_order(self._placement.tasks[task] for task in pending):
            task = self._placement.position[name]
            for _ in range(pending[task]):
                client = self._least_loaded(task, set())
                if client is None:
                    break
                self._placement.standby[client].add(task)

    def may_balance(self, _task: int, source: int, destination: int) -> bool:
        """Return whether a standby may move for balance: only if the destination has the source's tags."""
        return self._tags[source].items() <= self._tags[destination].items()

    def may_exchange(self, task: int, source: int, destination: int) -> bool:
        """Return whether a standby may move for racks: only if the task's copies lose no tag value."""
        holders = {client for client in self._placement.clients if self._placement.holds(client, task)}
        return self._distinct(holders - {source} | {destination}) >= self._distinct(holders)

    def _distinct(self, clients: Iterable[int]) -> int:
        return len({entry for client in clients for entry in self._tags[client].items()})

    def _place_apart(self, task: int, owner: int, replicas: int) -> int:
        """Place copies on unused tag values; return how many are left."""
        used: dict[tuple[str, str], set[int]] = {}
        last = owner
        for placed in range(replicas):
            for key, value in self._tags[last].items():
                if len(self._values[key]) <= placed + 1:
                    used = {entry: clients for entry, clients in used.items() if entry[0] != key}
                else:
                    used[key, value] = self._sharing[key, value]
            client = self._least_loaded(task, set().union(*used.values()))
            if client is None:
                return replicas - placed
            self._placement.standby[client].add(task)
            last = client
        return 0

    def _least_loaded(self, task: int, barred: set[int]) -> int | None:
        placement = self._placement
        return min(
            (client for client in placement.clients if client not in barred and not placement.holds(client, task)),
            key=lambda client: (placement.load(client), client),
            default=None,
        )
