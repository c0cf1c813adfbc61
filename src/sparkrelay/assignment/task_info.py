"""A task as an assignor sees it. See KIP-924, "TaskInfo"."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkrelay.types import TaskId, TopicPartition

_UNKNOWN: Mapping[TopicPartition, Iterable[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTopicPartition:
    """An input or changelog partition of a task, or both.

    Attributes:
        topic_partition: The partition.
        is_source: True if it is input of the task.
        is_changelog: True if it is the changelog of one of its stores.
        racks: Returns the known racks of partitions, by a request to the broker.
    """

    topic_partition: TopicPartition
    is_source: bool = True
    is_changelog: bool = False
    racks: Callable[[], Mapping[TopicPartition, Iterable[str]]] = field(default=dict, repr=False, compare=False)

    @property
    def rack_ids(self) -> frozenset[str] | None:
        """Racks of all its replicas, or None if unknown. A running group's leader asks the broker.

        Raises:
            TaskAssignmentException: the broker does not answer. If not caught, the group keeps its assignment and
                tries again at once.
        """
        found = self.racks().get(self.topic_partition)
        return None if found is None else frozenset(found)


@dataclass(frozen=True, slots=True, order=False)
class TaskInfo:
    """A task to be placed. See KIP-924, "TaskInfo".

    Attributes:
        id: The task.
        state_store_names: Its stores, logged or not.
        topic_partitions: Its input and changelog partitions.
        input_topic_partitions: The inputs alone.
        changelog_topic_partitions: The changelogs alone; empty if no store is logged.
    """

    id: TaskId
    state_store_names: frozenset[str] = frozenset()
    topic_partitions: frozenset[TaskTopicPartition] = frozenset()
    input_topic_partitions: frozenset[TopicPartition] = field(init=False, repr=False, compare=False)
    changelog_topic_partitions: frozenset[TopicPartition] = field(init=False, repr=False, compare=False)
    _rack_ids: list[Mapping[TopicPartition, frozenset[str]]] = field(
        init=False, repr=False, compare=False, default_factory=list
    )

    def __post_init__(self) -> None:
        partitions = frozenset(self.topic_partitions)
        for name, value in (
            ("state_store_names", frozenset(self.state_store_names)),
            ("topic_partitions", partitions),
            ("input_topic_partitions", frozenset(p.topic_partition for p in partitions if p.is_source)),
            ("changelog_topic_partitions", frozenset(p.topic_partition for p in partitions if p.is_changelog)),
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
        racks: Mapping[TopicPartition, Iterable[str]] | Callable[[], Mapping[TopicPartition, Iterable[str]]] = _UNKNOWN,
    ) -> Self:
        """Make a task from plain partitions, which may be both input and changelog.

        Args:
            task: Its id.
            inputs: Partitions it reads.
            changelogs: Changelog partitions of its stores.
            stores: Names of its stores.
            racks: Known racks of the replicas, or a function that returns them on demand.
        """
        sources, logs = frozenset(inputs), frozenset(changelogs)
        partitions = frozenset(
            TaskTopicPartition(
                topic_partition=partition,
                is_source=partition in sources,
                is_changelog=partition in logs,
                racks=racks if callable(racks) else lambda: racks,
            )
            for partition in sources | logs
        )
        return cls(task, frozenset(stores), partitions)

    @property
    def partition_to_rack_ids(self) -> Mapping[TopicPartition, frozenset[str]]:
        """Racks of the replicas, where known; see :attr:`TaskTopicPartition.rack_ids`."""
        if not self._rack_ids:
            known = {p.topic_partition: racks for p in self.topic_partitions if (racks := p.rack_ids) is not None}
            self._rack_ids.append(MappingProxyType(known))
        return self._rack_ids[0]

    @property
    def is_stateful(self) -> bool:
        """True if the task has a store, logged or not."""
        return bool(self.state_store_names)

    @property
    def is_logged(self) -> bool:
        """True if the task has a changelog, and so lags and standbys."""
        return bool(self.changelog_topic_partitions)

    def __lt__(self, other: TaskInfo) -> bool:
        return self.id < other.id

    def __hash__(self) -> int:
        return hash(self.id)
