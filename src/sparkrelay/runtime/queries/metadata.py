"""Where an application's stores can be queried, and how far copies lag; with Kafka Streams' names (KIP-535)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.protocol import HostInfo
    from sparkrelay.runtime.thread.membership import GroupHosts
    from sparkrelay.runtime.topics.layout import TaskLayout, TaskShape
    from sparkrelay.types import TopicPartition


@dataclass(frozen=True, slots=True)
class KeyQueryMetadata:
    """The instances that have a key of a store.

    Attributes:
        active_host: host of the active task; None if its instance has no ``application.server``.
        standby_hosts: hosts of the standby copies.
        partition: the key's partition; None if its columns do not determine it.
    """

    active_host: HostInfo | None
    standby_hosts: frozenset[HostInfo]
    partition: int | None


@dataclass(frozen=True, slots=True)
class StreamsMetadata:
    """The stores of an instance that can be queried.

    Attributes:
        host_info: its ``application.server``.
        state_store_names: stores of its active tasks.
        topic_partitions: input partitions of these tasks.
        standby_state_store_names: stores of its standby copies.
        standby_topic_partitions: input partitions of the standby copies.
    """

    host_info: HostInfo
    state_store_names: frozenset[str]
    topic_partitions: frozenset[TopicPartition]
    standby_state_store_names: frozenset[str]
    standby_topic_partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class LagInfo:
    """How far the copy of a store's partition lags behind its changelog.

    Attributes:
        current_offset_position: offset of the copy.
        end_offset_position: end of the changelog when last read; None if unknown.
        offset_lag: the difference; None if unknown.
    """

    current_offset_position: int
    end_offset_position: int | None
    offset_lag: int | None


class GroupMetadata:
    """The hosts of the group's tasks, by one assignment."""

    def __init__(self, layout: TaskLayout | None, hosts: GroupHosts) -> None:
        self._tasks: Mapping[TaskId, TaskShape] = {} if layout is None else layout.tasks
        self._hosts = hosts

    @property
    def hosts(self) -> frozenset[HostInfo]:
        """Every host that can be queried."""
        return frozenset({**self._hosts.active, **self._hosts.standby})

    def width(self, subtopology: int) -> int:
        """Return the number of tasks of a subtopology; 0 if unknown."""
        return max((shape.width for id_, shape in self._tasks.items() if id_.subtopology == subtopology), default=0)

    def hosts_of(self, subtopology: int, partition: int) -> tuple[HostInfo | None, frozenset[HostInfo]]:
        """Return the host of a task, and those of its standby copies."""
        shape = self._tasks.get(TaskId(subtopology, partition))
        inputs = set() if shape is None else set(shape.inputs)
        active = [host for host, partitions in self._hosts.active.items() if not inputs.isdisjoint(partitions)]
        standby = [host for host, partitions in self._hosts.standby.items() if not inputs.isdisjoint(partitions)]
        return (active[0] if active else None), frozenset(standby)

    def all(self) -> list[StreamsMetadata]:
        """Return the metadata of each instance."""
        found = []
        for host in sorted(self.hosts):
            active, standby = (frozenset(some.get(host, ())) for some in (self._hosts.active, self._hosts.standby))
            found.append(StreamsMetadata(host, self._stores(active), active, self._stores(standby), standby))
        return found

    def _stores(self, partitions: frozenset[TopicPartition]) -> frozenset[str]:
        shapes = (shape for shape in self._tasks.values() if not partitions.isdisjoint(shape.inputs))
        return frozenset(store for shape in shapes for store in shape.stores)
