"""Reading exact offset ranges as Arrow, without a thread or a group: for Spark tasks.

``BoundedFetcher`` drives the same pure ``FetchManager`` as the consumer, inline. While the caller processes records,
the next request is already with the broker: it is sent on the response, because the headers of the batches determine
where the next one starts. At most one response waits while another arrives.

A range may end where no record is: in a compaction gap, in an aborted transaction, on a control record. It is finished
when the next batch starts after its end, or when the broker has nothing more although its log reaches the end. Refused:
reading until the last record of the range was seen (it may not exist), and a prefetching thread (the GIL makes it
compete for the same core).

Fetch sessions (KIP-227) are not used: each request of a range differs from the last in all its partitions, so none
would be shorter; a ``fetch`` has few requests; and a broker has 1,000 sessions in all, which a cluster of Spark workers
would take from the consumers. Without a session, the order of the request explains an empty answer.
"""

from __future__ import annotations

import functools
import math
import sys
import time
import uuid
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.leader_requests import EARLIEST, LATEST, list_offsets_call, per_leader
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.fetch.fetching import Fetched, FetchManager
from sparkrelay.errors import OffsetOutOfRangeException, TimeoutException, UnknownTopicException
from sparkrelay.records.batches import headers
from sparkrelay.records.batches.decode import decode

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from sparkrelay.client.kafka_client import Response
    from sparkrelay.consumer.base.requests import Unsent
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

_DEFAULTS: Final = {
    "isolation.level": "read_committed",
    "max.partition.fetch.bytes": 8 << 20,
    "fetch.max.bytes": 50 << 20,
    # The records exist already, so the broker need not wait.
    "fetch.max.wait.ms": 100,
    "client.id": "sparkrelay-worker",
}
_LONGEST_WAIT_SECONDS: Final = 0.5
#: Room in requests for records larger than earlier ones.
_MARGIN: Final = 1.25
_LEAST_BYTES: Final = 64 * 1024
#: Divides max_bytes into a response, or the data decompressed at once. One response waits while another arrives.
_SHARE: Final = 4
#: A decompressed batch may hold 19 million records of 7 bytes, whose offsets and times take eight times as much.
_MOST_ROWS: Final = 1 << 20


