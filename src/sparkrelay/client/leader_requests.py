"""Requests to partition leaders: split by leader, sent concurrently, repeated for the partitions that failed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import STALE_METADATA, ErrorCode, broker_error, is_retriable
from sparkrelay.client.exchanges import Pause, run_exchange
from sparkrelay.client.messages import DeleteRecordsRequest, ListOffsetsRequest
from sparkrelay.client.messages.per_topic import each_partition, listed
from sparkrelay.errors import KafkaException, TimeoutException, UnknownTopicException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.client.metadata import Metadata
    from sparkrelay.types import TopicPartition

#: Instead of a timestamp: the end of the log (read_committed: the last stable offset).
LATEST: Final = -1
#: Instead of a timestamp: the first offset of the log.
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class LeaderCall:
    """A kind of request with one number for each partition, and one in the answer.

    Attributes:
        operation: the ACL operation that it takes.
        result: field of an answer's partition that has the number.
        request: returns the request to one leader, with the milliseconds that it may take there.
        describe: returns what is being done, for messages.
    """

    operation: str
    result: str
    request: Callable[[Mapping[TopicPartition, int], int], Any]
    describe: Callable[[TopicPartition, int], str]

    def answers(self, message: Any) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield (partition, error code, result)."""
        for partition, part in each_partition(message.topics):
            yield partition, part.error_code, getattr(part, self.result)


def list_offsets_call(*, read_committed: bool) -> LeaderCall:
    """List offsets by timestamp, ``EARLIEST`` or ``LATEST``."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    part = functools.partial(topic.ListOffsetsPartition, current_leader_epoch=-1)
    names = {LATEST: "its end", EARLIEST: "its start"}

    def request(times: Mapping[TopicPartition, int], timeout_ms: int) -> Any:
        parts = ((tp.topic, part(partition_index=tp.partition, timestamp=time)) for tp, time in times.items())
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1 if read_committed else 0,
            topics=listed(topic, parts),
            timeout_ms=timeout_ms,
            min_version=2,
        )

    return LeaderCall(
        "DESCRIBE", "offset", request, lambda tp, time: f"listing the offset of {tp} at {names.get(time, time)}"
    )


def delete_records_call() -> LeaderCall:
    """Delete all records before an offset; the result is the new log start offset."""
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    part = topic.DeleteRecordsPartition

    def request(before: Mapping[TopicPartition, int], timeout_ms: int) -> Any:
        parts = ((tp.topic, part(partition_index=tp.partition, offset=offset)) for tp, offset in before.items())
        return DeleteRecordsRequest(topics=listed(topic, parts), timeout_ms=timeout_ms)

    return LeaderCall(
        "DELETE", "low_watermark", request, lambda tp, offset: f"deleting the records of {tp} before {offset}"
    )


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
        error: KafkaException | None = None
        by_leader, leaderless = client.metadata.by_leader({tp: values[tp] for tp in left})
        stale = bool(leaderless)
        missing.clear()
        for tp in leaderless if answered else ():
            _require_permission(client.metadata, tp, call.describe(tp, values[tp]))
            if _is_absent(client.metadata, tp):
                missing.append(tp)
        responses = [client.send(call.request(asked, timeout_ms), node=leader) for leader, asked in by_leader.items()]
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
