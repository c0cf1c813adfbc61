"""What an assignor knows of a task: its stores and its partitions. See KIP-924, "TaskInfo"."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["TaskInfo", "TaskTopicPartition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTopicPartition:
    """One partition that a task reads, or writes its changes to, or both.

    Attributes:
        topic_partition: The partition.
        is_source: True if it is input of the task.
        is_changelog: True if it is the changelog of one of its stores.
        rack_ids: Racks of all its replicas, or None if they are not known.
    """

    topic_partition: TopicPartition
    is_source: bool = True
    is_changelog: bool = False
    rack_ids: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, order=False)
class TaskInfo:
    """A task that has to be placed. See KIP-924, "TaskInfo".

    Attributes:
        id: The task.
        state_store_names: Its stores, logged or not.
        topic_partitions: Its input and changelog partitions.
        input_topic_partitions: The input alone.
        changelog_topic_partitions: The changelogs alone; none if all its stores have logging off.
        partition_to_rack_ids: Racks of the replicas, for the partitions where they are known.
    """

    id: TaskId
    state_store_names: frozenset[str] = frozenset()
    topic_partitions: frozenset[TaskTopicPartition] = frozenset()
    input_topic_partitions: frozenset[TopicPartition] = field(init=False, repr=False, compare=False)
    changelog_topic_partitions: frozenset[TopicPartition] = field(init=False, repr=False, compare=False)
    partition_to_rack_ids: Mapping[TopicPartition, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        partitions = frozenset(self.topic_partitions)
        racks = {p.topic_partition: p.rack_ids for p in partitions if p.rack_ids is not None}
        for name, value in (
            ("state_store_names", frozenset(self.state_store_names)),
            ("topic_partitions", partitions),
            ("input_topic_partitions", frozenset(p.topic_partition for p in partitions if p.is_source)),
            ("changelog_topic_partitions", frozenset(p.topic_partition for p in partitions if p.is_changelog)),
            ("partition_to_rack_ids", MappingProxyType(racks)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls,
        task: TaskId,
        *,
        inputs: Iterable[TopicPartition],
        changelogs: Iterable[TopicPartition] = (),
        stores: Iterable[str] = (),
        racks: Mapping[TopicPartition, Iterable[str]] | None = None,
    ) -> Self:
        """Make a task from plain partitions; one named as input and as changelog is both.

        Args:
            task: Its id.
            inputs: Partitions it reads.
            changelogs: Partitions that can rebuild its stores.
            stores: Names of its stores.
            racks: Racks of the replicas, where known.
        """
        sources, logs, known = frozenset(inputs), frozenset(changelogs), racks or {}
        partitions = frozenset(
            TaskTopicPartition(
                topic_partition=partition,
                is_source=partition in sources,
                is_changelog=partition in logs,
                rack_ids=frozenset(known[partition]) if partition in known else None,
            )
            for partition in sources | logs
        )
        return cls(task, frozenset(stores), partitions)

    @property
    def is_stateful(self) -> bool:
        """True if the task has a store, logged or not."""
        return bool(self.state_store_names)

    @property
    def is_logged(self) -> bool:
        """True if the task has a changelog: only then a standby can follow it and lag means something."""
        return bool(self.changelog_topic_partitions)

    def __lt__(self, other: TaskInfo) -> bool:
        return self.id < other.id

    def __hash__(self) -> int:
        return hash(self.id)
