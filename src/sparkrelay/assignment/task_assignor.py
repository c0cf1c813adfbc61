"""The interface that a pluggable assignor implements, and what goes in and out of it. See KIP-924, "TaskAssignor"."""

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

__all__ = ["AssignmentError", "GroupAssignment", "GroupSubscription", "TaskAssignment", "TaskAssignor"]


class AssignmentError(enum.Enum):
    """What is wrong with an assignor's answer. See KIP-924, "Assignment Validation"."""

    #: Nothing is wrong.
    NONE = "NONE"
    #: Several processes were given the same active task.
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    #: One process was given a task as active and as standby.
    ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS = "ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS"
    #: A task without stores was given as standby.
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    #: A process of the group is not in the answer (Java's addition to KIP-924).
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    #: A process in the answer is not in the group.
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    #: A task in the answer does not exist.
    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """An assignor's answer.

    Attributes:
        assignment: One entry for each process of the group, idle ones too.
        probing_rebalance: Ask the leader's own process for a rebalance after ``probing.rebalance.interval.ms``. An
            assignor has no clock, so "look again after the usual while" is a flag and not a deadline (KIP-441).
        warm_ups: Standbys that are there only because a move is under way; shown to operators, decides nothing.
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
    """What the members reported to the leader, by consumer id."""

    group_subscription: Mapping[str, GroupMember] = field(hash=False)


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """What the members are sent, by consumer id; empty if the answer could not be used."""

    group_assignment: Mapping[str, ConsumerAssignment] = field(hash=False)


class TaskAssignor(abc.ABC):
    """Places tasks on processes; which consumer of a process runs a task is not its business.

    One instance lives as long as its member and is called only while that member leads the group, one call at a time,
    on a thread of its own. :meth:`assign` must not wait for other members. An answer that takes longer than half of
    ``max.poll.interval.ms`` is not waited for: every member gets an error, and gives up.

    Attributes:
        settings: the assignor's own settings, which begin with ``task.assignor.``: a class that names them has others
            with that beginning refused. None: any are passed on to :meth:`configure`.
    """

    settings: ClassVar[frozenset[str] | None] = None

    def configure(self, configs: Mapping[str, Any]) -> None:  # noqa: B027 - optional, KIP-924's Configurable
        """Take the application's settings; called once, before anything else."""

    @abc.abstractmethod
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task.

        Raises:
            TaskAssignmentException: keep the present assignment and rebalance again at once.
        """

    def on_assignment_computed(  # noqa: B027 - optional, as in KIP-924
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        """See the final assignment before it is sent; an ``error`` is raised as StreamsException afterwards."""
