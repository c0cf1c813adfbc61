"""Every error that SparkRelay raises, as one tree.

    SparkRelayError
    ├── ConfigException (ValueError)        a setting is unknown, malformed or out of range
    ├── TopologyException                   the pipeline cannot be built or checked
    ├── KafkaException                      the broker, or the way to it; .retriable: whether trying again can help
    │   ├── TimeoutException (TimeoutError)     no answer within the bound
    │   ├── DisconnectException                 the connection broke before the answer came
    │   ├── BrokerResponseException             the broker answered with an error code (.code, .name)
    │   ├── UnknownTopicException               a topic, or a partition of it, does not exist
    │   │   └── MissingSourceTopicException         a topic that a pipeline reads does not exist
    │   ├── UnsupportedVersionException         the broker is too old for a request
    │   ├── AuthenticationException             SASL or TLS was refused
    │   ├── AuthorizationException              an ACL forbids it
    │   ├── OffsetOutOfRangeException           a position outside the log, and no reset policy
    │   │   └── LogTruncationException              a new leader's log lacks records that were read (KIP-320)
    │   ├── CommitFailedException               the group moved on while we were committing
    │   │   └── RebalanceInProgressException        it is rebalancing: poll, and commit again
    │   ├── RecordRefusedException              the topic rejects the record: no key, or a timestamp too far away
    │   ├── RecordTooLargeException             a record batch is larger than a limit of ours or of the topic
    │   └── ProducerFencedException             another producer took over the transactional id
    ├── RecordException                     bytes from or for a topic
    │   ├── CorruptRecordException              a batch with a wrong checksum or structure
    │   └── SerializationException              a value that does not fit its format
    │       ├── RecordDeserializationException      a record of a consumer (.topic, .partition, .offset, .column)
    │       └── UnknownSchemaException              a record's schema is not fetched yet (.schema_ids)
    ├── SchemaRegistryException             the schema registry refuses, does not answer, or has no such schema
    ├── StreamsException                    a running instance
    │   ├── TaskAssignmentException             an assignment cannot be computed or followed
    │   ├── ApplicationShutdownException        an instance asked the whole application to end
    │   ├── UnsupportedOperationException       a value was not computed, such as lags (KIP-924)
    │   ├── IncompatibleTopologyException       two instances of one application differ
    │   └── InvalidStateStoreException          a store cannot be queried (KIP-216)
    │       ├── UnknownStateStoreException          the pipeline has no such store, or it cannot be queried
    │       ├── InvalidStateStorePartitionException another instance has the key (.host, .partition)
    │       ├── StateStoreNotAvailableException     not now: its task is being restored or moved (.retry_after)
    │       └── StreamsNotStartedException          the instance has not started or has ended
    ├── StateStoreException                 local state
    │   ├── LockException                       another process holds the directory
    │   ├── StoreFullException                  the disk or the map is full
    │   ├── StoreOutOfStepException             the store is not where the batch expects it
    │   └── StoreCorruptedException             the store cannot be trusted; rebuild it from the changelog
    ├── WakeupException                     wakeup() was called on the consumer
    ├── ConcurrentModificationError         two threads use one consumer
    │   └── AccessKeyError                      a thread access key was misused (KIP-944)
    ├── IllegalTransitionException          an event that the state machine does not allow: a bug in SparkRelay
    ├── JavaException                       Java is missing or too old
    └── DevKafkaException                   the development broker cannot start or stop

Messages name the thing, its value and the remedy.
"""

from __future__ import annotations

