"""Everything an assignor may ask. See KIP-924, "ApplicationState"."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.assignment.assignment_configs import AssignmentConfigs
from sparkrelay.assignment.sorted_set import SortedFrozenSet
from sparkrelay.errors import TaskAssignmentException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId

__all__ = ["ApplicationState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState:
    """The application at the moment of a rebalance: a plain value, so that any assignor can be run on any state.

    Attributes:
        all_tasks: Every task that has to be placed, in task order.
        assignment_configs: The group's settings.
        lag_failure: Why lags cannot be computed, or None. KIP-924: asking for lags then raises.
    """

    all_tasks: frozenset[TaskInfo]
    clients: Mapping[ProcessId, KafkaStreamsState] = field(hash=False, repr=False)
    assignment_configs: AssignmentConfigs = field(default_factory=AssignmentConfigs)
    lag_failure: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "all_tasks", SortedFrozenSet(self.all_tasks))
        object.__setattr__(self, "clients", MappingProxyType(dict(self.clients)))

    def kafka_streams_states(self, compute_task_lags: bool) -> Mapping[ProcessId, KafkaStreamsState]:
        """Return the processes of the group.

        Args:
            compute_task_lags: Whether the lags of their copies are wanted.

        Raises:
            TaskAssignmentException: lags are wanted but cannot be computed now. Let it pass to keep the present
                assignment and try again at once, or catch it and place tasks without lags.
        """
        if compute_task_lags:
            if self.lag_failure is not None:
                raise TaskAssignmentException(f"task lags cannot be computed: {self.lag_failure}")
            return self.clients
        return MappingProxyType({process: state.without_lags() for process, state in self.clients.items()})
