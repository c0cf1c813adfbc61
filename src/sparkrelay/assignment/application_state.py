"""The input of an assignor. See KIP-924, "ApplicationState"."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.assignment.assignment_configs import AssignmentConfigs
from sparkrelay.assignment.sorted_set import SortedFrozenSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState:
    """The application at the time of a rebalance.

    Attributes:
        all_tasks: Every task to be placed, in task order.
        clients: The processes of the group; assignors use :meth:`kafka_streams_states`.
        assignment_configs: The group's settings.
        compute_lags: Returns the lags of each process, by a request to the broker, or raises TaskAssignmentException;
            called when lags are first requested. None if ``clients`` have lags.
    """

    all_tasks: frozenset[TaskInfo]
    clients: Mapping[ProcessId, KafkaStreamsState] = field(hash=False, repr=False)
    assignment_configs: AssignmentConfigs = field(default_factory=AssignmentConfigs)
    compute_lags: Callable[[], Mapping[ProcessId, Mapping[TaskId, int]]] | None = field(
        default=None, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "all_tasks", SortedFrozenSet(self.all_tasks))
        object.__setattr__(self, "clients", MappingProxyType(dict(self.clients)))

    def kafka_streams_states(self, compute_task_lags: bool) -> Mapping[ProcessId, KafkaStreamsState]:
        """Return the processes of the group, with the lags of their copies if requested.

        Raises:
            TaskAssignmentException: lags cannot be computed now. If not caught, the group keeps its assignment and
                tries again at once.
        """
        if compute_task_lags:
            if self.compute_lags is not None:
                lags = self.compute_lags()
                clients = {process: replace(state, task_lags=lags[process]) for process, state in self.clients.items()}
                object.__setattr__(self, "clients", MappingProxyType(clients))
                object.__setattr__(self, "compute_lags", None)
            return self.clients
        return MappingProxyType({process: state.without_lags() for process, state in self.clients.items()})
