"""Fetched data on its way from the network thread to ``poll``, and its decoding to columns.

The network thread puts answers in as they came; the application thread decodes them, so that decoding happens in the
thread that wants the records. It decodes some ten thousand at a time and hands out slices, so that taking one record at
a time costs a slice each (KAFKA-20535).

**What is fetched while data waits here.** A partition with data stays in its broker's fetch session, but is asked for
from behind the data that waits: nothing is sent twice, and nothing leaves the session to come back (KAFKA-17182). Kafka
reaches the same by not asking a broker at all while any of its partitions has data; then network and application take
turns instead of working side by side. What bounds memory here is the number of responses: a broker is asked only while
at most one response of it waits. So at most two wait for each broker, each of ``fetch.max.bytes`` (a first batch that
is larger comes whole), besides the records decoded of one of them.

Partitions that are paused or being revoked do not count: what waits for them is kept for later, apart from its
response, so that it neither keeps the rest of the response in memory nor keeps others from being fetched. Data that no
longer continues the position, because the partition was given up, sought or its log changed, is dropped.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.consumer.fetch.tables import TABLE_SCHEMA, ConstantColumns
from sparkrelay.consumer.offsets.validation import recreated_error
from sparkrelay.errors import CorruptRecordException, SparkRelayError, UnsupportedVersionException
from sparkrelay.records.batches.extent import end_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from sparkrelay.consumer.base.events import Mailbox
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.fetch.fetching import Fetched
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

__all__ = ["TABLE_SCHEMA", "FetchBuffer"]

#: Records decoded at once; more if the application takes more.
_ROWS_AT_ONCE: Final = 32_768
#: The topic's name, of up to 249 bytes, stands in each row, and a column holds 2 GiB.
_MOST_ROWS_AT_ONCE: Final = 1 << 22
_ENOUGH_RESPONSES: Final = 2
_MOST_COLUMN_BYTES = (1 << 31) - 1  # not Final: a test lowers it, for nobody wants 2 GiB in a test
#: Codes after which the position is looked up again.
_LOST_POSITION: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.POSITION_OUT_OF_RANGE})
_LARGE: Final = pa.large_binary()
#: An error is nothing to go on behind.
_NOWHERE: Final = -1


class _Response:
    """A response of which some parts wait; it keeps its memory until they are gone."""

    __slots__ = ("node", "waiting")

    def __init__(self, node: int, waiting: int) -> None:
        self.node = node
        self.waiting = waiting


class _Part:
    """What waits of one partition from one response: bytes from ``offset`` on, and perhaps some of it decoded."""

    __slots__ = (
        "_rows",
        "data",
        "epochs",
        "following",
        "gone",
        "offset",
        "response",
        "row",
        "sizes",
        "stop",
    )

    def __init__(self, data: Fetched, stop: int, response: _Response | None) -> None:
        self.data = data
        self.offset = data.offset
        self.stop = stop
        self.response = response
        self.gone = False
        self._rows: pa.RecordBatch | None = None
        self.row = 0
        self.following = data.offset
        self.sizes: np.ndarray[Any, np.dtype[np.int64]] | None = None
        self.epochs: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> pa.RecordBatch | None:
        """The decoded records, from ``row`` on not yet returned; None if there are none."""
        return self._rows

    @rows.setter
    def rows(self, rows: pa.RecordBatch | None) -> None:
        self._rows, self.row, self.sizes = rows, 0, None

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the batch in front of an offset, -1 if unknown."""
        index = bisect.bisect_left(self.epochs, (offset,)) - 1
        return self.epochs[index][1] if index >= 0 else -1


