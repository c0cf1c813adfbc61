"""Producing encoded record batches under a lent producer id.

Used in Spark's Python workers: the driver has opened the transaction and will end it; here batches are sent. A batch
carries its producer id, epoch and sequence, so a retry is harmless: the broker answers a duplicate with the offset of
the first copy. The order within a partition must be kept: after a failure nothing more is sent to the partition until
all its requests are answered, then the failed batches are sent again in order. A request has at most one batch of a
partition (Kafka's rule), and at most five requests are in flight (the broker remembers five batches of a producer and
partition). Batches wait until their partition has been added to the transaction, if that is needed.

Threading: everything happens inside ``send`` and ``flush``, on the client's thread.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import STALE_METADATA, ErrorCode, broker_error, error_name, fenced_reason
from sparkrelay.client.joining import Joins
from sparkrelay.client.messages.produce_request import ProduceBatches
from sparkrelay.errors import (
    KafkaException,
    ProducerFencedException,
    RecordTooLargeException,
    SparkRelayError,
    TimeoutException,
)

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

    from sparkrelay.client.backoff import Backoff
    from sparkrelay.client.kafka_client import KafkaClient, Response
    from sparkrelay.client.transaction_calls import ProducerIdentity
    from sparkrelay.types import TopicPartition

#: Batch header: last offset delta (23), producer id (43), producer epoch (51), base sequence (53), record count (57).
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qhi")
_HEADER_BYTES: Final = 61
_MAX_IN_FLIGHT: Final = 5
_MAX_QUEUED_BYTES: Final = 32 * 1024 * 1024
#: Batches are sent once so much has gathered; smaller amounts may share a request with later batches.
_GATHERED_BYTES: Final = 64 * 1024
#: The broker first adds the partition to the transaction; the previous one's markers may still be in transit.
_CONCURRENT_BACKOFF_S: Final = 0.005
#: A broker handles one request of a connection at a time, and a transaction's first makes it ask the coordinator.
_LANES: Final = 4
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
        # The partition lost earlier batches, as in an unclean election; a new epoch begins at 0.
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The written batches of a partition.

    The offsets of the first and last record are -1 if the broker no longer knows them (a very late duplicate).
    ``records`` counts the offsets taken.
    """

    first_offset: int
    last_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """The outcome of everything sent since the last flush.

    Attributes:
        acknowledged: partitions with all batches written (acks=all).
        failed: error of each failed transactional id (None: no transaction). Its transaction must be aborted.
        blamed: the ``sender`` of the failed batch, if known, by transactional id.
    """

    acknowledged: dict[TopicPartition, Acknowledged]
    failed: dict[str | None, SparkRelayError]
    blamed: dict[str | None, object] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Batch:
    tp: TopicPartition
    data: Any
    transactional_id: str | None
    order: int
    records: int
    topic_id: uuid.UUID | None
    sender: object


@dataclass(slots=True)
class _Partition:
    """A partition's batches: in flight (``out``), ``failed`` ones to send again, then ``waiting`` ones."""

    backoff: Backoff
    waiting: deque[_Batch] = field(default_factory=deque)
    out: deque[_Batch] = field(default_factory=deque)
    failed: list[_Batch] = field(default_factory=list)
    retry_at: float = 0.0
    last_error: KafkaException | None = None
    first_order: int | None = None
    first_offset: int = -1
    last_order: int = -1
    last_offset: int = -1
    records: int = 0

    def ready(self, now: float) -> bool:
        return bool(self.waiting) and not self.failed and self.retry_at <= now and len(self.out) < _MAX_IN_FLIGHT

    def idle(self) -> bool:
        return not (self.waiting or self.out or self.failed)


