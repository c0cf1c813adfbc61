"""A process as an assignor sees it. See KIP-924, "KafkaStreamsState"."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from sparkrelay.assignment.sorted_set import SortedFrozenSet
from sparkrelay.errors import StreamsException, UnsupportedOperationException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.protocol import HostInfo
    from sparkrelay.types import ProcessId, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaStreamsState:
    """One process of the group: its threads, previous tasks and lags.

    Attributes:
        process_id: The process.
        num_processing_threads: Its stream threads, which determine its share of the work.
        consumer_client_ids: Its consumers, sorted.
        previous_active_tasks: Tasks whose partitions it owned, or that it reported as running.
        previous_standby_tasks: Other tasks that it has state of.
        host_info: Its endpoint for queries, if any.
        client_tags: Its ``client.tag.*`` settings.
        rack_id: Its rack, if set.
        task_lags: Lag in offsets of every logged task; None if not computed. Use :meth:`lag_for`.
        previous_tasks_by_consumer: Tasks with state by the consumer that reported them.
    """

    process_id: ProcessId
    num_processing_threads: int = 1
    consumer_client_ids: frozenset[str] = frozenset()
    previous_active_tasks: frozenset[TaskId] = frozenset()
    previous_standby_tasks: frozenset[TaskId] = frozenset()
    host_info: HostInfo | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    rack_id: str | None = None
    task_lags: Mapping[TaskId, int] | None = field(default=None, hash=False, repr=False)
    previous_tasks_by_consumer: Mapping[str, frozenset[TaskId]] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        if self.num_processing_threads < 1:
            raise ValueError(
                f"process {self.process_id} has {self.num_processing_threads} threads; it needs at least 1"
            )
        for name in ("consumer_client_ids", "previous_active_tasks", "previous_standby_tasks"):
            object.__setattr__(self, name, SortedFrozenSet(getattr(self, name)))
        for name in ("client_tags", "task_lags", "previous_tasks_by_consumer"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, MappingProxyType):
                object.__setattr__(self, name, MappingProxyType(dict(given)))

    @property
    def stateful_tasks_to_lag_sums(self) -> Mapping[TaskId, int]:
        """Every logged task with its lag in offsets.

        Raises:
            UnsupportedOperationException: lags were not computed.
        """
        if self.task_lags is None:
            raise UnsupportedOperationException(
                f"the lags of process {self.process_id} were not computed; "
                "call kafka_streams_states(compute_task_lags=True)"
            )
        return self.task_lags

    def lag_for(self, task: TaskId) -> int:
        """Return how many offsets this process's copy of ``task`` is behind; the whole log without a copy.

        -2 means active and running here, -3 that the offset is unknown.

        Raises:
            UnsupportedOperationException: lags were not computed.
            StreamsException: the task is not a logged task of this group.
        """
        lag = self.stateful_tasks_to_lag_sums.get(task)
        if lag is None:
            raise StreamsException(f"Tried to lookup lag for unknown task {task}")
        return lag

    def prev_tasks_by_lag(self, consumer_client_id: str) -> tuple[TaskId, ...]:
        """Return the existing tasks that this consumer had, least lag first.

        Raises:
            UnsupportedOperationException: lags were not computed.
        """
        lags = self.stateful_tasks_to_lag_sums
        known = self.previous_tasks_by_consumer.get(consumer_client_id, frozenset()) & lags.keys()
        return tuple(sorted(known, key=lambda task: (lags[task], task)))

    def without_lags(self) -> Self:
        """Return the same state without lags."""
        return self if self.task_lags is None else replace(self, task_lags=None)
