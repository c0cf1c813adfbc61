"""Everything an assignor may ask. See KIP-924, "ApplicationState"."""

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

__all__ = ["ApplicationState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState:
    """The application at the moment of a rebalance: a plain value, so that any assignor can be run on any state.

    Attributes:
        all_tasks: Every task that has to be placed, in task order.
        clients: The processes of the group. Assignors ask :meth:`kafka_streams_states` for them.
        assignment_configs: The group's settings.
        compute_lags: Returns the lags of each process's tasks, which costs the leader a question to the broker, or
            raises TaskAssignmentException. None if ``clients`` have their lags. Called when lags are first asked for;
            ``clients`` have them from then on.
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
        """Return the processes of the group.

        Args:
            compute_task_lags: Whether the lags of their copies are wanted.

        Raises:
            TaskAssignmentException: lags are wanted but cannot be computed now. Let it pass to keep the present
                assignment and try again at once, or catch it and place tasks without lags.
        """
        if compute_task_lags:
            if self.compute_lags is not None:
                lags = self.compute_lags()
                clients = {process: replace(state, task_lags=lags[process]) for process, state in self.clients.items()}
                object.__setattr__(self, "clients", MappingProxyType(clients))
                object.__setattr__(self, "compute_lags", None)
            return self.clients
        return MappingProxyType({process: state.without_lags() for process, state in self.clients.items()})
