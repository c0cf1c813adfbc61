"""The Kafka messages that we use, as kafka-python compiles them from Apache's JSON definitions.

Other packages import them from here, so that only this one depends on kafka-python. The classes are untyped: a
message's fields are Kafka's names in snake_case.
"""

from __future__ import annotations

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.admin.transactions import ListTransactionsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from sparkrelay.client import definitions
from sparkrelay.client.fetch_response import FetchResponse

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "CreateTopicsRequest",
    "DeleteRecordsRequest",
    "DeleteTopicsRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "EndTxnRequest",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "InitProducerIdRequest",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListGroupsRequest",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListTransactionsRequest",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeleteRequest",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TxnOffsetCommitRequest",
]


class OffsetDeleteRequest(ApiMessage):  # type: ignore[misc]
    """Delete a group's offsets of some partitions (KIP-496); kafka-python has the definition without a class."""


class OffsetDeleteResponse(ApiMessage):  # type: ignore[misc]
    """Registered as the answer to OffsetDeleteRequest."""


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=definitions):  # type: ignore[call-arg, misc]
    """The heartbeat of KIP-848, compiled from our definitions because kafka-python has none.

    Joins (epoch 0), stays, acknowledges, or leaves (epoch -1, or -2 for a static member that will return). Version 1
    adds a regular expression that the broker matches.
    """


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=definitions):  # type: ignore[call-arg, misc]
    """The member's epoch, the heartbeat interval and, if it changed, the assignment."""
