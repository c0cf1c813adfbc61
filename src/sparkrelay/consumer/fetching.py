"""Fetch requests: which partitions to ask which broker for, and what its answers say.

``FetchManager`` is pure (see ``requests``). It asks a *source* which partitions are wanted from which offset, one
request at a time for each broker, and gives back the bytes as they came: decoding is the work of whoever uses them. The
consumer's network thread drives it, and so does ``BoundedFetcher`` inside a Spark Python worker, without a thread.

Requests name topics by id (Fetch version 13, KIP-516), so a topic that was deleted and created again is noticed. Fetch
sessions (KIP-227) are not used yet: each request names all its partitions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparkrelay.client.broker_errors import STALE_METADATA, ErrorCode
from sparkrelay.client.messages import FetchRequest
from sparkrelay.consumer.requests import PollResult, RequestState, Unsent, aligned_wait_ms
from sparkrelay.records.columns import AbortedTransaction
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Mapping

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.errors import KafkaException

__all__ = ["FetchManager", "FetchSettings", "FetchSource", "Fetched"]

FETCH_LANE: Final = "fetch"
_LAST_VERSION_WITH_NAMES: Final = 12
_NO_BYTES: Final = memoryview(b"")
_MIN_VERSION: Final = 4  # read_committed came with it


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How much to ask for, and how long to wait for it; see the settings ``fetch.*`` of the consumer."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 52_428_800
    max_partition_bytes: int = 1_048_576
    read_committed: bool = True
    rack: str = ""
    #: A response may come so much later than the broker's own wait.
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a broker said about one partition.

    Attributes:
        partition: which.
        offset: where we asked it to start.
        records: record batches, a view of the receive buffer; empty if there are none.
        aborted: aborted transactions among them.
        high_watermark: end of what is replicated, -1 if unknown.
        last_stable_offset: end of what a read_committed reader may see, -1 if unknown.
        log_start_offset: first offset that is still there, -1 if unknown.
        error_code: Kafka's code; 0 for none. Only codes that asking again does not change come here.
        first: whether the partition stood first in the request: then ``fetch.max.bytes`` cannot be why it is empty.
    """

    partition: TopicPartition
    offset: int
    records: memoryview
    aborted: tuple[AbortedTransaction, ...] = ()
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    error_code: int = 0
    first: bool = False


class FetchSource(Protocol):
    """Knows what is wanted. Called on the thread that drives the manager."""

    def fetchable(self) -> Mapping[TopicPartition, int]:
        """Return the partitions to ask for now and the offset of each, the most wanted first."""

    def fetched(self, parts: list[Fetched], now: float) -> None:
        """Take one response."""

    def fetch_failed(self, error: KafkaException, now: float) -> None:
        """Hear of a request that failed for good, such as a refused login."""


