"""Waiting for new records: a Fetch that brokers hold back until there is something, so that nobody asks in vain.

It says only *that* a partition has something to read. What comes with the answer is not looked at: a byte of it is
asked for, of which a broker makes one record batch of one partition.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.messages import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.client.kafka_client import KafkaClient, Response
    from sparkrelay.types import TopicPartition

__all__ = ["NewRecords"]

#: A connection of its own: a broker answers nothing else on one while it holds a request back.
_LANE: Final = "new-records"
_MIN_VERSION: Final = 4  # read_committed came with it
_LAST_VERSION_WITH_NAMES: Final = 12
_NO_SESSION: Final = -1
#: A partition that no broker watches, because its leader is unknown, say, is looked at again within this.
_UNWATCHED_SECONDS: Final = 0.1


class NewRecords:
    """Waits until one of some partitions has records behind a position. Belongs to the client's thread."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        #: Broker -> the newest request to it, and of which partitions. One that is held back is waited for again.
        self._asked: dict[int, tuple[Response, frozenset[TopicPartition]]] = {}

    def wait(self, positions: Mapping[TopicPartition, int], seconds: float, over: Callable[[], bool]) -> bool:
        """Return True as soon as a partition seems to have something (read_committed) at its position, or trouble.

        A broker that still holds a former request back is not asked again. If that one does not name all that is
        wanted, the wait is a short one, after which the caller looks for itself.

        Args:
            positions: partition -> the next offset that is wanted.
            seconds: to wait at most.
            over: asked whenever the client was woken up (``KafkaClient.wakeup``); True ends the wait.

        Returns:
            False if nothing has come.

        Raises:
            WakeupException: the client was interrupted.
        """
        leaders: dict[int, dict[TopicPartition, int]] = {}
        unwatched = False
        for partition, offset in positions.items():
            leader = self._client.metadata.leader(partition)
            if leader is None:
                unwatched = True
            else:
                leaders.setdefault(leader, {})[partition] = offset
        for node, wanted in leaders.items():
            if node not in self._asked or self._asked[node][0].done:
                timeout = seconds + self._client.config.request_timeout_ms / 1000
                response = self._client.send(_request(wanted, seconds), node=node, lane=_LANE, timeout=timeout)
                self._asked[node] = response, frozenset(wanted)
            unwatched = unwatched or not self._asked[node][1].issuperset(wanted)
        held = [self._asked[node][0] for node in leaders]
        deadline = time.monotonic() + (min(seconds, _UNWATCHED_SECONDS) if unwatched else seconds)
        while not over():
            answered = [response for response in held if response.done]
            if answered:
                # One that brings nothing is over: to wait on would be to wait for nobody.
                return any(map(_has_something, answered))
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._client.poll(left)
        return False


def _request(wanted: Mapping[TopicPartition, int], seconds: float) -> Any:
    topic = FetchRequest.FetchTopic
    topics: dict[str, dict[int, int]] = {}
    for partition, offset in wanted.items():
        topics.setdefault(partition.topic, {})[partition.partition] = offset
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=int(seconds * 1000),
        min_bytes=1,
        max_bytes=1,
        isolation_level=1,
        session_id=0,
        session_epoch=_NO_SESSION,
        topics=[
            topic(
                topic=name,
                partitions=[
                    topic.FetchPartition(
                        partition=number, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1
                    )
                    for number, offset in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ],
        forgotten_topics_data=[],
        rack_id="",
        min_version=_MIN_VERSION,
        max_version=_LAST_VERSION_WITH_NAMES,
    )


def _has_something(response: Response) -> bool:
    """Return whether an answer brings records, or an error: who looks next finds out which."""
    if response.error is not None:
        return True
    message = response.result()
    return bool(message.error_code) or any(
        part.error_code or part.records for topic in message.responses for part in topic.partitions
    )