__all__ = [
    "AccessKeyError",
    "ApplicationShutdownException",
    "AuthenticationException",
    "AuthorizationException",
    "BrokerResponseException",
    "CommitFailedException",
    "ConcurrentModificationError",
    "ConfigException",
    "CorruptRecordException",
    "DevKafkaException",
    "DisconnectException",
    "IllegalTransitionException",
    "IncompatibleTopologyException",
    "InvalidStateStoreException",
    "InvalidStateStorePartitionException",
    "JavaException",
    "KafkaException",
    "LockException",
    "LogTruncationException",
    "MissingSourceTopicException",
    "OffsetOutOfRangeException",
    "ProducerFencedException",
    "RebalanceInProgressException",
    "RecordDeserializationException",
    "RecordException",
    "RecordRefusedException",
    "RecordTooLargeException",
    "SchemaRegistryException",
    "SerializationException",
    "SparkRelayError",
    "StateStoreException",
    "StateStoreNotAvailableException",
    "StoreCorruptedException",
    "StoreFullException",
    "StoreOutOfStepException",
    "StreamsException",
    "StreamsNotStartedException",
    "TaskAssignmentException",
    "TimeoutException",
    "TopologyException",
    "UnknownSchemaException",
    "UnknownStateStoreException",
    "UnknownTopicException",
    "UnsupportedOperationException",
    "UnsupportedVersionException",
    "WakeupException",
]


class SparkRelayError(Exception):
    """Root of every error that SparkRelay raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # Without __init__, which may require other arguments than the message.
        return _rebuild_error, (type(self), self.args, self.__dict__)


def _rebuild_error(kind: type[Exception], args: tuple[object, ...], attributes: dict[str, object]) -> Exception:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class ConfigException(SparkRelayError, ValueError):
    """A setting is unknown, malformed or out of range; the message names its key and value."""


class TopologyException(SparkRelayError):
    """The pipeline cannot be built: wrong column, unsupported step, clashing names."""


class KafkaException(SparkRelayError):
    """The broker, or the way to it, failed.

    Attributes:
        retriable: whether the same request may succeed later without any other change.
    """

    retriable: bool = False


class TimeoutException(KafkaException, TimeoutError):
    """No answer came within the bound that the message states."""

    retriable = True


class DisconnectException(KafkaException):
    """The connection broke before the answer came; the request may or may not have been carried out.

    Args:
        args: the message.
        retriable: False if the connection was closed for good.
    """

    retriable = True

    def __init__(self, *args: object, retriable: bool = True) -> None:
        super().__init__(*args)
        self.retriable = retriable


class BrokerResponseException(KafkaException):
    """The broker answered with an error code.

    Attributes:
        code: Kafka's numeric error code.
        name: Kafka's name for it, such as ``NOT_COORDINATOR``.
    """

    def __init__(self, message: str, *, code: int, name: str, retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.retriable = retriable


class UnknownTopicException(KafkaException):
    """A topic, or a partition of it, does not exist."""


class MissingSourceTopicException(UnknownTopicException):
    """A topic that a pipeline reads does not exist, so there are no tasks."""


class UnsupportedVersionException(KafkaException):
    """The broker, or a record batch that it stores, is too old; the message names the required version.

    Attributes:
        offset: base offset of the record batch; None if the error is not about one.
    """

    offset: int | None = None


class AuthenticationException(KafkaException):
    """The broker refused our SASL or TLS credentials."""


class AuthorizationException(KafkaException):
    """An ACL forbids the operation on the named resource."""


class OffsetOutOfRangeException(KafkaException):
    """A position lies outside the log, or there is none, and ``auto.offset.reset`` is ``none``.

    Attributes:
        partitions: ``TopicPartition`` of those without a position, or whose next records were deleted. May be empty.
    """

    partitions: frozenset[tuple[str, int]] = frozenset()


class LogTruncationException(OffsetOutOfRangeException):
    """A new leader's log was cut before our position, and ``auto.offset.reset`` is ``none``. See KIP-320.

    Attributes:
        partition: of the log.
        position: offset of the next record to read.
        divergent_offset: where the logs diverge; None if the leader does not know.
    """

    def __init__(self, message: str, *, partition: object, position: int, divergent_offset: int | None) -> None:
        super().__init__(message)
        self.partition = partition
        self.position = position
        self.divergent_offset = divergent_offset


class CommitFailedException(KafkaException):
    """The group has rebalanced, so this member may no longer commit these offsets."""


class RebalanceInProgressException(CommitFailedException):
    """A commit during a rebalance: call ``poll()``, then commit again for the partitions still assigned."""


class RecordRefusedException(KafkaException):
    """The topic rejects the record: its timestamp is too far away, or it has no key."""


class RecordTooLargeException(KafkaException):
    """A record batch exceeds ``max.request.size`` or the topic's ``max.message.bytes``; the message names the size."""