class FetchManager:
    """Sends Fetch requests: one in flight for each broker, and never two for a partition.

    Args:
        metadata: the cluster.
        settings: sizes and waits.
        source: what is wanted, and where answers go.
        stale: called with a topic whose leaders must be asked for again.
    """

    def __init__(
        self, metadata: Metadata, settings: FetchSettings, source: FetchSource, stale: Callable[[str], None]
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._source = source
        self._stale = stale
        self._nodes: dict[int, RequestState] = {}
        self._in_flight: set[TopicPartition] = set()
        self._paused_until: dict[TopicPartition, float] = {}
        self._max_partition_bytes: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, uuid.UUID] = {}

    def poll(self, now: float) -> PollResult:
        """Return a request for each broker that leads wanted partitions and has none in flight."""
        by_node: dict[int, dict[TopicPartition, int]] = {}
        recreated: list[Fetched] = []
        wait = math.inf
        for partition, offset in self._source.fetchable().items():
            if partition in self._in_flight:
                continue
            pause = self._paused_until.get(partition, 0.0) - now
            if pause > 0:
                wait = min(wait, pause)
                continue
            leader = self._metadata.leader(partition)
            if leader is None:
                self._stale(partition.topic)
                continue
            if self._is_another_topic(partition.topic):
                recreated.append(Fetched(partition, offset, _NO_BYTES, error_code=ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            by_node.setdefault(leader, {})[partition] = offset
        if recreated:
            self._source.fetched(recreated, now)
        requests = []
        for node_id, wanted in by_node.items():
            node = self._nodes.get(node_id)
            if node is None:
                backoff = self._settings.retry_backoff_ms / 1000, self._settings.retry_backoff_max_ms / 1000
                node = self._nodes[node_id] = RequestState(*backoff)
            if (pause := node.wait(now)) > 0:
                wait = min(wait, pause)
                continue
            requests.append(self._unsent(node_id, node, wanted, now))
        return PollResult(tuple(requests), wait)

    def limit(self, partition: TopicPartition, size: int) -> None:
        """Ask for at most ``size`` bytes of a partition from now on."""
        self._max_partition_bytes[partition] = size

    def forget_topic(self, topic: str) -> None:
        """Take the topic as it is from now on, even if it was deleted and created again since we first asked."""
        self._topic_ids.pop(topic, None)

    def _is_another_topic(self, topic: str) -> bool:
        topic_id = self._metadata.topic_id(topic)
        return topic_id is not None and self._topic_ids.setdefault(topic, topic_id) != topic_id

    def grow(self, partition: TopicPartition) -> None:
        """Ask for twice as much of a partition from now on: its next batch did not fit."""
        size = self._max_partition_bytes.get(partition, self._settings.max_partition_bytes)
        self._max_partition_bytes[partition] = min(size * 2, (1 << 31) - 1)

    def _unsent(self, node_id: int, node: RequestState, wanted: Mapping[TopicPartition, int], now: float) -> Unsent:
        ids = {partition.topic: self._metadata.topic_id(partition.topic) for partition in wanted}
        request = self._request(wanted, ids, now)
        node.sent()
        self._in_flight.update(wanted)
        names = {topic_id: name for name, topic_id in ids.items() if topic_id is not None}

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            self._in_flight.difference_update(wanted)
            if error is None:
                self._answered((node, wanted, names), message, now)
                return
            node.failed(now)
            for topic in ids:
                self._stale(topic)
            if not error.retriable:
                self._source.fetch_failed(error, now)

        timeout = (self._settings.max_wait_ms + self._settings.request_timeout_ms) / 1000
        return Unsent(request, handle, node_id, FETCH_LANE, timeout)

    def _request(self, wanted: Mapping[TopicPartition, int], ids: Mapping[str, uuid.UUID | None], now: float) -> Any:
        make = FetchRequest.FetchTopic
        topics: dict[str, list[Any]] = {}
        for partition, offset in wanted.items():
            topics.setdefault(partition.topic, []).append(
                make.FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=self._metadata.leader_epoch(partition),
                    fetch_offset=offset,
                    partition_max_bytes=self._max_partition_bytes.get(partition, self._settings.max_partition_bytes),
                )
            )
        settings = self._settings
        versions = {"min_version": _MIN_VERSION}
        if any(topic_id is None for topic_id in ids.values()):
            versions["max_version"] = _LAST_VERSION_WITH_NAMES
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=aligned_wait_ms(settings.max_wait_ms, now),
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=1 if settings.read_committed else 0,
            session_id=0,
            session_epoch=-1,
            topics=[make(topic=name, topic_id=ids[name], partitions=parts) for name, parts in topics.items()],
            forgotten_topics_data=[],
            rack_id=settings.rack,
            **versions,
        )

    def _answered(
        self,
        asked: tuple[RequestState, Mapping[TopicPartition, int], Mapping[uuid.UUID, str]],
        message: Any,
        now: float,
    ) -> None:
        node, wanted, names = asked
        node.succeeded()
        first = next(iter(wanted))
        parts = []
        for topic in message.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                partition = TopicPartition(name, answer.partition_index)
                offset = wanted.get(partition)
                if offset is not None and not self._repeat(partition, answer, now):
                    parts.append(_fetched(partition, offset, answer, is_first=partition == first))
        # The response as a whole may be refused, then it names no partition.
        if message.error_code and not parts:
            node.failed(now)
        if parts:
            self._source.fetched(parts, now)

    def _repeat(self, partition: TopicPartition, answer: Any, now: float) -> bool:
        """Tell whether asking again, perhaps elsewhere, is all there is to do; arrange for it."""
        code = answer.error_code
        if code not in STALE_METADATA and code not in _WORTH_REPEATING:
            self._paused_until.pop(partition, None)
            return False
        leader = answer.current_leader
        news = leader is not None and self._metadata.set_leader(partition, leader.leader_id, leader.leader_epoch)
        if not news:
            self._stale(partition.topic)
            self._paused_until[partition] = now + self._settings.retry_backoff_ms / 1000
        return True


_WORTH_REPEATING: Final = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})


def _fetched(partition: TopicPartition, offset: int, answer: Any, *, is_first: bool) -> Fetched:
    return Fetched(
        partition=partition,
        offset=offset,
        records=answer.records if answer.records is not None else _NO_BYTES,
        aborted=tuple(AbortedTransaction(a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()),
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        error_code=answer.error_code,
        first=is_first,
    )
