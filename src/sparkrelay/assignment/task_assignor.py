"""The interface of pluggable assignors. See KIP-924, "TaskAssignor"."""

from __future__ import annotations

import abc
import enum
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.group_member import ConsumerAssignment, GroupMember
    from sparkrelay.assignment.kafka_streams_assignment import KafkaStreamsAssignment
    from sparkrelay.types import ProcessId, TaskId


class AssignmentError(enum.Enum):
    """What is wrong with an assignor's answer. See KIP-924, "Assignment Validation"."""

    #: The answer is valid.
    NONE = "NONE"
    #: Several processes have the same active task.
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    #: One process has a task in both roles.
    ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS = "ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS"
    #: A task without stores is a standby.
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    #: A process of the group is missing (Java's addition to KIP-924).
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    #: A process is not in the group.
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    #: A task does not exist.
    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """An assignor's answer.

    Attributes:
        assignment: One entry for each process of the group, idle ones too.
        probing_rebalance: Request a rebalance after ``probing.rebalance.interval.ms`` (KIP-441), by the leader's
            process. A flag instead of a deadline, because an assignor has no clock.
        warm_ups: Standbys that only prepare a move; shown to operators.
    """

    assignment: tuple[KafkaStreamsAssignment, ...]
    probing_rebalance: bool = False
    warm_ups: Mapping[ProcessId, frozenset[TaskId]] = field(default_factory=dict, hash=False)

    def __init__(
        self,
        assignment: Iterable[KafkaStreamsAssignment],
        *,
        probing_rebalance: bool = False,
        warm_ups: Mapping[ProcessId, frozenset[TaskId]] | None = None,
    ) -> None:
        object.__setattr__(self, "assignment", tuple(assignment))
        object.__setattr__(self, "probing_rebalance", probing_rebalance)
        object.__setattr__(self, "warm_ups", MappingProxyType(dict(warm_ups or {})))


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """The members with their subscriptions, by consumer id."""

    group_subscription: Mapping[str, GroupMember] = field(hash=False)


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The members' assignments by consumer id; empty if the answer is unusable."""

    group_assignment: Mapping[str, ConsumerAssignment] = field(hash=False)


class TaskAssignor(abc.ABC):
    """Places tasks on processes, not on their consumers.

    One instance lives as long as its member. It is called only while that member leads the group, one call at a time,
    on a separate thread. :meth:`assign` must not wait for other members. After half of ``max.poll.interval.ms`` it
    times out: every member gets an error, and ends.

    Attributes:
        settings: The assignor's own settings, which begin with ``task.assignor.``. A class that declares them has other
            such settings rejected; with None all are passed to :meth:`configure`.
    """

    settings: ClassVar[frozenset[str] | None] = None

    def configure(self, configs: Mapping[str, Any]) -> None:  # noqa: B027 - optional, KIP-924's Configurable
        """Take the application's settings; called once, first."""

    @abc.abstractmethod
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task.

        Raises:
            TaskAssignmentException: the group keeps its assignment and rebalances again at once.
        """

    def on_assignment_computed(  # noqa: B027 - optional, as in KIP-924
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        """Take the final assignment before it is sent; an ``error`` is raised as StreamsException afterwards."""