class BoundedFetcher:
    """Fetches ranges over persistent connections. Used by one thread; one ``fetch`` at a time.

    Args:
        config: a consumer's settings; group settings have no effect. ``isolation.level`` defaults to
            ``read_committed``.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = ConsumerConfig.from_dict(config, defaults=_DEFAULTS)
        self._client = KafkaClient(self._config.client)
        # Observed bytes per record by partition: a small range does not need a large response.
        self._record_bytes: dict[TopicPartition, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def fetch(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        *,
        columns: Collection[str] | None = None,
        max_batch_rows: int = _MOST_ROWS,
        max_bytes: int | None = None,
        topic_ids: Mapping[str, str] | None = None,
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Yield the records of ``[from, to)`` of each partition, each partition's in order.

        Args:
            ranges: from and to by partition. A range beyond the log's end (or, with read_committed, beyond its first
                open transaction) is waited for.
            columns: names from ``records.batches.decode.KAFKA_SCHEMA``; None for all.
            max_batch_rows: most rows in one batch.
            max_bytes: approximate bytes of responses and their decoded records at a time; larger record batches are
                read one by one. None: as configured.
            topic_ids: known ids of the topics that the offsets belong to.

        Raises:
            OffsetOutOfRangeException: records of a range were deleted, or its partition is shorter than expected.
            TimeoutException: nothing arrived for ``default.api.timeout.ms``.
            UnknownTopicException: a topic does not exist, or was deleted and created again.
            CorruptRecordException: a batch is damaged, or too large decompressed.
        """
        config = self._config
        if max_bytes is not None:
            share = max(_LEAST_BYTES, max_bytes // _SHARE)
            config = replace(
                config,
                fetch_max_bytes=min(share, config.fetch_max_bytes),
                max_partition_fetch_bytes=min(share, config.max_partition_fetch_bytes),
            )
        run = _Run(self._client, config, ranges, self._record_bytes, topic_ids or {})
        limit = self._config.default_api_timeout_ms / 1000
        deadline = time.monotonic() + limit
        while run.unfinished:
            run.turn(deadline, limit)
            if run.ready:
                yield from self._decoded(run, run.ready.popleft(), columns, max_batch_rows, max_bytes)
                deadline = time.monotonic() + limit

    def log_start(self, partition: TopicPartition) -> int:
        """Return the first offset of a partition's log.

        Raises:
            TimeoutException: no answer within ``default.api.timeout.ms``.
            UnknownTopicException: the partition does not exist.
        """
        return self._listed({partition: EARLIEST})[partition]

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of partitions' logs; with read_committed, the starts of their first open transactions.

        Raises:
            TimeoutException: no answer within ``default.api.timeout.ms``.
            UnknownTopicException: a partition does not exist.
        """
        return self._listed(dict.fromkeys(partitions, LATEST))

    def _listed(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        timeout = self._config.default_api_timeout_ms / 1000
        call = list_offsets_call(read_committed=self._config.read_committed)
        return per_leader(self._client, call, times, timeout)

    def _decoded(
        self, run: _Run, part: Fetched, columns: Collection[str] | None, max_rows: int, max_bytes: int | None = None
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        start = part.offset
        behind = run.behind(part)
        most = self._config.client.max_decompressed_batch_bytes
        while start < behind:
            decoded = decode(
                part.records,
                topic=part.partition.topic,
                partition=part.partition.partition,
                start=start,
                stop=run.ranges[part.partition][1],
                aborted=part.aborted,
                read_committed=self._config.read_committed,
                check_crc=self._config.check_crcs,
                max_decompressed=most,
                enough=most if max_bytes is None else min(most, max_bytes // _SHARE),
                columns=columns,
                max_records=max_rows,
            )
            if decoded.record_count:
                yield part.partition, decoded.batch
            if decoded.next_offset <= start:
                return
            start = decoded.next_offset


class _Run:
    """The state of one call of ``fetch``, and the ``FetchSource`` of its manager."""

    def __init__(
        self,
        client: KafkaClient,
        config: ConsumerConfig,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        record_bytes: dict[TopicPartition, float],
        topic_ids: Mapping[str, str],
    ) -> None:
        self.ranges = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
        self.ready: deque[Fetched] = deque()
        self._client = client
        self._next = {partition: span[0] for partition, span in self.ranges.items()}
        self._behind: dict[tuple[TopicPartition, int], int] = {}
        self._errors: list[Exception] = []
        self._given = frozenset(topic_ids)
        self._topic_ids = {topic: uuid.UUID(id_) for topic, id_ in topic_ids.items()}
        self._last_error: KafkaException | None = None
        self._stale_topics: set[str] = set()
        self._metadata_asked: Response | None = None
        self._metadata_not_before = -math.inf
        self._retry_seconds = config.client.retry_backoff_ms / 1000
        self._read_committed = config.read_committed
        # From leaders only: a follower may lag behind the end that the driver saw.
        self._manager = FetchManager(client.metadata, config, self, self._stale_topics.add)
        self._most = config.max_partition_fetch_bytes
        self._record_bytes = record_bytes
        for partition in self.ranges:
            self._limit(partition)

    @property
    def unfinished(self) -> bool:
        """Whether anything remains to be fetched, decoded or raised."""
        return bool(self._next or self.ready or self._errors)

    def turn(self, deadline: float, limit: float) -> None:
        """Send requests; wait for a response if none is ready. Raises the errors of ``BoundedFetcher.fetch``."""
        while True:
            now = time.monotonic()
            wait = min(self._send(now), self._refresh_metadata(now))
            # Data is returned before a later error.
            if self.ready:
                self._client.poll(0)
                return
            if self._errors:
                raise self._errors[0]
            if not self._next:
                return
            if now >= deadline:
                raise self._timeout(limit)
            self._client.poll(min(wait, deadline - now, _LONGEST_WAIT_SECONDS))

    def behind(self, part: Fetched) -> int:
        """Return the offset after the last whole batch of a response."""
        return self._behind.pop((part.partition, part.offset))

    @property
    def changes(self) -> Hashable:
        """Always a new value: no thread can be spared a look."""
        return object()

    def has_room(self, node: int) -> bool:
        """Return True: ``fetchable`` bounds memory."""
        del node
        return True

    def fetchable(self) -> Mapping[TopicPartition, int]:
        """Return the partitions that are neither finished nor too far ahead of the caller."""
        if self._errors:
            return {}
        waiting = Counter(part.partition for part in self.ready)
        wanted = {partition: offset for partition, offset in self._next.items() if waiting[partition] <= 1}
        for partition in wanted:
            self._check_topic(partition)
        return {} if self._errors else wanted

    def _check_topic(self, partition: TopicPartition) -> None:
        topic_id = self._client.metadata.topic_id(partition.topic)
        if topic_id is not None and self._topic_ids.setdefault(partition.topic, topic_id) != topic_id:
            error = _recreated(self._asked(partition, self._next[partition]))
            # A broker that has just started may still know the previous topic.
            error.retriable = partition.topic in self._given
            self._errors.append(error)

    def fetched(self, parts: list[Fetched], now: float, node: int) -> None:
        """Advance each partition, so that the next request is sent before this response is decoded."""
        del now, node
        for answer in parts:
            if answer.error_code:
                self._errors.append(_error(answer, self._asked(answer.partition, answer.offset)))
                continue
            part, behind = _whole_batches(answer)
            stop = self.ranges[part.partition][1]
            if behind > part.offset:
                self._behind[part.partition, part.offset] = behind
                self.ready.append(part)
                self._record_bytes[part.partition] = len(part.records) / (behind - part.offset)
                self._move(part.partition, behind)
            elif self._has_nothing_more(part, stop):
                self._move(part.partition, stop)
            elif part.records:
                self._manager.grow(part.partition)
            else:
                # Others may have filled the response: request it first next time.
                self._next = {part.partition: self._next.pop(part.partition), **self._next}

    def _asked(self, partition: TopicPartition, offset: int) -> str:
        start, stop = self.ranges[partition]
        return f"fetching {partition} at offset {offset} for the range [{start}, {stop})"

    def fetch_failed(self, error: KafkaException, now: float) -> None:
        """Raise an error that repeating does not change."""
        del now
        self._errors.append(error)

    def _move(self, partition: TopicPartition, offset: int) -> None:
        if offset >= self.ranges[partition][1]:
            del self._next[partition]
        else:
            self._next[partition] = offset
            self._limit(partition)

    def _limit(self, partition: TopicPartition) -> None:
        """Request no more than the rest of the range probably takes."""
        size = self._record_bytes.get(partition)
        if size is not None:
            left = (self.ranges[partition][1] - self._next[partition]) * size * _MARGIN
            self._manager.limit(partition, max(min(_LEAST_BYTES, self._most), min(self._most, int(left))))

    def _has_nothing_more(self, part: Fetched, stop: int) -> bool:
        end = part.last_stable_offset if self._read_committed else part.high_watermark
        return not part.records and part.first and end >= stop

    def _send(self, now: float) -> float:
        result = self._manager.poll(now)
        for unsent in result.requests:
            response = self._client.send(unsent.request, node=unsent.node, lane=unsent.lane, timeout=unsent.timeout)
            response.add_done_callback(functools.partial(self._take, unsent))
        return result.wait

    def _take(self, unsent: Unsent, response: Response) -> None:
        error = response.error
        if error is not None:
            self._last_error = error
        try:
            unsent.handle(None if error is not None else response.result(), error, time.monotonic())
        except Exception as problem:  # noqa: BLE001 - the client would only log it; the caller must get it
            self._errors.append(problem)

    def _refresh_metadata(self, now: float) -> float:
        """Request the leaders of stale topics; return seconds until the next request is allowed."""
        if not self._stale_topics or (self._metadata_asked is not None and not self._metadata_asked.done):
            return math.inf
        if now < self._metadata_not_before:
            return self._metadata_not_before - now
        # In place: the manager has this set.
        topics = frozenset(self._stale_topics)
        self._stale_topics.clear()
        self._metadata_not_before = now + self._retry_seconds
        self._metadata_asked = self._client.request_metadata(topics)
        self._metadata_asked.add_done_callback(lambda done: self._know(done, topics))
        return math.inf

    def _know(self, response: Response, topics: Collection[str]) -> None:
        if (error := response.error) is not None:
            self._last_error = error
            self._stale_topics.update(topics)
            if not error.retriable:
                self._errors.append(error)

    def _timeout(self, limit: float) -> KafkaException:
        partition, offset = next(iter(self._next.items()))
        stop = self.ranges[partition][1]
        if self._client.metadata.topic_error(partition.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopicException(
                f"topic {partition.topic!r} did not exist within default.api.timeout.ms={limit * 1000:.0f}"
            )
        because = f"; last error: {self._last_error}" if self._last_error is not None else ""
        return TimeoutException(
            f"{partition}: nothing came at offset {offset} (wanted up to {stop}) within "
            f"default.api.timeout.ms={limit * 1000:.0f}{because}"
        )


def _whole_batches(part: Fetched) -> tuple[Fetched, int]:
    """Return a response without broken batches, and the offset after its last whole batch or the requested one."""
    behind = headers.end_offset(part.records, part.offset)
    if behind is None:
        sound = headers.in_front_of(part.records, sys.maxsize)
        behind = headers.end_offset(sound, part.offset)
        if behind is None or behind == part.offset:
            # decode() raises the error of the first one.
            return part, part.offset + 1
        # The range may end before the broken batch; if not, the next response starts with it.
        part = replace(part, records=sound)
    return part, behind


def _error(part: Fetched, asked: str) -> KafkaException:
    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRangeException(
            f"{asked}: the log does not have it. It may have been removed by retention or by deleting records; "
            "set the group's offset to an existing one: sparkrelay offsets set --topic "
            f"{part.partition.topic} --partitions {part.partition.partition} --to earliest ... Or have the application "
            "skip missing records, with on.data.loss=continue"
        )
    return broker_error(part.error_code, asked, needs="READ")


def _recreated(asked: str) -> UnknownTopicException:
    return UnknownTopicException(
        f"{asked}: the topic was deleted and created again, so its offsets belong to other records now"
    )
