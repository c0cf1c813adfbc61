"""Waiting for new records: a Fetch that brokers hold back until there is something, so that nobody asks in vain.

Each broker keeps the list of what is waited for (a fetch session, KIP-227): a request names only the positions that
have changed, an answer only the partitions that have news, with their ends. So partitions where nothing happens cost
neither side anything. The records that come along are not looked at: a byte of them is asked for, of which a broker
makes one record batch of one partition.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.fetch_session import SESSIONS_SINCE, Asked, FetchSession, fetch_request
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.client.kafka_client import KafkaClient, Response

__all__ = ["NewRecords", "News"]

#: A connection of its own: a broker answers nothing else on one while it holds a request back.
_LANE: Final = "new-records"
#: A partition that no broker watches, because its leader is unknown, say, is looked at again within this.
_UNWATCHED_SECONDS: Final = 0.1
_UNKNOWN_EPOCH: Final = -1
_A_BYTE: Final = 1


@dataclass(frozen=True, slots=True)
class News:
    """What brokers have said; false if that is nothing.

    Attributes:
        ends: the partitions with something behind their positions, and where they end (read_committed).
        trouble: an answer is an error or did not come, or a partition is not watched. Who asks for the ends of them all
            finds out which.
    """

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    trouble: bool = False

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return self.trouble or bool(self.ends)


_NOTHING: Final = News()


class _Watch:
    """One broker's: the session, and the request that it holds back."""

    __slots__ = ("response", "session", "wanted")

    def __init__(self) -> None:
        self.session = FetchSession()
        self.response: Response | None = None
        #: What the last request was about.
        self.wanted: Mapping[TopicPartition, Asked] = {}


class NewRecords:
    """Waits until one of some partitions has records behind a position. Belongs to the client's thread."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._watches: dict[int, _Watch] = {}
        self._asked: dict[TopicPartition, Asked] = {}

    def wait(self, positions: Mapping[TopicPartition, int], seconds: float, over: Callable[[], bool]) -> News:
        """Return as soon as a partition has something (read_committed) behind its position, or there is trouble.

        A broker that still holds a former request back is not asked again. If that one does not name all that is
        wanted, the wait is a short one.

        Args:
            positions: partition -> the next offset that is wanted.
            seconds: to wait at most.
            over: asked whenever the client was woken up (``KafkaClient.wakeup``); True ends the wait.

        Raises:
            WakeupException: the client was interrupted.
        """
        leaders = self._by_leader(positions)
        unwatched = sum(map(len, leaders.values())) < len(positions)
        held = []
        for node, wanted in leaders.items():
            watch = self._watches.setdefault(node, _Watch())
            if watch.response is None:
                self._ask(node, watch, wanted, seconds)
            unwatched = unwatched or not watch.wanted.keys() >= wanted.keys()
            held.append(watch)
        deadline = time.monotonic() + (min(seconds, _UNWATCHED_SECONDS) if unwatched else seconds)
        while not over():
            answered = [watch for watch in held if watch.response is not None and watch.response.done]
            if answered:
                # One that brings nothing is over: to wait on would be to wait for nobody.
                return _joined([_answer(watch, positions) for watch in answered])
            left = deadline - time.monotonic()
            if left <= 0:
                return News(trouble=unwatched)
            self._client.poll(left)
        return _NOTHING

    def _by_leader(self, positions: Mapping[TopicPartition, int]) -> dict[int, dict[TopicPartition, Asked]]:
        """Return what each broker is to watch; partitions whose leader is not known are left out."""
        known, leader = self._asked, self._client.metadata.leader
        self._asked = {}
        leaders: dict[int, dict[TopicPartition, Asked]] = {}
        for partition, offset in positions.items():
            asked = known.get(partition)
            if asked is None or asked.offset != offset:
                asked = Asked(offset, _UNKNOWN_EPOCH, _A_BYTE, None)
            self._asked[partition] = asked
            if (node := leader(partition)) is not None:
                leaders.setdefault(node, {})[partition] = asked
        return leaders

    def _ask(self, node: int, watch: _Watch, wanted: Mapping[TopicPartition, Asked], seconds: float) -> None:
        request = fetch_request(
            watch.session.change(wanted),
            max_wait_ms=int(seconds * 1000),
            min_bytes=_A_BYTE,
            max_bytes=_A_BYTE,
            read_committed=True,
            min_version=SESSIONS_SINCE,
        )
        timeout = seconds + self._client.config.request_timeout_ms / 1000
        watch.response = self._client.send(request, node=node, lane=_LANE, timeout=timeout)
        watch.wanted = wanted


def _answer(watch: _Watch, positions: Mapping[TopicPartition, int]) -> News:
    """Return what a broker has answered, and have it asked again the next time."""
    response, watch.response = watch.response, None
    assert response is not None, "only answers are looked at"
    if response.error is not None:
        watch.session.lost()
        return News(trouble=True)
    message: Any = response.result()
    if not watch.session.answered(message):
        return News(trouble=True)
    ends: dict[TopicPartition, int] = {}
    trouble = False
    for topic in message.responses:
        for part in topic.partitions:
            partition = TopicPartition(topic.topic, part.partition_index)
            trouble = trouble or bool(part.error_code)
            if part.last_stable_offset > positions.get(partition, part.last_stable_offset):
                ends[partition] = part.last_stable_offset
    return News(ends, trouble=trouble)


def _joined(news: list[News]) -> News:
    if len(news) == 1:
        return news[0]
    return News({p: end for one in news for p, end in one.ends.items()}, trouble=any(one.trouble for one in news))
