"""Kafka Streams' group protocol (versions 1 to 11): subscription and assignment data as values.

Tests check the formats against the Java classes; ``docs/internals/assignment.md`` has the byte layouts.
"""

from sparkrelay.protocol.assignment_info import AssignmentInfo
from sparkrelay.protocol.common import (
    LATEST_OFFSET,
    LATEST_SUPPORTED_VERSION,
    LONG_MAX,
    NO_REBALANCE_SCHEDULED,
    UNKNOWN_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ErrorCode,
    HostInfo,
)
from sparkrelay.protocol.named_task_id import NamedTaskId, parse_task_id
from sparkrelay.protocol.reserved_tags import ASSIGNOR_TAG, PAGE_TAG, RESERVED_TAG_PREFIX, TOPOLOGY_TAG, split_tags
from sparkrelay.protocol.subscription_info import SubscriptionInfo
from sparkrelay.protocol.version_probing import SpokenVersion

__all__ = [
    "ASSIGNOR_TAG",
    "LATEST_OFFSET",
    "LATEST_SUPPORTED_VERSION",
    "LONG_MAX",
    "NO_REBALANCE_SCHEDULED",
    "PAGE_TAG",
    "RESERVED_TAG_PREFIX",
    "TOPOLOGY_TAG",
    "UNKNOWN_OFFSET",
    "UNKNOWN_OFFSET_SUM",
    "AssignmentInfo",
    "ErrorCode",
    "HostInfo",
    "NamedTaskId",
    "SpokenVersion",
    "SubscriptionInfo",
    "parse_task_id",
    "split_tags",
]
