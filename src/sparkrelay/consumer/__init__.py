"""A Kafka consumer for Python: callbacks inside ``poll``, records as Arrow columns, client-side assignors.

``Consumer`` is for programs and for group members; ``consumer.bounded`` reads exact ranges inside Spark tasks.
"""

from sparkrelay.consumer.access import AccessKey
from sparkrelay.consumer.assignor import (
    ClusterView,
    GroupMetadata,
    MemberAssignment,
    MemberSubscription,
    PartitionAssignor,
)
from sparkrelay.consumer.bounded import BoundedFetcher
from sparkrelay.consumer.consumer import Consumer
from sparkrelay.consumer.network import NetworkThread
from sparkrelay.types import TopicPartition

__all__ = [
    "AccessKey",
    "BoundedFetcher",
    "ClusterView",
    "Consumer",
    "GroupMetadata",
    "MemberAssignment",
    "MemberSubscription",
    "NetworkThread",
    "PartitionAssignor",
    "TopicPartition",
]
