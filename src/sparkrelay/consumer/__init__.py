"""A Kafka consumer for Python: callbacks inside ``poll``, records as Arrow columns, client-side assignors.

``Consumer`` blocks and ``AsyncConsumer`` awaits; both can join a group. ``BoundedFetcher`` reads exact ranges in Spark
tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.client.group_requests import GroupMetadata, OffsetAndMetadata
from sparkrelay.consumer.api.access import AccessKey
from sparkrelay.consumer.api.async_consumer import AsyncConsumer
from sparkrelay.consumer.api.consumer import Consumer
from sparkrelay.consumer.api.record import Record
from sparkrelay.consumer.base.assignor import (
    ClusterView,
    MemberAssignment,
    MemberSubscription,
    PartitionAssignor,
)
from sparkrelay.consumer.network.network_thread import NetworkThread
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from sparkrelay.consumer.fetch.bounded import BoundedFetcher

__all__ = [
    "AccessKey",
    "AsyncConsumer",
    "BoundedFetcher",
    "ClusterView",
    "Consumer",
    "GroupMetadata",
    "MemberAssignment",
    "MemberSubscription",
    "NetworkThread",
    "OffsetAndMetadata",
    "PartitionAssignor",
    "Record",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    # Lazy: it loads the decoder's compiled loops, 100 MB and half a second that a driver's consumers save.
    if name == "BoundedFetcher":
        from sparkrelay.consumer.fetch.bounded import BoundedFetcher  # noqa: PLC0415

        return BoundedFetcher
    raise AttributeError(f"module 'sparkrelay.consumer' has no attribute {name!r}")
