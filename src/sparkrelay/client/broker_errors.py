"""Kafka's error codes as SparkRelay errors: their names, whether a retry can help, and the exception classes."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import (
    AuthenticationException,
    AuthorizationException,
    BrokerResponseException,
    KafkaException,
    OffsetOutOfRangeException,
    ProducerFencedException,
    RecordRefusedException,
    UnknownTopicException,
    UnsupportedVersionException,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class ErrorCode(enum.IntEnum):
    """All error codes of Kafka 4.3."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


#: Codes after which to refresh the metadata and retry. Kafka's own table lacks UNKNOWN_LEADER_EPOCH; a broker that does
#: not know our leader epoch yet may also be a former leader.
STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

#: The broker does not coordinate the group, or not yet: the request had no effect.
NOT_COORDINATING: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)

_RETRIABLE: Final = STALE_METADATA | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
}

_CLASSES: Final[dict[int, type[KafkaException]]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeException,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicException,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicException,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationException,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationException,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationException,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationException,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationException,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationException,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationException,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationException,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersionException,
    ErrorCode.INVALID_TIMESTAMP: RecordRefusedException,
    ErrorCode.INVALID_RECORD: RecordRefusedException,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: RecordRefusedException,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedException,
    ErrorCode.PRODUCER_FENCED: ProducerFencedException,
}


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or ``ERROR_<number>``."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"


def is_retriable(code: int) -> bool:
    """Return whether repeating the same request may help."""
    return code in _RETRIABLE


#: Causes and remedies that are not obvious from the code's name.
_REMEDIES: Final[Mapping[int, str]] = {
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms is not between the broker's group.min.session.timeout.ms (default 6000) and "
        "group.max.session.timeout.ms (default 1800000): choose another, or change the broker's"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "the metadata stored with the offsets is longer than the broker's offset.metadata.max.bytes (default 4096): "
        "raise that"
    ),
    ErrorCode.INVALID_TIMESTAMP: (
        "a timestamp, such as a row's event time, is further from the broker's clock than the topic's "
        "message.timestamp.after.max.ms (default: one hour ahead) or message.timestamp.before.max.ms allows: "
        "raise it, or filter such rows out before to()"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms is larger than the broker's transaction.max.timeout.ms (default 900000): lower it, or "
        "raise the broker's"
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "a topic has at most as many replicas as there are brokers: lower replication.factor, or set it to -1 for the "
        "broker's default"
    ),
    ErrorCode.INVALID_GROUP_ID: "group.id must be 1 to 32767 bytes, and the group must be of the requested type",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members have no assignor of partition.assignment.strategy in common: offer the same one in all of "
        "them; or the group is of another type"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker's group.max.size allows",
    ErrorCode.FENCED_INSTANCE_ID: (
        "another member has joined with the same group.instance.id: give each member its own"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "an active member uses this group.instance.id: give each member its own, or wait until that one has left"
    ),
    ErrorCode.POLICY_VIOLATION: (
        "a policy of the cluster or the topic forbids it. Records can be deleted only if cleanup.policy includes "
        "delete; changelogs of windows have that, except those made by early builds: kafka-configs.sh "
        "--alter --entity-type topics --entity-name TOPIC --add-config cleanup.policy=[compact,delete]"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: "group.remote.assignor is not one of the broker's group.consumer.assignors",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker reads patterns as RE2: no look-around, no back references",
}


#: The kind of resource that a permission is missing on.
_PROTECTED: Final[Mapping[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}


def broker_error(code: int, message: str, *, needs: str = "") -> KafkaException:
    """Return (not raise) the exception for an error code.

    Args:
        code: Kafka's error code, not zero.
        message: what was done to what, and a remedy; the code's name and number are appended.
        needs: the ACL operation that the request takes, such as ``READ``.
    """
    text = f"{message}: {error_name(code)} ({code})"
    if remedy := _REMEDIES.get(code):
        text = f"{text}: {remedy}"
    if protected := _PROTECTED.get(code):
        operation = f" {needs}" if needs else ""
        text = (
            f"{text}: this client's user lacks the permission (ACL){operation} on that {protected}. What an instance "
            "needs is in docs/operations.md; 'sparkrelay doctor' looks for it"
        )
    kind = _CLASSES.get(code)
    if kind is None:
        return BrokerResponseException(text, code=code, name=error_name(code), retriable=is_retriable(code))
    error = kind(text)
    error.retriable = is_retriable(code)
    return error


def fenced_reason(transactional_id: str | None) -> str:
    """Return why a transactional id is fenced, and that an instance recovers from it."""
    return (
        f"transactional id {transactional_id!r} was opened later by another process, or its transaction stayed open "
        "for longer than transaction.timeout.ms, or what it wrote before is lost. An instance recovers by itself: it "
        "initializes the task again, if the task is still assigned to it, and repeats the batch"
    )
