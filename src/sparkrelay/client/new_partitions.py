"""Detection of new partitions, by asking every broker in the background.

Producers spread keys over the partitions that their broker knows, and brokers learn of new ones at different moments.
A reader that has asked all brokers after it saw a record knows at least what the record's producer knew. Answers to
Fetch and Produce lack the number of partitions; Metadata does, with all replicas of all partitions. ListOffsets
for the first partition that should not exist is a small request with a small answer, however large the topic.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.leader_requests import LATEST, list_offsets_call
from sparkrelay.errors import TimeoutException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.client.kafka_client import KafkaClient, Response

#: Interval of looking for new brokers, which are asked too.
_REFRESH_SECONDS: Final = 60.0


class NewPartitions:
    """Asks all brokers whether topics have grown. Belongs to the client's thread.

    Args:
        client: must be bootstrapped; polled by both methods.
        further_timeout: seconds for the other brokers once one has answered. A slower one is not waited for again until
            it has answered.
    """

    def __init__(self, client: KafkaClient, *, further_timeout: float = 0.5) -> None:
        self._client = client
        self._further_timeout = further_timeout
        self._call = list_offsets_call(read_committed=False)
        #: The last request to each broker.
        self._asked: dict[int, Response] = {}
        #: The last question, and the brokers that were asked.
        self._counts: Mapping[str, int] = {}
        self._awaited: tuple[int, ...] = ()
        self._refresh_at = 0.0

    def ask(self, counts: Mapping[str, int]) -> None:
        """Start asking whether topics have more partitions than these counts."""
        now = time.monotonic()
        if now >= self._refresh_at:
            self._client.request_metadata(())
            self._refresh_at = now + _REFRESH_SECONDS
        brokers = tuple(self._client.metadata.brokers)
        self._counts = counts
        self._awaited = tuple(n for n in brokers if n not in self._asked or self._asked[n].done) or brokers
        for node in self._awaited:
            self._send(node)
        self._client.poll(0)

    def found(self, timeout: float) -> frozenset[str]:
        """Return the topics that have grown according to any broker that has answered.

        Raises:
            TimeoutException: no broker has answered within ``timeout`` seconds.
        """
        deadline, answered, repeated = time.monotonic() + timeout, False, set[int]()
        while not all(self._asked[node].done for node in self._awaited):
            responses = [self._asked[node] for node in self._awaited]
            if not answered and any(map(_answered, responses)):
                answered, deadline = True, time.monotonic() + self._further_timeout
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._client.poll(left)
            # The answer was not read for longer than a request may take, or a connection was lost.
            again = {n for n in self._awaited if self._asked[n].done and self._asked[n].error} - repeated
            repeated |= again
            for node in again:
                self._send(node)
        responses = [self._asked[node] for node in self._awaited]
        answers = [response.result() for response in responses if _answered(response)]
        if not answers:
            errors = [str(response.error) for response in responses if response.done]
            raise TimeoutException(
                f"no broker answered within {timeout:g} s whether topics {', '.join(sorted(self._counts))} have new "
                f"partitions; last error: {errors[-1] if errors else 'none'}"
            )
        return frozenset(
            partition.topic
            for answer in answers
            for partition, code, _ in self._call.answers(answer)
            if code not in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        )

    def _send(self, node: int) -> None:
        # Only whether the broker knows the partition matters.
        beyond = {TopicPartition(topic, count): LATEST for topic, count in self._counts.items()}
        request = self._call.request(beyond, int(self._client.config.request_timeout_ms))
        self._asked[node] = self._client.send(request, node=node)


def _answered(response: Response) -> bool:
    return response.done and response.error is None