class _Round:
    """Everything between two flushes; a new one starts clean, whatever answers still arrive for the old one."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, _Partition] = {}
        self.failed: dict[str | None, SparkRelayError] = {}
        self.blamed: dict[str | None, object] = {}
        self.in_flight: dict[tuple[int, str], int] = {}
        self.batches = 0
        self.queued_bytes = 0
        #: Queued since the last dispatch.
        self.gathered_bytes = 0
        self.metadata: Response | None = None
        self.metadata_at = 0.0


class Producer:
    """Sends encoded record batches under lent producer ids, for any number of transactions concurrently.

    The client is polled inside ``send`` and ``flush``.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._round = _Round()
        self._lanes: dict[str | None, str] = {}
        self._joins = Joins(client)

    @property
    def max_request_size(self) -> int:
        """Maximum size of a batch, in bytes."""
        return self._client.config.max_request_size

    def begin(self, identity: ProducerIdentity) -> None:
        """Announce a transaction before its first batch of this round.

        Required if its partitions must be added by request (transaction version below 2), otherwise without effect.
        """
        if identity.joins_by_request:
            self._joins.begin(identity)

    def send(
        self,
        tp: TopicPartition,
        batch: Any,
        *,
        transactional_id: str | None,
        topic_id: uuid.UUID | None = None,
        sender: object = None,
    ) -> None:
        """Queue a record batch. The buffer must not change before ``flush`` has returned.

        It is sent with the next ones, or by ``flush``. Blocks and sends while more than 32 MB are queued.

        Args:
            tp: the partition.
            batch: one encoded batch (format v2) with the lent producer id, epoch and its sequence.
            transactional_id: its transaction; None outside transactions.
            topic_id: set if a recreated topic must not be written to. Ignored by brokers before Kafka 4.1.
            sender: whom to blame if it is refused.

        Raises:
            RecordTooLargeException: the batch is larger than ``max.request.size``.
            TimeoutException: the queue stayed full for ``delivery.timeout.ms``.
        """
        data = memoryview(batch).cast("B")
        require_sendable(tp, len(data), self.max_request_size)
        if len(data) < _HEADER_BYTES:
            raise ValueError(f"{len(data)} bytes are not a record batch (at least {_HEADER_BYTES}) for {tp}")
        this = self._round
        if transactional_id in this.failed:
            return  # flush reports it; the rest of a failed transaction need not be sent
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, 23)
        partition = this.partitions.get(tp)
        if partition is None:
            partition = this.partitions[tp] = _Partition(self._client.config.retry_backoff())
        partition.waiting.append(_Batch(tp, data, transactional_id, this.batches, delta + 1, topic_id, sender))
        this.batches += 1
        this.queued_bytes += len(data)
        this.gathered_bytes += len(data)
        if this.gathered_bytes >= _GATHERED_BYTES:
            self._dispatch(this)
        give_up = time.monotonic() + self._client.config.delivery_timeout_ms / 1000
        while this.queued_bytes > _MAX_QUEUED_BYTES:
            if time.monotonic() >= give_up:
                raise TimeoutException(
                    f"{this.queued_bytes} bytes are waiting to be written after "
                    f"delivery.timeout.ms={self._client.config.delivery_timeout_ms}; last errors: "
                    f"{sorted({str(p.last_error) for p in this.partitions.values() if p.last_error is not None})}"
                )
            self._turn(this, give_up)

    def flush(self, timeout: float) -> dict[TopicPartition, Acknowledged]:
        """Wait until every batch is written.

        Raises:
            ProducerFencedException: the lent epoch is fenced, so another owner may have the task.
            RecordTooLargeException: the topic refuses the size.
            TimeoutException: some batches were not acknowledged within ``timeout`` seconds; they may be written.
            KafkaException: another error that a retry does not change.
        """
        flushed = self.flush_each(timeout)
        for error in flushed.failed.values():
            raise error
        return flushed.acknowledged

    def flush_each(self, timeout: float) -> Flushed:
        """Wait until every batch is written or refused; the transactions fail independently, without an exception."""
        this = self._round
        deadline = time.monotonic() + timeout
        try:
            while not all(p.idle() for p in this.partitions.values()):
                if time.monotonic() >= deadline:
                    self._time_out(this, timeout)
                    break
                self._turn(this, deadline)
        finally:
            # Also when interrupted: late answers must not count for the next transaction.
            self._round = _Round()
            self._joins.forget()
        acknowledged = {
            tp: Acknowledged(p.first_offset, p.last_offset, p.records) for tp, p in this.partitions.items() if p.records
        }
        return Flushed(acknowledged, this.failed, this.blamed)

    # -- one turn ---------------------------------------------------------------------------------------------------

    def _turn(self, this: _Round, deadline: float) -> None:
        wake_at = self._dispatch(this)
        self._client.poll(max(0.0, min(deadline, wake_at) - time.monotonic()))

    def _dispatch(self, this: _Round) -> float:
        """Send what may be sent now; return when to continue if nothing is answered until then.

        In each pass, a leader gets one request for each transaction, with one batch of each partition.
        """
        this.gathered_bytes = 0
        now = time.monotonic()
        limit = self._client.config.max_request_size
        joins_wait = self._join(this)
        while True:
            requests: dict[tuple[int, str | None], list[_Batch]] = {}
            leaderless: list[TopicPartition] = []
            for tp, partition in this.partitions.items():
                if not partition.ready(now):
                    continue
                leader = self._client.metadata.leader(tp)
                if leader is None:
                    leaderless.append(tp)
                    continue
                batch = partition.waiting[0]
                if not self._joins.may_write(batch.transactional_id, tp):
                    continue
                group = requests.get((leader, batch.transactional_id))
                if group is None:
                    connection = leader, self._lane(batch.transactional_id)
                    if this.in_flight.get(connection, 0) >= _MAX_IN_FLIGHT:
                        continue
                    this.in_flight[connection] = this.in_flight.get(connection, 0) + 1
                    group = requests[leader, batch.transactional_id] = []
                elif sum(len(b.data) for b in group) + len(batch.data) > limit:
                    continue
                partition.out.append(partition.waiting.popleft())
                group.append(batch)
            if not requests:
                break
            for (leader, transactional_id), batches in requests.items():
                self._send_request(this, leader, transactional_id, batches)
        times = [p.retry_at for p in this.partitions.values() if p.waiting and p.retry_at > now]
        times.append(now + min(joins_wait, self._join(this)))
        if leaderless:
            for tp in leaderless:
                if code := self._client.metadata.topic_error(tp.topic):
                    this.partitions[tp].last_error = broker_error(code, f"looking up {tp}", needs="WRITE")
            self._refresh(this, {tp.topic for tp in leaderless}, now)
            times.append(this.metadata_at)
        return min(times)

    def _join(self, this: _Round) -> float:
        """Add wanted partitions to their transactions; return for how many seconds there is nothing to do."""
        failed, idle_seconds = self._joins.step()
        for transactional_id, error in failed.items():
            self._doom(this, transactional_id, error)
        return idle_seconds

    def _refresh(self, this: _Round, topics: set[str], now: float) -> None:
        """Request metadata, unless that was done a moment ago."""
        if (this.metadata is not None and not this.metadata.done) or now < this.metadata_at:
            return
        this.metadata_at = now + self._client.config.retry_backoff_ms / 1000
        this.metadata = self._client.request_metadata(topics)

    def _send_request(self, this: _Round, leader: int, transactional_id: str | None, batches: list[_Batch]) -> None:
        topics: dict[str, dict[int, Any]] = {}
        ids: dict[str, uuid.UUID] = {}
        for batch in batches:
            name = batch.tp.topic
            topics.setdefault(name, {})[batch.tp.partition] = batch.data
            if (id_ := batch.topic_id or self._client.metadata.topic_id(name)) is not None:
                ids[name] = id_
        request = ProduceBatches(
            topics,
            transactional_id=transactional_id,
            timeout_ms=self._client.config.request_timeout_ms,
            ids=ids if len(ids) == len(topics) else None,
            joined=self._joins.has(transactional_id),
        )
        lane = self._lane(transactional_id)
        response = self._client.send(request, node=leader, lane=lane)
        names = {id_: name for name, id_ in ids.items()}
        response.add_done_callback(lambda done: self._answered(this, (leader, lane), batches, names, done))

    def _lane(self, transactional_id: str | None) -> str:
        """Return the connection of a transaction; on several, batches could overtake each other."""
        lane = self._lanes.get(transactional_id)
        if lane is None:
            lane = self._lanes[transactional_id] = f"produce-{len(self._lanes) % _LANES}"
        return lane

    # -- answers ----------------------------------------------------------------------------------------------------

    def _answered(
        self,
        this: _Round,
        connection: tuple[int, str],
        batches: list[_Batch],
        names: Mapping[uuid.UUID, str],
        response: Response,
    ) -> None:
        this.in_flight[connection] -= 1
        if response.error is not None:
            for batch in batches:
                self._refused(this, batch, response.error, ErrorCode.NETWORK_EXCEPTION)
        else:
            answers = {
                (topic.name or names.get(topic.topic_id), part.index): part
                for topic in response.result().responses
                for part in topic.partition_responses
            }
            for batch in batches:
                answer = answers.get((batch.tp.topic, batch.tp.partition))
                if answer is None:
                    code, text, offset = ErrorCode.UNKNOWN_SERVER_ERROR, "the answer lacks the partition", -1
                else:
                    code, text, offset = answer.error_code, answer.error_message or "", answer.base_offset
                if code == ErrorCode.NONE:
                    self._written(this, batch, offset)
                elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    self._written(this, batch, -1)
                else:
                    self._refused(this, batch, self._error(batch, code, text), code)
        for partition in {batch.tp: this.partitions[batch.tp] for batch in batches}.values():
            if partition.failed and not partition.out:
                # All its requests are answered: queue the failed batches again, in order.
                partition.waiting.extendleft(sorted(partition.failed, key=lambda b: b.order, reverse=True))
                partition.failed.clear()

    def _written(self, this: _Round, batch: _Batch, base_offset: int) -> None:
        partition = this.partitions[batch.tp]
        partition.out.remove(batch)
        partition.backoff.reset()
        this.queued_bytes -= len(batch.data)
        partition.records += batch.records
        # Answers may arrive out of order: a batch that was written but not acknowledged is answered after later ones.
        if partition.first_order is None or batch.order < partition.first_order:
            partition.first_order, partition.first_offset = batch.order, base_offset
        if batch.order > partition.last_order:
            partition.last_order = batch.order
            partition.last_offset = base_offset + batch.records - 1 if base_offset >= 0 else -1

    def _refused(self, this: _Round, batch: _Batch, error: KafkaException, code: int) -> None:
        partition = this.partitions[batch.tp]
        partition.last_error = error
        # After a batch that must be sent again, the next ones are out of order through no fault of their own.
        follows = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and bool(
            partition.failed or partition.out[0] is not batch
        )
        partition.out.remove(batch)
        if batch.transactional_id in this.failed:
            this.queued_bytes -= len(batch.data)
            return
        if (error.retriable or follows) and not self._is_recreated(batch, code):
            partition.failed.append(batch)
            if code in STALE_METADATA:
                self._refresh(this, {batch.tp.topic}, time.monotonic())
            if len(partition.failed) == 1:
                first = _CONCURRENT_BACKOFF_S if code == ErrorCode.CONCURRENT_TRANSACTIONS else None
                partition.retry_at = time.monotonic() + partition.backoff.next(first=first)
            return
        this.queued_bytes -= len(batch.data)
        if batch.sender is not None:
            this.blamed[batch.transactional_id] = batch.sender
        self._doom(this, batch.transactional_id, error)

    def _is_recreated(self, batch: _Batch, code: int) -> bool:
        """Return whether a batch is refused because its topic was deleted and recreated."""
        now = self._client.metadata.topic_id(batch.tp.topic)
        return code == ErrorCode.UNKNOWN_TOPIC_ID and batch.topic_id is not None and now not in {None, batch.topic_id}

    def _doom(self, this: _Round, transactional_id: str | None, error: SparkRelayError) -> None:
        """Fail a transaction: drop what has not been sent, and wait for what is in flight."""
        this.failed.setdefault(transactional_id, error)
        for partition in this.partitions.values():
            for queue in (partition.waiting, partition.failed):
                doomed = [b for b in queue if b.transactional_id == transactional_id]
                for batch in doomed:
                    queue.remove(batch)
                    this.queued_bytes -= len(batch.data)

    def _time_out(self, this: _Round, timeout: float) -> None:
        for tp, partition in this.partitions.items():
            if partition.idle():
                continue
            for batch in [*partition.out, *partition.failed, *partition.waiting]:
                error = partition.last_error or self._joins.last_error(batch.transactional_id)
                because = f"; last error: {error}" if error is not None else ""
                this.failed.setdefault(
                    batch.transactional_id,
                    TimeoutException(f"records for {tp} were not all acknowledged within {timeout:g} s{because}"),
                )

    def _error(self, batch: _Batch, code: int, text: str) -> KafkaException:
        what = f"producing {batch.records} records ({len(batch.data)} bytes) to {batch.tp}"
        note = f" ({text})" if text else ""
        producer_id, epoch, _ = _PRODUCER.unpack_from(batch.data, 43)
        if code in _FENCED:
            return ProducerFencedException(
                f"{what}: {error_name(code)} ({code}){note}: producer id {producer_id}, epoch {epoch}, may no longer "
                f"write: {fenced_reason(batch.transactional_id)}"
            )
        if code in _TOO_LARGE:
            return RecordTooLargeException(
                f"{what}: {error_name(code)} ({code}){note}; raise the topic's max.message.bytes"
            )
        return broker_error(code, what + note, needs="WRITE")


def require_sendable(tp: TopicPartition, size: int, limit: int) -> None:
    """Raise RecordTooLargeException for a record batch larger than ``limit`` (``max.request.size``), in bytes."""
    if size > limit:
        raise RecordTooLargeException(
            f"a record batch of {size} bytes for {tp} is larger than max.request.size={limit}; "
            "raise that and the topic's max.message.bytes, or make smaller records"
        )
