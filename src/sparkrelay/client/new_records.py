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
#: A broker that holds a request back for so much longer than it may is looked at.
_LATE_SECONDS: Final = 1.0
_UNKNOWN_EPOCH: Final = -1
_A_BYTE: Final = 1


@dataclass(frozen=True, slots=True)
class News:
    """What brokers have said; false if that is nothing.

    Attributes:
        ends: the partitions with something behind their positions, and where they end (read_committed).
        trouble: an answer is an error or is late, or a partition is not watched. Who asks where they all end finds out
            which.
    """

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    trouble: bool = False

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return self.trouble or bool(self.ends)


_NOTHING: Final = News()


class _Watch:
    """One broker's: the session, and the request that it holds back."""

    __slots__ = ("due", "named", "response", "session", "wanted")

    def __init__(self) -> None:
        self.session = FetchSession()
        self.response: Response | None = None
        #: What is waited for here, and what the request that is held back is about.
        self.wanted: dict[TopicPartition, Asked] = {}
        self.named: Mapping[TopicPartition, Asked] = {}
        #: When the broker is to have answered, by a monotonic clock.
        self.due = 0.0

    @property
    def names_all(self) -> bool:
        """Whether the request names all that is waited for, though perhaps from positions before."""
        return self.named is self.wanted or self.named.keys() >= self.wanted.keys()


class NewRecords:
    """Waits until one of some partitions has records behind a position. Belongs to the client's thread."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._watches: dict[int, _Watch] = {}
        #: What was waited for last, as of which version of the cluster's metadata, and whether all have a leader.
        self._positions: Mapping[TopicPartition, int] = {}
        self._version = -1
        self._led = True

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
        self._note(positions)
        held = [(node, watch) for node, watch in self._watches.items() if watch.wanted]
        for node, watch in held:
            if watch.response is None:
                self._ask(node, watch, seconds)
        watched = self._led and all(watch.names_all for _, watch in held)
        deadline = time.monotonic() + (seconds if watched else min(seconds, _UNWATCHED_SECONDS))
        while not over():
            answered = [watch for _, watch in held if watch.response is not None and watch.response.done]
            if answered:
                # One that brings nothing is over: to wait on would be to wait for nobody.
                return _joined([_answer(watch, positions) for watch in answered])
            now = time.monotonic()
            if now >= deadline:
                return News(trouble=not watched or any(now > watch.due for _, watch in held))
            self._client.poll(deadline - now)
        return _NOTHING

    def _note(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note where to wait for what, as far as that has changed."""
        metadata, before = self._client.metadata, self._positions
        same = metadata.version == self._version and positions.keys() == before.keys()
        changed = {p: offset for p, offset in positions.items() if not same or before[p] != offset}
        if same and not changed:
            return
        leaders: dict[int, dict[TopicPartition, Asked]] = {}
        led = self._led or not same
        for partition, offset in changed.items():
            if (node := metadata.leader(partition)) is None:
                led = False
            else:
                leaders.setdefault(node, {})[partition] = Asked(offset, _UNKNOWN_EPOCH, _A_BYTE, None)
        for node in leaders.keys() | self._watches.keys():
            watch = self._watches.setdefault(node, _Watch())
            if not same or node in leaders:
                # Made anew: the session goes by it.
                watch.wanted = {**(watch.wanted if same else {}), **leaders.get(node, {})}
        self._positions, self._version, self._led = dict(positions), metadata.version, led

    def _ask(self, node: int, watch: _Watch, seconds: float) -> None:
        request = fetch_request(
            watch.session.change(watch.wanted),
            by_name=True,
            max_wait_ms=int(seconds * 1000),
            min_bytes=_A_BYTE,
            max_bytes=_A_BYTE,
            read_committed=True,
            min_version=SESSIONS_SINCE,
        )
        timeout = seconds + self._client.config.request_timeout_ms / 1000
        watch.response = self._client.send(request, node=node, lane=_LANE, timeout=timeout)
        watch.named, watch.due = watch.wanted, time.monotonic() + seconds + _LATE_SECONDS


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
