"""A Kafka consumer for Python: callbacks inside ``poll``, records as Arrow columns, client-side assignors.

``Consumer`` is for programs and for group members, ``AsyncConsumer`` for programs that await. ``consumer.bounded``
reads exact ranges inside Spark tasks.
"""

from sparkrelay.consumer.access import AccessKey
from sparkrelay.consumer.assignor import (
    ClusterView,
    GroupMetadata,
    MemberAssignment,
    MemberSubscription,
    PartitionAssignor,
)
from sparkrelay.consumer.async_consumer import AsyncConsumer
from sparkrelay.consumer.bounded import BoundedFetcher
from sparkrelay.consumer.committed_offsets import OffsetAndMetadata
from sparkrelay.consumer.consumer import Consumer
from sparkrelay.consumer.record import Record
from sparkrelay.types import TopicPartition

__all__ = [
    "AccessKey",
    "AsyncConsumer",
    "BoundedFetcher",
    "ClusterView",
    "Consumer",
    "GroupMetadata",
    "MemberAssignment",
    "MemberSubscription",
    "OffsetAndMetadata",
    "PartitionAssignor",
    "Record",
    "TopicPartition",
]
