"""The Kafka messages that we use, as kafka-python compiles them from Apache's JSON definitions.

Other packages import them from here, so that only this one depends on kafka-python. The classes are untyped: a
message's fields are Kafka's names in snake_case.
"""

from __future__ import annotations

from kafka.protocol.admin import (
    CreateTopicsRequest as CreateTopicsRequest,
    DeleteRecordsRequest as DeleteRecordsRequest,
    DeleteTopicsRequest as DeleteTopicsRequest,
    DescribeConfigsRequest as DescribeConfigsRequest,
    DescribeGroupsRequest as DescribeGroupsRequest,
    ListGroupsRequest as ListGroupsRequest,
)
from kafka.protocol.admin.transactions import ListTransactionsRequest as ListTransactionsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    FetchRequest as FetchRequest,
    HeartbeatRequest as HeartbeatRequest,
    JoinGroupRequest as JoinGroupRequest,
    LeaveGroupRequest as LeaveGroupRequest,
    ListOffsetsRequest as ListOffsetsRequest,
    OffsetCommitRequest as OffsetCommitRequest,
    OffsetFetchRequest as OffsetFetchRequest,
    OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest,
    SyncGroupRequest as SyncGroupRequest,
)
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment as ConsumerProtocolAssignment,
    ConsumerProtocolSubscription as ConsumerProtocolSubscription,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest as ApiVersionsRequest,
    FindCoordinatorRequest as FindCoordinatorRequest,
    MetadataRequest as MetadataRequest,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest as AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest as AddPartitionsToTxnRequest,
    EndTxnRequest as EndTxnRequest,
    InitProducerIdRequest as InitProducerIdRequest,
    ProduceRequest as ProduceRequest,
    TxnOffsetCommitRequest as TxnOffsetCommitRequest,
)

from sparkrelay.client import definitions
from sparkrelay.client.messages.fetch_response import FetchResponse as FetchResponse


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
