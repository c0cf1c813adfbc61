"""Requests that each partition's leader must answer: split by leader, sent at once, repeated for those that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

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

__all__ = ["DeleteRecordsCall", "LeaderCall", "ListOffsetsCall", "per_leader"]

_LANE = ""


class LeaderCall(Protocol):
    """One kind of such a request: a number goes in for each partition, a number comes out.

    Attributes:
        operation: of Kafka's ACLs, that it takes.
    """

    operation: ClassVar[str]

    def request(self, topics: Mapping[str, Mapping[int, int]], timeout_ms: int) -> Any:
        """Build the request for one leader."""

    def answers(self, message: Any) -> Iterable[tuple[TopicPartition, int, int]]:
        """Yield (partition, error code, result)."""

    def describe(self, tp: TopicPartition, value: int) -> str:
        """Say what is being done, for error messages."""


@dataclass(frozen=True, slots=True)
class ListOffsetsCall:
    """Offsets by timestamp or position."""

    operation: ClassVar[str] = "DESCRIBE"

    read_committed: bool

    def request(self, topics: Mapping[str, Mapping[int, int]], timeout_ms: int) -> Any:
        """Build the request for one leader."""
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

    def answers(self, message: Any) -> Iterable[tuple[TopicPartition, int, int]]:
        """Yield (partition, error code, offset)."""
        for topic in message.topics:
            for part in topic.partitions:
                yield TopicPartition(topic.name, part.partition_index), part.error_code, part.offset

    def describe(self, tp: TopicPartition, value: int) -> str:
        """Say what is being done, for error messages."""
        return f"listing the offset of {tp} at {({-1: 'its end', -2: 'its start'}).get(value, value)}"


@dataclass(frozen=True, slots=True)
class DeleteRecordsCall:
    """Deleting all records before an offset."""

    operation: ClassVar[str] = "DELETE"

    def request(self, topics: Mapping[str, Mapping[int, int]], timeout_ms: int) -> Any:
        """Build the request for one leader."""
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

    def answers(self, message: Any) -> Iterable[tuple[TopicPartition, int, int]]:
        """Yield (partition, error code, first offset left)."""
        for topic in message.topics:
            for part in topic.partitions:
                yield TopicPartition(topic.name, part.partition_index), part.error_code, part.low_watermark

    def describe(self, tp: TopicPartition, value: int) -> str:
        """Say what is being done, for error messages."""
        return f"deleting the records of {tp} before {value}"


def per_leader(
    client: KafkaClient, call: LeaderCall, values: Mapping[TopicPartition, int], timeout: float
) -> dict[TopicPartition, int]:
    """Carry a call out for every partition.

    Raises:
        UnknownTopicException: a partition did not exist during all of ``timeout`` seconds.
        TimeoutException: a partition had no leader, or no broker answered.
        KafkaException: the first answer that repeating does not change.
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
    #: True once a broker has answered this call: what was known before may be from when the brokers came up or went.
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
        responses = [
            client.send(call.request(topics, timeout_ms), node=leader, lane=_LANE)
            for leader, topics in by_leader.items()
        ]
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
                continue  # their leaders just had not been asked for
        if len(results) < len(values):
            none = leaderless[0] if leaderless else left[0]
            yield Pause(backoff.next(), error or broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{none} has no leader"))


def _require_permission(metadata: Metadata, tp: TopicPartition, what: str) -> None:
    """Raise what a broker says of a topic if asking again does not change it: that we may not see it, say."""
    code = metadata.topic_error(tp.topic)
    if code and not is_retriable(code):
        raise broker_error(code, what, needs="DESCRIBE")


def _is_absent(metadata: Metadata, tp: TopicPartition) -> bool:
    """Return whether a broker has said that there is no such partition: not so while it only lacks a leader."""
    if metadata.topic(tp.topic) is None:
        return metadata.topic_error(tp.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return metadata.partition(tp) is None