class FetchBuffer:
    """See the module. The ``FetchSource`` of the consumer's fetch manager.

    Args:
        subscription: where each partition stands.
        mailbox: notified when data is here.
        read_committed: whether records of aborted transactions are left out.
        check_crcs: whether checksums are compared.
        max_decompressed: most that one record batch may hold, bytes.
        out_of_range: called with a partition whose position the log does not have.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        mailbox: Mailbox,
        *,
        read_committed: bool,
        check_crcs: bool,
        max_decompressed: int,
        out_of_range: Callable[[TopicPartition, int], None],
    ) -> None:
        self._subscription = subscription
        self._mailbox = mailbox
        self._read_committed = read_committed
        self._check_crcs = check_crcs
        self._max_decompressed = max_decompressed
        self._out_of_range = out_of_range
        self._columns = ConstantColumns()
        # Taken before the subscription's lock, never after it.
        self._lock = threading.Lock()
        self._parts: deque[_Part] = deque()
        self._chains: dict[TopicPartition, deque[_Part]] = {}
        self._waiting: dict[int, int] = {}
        self._errors: deque[KafkaException] = deque()
        self._changes = 0
        self._openings = 0
        self._seen: Hashable = None

    # -- the network thread ------------------------------------------------------------------------------------------

    @property
    def changes(self) -> Hashable:
        """What is wanted, and what there is room for, is the same while this is."""
        return self._subscription.changes, self._changes

    def fetchable(self) -> Mapping[TopicPartition, int]:
        """Return the partitions to fetch, and where: at the position, or behind what is here already."""
        with self._lock:
            wanted = self._subscription.fetchable()
            for partition, chain in list(self._chains.items()):
                position = wanted.get(partition)
                if position is None:
                    standing = self._subscription.get(partition)
                    if standing is None or standing.position is None:
                        self._drop(partition)
                    else:
                        for part in chain:
                            self._detach(part)
                elif chain[0].offset != position:
                    self._drop(partition)
                elif chain[-1].stop == _NOWHERE or chain[0].response is None:
                    # An error waits, or data from before a pause that counts for no response.
                    del wanted[partition]
                else:
                    wanted[partition] = chain[-1].stop
        return wanted

    def has_room(self, node: int) -> bool:
        """Return whether another response of a broker may come."""
        return self._waiting.get(node, 0) < _ENOUGH_RESPONSES

    def fetched(self, parts: list[Fetched], now: float, node: int = -1) -> None:
        """Take a response."""
        del now
        response = _Response(node, 0)
        with self._lock:
            for data in parts:
                self._take_in(data, response)
            if response.waiting:
                self._waiting[node] = self._waiting.get(node, 0) + 1
                self._changes += 1
        if response.waiting:
            self._mailbox.notify()

    def _take_in(self, data: Fetched, response: _Response) -> None:
        standing = self._subscription.get(data.partition)
        if standing is None:
            return
        if not data.error_code:
            standing.end = data.last_stable_offset if self._read_committed else data.high_watermark
            if not data.records:
                return
        chain = self._chains.get(data.partition)
        expected = chain[-1].stop if chain else standing.position
        # Asked before a seek, of a log that is in doubt, or of the leader before the one that confirmed the position.
        if data.offset != expected or standing.validating or 0 <= data.leader_epoch < standing.checked_epoch:
            return
        stop = None if data.error_code else end_offset(data.records, data.offset)
        part = _Part(data, _NOWHERE if stop in {None, data.offset} else stop, response)
        response.waiting += 1
        self._parts.append(part)
        if chain is None:
            chain = self._chains[data.partition] = deque()
        chain.append(part)

    def fetch_failed(self, error: KafkaException, now: float) -> None:
        """Have ``poll`` raise an error."""
        del now
        with self._lock:
            # The same request is made again and again, however seldom the application polls.
            if not any(type(other) is type(error) and str(other) == str(error) for other in self._errors):
                self._errors.append(error)
        self._mailbox.notify()

    def drop(self, partition: TopicPartition) -> None:
        """Forget what is here of a partition: its log may be another one now."""
        with self._lock:
            self._drop(partition)
        self._mailbox.notify()

    def notify(self) -> None:
        """Have whoever waits look again."""
        self._mailbox.notify()

    # -- the application thread --------------------------------------------------------------------------------------

    def has_data(self) -> bool:
        """Return whether ``collect`` might return something."""
        with self._lock:
            return (
                bool(self._errors)
                or self._subscription.has_recreated
                or any(self._subscription.may_return(part.data.partition) for part in self._parts)
            )

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._errors.clear()
            for partition in list(self._chains):
                self._drop(partition)

    def reset(self) -> None:
        """Begin anew, with everything to be fetched again from the positions on.

        For whoever was interrupted inside ``collect``: by a Ctrl-C between two steps of the bookkeeping, perhaps.
        """
        with self._lock:
            for part in (*self._parts, *(part for chain in self._chains.values() for part in chain)):
                part.gone, part.response = True, None
            self._parts.clear()
            self._chains.clear()
            self._waiting.clear()
            self._open()

    def made_room(self) -> bool:
        """Return whether more may be fetched than when this was asked last: then the network thread should look."""
        seen, self._seen = self._seen, (self._subscription.changes, self._openings)
        return seen != self._seen

    def collect(
        self, max_records: int, max_bytes: int | None, moved_from: dict[TopicPartition, int] | None = None
    ) -> pa.Table:
        """Return records from the positions on, and move the positions behind them.

        Args:
            max_records: most rows.
            max_bytes: most bytes of keys and values; the first row comes in any case. None for no limit.
            moved_from: gets the position from which records of a partition are taken, before it is moved.

        Raises:
            KafkaException: a partition cannot be read; the records of others come with the next call.
            CorruptRecordException: a batch is damaged; the position stays in front of it.
        """
        taken: list[pa.RecordBatch] = []
        rows = size = 0
        set_aside: list[_Part] = []
        try:
            while rows < max_records and (max_bytes is None or size < max_bytes):
                part = self._next(set_aside, raise_errors=not taken)
                if part is None or (part.data.error_code and taken):
                    break
                left = None if max_bytes is None else max_bytes - size
                if moved_from is not None:
                    moved_from.setdefault(part.data.partition, part.offset)
                try:
                    batch, used = self._cut(part, max_records - rows, left, first=not taken)
                except SparkRelayError:
                    if taken:
                        # What was collected is behind its position already: it goes first, the error comes next time.
                        break
                    self._finish(part)
                    raise
                if batch is not None:
                    taken.append(batch)
                    rows += batch.num_rows
                    size += used
                elif not part.gone and part.rows is not None:
                    break  # its next record is too large for what is left
        finally:
            if set_aside:
                with self._lock:
                    self._parts.extendleft(part for part in reversed(set_aside) if not part.gone)
        return pa.Table.from_batches(taken, TABLE_SCHEMA)

    def _next(self, set_aside: list[_Part], *, raise_errors: bool) -> _Part | None:
        """Return the oldest part that may be read; it stays where it is. Others are set aside."""
        with self._lock:
            if raise_errors:
                if self._errors:
                    raise self._errors.popleft()
                if (recreated := self._subscription.first_recreated()) is not None:
                    raise recreated_error(*recreated)
            while self._parts:
                part = self._parts[0]
                partition = part.data.partition
                standing = self._subscription.get(partition)
                if standing is None or standing.position != self._chains[partition][0].offset:
                    self._drop(partition)
                elif standing.readable:
                    return part
                else:
                    self._detach(part)
                    set_aside.append(self._parts.popleft())
            return None

    def _cut(
        self, part: _Part, max_rows: int, max_bytes: int | None, *, first: bool
    ) -> tuple[pa.RecordBatch | None, int]:
        """Take records off a part, and move the position; return them and the bytes of their keys and values."""
        if part.data.error_code:
            self._raise(part)
            return None, 0
        if part.rows is None:
            self._decode(part, max_rows)
        rows, row = part.rows, part.row
        if rows is None:
            self._advance(part, part.following)
            return None, 0
        count, used = min(max_rows, rows.num_rows - row), 0
        if max_bytes is not None:
            if part.sizes is None:
                part.sizes = _cumulated_sizes(rows)
            before = int(part.sizes[row])
            fitting = int(np.searchsorted(part.sizes, before + max_bytes, side="right")) - 1 - row
            count = min(count, max(fitting, 1 if first else 0))
            if not count:
                return None, 0
            used = int(part.sizes[row + count]) - before
        batch = rows if count == rows.num_rows else rows.slice(row, count)
        row += count
        if row == rows.num_rows:
            moved = self._advance(part, part.following)
        else:
            moved = self._advance(part, rows.column("offset")[row - 1].as_py() + 1, row)
        return (batch, used) if moved else (None, 0)

    def _decode(self, part: _Part, max_rows: int) -> None:
        """Decode the next records of a part, up to a damaged batch if there are any in front of it."""
        # Its compiled loops are loaded with the first record: 100 MB that a consumer without records does not need.
        from sparkrelay.records.batches.decode import decode  # noqa: PLC0415
        from sparkrelay.records.batches.headers import in_front_of  # noqa: PLC0415

        limit, data = min(max(max_rows, _ROWS_AT_ONCE), _MOST_ROWS_AT_ONCE), part.data.records
        topic, number = part.data.partition
        damage: SparkRelayError | None = None
        while True:
            try:
                decoded = decode(
                    data,
                    topic=topic,
                    partition=number,
                    start=part.offset,
                    aborted=part.data.aborted,
                    read_committed=self._read_committed,
                    check_crc=self._check_crcs,
                    max_decompressed=self._max_decompressed,
                    max_records=limit,
                )
            except (CorruptRecordException, UnsupportedVersionException) as error:
                sound = in_front_of(data, error.offset if error.offset is not None else part.offset)
                if not sound or len(sound) == len(data):
                    raise
                damage, data = error, sound
                continue
            fitting = _fitting(decoded.columns, decoded.record_count)
            if fitting == decoded.record_count:
                break
            # More than Arrow's ordinary columns hold.
            if not fitting:
                offset = decoded.columns["offset"][0].as_py()
                raise CorruptRecordException(
                    f"{part.data.partition}: the record at offset {offset} is larger than {_MOST_COLUMN_BYTES} bytes. "
                    f"seek() to {offset + 1} to go on without it"
                )
            limit = fitting
        if decoded.next_offset <= part.offset:
            raise damage or CorruptRecordException(
                f"{part.data.partition}: the {len(part.data.records)} bytes fetched at offset {part.offset} hold no "
                "whole record batch; its length may be damaged. seek() past it to go on"
            )
        part.following, part.epochs = decoded.next_offset, decoded.leader_epochs
        part.rows = None
        if decoded.record_count:
            columns = _narrowed(decoded.columns)
            part.rows = self._columns.table_batch(part.data.partition, columns, decoded.record_count)

    def _advance(self, part: _Part, offset: int, row: int | None = None) -> bool:
        """Move the position behind what was taken of a part; ``row`` is the first decoded one that is left."""
        with self._lock:
            if part.gone or not self._subscription.advance(
                part.data.partition, part.offset, offset, part.epoch_before(offset)
            ):
                self._drop(part.data.partition)
                return False
            part.offset = offset
            if row is not None:
                part.row = row
            elif 0 <= offset < part.stop:
                part.rows = None
            else:
                self._end(part)
            return True

    def _raise(self, part: _Part) -> None:
        code, partition, offset = part.data.error_code, part.data.partition, part.offset
        self._finish(part)
        if code in _LOST_POSITION:
            self._out_of_range(partition, offset)
            return
        if code == ErrorCode.UNKNOWN_TOPIC_ID:
            raise recreated_error(partition, offset)
        raise broker_error(code, f"fetching {partition} at offset {offset}", needs="READ")

    def _finish(self, part: _Part) -> None:
        """Drop a part that ends in an error; if it is wanted still, it is fetched again."""
        with self._lock:
            if not part.gone:
                self._drop(part.data.partition)

    # -- parts; the lock is held -------------------------------------------------------------------------------------

    def _end(self, part: _Part) -> None:
        """Take a part off that was read to its end; it is the first of its partition."""
        if part.offset != part.stop or part.response is None:
            self._open()  # nothing was asked for from behind it
        chain = self._chains[part.data.partition]
        chain.popleft()
        if not chain:
            del self._chains[part.data.partition]
        self._parts.remove(part)
        self._bury(part)

    def _drop(self, partition: TopicPartition) -> None:
        """Take off all of a partition."""
        chain = self._chains.pop(partition, None)
        if chain is not None:
            self._open()
            for part in chain:
                self._bury(part)
            self._parts = deque(part for part in self._parts if not part.gone)

    def _bury(self, part: _Part) -> None:
        # The application thread may be busy with it: it finds out when it wants to move the position.
        part.gone = True
        self._let_go(part)

    def _open(self) -> None:
        """Note that there is more to fetch, or more room for it."""
        self._changes += 1
        self._openings += 1

    def _detach(self, part: _Part) -> None:
        """Keep a part apart from its response."""
        if part.response is not None:
            part.data = part.data.copied()
            self._let_go(part)

    def _let_go(self, part: _Part) -> None:
        """Have a part no longer count for its response."""
        response, part.response = part.response, None
        if response is not None:
            response.waiting -= 1
            if not response.waiting:
                if not self.has_room(response.node):
                    self._open()
                self._waiting[response.node] -= 1


def _fitting(columns: Mapping[str, pa.Array], rows: int) -> int:
    """Return how many rows from the first on have keys and values that an ordinary column can hold."""
    fitting = rows
    for name in ("key", "value"):
        column = columns[name]
        if fitting and column.type == _LARGE:
            offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
            end = int(offsets[0]) + _MOST_COLUMN_BYTES
            fitting = min(fitting, int(np.searchsorted(offsets, end, side="right")) - 1)
    return fitting


def _narrowed(columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
    """Return ordinary columns: the decoder makes large ones of what might have been too much."""
    if columns["value"].type != _LARGE:
        return columns
    return {name: column.cast(pa.binary()) if column.type == _LARGE else column for name, column in columns.items()}


def _cumulated_sizes(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bytes of keys and values in front of each row, and of all at the end."""
    total = np.zeros(rows.num_rows + 1, np.int64)
    for name in ("key", "value"):
        column = rows.column(name)
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        total += offsets
        total -= int(offsets[0])
    return total
