"""Waiting for new records without polling, by a Fetch that brokers hold back until there are some.

Each broker keeps the list of watched partitions (a fetch session, KIP-227). A request names only changed positions, an
answer only partitions with news and their end offsets, so idle partitions cost nothing. The records in an answer are
not used: a request asks for one byte, which a broker rounds up to one record batch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.fetch_session import SESSIONS_SINCE, Asked, FetchSession, fetch_request
from sparkrelay.client.messages.per_topic import each_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.client.kafka_client import KafkaClient, Response
    from sparkrelay.types import TopicPartition

#: A connection of its own, because a broker that holds a request back answers nothing else on its connection.
_LANE: Final = "new-records"
#: Longest wait while a partition cannot be watched, such as one without a known leader.
_UNWATCHED_SECONDS: Final = 0.1
#: How much later than requested an answer may arrive.
_LATE_SECONDS: Final = 1.0
_UNKNOWN_EPOCH: Final = -1
_A_BYTE: Final = 1


@dataclass(frozen=True, slots=True)
class News:
    """News from brokers; false if there is none.

    Attributes:
        ends: the end offsets (read_committed) of partitions with records after their positions.
        trouble: an answer is late or an error, or a partition is not watched: list the offsets to find out which.
    """

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    trouble: bool = False

    def __bool__(self) -> bool:
        """Return whether there is any news."""
        return self.trouble or bool(self.ends)


class _Watch:
    """The session with one broker, and the request that the broker holds back."""

    __slots__ = ("due", "named", "response", "session", "wanted")

    def __init__(self) -> None:
        self.session = FetchSession()
        self.response: Response | None = None
        #: The watched partitions, and those in the request that is held back.
        self.wanted: dict[TopicPartition, Asked] = {}
        self.named: Mapping[TopicPartition, Asked] = {}
        #: The answer is late after this time (monotonic seconds).
        self.due = 0.0

    @property
    def names_all(self) -> bool:
        """Whether the request covers all watched partitions, perhaps from earlier positions."""
        return self.named is self.wanted or self.named.keys() >= self.wanted.keys()


class NewRecords:
    """Waits for records after positions of partitions. Belongs to the client's thread."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._watches: dict[int, _Watch] = {}
        #: Of the last wait: positions, version of the metadata, whether all partitions had a leader.
        self._positions: Mapping[TopicPartition, int] = {}
        self._version = -1
        self._led = True

    def wait(self, positions: Mapping[TopicPartition, int], seconds: float, over: Callable[[], bool]) -> News:
        """Wait until a partition has records (read_committed) after its position, or there is trouble.

        A broker that still holds an earlier request back is not asked again. If that request does not cover all
        partitions, the wait is short.

        Args:
            positions: partition -> the next offset to read.
            seconds: to wait at most.
            over: called first and after every wakeup of the client; True ends the wait.

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
            if answered:  # even without news: that broker holds nothing back any more
                news = [_answer(watch, positions) for watch in answered]
                ends = {partition: end for one in news for partition, end in one.ends.items()}
                return News(ends, trouble=any(one.trouble for one in news))
            now = time.monotonic()
            if now >= deadline:
                return News(trouble=not watched or any(now > watch.due for _, watch in held))
            self._client.poll(deadline - now)
        return News()

    def _note(self, positions: Mapping[TopicPartition, int]) -> None:
        """Update the watched partitions of each broker."""
        metadata, before = self._client.metadata, self._positions
        same = metadata.version == self._version and positions.keys() == before.keys()
        changed = {p: offset for p, offset in positions.items() if not same or before[p] != offset}
        if same and not changed:
            return
        leaders, leaderless = metadata.by_leader(
            {partition: Asked(offset, _UNKNOWN_EPOCH, _A_BYTE, None) for partition, offset in changed.items()}
        )
        led = (self._led or not same) and not leaderless
        for node in leaders.keys() | self._watches.keys():
            watch = self._watches.setdefault(node, _Watch())
            if not same or node in leaders:
                # A new mapping, because the session recognizes an unchanged one by identity.
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
    """Return the news in a broker's answer and clear the request."""
    response, watch.response = watch.response, None
    assert response is not None, "the broker has not answered"
    if response.error is not None:
        watch.session.lost()
        return News(trouble=True)
    message: Any = response.result()
    if not watch.session.answered(message):
        return News(trouble=True)
    ends: dict[TopicPartition, int] = {}
    trouble = False
    for partition, part in each_partition(message.responses, field="topic"):
        trouble = trouble or bool(part.error_code)
        if part.last_stable_offset > positions.get(partition, part.last_stable_offset):
            ends[partition] = part.last_stable_offset
    return News(ends, trouble=trouble)
