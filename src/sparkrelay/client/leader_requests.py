"""Requests to partition leaders: split by leader, sent concurrently, repeated for the partitions that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sparkrelay.client.broker_errors import STALE_METADATA, ErrorCode, broker_error, is_retriable
from sparkrelay.client.exchanges import Pause, run_exchange
from sparkrelay.client.messages import DeleteRecordsRequest, ListOffsetsRequest
from sparkrelay.errors import KafkaException, TimeoutException, UnknownTopicException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.client.metadata import Metadata


@dataclass(frozen=True, slots=True)
class LeaderCall:
    """A kind of request with one number for each partition, and one in the answer.

    Attributes:
        operation: the ACL operation that it takes.
        result: field of an answer's partition that has the number.
    """

    operation: ClassVar[str]
    result: ClassVar[str]

    def request(self, topics: Mapping[str, Mapping[int, int]], timeout_ms: int) -> Any:
        """Return the request to one leader."""
        raise NotImplementedError

    def answers(self, message: Any) -> Iterable[tuple[TopicPartition, int, int]]:
        """Yield (partition, error code, result)."""
        for topic in message.topics:
            for part in topic.partitions:
                yield TopicPartition(topic.name, part.partition_index), part.error_code, getattr(part, self.result)

    def describe(self, tp: TopicPartition, value: int) -> str:
        """Return what is being done, for messages."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ListOffsetsCall(LeaderCall):
    """Lists offsets by timestamp or position."""

    operation: ClassVar[str] = "DESCRIBE"
    result: ClassVar[str] = "offset"

    read_committed: bool

    def request(self, topics: Mapping[str, Mapping[int, int]], timeout_ms: int) -> Any:
        """Return the request to one leader."""
        topic = ListOffsetsRequest.ListOffsetsTopic
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1 if self.read_committed else 0,
            topics=[
                topic(
                    name=name,
                    partitions=[
                        topic.ListOffsetsPartition(partition_index=p, current_leader_epoch=-1, timestamp=value)
                        for p, value in partitions.items()
                    ],
                )
                for name, partitions in topics.items()
            ],
            timeout_ms=timeout_ms,
            min_version=2,
        )

    def describe(self, tp: TopicPartition, value: int) -> str:
        """Return what is being done, for messages."""
        return f"listing the offset of {tp} at {({-1: 'its end', -2: 'its start'}).get(value, value)}"


@dataclass(frozen=True, slots=True)
class DeleteRecordsCall(LeaderCall):
    """Deletes all records before an offset; the result is the new log start offset."""

    operation: ClassVar[str] = "DELETE"
    result: ClassVar[str] = "low_watermark"

    def request(self, topics: Mapping[str, Mapping[int, int]], timeout_ms: int) -> Any:
        """Return the request to one leader."""
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        return DeleteRecordsRequest(
            topics=[
                topic(
                    name=name,
                    partitions=[
                        topic.DeleteRecordsPartition(partition_index=p, offset=value) for p, value in partitions.items()
                    ],
                )
                for name, partitions in topics.items()
            ],
            timeout_ms=timeout_ms,
        )

    def describe(self, tp: TopicPartition, value: int) -> str:
        """Return what is being done, for messages."""
        return f"deleting the records of {tp} before {value}"


def per_leader(
    client: KafkaClient, call: LeaderCall, values: Mapping[TopicPartition, int], timeout: float
) -> dict[TopicPartition, int]:
    """Make a call for every partition and return the results.

    Raises:
        UnknownTopicException: a partition still did not exist after ``timeout`` seconds.
        TimeoutException: a partition had no leader, or no broker answered.
        KafkaException: the first error that a retry does not change.
    """
    results: dict[TopicPartition, int] = {}
    missing: list[TopicPartition] = []
    try:
        run_exchange(
            client,
            f"asking the leaders of {len(values)} partitions",
            _exchange(client, call, values, results, missing),
            timeout,
        )
    except TimeoutException as error:
        if missing:
            raise UnknownTopicException(
                f"{', '.join(map(str, missing[:5]))} did not exist within {timeout:g} s; was the topic created?"
            ) from error
        raise
    return {tp: results[tp] for tp in values}


def _exchange(
    client: KafkaClient,
    call: LeaderCall,
    values: Mapping[TopicPartition, int],
    results: dict[TopicPartition, int],
    missing: list[TopicPartition],
) -> Exchange[None]:
    backoff = client.config.retry_backoff()
    timeout_ms = client.config.request_timeout_ms
    #: Whether a broker has answered this call: metadata from before may be outdated.
    answered = False
    while left := [tp for tp in values if tp not in results]:
        by_leader: dict[int, dict[str, dict[int, int]]] = {}
        error: KafkaException | None = None
        leaderless: list[TopicPartition] = []
        stale = False
        missing.clear()
        for tp in left:
            leader = client.metadata.leader(tp)
            if leader is None:
                leaderless.append(tp)
                stale = True
                if answered:
                    _require_permission(client.metadata, tp, call.describe(tp, values[tp]))
                    if _is_absent(client.metadata, tp):
                        missing.append(tp)
            else:
                by_leader.setdefault(leader, {}).setdefault(tp.topic, {})[tp.partition] = values[tp]
        responses = [client.send(call.request(topics, timeout_ms), node=leader) for leader, topics in by_leader.items()]
        for response in responses:
            yield response
        for response in responses:
            if response.error is not None:
                if not response.error.retriable:
                    raise response.error
                error, stale = response.error, True
                continue
            for tp, code, result in call.answers(response.result()):
                if not code:
                    results[tp] = result
                    continue
                error = broker_error(code, call.describe(tp, values[tp]), needs=call.operation)
                if not error.retriable:
                    raise error
                stale = stale or code in STALE_METADATA
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    missing.append(tp)
        if stale:
            response = client.request_metadata({tp.topic for tp in left})
            yield response
            answered = answered or response.error is None
            if error is None and all(client.metadata.leader(tp) is not None for tp in left):
                continue  # the leaders just had not been looked up
        if len(results) < len(values):
            none = leaderless[0] if leaderless else left[0]
            yield Pause(backoff.next(), error or broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{none} has no leader"))


def _require_permission(metadata: Metadata, tp: TopicPartition, what: str) -> None:
    """Raise the broker's error for a topic if a retry does not change it, such as a missing permission."""
    code = metadata.topic_error(tp.topic)
    if code and not is_retriable(code):
        raise broker_error(code, what, needs="DESCRIBE")


def _is_absent(metadata: Metadata, tp: TopicPartition) -> bool:
    """Return whether a broker has answered that the partition does not exist; a missing leader is no such answer."""
    if metadata.topic(tp.topic) is None:
        return metadata.topic_error(tp.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return metadata.partition(tp) is None