class ProducerFencedException(KafkaException):
    """Another producer took over the transactional id."""


class RecordException(SparkRelayError):
    """Bytes read from or meant for a topic are unusable."""


class CorruptRecordException(RecordException):
    """A record batch has a wrong checksum or structure.

    Attributes:
        offset: base offset of the batch; None if unknown.
    """

    offset: int | None = None


class SerializationException(RecordException):
    """A value does not fit its declared format; the message names topic, partition and offset if known."""


class RecordDeserializationException(SerializationException):
    """A consumer's deserializer cannot read a record; the consumer's position stays before it.

    Attributes:
        topic: of the record.
        partition: of the record.
        offset: of the record; ``seek`` to the next one to skip it.
        column: ``key`` or ``value``.
    """

    def __init__(self, message: str, *, topic: str, partition: int, offset: int, column: str) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.column = column


class UnknownSchemaException(SerializationException):
    """A record was written by a schema that its reader does not have yet; the driver fetches it from the registry.

    Attributes:
        schema_ids: the registry's ids of such schemas, separated by commas.
    """

    def __init__(self, message: str, *, schema_ids: str) -> None:
        super().__init__(message)
        self.schema_ids = schema_ids


class SchemaRegistryException(SparkRelayError):
    """The schema registry refuses, does not answer, or has no such schema; the message names the request.

    Args:
        args: the message.
        retriable: whether the same request may succeed later without any other change.
    """

    def __init__(self, *args: object, retriable: bool = False) -> None:
        super().__init__(*args)
        self.retriable = retriable


class StreamsException(SparkRelayError):
    """A running instance failed."""


class TaskAssignmentException(StreamsException):
    """An assignment cannot be computed or followed. See KIP-924."""


class UnsupportedOperationException(StreamsException):
    """A value was not computed; the message says how to request it. See KIP-924."""


class ApplicationShutdownException(StreamsException):
    """An instance asked the whole application to end."""


class IncompatibleTopologyException(StreamsException):
    """Instances of one application run different topologies, or a topology does not fit the existing state."""


class InvalidStateStoreException(StreamsException):
    """A store cannot be queried. See KIP-216."""


class UnknownStateStoreException(InvalidStateStoreException):
    """The pipeline has no such store, or its contents cannot be shown as rows."""


class InvalidStateStorePartitionException(InvalidStateStoreException):
    """The requested rows are not in the partitions of this instance.

    Attributes:
        host: ``host:port`` of the instance that has them; None if unknown.
        partition: their partition; None if unknown.
    """

    def __init__(self, message: str, *, host: str | None = None, partition: int | None = None) -> None:
        super().__init__(message)
        self.host = host
        self.partition = partition


class StateStoreNotAvailableException(InvalidStateStoreException):
    """A store cannot be queried now: its task is being restored or moved.

    Attributes:
        retry_after: seconds after which to try again.
    """

    retry_after = 1


class StreamsNotStartedException(InvalidStateStoreException):
    """The instance has not started or has ended."""


class StateStoreException(SparkRelayError):
    """Local state cannot be used."""


class LockException(StateStoreException):
    """Another process holds the directory; the message names it."""


class StoreFullException(StateStoreException):
    """The disk, or the store's memory map, is full."""


class StoreOutOfStepException(StateStoreException):
    """The store is not at the batch and epoch that the caller expects."""


class StoreCorruptedException(StateStoreException):
    """The store cannot be trusted and must be rebuilt from its changelog."""


class WakeupException(SparkRelayError):
    """``wakeup()`` interrupted a blocking call."""


class ConcurrentModificationError(SparkRelayError, RuntimeError):
    """Two threads use one consumer at once; the message names both."""


class AccessKeyError(ConcurrentModificationError):
    """A thread access key was misused, or a callback returned before the threads that it let in. See KIP-944."""


class IllegalTransitionException(SparkRelayError):
    """An event that the state machine does not allow: a bug in SparkRelay. The message lists the previous events."""


class JavaException(SparkRelayError):
    """Java is missing or too old."""


class DevKafkaException(SparkRelayError):
    """The development broker cannot be started, reached or stopped."""
