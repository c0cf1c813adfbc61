"""The rows of a table from a partition of its changelog: the last record of each key, decoded like the store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.datasources.cluster import Span
from sparkrelay.errors import OffsetOutOfRangeException, SerializationException, SparkRelayError
from sparkrelay.state.changelog import MARKER_KEY, SCHEMA_KEY, split
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.state.changelog import Marker
    from sparkrelay.types import TopicPartition

_COLUMNS: Final = frozenset({"key", "value", "offset"})
#: Keys of records that are no state.
_OURS: Final = pa.array([MARKER_KEY, SCHEMA_KEY], pa.binary())
#: Number of records after which those with a successor are dropped.
_GATHERED: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 16
#: Errors that foreign bytes may cause.
_UNREADABLE: Final = (SparkRelayError, pa.ArrowException, ValueError, TypeError, LookupError, ArithmeticError)


class Fetcher(Protocol):
    """Reads ranges of records: a ``BoundedFetcher``, or one of files."""

    def fetch(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], *, columns: Collection[str] | None = None
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Yield the records of ``[from, to)`` of each partition."""

    def log_start(self, partition: TopicPartition) -> int:
        """Return the offset at which a partition's log begins."""


def changelog_rows(
    fetcher: Fetcher, table: TableLayout, span: Span, message_keys: pa.Array | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition of a table as of the end of its changelog.

    ``span`` is the whole partition, since any record may be the last one of its key. With ``message_keys``, encoded
    keys, rows of other keys may be left out.

    Raises:
        SerializationException: a record does not fit the store; names topic, partition and offset.
        OffsetOutOfRangeException: the partition is shorter than ``span``.
    """
    try:
        newest, marker = _newest(fetcher, table, span, message_keys)
    except OffsetOutOfRangeException:
        first = fetcher.log_start(span.partition)
        if first <= span.start:
            raise
        # The log was truncated since: the records before its new start have expired.
        span = Span(span.partition, min(first, span.stop), span.stop)
        newest, marker = _newest(fetcher, table, span, message_keys)
    start, stop = table.span(NO_TIME if marker is None else marker.expired)
    if start:
        newest = newest.filter(pc.greater_equal(newest.column("key"), pa.scalar(start, pa.binary())))
    if stop is not None:
        newest = newest.filter(pc.less(newest.column("key"), pa.scalar(stop, pa.binary())))
    if table.lies_apart:
        newest = newest.sort_by("key").combine_chunks()
    most = newest.num_rows if table.lies_apart else _ROWS_AT_ONCE
    for batch in newest.to_batches(max_chunksize=max(most, 1)):
        yield from _decoded(table, span.partition, batch)


def require_rows(table: TableLayout) -> None:
    """Raise SparkRelayError if a layout cannot be decoded, since an aggregate function is unknown."""
    nothing = pa.record_batch([pa.array([], pa.binary()), pa.array([], pa.binary())], ["key", "value"])
    table.rows(nothing)


def record_name(partition: TopicPartition, offset: int) -> str:
    """Return a record's name for errors."""
    return f"topic {partition.topic!r}, partition {partition.partition}, offset {offset}"


def _newest(
    fetcher: Fetcher, table: TableLayout, span: Span, message_keys: pa.Array | None
) -> tuple[pa.Table, Marker | None]:
    """Return ``key, value, offset`` of the last record of each key that still has a value, and the last marker."""
    gathered = _LastOfEachKey()
    last = None
    for partition, batch in fetcher.fetch({span.partition: (span.start, span.stop)}, columns=_COLUMNS):
        if not batch.num_rows:
            continue
        offsets = batch.column("offset")
        keys, values, marker = split(batch.column("key"), batch.column("value"), partial(_named, partition, offsets))
        offsets = offsets.filter(pc.invert(pc.is_in(batch.column("key"), value_set=_OURS)))
        last = marker or last
        if message_keys is not None and table.found_by_key:
            own = pc.is_in(keys, value_set=message_keys)
            keys, values, offsets = keys.filter(own), values.filter(own), offsets.filter(own)
        gathered.add(pa.record_batch([keys, values, offsets], ["key", "value", "offset"]))
    return gathered.table(), last


def _named(partition: TopicPartition, offsets: pa.Array, index: int) -> str:
    return record_name(partition, offsets[index].as_py())


class _LastOfEachKey:
    """Keeps the last record of each key. Records with a successor are dropped from time to time, not one by one."""

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self._rows = 0
        self._limit = _GATHERED

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records after the previous ones."""
        self._parts.append(batch)
        self._rows += batch.num_rows
        if self._rows >= self._limit:
            table = self._compacted(pa.Table.from_batches(self._parts))
            self._parts, self._rows = table.to_batches(), table.num_rows
            self._limit = max(_GATHERED, 2 * self._rows)

    def table(self) -> pa.Table:
        """Return the last record of each key that was not deleted."""
        schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])
        table = self._compacted(pa.Table.from_batches(self._parts, schema))
        return table.filter(table.column("value").is_valid())

    @staticmethod
    def _compacted(table: pa.Table) -> pa.Table:
        numbered = table.select(["key"]).append_column("row", pa.array(np.arange(table.num_rows)))
        last = numbered.group_by("key", use_threads=False).aggregate([("row", "max")]).column("row_max")
        if len(last) == table.num_rows:
            return table
        kept = np.zeros(table.num_rows, dtype=bool)
        kept[last.to_numpy()] = True
        return table.filter(pa.array(kept))


def _decoded(table: TableLayout, partition: TopicPartition, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    try:
        rows = _checked(table, batch)
    except _UNREADABLE as error:
        raise _refusal(table, partition, batch, error) from error
    if rows.num_rows:
        yield rows


def _checked(table: TableLayout, batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = table.rows(batch.select(["key", "value"]))
    # Nobody can use text that is not UTF-8.
    rows.validate(full=True)
    return rows


def _refusal(
    table: TableLayout, partition: TopicPartition, batch: pa.RecordBatch, error: Exception
) -> SerializationException:
    """Return an error that names the first unreadable record, or the narrowest range that contains it."""
    while batch.num_rows > 1:
        middle = batch.num_rows // 2
        for half in (batch.slice(0, middle), batch.slice(middle)):
            try:
                _checked(table, half)
            except _UNREADABLE as found:
                batch, error = half, found
                break
        else:
            break
    offsets = batch.column("offset")
    first, last = pc.min(offsets).as_py(), pc.max(offsets).as_py()
    where = record_name(partition, first) + ("" if first == last else f" to {last}")
    return SerializationException(
        f"{where}: the record does not fit this store: {error}. Another program than its application wrote it, or it "
        "is damaged"
    )
