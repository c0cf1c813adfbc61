"""Fetch requests and their answers.

``FetchManager`` is pure (see ``requests``). It asks a *source* for the wanted partitions and offsets, sends one request
at a time to each broker, and returns the bytes as they came; the source decodes. The consumer's network thread drives
it, and so does ``BoundedFetcher`` inside a Spark Python worker, without a thread.

Requests name topics by id (Fetch version 13, KIP-516), so a recreated topic is noticed; they carry the leader's epoch
(KIP-320), so a replaced leader is noticed. If a broker names a nearer replica (KIP-392, ``client.rack``), that one is
read until it fails, the leader changes or the advice expires.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparkrelay.client.broker_errors import STALE_METADATA, ErrorCode
from sparkrelay.client.fetch_session import (
    CLOSING_EPOCH,
    READ_COMMITTED_SINCE,
    SESSIONS_SINCE,
    Asked,
    Change,
    FetchSession,
    by_name,
    fetch_request,
)
from sparkrelay.client.messages.per_topic import each_partition
from sparkrelay.consumer.base.requests import PollResult, RequestState, Unsent, aligned_wait_ms
from sparkrelay.records.batches.columns import AbortedTransaction

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Hashable, Mapping, Set as AbstractSet

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.config import ConsumerConfig
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

FETCH_LANE: Final = "fetch"
_NO_BYTES: Final = memoryview(b"")
_WORTH_REPEATING: Final = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})


@dataclass(frozen=True, slots=True)
class Fetched:
    """A broker's answer for one partition.

    Attributes:
        first: whether the partition came first in the request, so that ``fetch.max.bytes`` cannot be why it is empty.
            False within a session, where the broker chooses the order.
    """

    partition: TopicPartition
    offset: int  # the requested offset
    records: memoryview  # record batches, a view of the receive buffer; may be empty
    aborted: tuple[AbortedTransaction, ...] = ()  # aborted transactions among them
    high_watermark: int = -1  # end of the replicated log, -1 if unknown
    last_stable_offset: int = -1  # end for read_committed readers, -1 if unknown
    log_start_offset: int = -1  # first available offset, -1 if unknown
    error_code: int = 0  # Kafka's code, 0 for none; only codes that repeating does not change
    first: bool = False
    leader_epoch: int = -1  # the leader epoch in the request, -1 if unknown

    def copied(self) -> Fetched:
        """Return a copy with its own bytes, which does not keep the response in memory."""
        return replace(self, records=memoryview(bytes(self.records)))


class FetchSource(Protocol):
    """Decides what to fetch. Called on the thread that drives the manager."""

    @property
    def changes(self) -> Hashable:
        """A value that differs when ``fetchable`` or ``has_room`` may."""

    def fetchable(self) -> Mapping[TopicPartition, int]:
        """Return the partitions to fetch now and their offsets, in order of preference."""

    def has_room(self, node: int) -> bool:
        """Return whether another response of a broker is acceptable."""

    def fetched(self, parts: list[Fetched], now: float, node: int) -> None:
        """Take the news of one response."""

    def fetch_failed(self, error: KafkaException, now: float) -> None:
        """Take the error of a request that failed for good, such as a refused login."""


@dataclass(slots=True, eq=False)
class _Node:
    """A broker's pauses and fetch session."""

    state: RequestState
    session: FetchSession | None


@dataclass(frozen=True, slots=True)
class _Replica:
    """A replica to read instead of the leader."""

    node: int
    until: float
    leader_epoch: int


