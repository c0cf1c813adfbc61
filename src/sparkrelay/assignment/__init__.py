"""Task assignment: KIP-924's public types, the built-in assignors, and the leader's part of a rebalance.

Pure: no I/O, no clock, no randomness. See ``docs/internals/assignment.md``.
"""

from sparkrelay.assignment import task_assignment_utils
from sparkrelay.assignment.agreement import agreed_assignor, assignor_name
from sparkrelay.assignment.application_state import ApplicationState
from sparkrelay.assignment.assignment_configs import AssignmentConfigs
from sparkrelay.assignment.group_member import ConsumerAssignment, GroupMember
from sparkrelay.assignment.high_availability import HighAvailabilityTaskAssignor
from sparkrelay.assignment.kafka_streams_assignment import AssignedTask, KafkaStreamsAssignment
from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
from sparkrelay.assignment.least_movement import LeastMovementTaskAssignor
from sparkrelay.assignment.loading import load_assignor, number_setting, require_known_settings
from sparkrelay.assignment.sticky import StickyTaskAssignor
from sparkrelay.assignment.task_assignor import (
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    TaskAssignment,
    TaskAssignor,
)
from sparkrelay.assignment.task_info import TaskInfo, TaskTopicPartition
from sparkrelay.assignment.validation import validate
from sparkrelay.types import ProcessId, TaskId

__all__ = [
    "ApplicationState",
    "AssignedTask",
    "AssignmentConfigs",
    "AssignmentError",
    "ConsumerAssignment",
    "GroupAssignment",
    "GroupMember",
    "GroupSubscription",
    "HighAvailabilityTaskAssignor",
    "KafkaStreamsAssignment",
    "KafkaStreamsState",
    "LeastMovementTaskAssignor",
    "ProcessId",
    "StickyTaskAssignor",
    "TaskAssignment",
    "TaskAssignor",
    "TaskId",
    "TaskInfo",
    "TaskTopicPartition",
    "agreed_assignor",
    "assignor_name",
    "load_assignor",
    "number_setting",
    "require_known_settings",
    "task_assignment_utils",
    "validate",
]
