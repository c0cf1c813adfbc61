"""Fetched data on its way from the network thread to ``poll``, and its decoding to columns.

The network thread puts answers in as they came; the application thread decodes them, so that decoding happens in the
thread that wants the records, and only as much as it wants. A partition with data in the buffer is not fetched again.
Data of a partition that was given up, paused or sought is dropped when it is met: its offset is not the position.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.consumer.positions import LOST_POSITION
from sparkrelay.errors import SparkRelayError, UnknownTopicException
from sparkrelay.records.columns import HEADERS_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.events import Mailbox
    from sparkrelay.consumer.fetching import Fetched
    from sparkrelay.consumer.subscription import SubscriptionState
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

__all__ = ["TABLE_SCHEMA", "FetchBuffer"]

TABLE_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
"""What ``poll`` returns: the columns of Spark's own Kafka source."""


class FetchBuffer:
    """See the module. The ``FetchSource`` of the consumer's fetch manager.

    Args:
        subscription: where each partition stands.
        mailbox: notified when data is here.
        read_committed: whether records of aborted transactions are left out.
        check_crcs: whether checksums are compared.
        out_of_range: called with a partition whose position the log does not have.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        mailbox: Mailbox,
        *,
        read_committed: bool,
        check_crcs: bool,
        out_of_range: Callable[[TopicPartition, int], None],
    ) -> None:
        self._subscription = subscription
        self._mailbox = mailbox
        self._read_committed = read_committed
        self._check_crcs = check_crcs
        self._out_of_range = out_of_range
        self._lock = threading.Lock()
        self._parts: deque[Fetched] = deque()
        self._errors: deque[KafkaException] = deque()

    # -- the network thread ------------------------------------------------------------------------------------------

    def fetchable(self) -> Mapping[TopicPartition, int]:
        """Return the positions of partitions that have no data here."""
        wanted = self._subscription.fetchable()
        with self._lock:
            for part in self._parts:
                wanted.pop(part.partition, None)
        return wanted

    def fetched(self, parts: list[Fetched], now: float) -> None:
        """Take a response."""
        del now
        useful = []
        for part in parts:
            standing = self._subscription.get(part.partition)
            if standing is None:
                continue
            standing.end = part.last_stable_offset if self._read_committed else part.high_watermark
            if part.error_code or part.records:
                useful.append(part)
        if useful:
            with self._lock:
                self._parts.extend(useful)
            self._mailbox.notify()

    def fetch_failed(self, error: KafkaException, now: float) -> None:
        """Have ``poll`` raise an error."""
        del now
        with self._lock:
            self._errors.append(error)
        self._mailbox.notify()

    def notify(self) -> None:
        """Have whoever waits look again."""
        self._mailbox.notify()

    # -- the application thread --------------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether ``collect`` would find nothing at all, not even something to drop."""
        return not self._parts and not self._errors

    def has_data(self) -> bool:
        """Tell whether ``collect`` might return something."""
        with self._lock:
            return bool(self._errors) or any(
                self._subscription.may_return(part.partition) or part.error_code for part in self._parts
            )

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._parts.clear()

    def collect(self, max_records: int, max_bytes: int | None) -> pa.Table:
        """Return records from the positions on, and move the positions behind them.

        Raises:
            KafkaException: a partition cannot be read; the records of others come with the next call.
            CorruptRecordException: a batch is damaged; the position stays in front of it.
        """
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        set_aside: list[Fetched] = []
        try:
            while rows < max_records and (max_bytes is None or size < max_bytes):
                part = self._take(set_aside, raise_errors=not batches)
                if part is None:
                    break
                if part.error_code:
                    if batches:
                        set_aside.append(part)
                        break
                    self._raise(part)
                    continue
                left = None if max_bytes is None else max_bytes - size
                try:
                    batch, rest = self._decode(part, max_records - rows, left, first=not batches)
                except SparkRelayError:
                    if not batches:
                        raise
                    # What was collected is behind its positions already: it goes first, the error comes next time.
                    set_aside.append(part)
                    break
                if rest is not None:
                    set_aside.append(rest)
                if batch is not None:
                    batches.append(batch)
                    rows += batch.num_rows
                    size += batch.nbytes
                if rest is not None and left is not None:
                    break
        finally:
            with self._lock:
                self._parts.extendleft(reversed(set_aside))
        return pa.Table.from_batches(batches, TABLE_SCHEMA)

    def _take(self, set_aside: list[Fetched], *, raise_errors: bool) -> Fetched | None:
        """Return the oldest answer that is still of use; paused partitions' go to ``set_aside``."""
        with self._lock:
            if self._errors and raise_errors:
                raise self._errors.popleft()
            while self._parts:
                part = self._parts.popleft()
                standing = self._subscription.get(part.partition)
                if standing is None or standing.position != part.offset:
                    continue
                if self._subscription.may_return(part.partition):
                    return part
                set_aside.append(part)
            return None

    def _decode(
        self, part: Fetched, max_rows: int, max_bytes: int | None, *, first: bool
    ) -> tuple[pa.RecordBatch | None, Fetched | None]:
        """Decode some of an answer, and move the position; return the records and what is left of the answer."""
        # Its compiled loops are loaded with the first record: 100 MB that a consumer without records does not need.
        from sparkrelay.records.decode import decode  # noqa: PLC0415

        topic, number = part.partition
        decoded = decode(
            part.records,
            topic=topic,
            partition=number,
            start=part.offset,
            aborted=part.aborted,
            read_committed=self._read_committed,
            check_crc=self._check_crcs,
            max_records=max_rows,
        )
        batch, following = decoded.batch, decoded.next_offset
        keep = decoded.record_count if max_bytes is None else _fitting(batch, max_bytes, at_least=1 if first else 0)
        if keep < decoded.record_count:
            following = batch.column("offset")[keep].as_py()
            batch = batch.slice(0, keep)
        if not self._subscription.advance(part.partition, part.offset, following):
            return None, None
        cut = keep < decoded.record_count or decoded.record_count >= max_rows
        rest = replace(part, offset=following) if cut else None
        if not batch.num_rows:
            return None, rest
        columns = [
            batch.column("key"),
            batch.column("value"),
            pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows),
            pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows),
            *(batch.column(name) for name in ("offset", "timestamp", "timestampType", "headers")),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=TABLE_SCHEMA), rest

    def _raise(self, part: Fetched) -> None:
        if part.error_code in LOST_POSITION:
            self._out_of_range(part.partition, part.offset)
            return
        if part.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            raise UnknownTopicException(
                f"topic {part.partition.topic!r} was deleted and created again: position {part.offset} of "
                f"{part.partition} means another record now; seek() to go on"
            )
        raise broker_error(part.error_code, f"fetching {part.partition} at offset {part.offset}")


def _fitting(batch: pa.RecordBatch, max_bytes: int, *, at_least: int) -> int:
    """Return how many rows from the start have keys and values of at most ``max_bytes`` in all."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy(zero_copy_only=False)
    return max(at_least, int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right")))
