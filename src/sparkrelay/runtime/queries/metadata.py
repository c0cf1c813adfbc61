"""Where the stores of an application can be queried, and how far copies are behind; Kafka Streams' names (KIP-535)."""

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

__all__ = ["GroupMetadata", "KeyQueryMetadata", "LagInfo", "StreamsMetadata"]


@dataclass(frozen=True, slots=True)
class KeyQueryMetadata:
    """Which instances have a key of a store.

    Attributes:
        active_host: where its task runs; None where no instance says so, by ``application.server``.
        standby_hosts: where its standby copies are.
        partition: in which partition it is; None where the key's columns do not decide that.
    """

    active_host: HostInfo | None
    standby_hosts: frozenset[HostInfo]
    partition: int | None


@dataclass(frozen=True, slots=True)
class StreamsMetadata:
    """What an instance has that can be queried.

    Attributes:
        host_info: its ``application.server``.
        state_store_names: the stores that its active tasks keep.
        topic_partitions: the input partitions of these.
        standby_state_store_names: the stores of its standby copies.
        standby_topic_partitions: the input partitions of these.
    """

    host_info: HostInfo
    state_store_names: frozenset[str]
    topic_partitions: frozenset[TopicPartition]
    standby_state_store_names: frozenset[str]
    standby_topic_partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class LagInfo:
    """How far the copy of a store's partition is behind its changelog.

    Attributes:
        current_offset_position: up to which offset the copy has it.
        end_offset_position: where the changelog ended at the last look; None while that is not known.
        offset_lag: the difference; None while that is not known.
    """

    current_offset_position: int
    end_offset_position: int | None
    offset_lag: int | None


class GroupMetadata:
    """Where the tasks of the group are, by an assignment."""

    def __init__(self, layout: TaskLayout | None, hosts: GroupHosts) -> None:
        """Take an assignment.

        Args:
            layout: every task of the application, as far as it is known.
            hosts: where their input partitions are.
        """
        self._layout = layout
        self._hosts = hosts

    @property
    def hosts(self) -> frozenset[HostInfo]:
        """Who can be asked."""
        return frozenset({**self._hosts.active, **self._hosts.standby})

    def width(self, subtopology: int) -> int:
        """Return how many tasks a subtopology has; 0 while that is not known."""
        return max((shape.width for id_, shape in self._tasks.items() if id_.subtopology == subtopology), default=0)

    def hosts_of(self, subtopology: int, partition: int) -> tuple[HostInfo | None, frozenset[HostInfo]]:
        """Return where a task runs, and where its standby copies are."""
        shape = self._tasks.get(TaskId(subtopology, partition))
        inputs = set() if shape is None else set(shape.inputs)
        active = [host for host, partitions in self._hosts.active.items() if not inputs.isdisjoint(partitions)]
        standby = [host for host, partitions in self._hosts.standby.items() if not inputs.isdisjoint(partitions)]
        return (active[0] if active else None), frozenset(standby)

    def all(self) -> list[StreamsMetadata]:
        """Return what each instance has."""
        found = []
        for host in sorted(self.hosts):
            active, standby = (frozenset(some.get(host, ())) for some in (self._hosts.active, self._hosts.standby))
            found.append(StreamsMetadata(host, self._stores(active), active, self._stores(standby), standby))
        return found

    @property
    def _tasks(self) -> Mapping[TaskId, TaskShape]:
        return {} if self._layout is None else self._layout.tasks

    def _stores(self, partitions: frozenset[TopicPartition]) -> frozenset[str]:
        shapes = (shape for shape in self._tasks.values() if not partitions.isdisjoint(shape.inputs))
        return frozenset(store for shape in shapes for store in shape.stores)