@dataclass(eq=False)
class FetchManager:
    """Sends Fetch requests: one in flight for each broker, and never two for a partition."""

    metadata: Metadata
    config: ConsumerConfig
    source: FetchSource  # decides what to fetch, and takes the answers
    stale: Callable[[str], None]  # called with a topic whose leaders must be requested again
    sessions: bool = False  # whether brokers remember the wanted partitions (KIP-227)
    rack: str = ""  # where to read from the nearest replica; empty for leaders only

    def __post_init__(self) -> None:
        self._retry_seconds = self.config.client.retry_backoff_ms / 1000
        self._nodes: dict[int, _Node] = {}
        #: Partitions being fetched, named in the request or not, and their broker.
        self._under_way: dict[TopicPartition, int] = {}
        self._replicas: dict[TopicPartition, _Replica] = {}
        self._paused_until: dict[TopicPartition, float] = {}
        self._max_partition_bytes: dict[TopicPartition, int] = {}
        self._answers = 0
        self._seen: Hashable = None
        self._look_at = math.inf

    def poll(self, now: float) -> PollResult:
        """Return a request for each broker that has wanted partitions, none in flight, and room for its answer."""
        seen = self.source.changes, self.metadata.version, self._answers
        if seen == self._seen and now < self._look_at:
            # An idle consumer gets here several times a second, with any number of partitions.
            return PollResult(wait=self._look_at - now)
        by_node: dict[int, dict[TopicPartition, Asked]] = {}
        wait = math.inf
        for partition, offset in self.source.fetchable().items():
            pause = self._paused_until.get(partition, 0.0) - now
            if pause > 0:
                wait = min(wait, pause)
                continue
            node_id = self._replica(partition, now)
            if node_id is None:
                # Repeatedly: a starting broker answers without a leader, or with nothing.
                self.stale(partition.topic)
                wait = min(wait, self._retry_seconds)
                continue
            if self._under_way.get(partition, node_id) != node_id:
                continue
            by_node.setdefault(node_id, {})[partition] = Asked(
                offset,
                self.metadata.leader_epoch(partition),
                self._max_bytes(partition),
                self.metadata.topic_id(partition.topic),
            )
        requests = []
        for node_id, wanted in by_node.items():
            node = self._node(node_id)
            if (pause := node.state.wait(now)) > 0:
                wait = min(wait, pause)
            elif self.source.has_room(node_id):
                requests.append(self._unsent(node_id, node, wanted, now))
        self._seen, self._look_at = seen, now + wait
        return PollResult(tuple(requests), wait)

    def limit(self, partition: TopicPartition, size: int) -> None:
        """Fetch at most ``size`` bytes of a partition from now on."""
        self._max_partition_bytes[partition] = size

    def grow(self, partition: TopicPartition) -> None:
        """Fetch twice as much of a partition from now on: its next batch did not fit."""
        self._max_partition_bytes[partition] = min(self._max_bytes(partition) * 2, (1 << 31) - 1)

    def _max_bytes(self, partition: TopicPartition) -> int:
        return self._max_partition_bytes.get(partition, self.config.max_partition_fetch_bytes)

    def keep(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Forget everything about other partitions than these, and about brokers that have left the cluster."""
        brokers = self.metadata.brokers
        self._nodes = {id_: node for id_, node in self._nodes.items() if id_ in brokers or node.state.in_flight}
        learned: tuple[dict[TopicPartition, Any], ...] = self._replicas, self._paused_until, self._max_partition_bytes
        for known in learned:
            for partition in known.keys() - partitions:
                del known[partition]

    def close_sessions(self) -> tuple[Unsent, ...]:
        """Return requests that end the sessions; nobody needs to wait for the answers.

        They use the lane of short requests, because a Fetch is being held back on the other one.
        """
        return tuple(
            Unsent(
                self._message(Change(node.session.session_id, CLOSING_EPOCH, {}, {}), by_name=node.session.by_name),
                lambda *_: None,
                node_id,
            )
            for node_id, node in self._nodes.items()
            if node.session is not None and node.session.session_id
        )

    def _node(self, node_id: int) -> _Node:
        node = self._nodes.get(node_id)
        if node is None:
            state = RequestState(self.config.client.retry_backoff())
            node = _Node(state, FetchSession() if self.sessions else None)
            self._nodes[node_id] = node
        return node

    def _replica(self, partition: TopicPartition, now: float) -> int | None:
        """Return the broker to read from: the leader, unless a nearer one was named."""
        info = self.metadata.partition(partition)
        if info is None or info.leader is None:
            return None
        replica = self._replicas.get(partition)
        if replica is None:
            return info.leader
        if (
            now < replica.until
            and replica.leader_epoch == info.leader_epoch
            and replica.node in self.metadata.brokers
            and replica.node not in info.offline
        ):
            return replica.node
        del self._replicas[partition]
        return info.leader

    def _unsent(self, node_id: int, node: _Node, wanted: Mapping[TopicPartition, Asked], now: float) -> Unsent:
        change = Change(0, CLOSING_EPOCH, wanted, {}) if node.session is None else node.session.change(wanted)
        names = by_name(wanted) if node.session is None else node.session.by_name
        request = self._message(change, aligned_wait_ms(self.config.fetch_max_wait_ms, now), by_name=names)
        node.state.sent()
        self._under_way.update(dict.fromkeys(wanted, node_id))

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            for partition in wanted:
                del self._under_way[partition]
            self._answers += 1
            if error is None:
                self._answered(node_id, node, wanted, message, now)
                return
            node.state.failed(now)
            if node.session is not None:
                node.session.lost()
            for partition in wanted:
                self._replicas.pop(partition, None)
            for topic in {partition.topic for partition in wanted}:
                self.stale(topic)
            if not error.retriable:
                self.source.fetch_failed(error, now)

        timeout = (self.config.fetch_max_wait_ms + self.config.client.request_timeout_ms) / 1000
        return Unsent(request, handle, node_id, FETCH_LANE, timeout)

    def _message(self, change: Change, max_wait_ms: int = 0, *, by_name: bool) -> Any:
        return fetch_request(
            change,
            by_name=by_name,
            max_wait_ms=max_wait_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
            read_committed=self.config.read_committed,
            min_version=SESSIONS_SINCE if self.sessions else READ_COMMITTED_SINCE,
            rack=self.rack,
        )

    def _answered(
        self, node_id: int, node: _Node, wanted: Mapping[TopicPartition, Asked], message: Any, now: float
    ) -> None:
        session = node.session
        if session is None:
            names: Mapping[uuid.UUID, str] = {
                asked.topic_id: p.topic for p, asked in wanted.items() if asked.topic_id is not None
            }
            first = next(iter(wanted), None)
            refused = bool(message.error_code)
        else:
            names, first = session.names, None
            refused = not session.answered(message)
        parts = []
        for partition, answer in each_partition(message.responses, names, field="topic"):
            asked = wanted.get(partition)
            if asked is not None and not self._repeat(node_id, partition, asked, answer, now):
                parts.append(_fetched(partition, asked, answer, is_first=partition == first))
        # A response that is refused as a whole names no partition.
        if refused and not parts:
            node.state.failed(now)
        else:
            node.state.succeeded()
        if parts:
            self.source.fetched(parts, now, node_id)

    def _repeat(self, node_id: int, partition: TopicPartition, asked: Asked, answer: Any, now: float) -> bool:
        """Return whether the partition only needs to be fetched again, perhaps elsewhere; arrange for it."""
        code = answer.error_code
        nearer = answer.preferred_read_replica
        if not code and nearer is not None and nearer >= 0:
            until = now + self.config.metadata_max_age_ms / 1000
            self._replicas[partition] = _Replica(nearer, until, asked.leader_epoch)
        replica = self._replicas.get(partition)
        if code and replica is not None and replica.node == node_id:
            del self._replicas[partition]
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # A follower may lag, or be ahead in deleting; only the leader decides.
                return True
        if code not in STALE_METADATA and code not in _WORTH_REPEATING:
            self._paused_until.pop(partition, None)
            return False
        leader = answer.current_leader
        news = leader is not None and self.metadata.set_leader(partition, leader.leader_id, leader.leader_epoch)
        if not news:
            self.stale(partition.topic)
            self._paused_until[partition] = now + self._retry_seconds
        return True


def _fetched(partition: TopicPartition, asked: Asked, answer: Any, *, is_first: bool) -> Fetched:
    return Fetched(
        partition=partition,
        offset=asked.offset,
        records=answer.records if answer.records is not None else _NO_BYTES,
        aborted=tuple(AbortedTransaction(a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()),
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        error_code=answer.error_code,
        first=is_first,
        leader_epoch=asked.leader_epoch,
    )
