"""Decode what a Fetch response carries, record batches of format v2, straight to Arrow.

One compiled loop reads a record's varints and copies its key and value into Arrow buffers while the record is in the
cache. The loop trusts no length: damaged input is a named error, even if its checksum is right.

Refused: Python objects per record (a hundred times slower); views into the response (``binary_view``), which Spark does
not accept and which keep whole responses alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import crc32c
import numpy as np
import pyarrow as pa

from sparkrelay.errors import CorruptRecordException, UnsupportedVersionException
from sparkrelay.records.arrow_buffers import BinaryWriter, fixed_width, offsets_of, validity_bitmap
from sparkrelay.records.batches import headers as b
from sparkrelay.records.batches.codecs import CodecError, decompress
from sparkrelay.records.batches.columns import HEADERS_TYPE, KAFKA_SCHEMA, AbortedTransaction
from sparkrelay.records.batches.record_loop import control_type, read_headers, read_records
from sparkrelay.settings import DECOMPRESSED_BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["HEADERS_TYPE", "KAFKA_SCHEMA", "AbortedTransaction", "Decoded", "decode"]

_MAX_OFFSET: Final = (1 << 63) - 1
_BINARY_LIMIT = (1 << 31) - 1  # not Final: a test lowers it
_ABORT_MARKER: Final = 0
_NUMBERS: Final = {name: KAFKA_SCHEMA.field(name).type for name in ("offset", "timestamp", "timestampType")}

_RECORD_ERRORS: Final = (
    "",
    "a record's length is wrong",
    "a record's offset is outside its batch or out of order",
    "a record's key length is wrong",
    "a record's value length is wrong",
    "a record's headers are wrong",
    "bytes follow the last record",
    "a varint is longer than its type",
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records as columns.

    Attributes:
        columns: the wanted ones by name, in the order of ``KAFKA_SCHEMA``.
        next_offset: the offset after everything read, control batches and gaps included.
        record_count: rows of each column.
        leader_epochs: (first offset, leader epoch) of the first batch read, and wherever the epoch changes.
    """

    columns: dict[str, pa.Array]
    next_offset: int
    record_count: int
    leader_epochs: tuple[tuple[int, int], ...] = ()

    @property
    def batch(self) -> pa.RecordBatch:
        """The columns as a record batch: one row a record."""
        return pa.RecordBatch.from_arrays(list(self.columns.values()), names=list(self.columns))


def decode(
    data: bytes | memoryview,
    *,
    topic: str,
    partition: int,
    start: int,
    stop: int | None = None,
    aborted: Sequence[AbortedTransaction] = (),
    read_committed: bool = True,
    check_crc: bool = True,
    max_decompressed: int = DECOMPRESSED_BATCH_BYTES,
    columns: Collection[str] | None = None,
    max_records: int | None = None,
    enough: int | None = None,
) -> Decoded:
    """Decode the record batches of one partition.

    Args:
        data: record batches; an incomplete last one is ignored.
        topic: for messages only.
        partition: for messages only.
        start: lower offsets are dropped (brokers send whole batches).
        stop: offsets from here on are dropped; None keeps all.
        aborted: the aborted transactions that the Fetch response lists.
        read_committed: drop the records of aborted transactions. Control batches are always dropped.
        check_crc: compare each batch's checksum.
        max_decompressed: the most bytes of one decompressed batch.
        columns: names from ``KAFKA_SCHEMA``; None is all. Unwanted columns cost nothing.
        max_records: return at most that many; ``next_offset`` is then the offset after the last one returned.
        enough: end after the batch that brings the decompressed bytes of this call to this number; None:
            ``max_decompressed``. 50 MB of zstd, which a broker sends at once, can hold many GB in batches within the
            bound.

    Raises:
        CorruptRecordException: a batch is damaged, or too large decompressed; the message names topic, partition and
            base offset, which is also its ``offset``: the records before it can be read with ``stop``.
        UnsupportedVersionException: a batch is in a message format older than Kafka 0.11's.
    """
    wanted = [name for name in KAFKA_SCHEMA.names if columns is None or name in columns]
    if columns is not None and len(wanted) != len(set(columns)):
        unknown = sorted(set(columns) - set(wanted))
        raise ValueError(f"unknown columns {unknown}; records have {', '.join(KAFKA_SCHEMA.names)}")
    where = f"{topic}-{partition}"
    end = _MAX_OFFSET if stop is None else stop
    limit = _MAX_OFFSET if max_records is None else max_records
    raw = np.frombuffer(data, np.uint8)
    table = b.walk(raw)
    rows: list[list[int]] = table.tolist()

    chosen, next_offset, buffers = _choose(
        raw, table, rows, where=where, start=start, stop=end, limit=limit, check_crc=check_crc,
        aborted=aborted if read_committed else (), max_decompressed=max_decompressed,
        enough=max_decompressed if enough is None else enough,
    )  # fmt: skip
    columns, count, cut_at = _records(
        table if len(chosen) == len(rows) else table[chosen], [rows[index] for index in chosen],
        where=where, start=start, stop=end, limit=limit, wanted=wanted,
    )  # fmt: skip
    del buffers  # the records are copied now
    if cut_at >= 0:
        next_offset = cut_at
    next_offset = max(start, min(next_offset, end))
    return Decoded(columns, next_offset, count, _leader_epochs(rows, start, next_offset))


def _leader_epochs(rows: list[list[int]], start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """Return the changes of the leader epoch among the batches of ``[start, stop)``."""
    changes: list[tuple[int, int]] = []
    latest = None
    for row in rows:
        if row[b.BASE_OFFSET] >= stop or row[b.STATUS]:
            break
        if row[b.LEADER_EPOCH] != latest and row[b.LAST_OFFSET] >= start:
            latest = row[b.LEADER_EPOCH]
            changes.append((row[b.BASE_OFFSET], latest))
    return tuple(changes)


def _choose(
    raw: np.ndarray[Any, Any],
    table: np.ndarray[Any, Any],
    rows: list[list[int]],
    *,
    where: str,
    start: int,
    stop: int,
    limit: int,
    check_crc: bool,
    aborted: Sequence[AbortedTransaction],
    max_decompressed: int,
    enough: int,
) -> tuple[list[int], int, list[Any]]:
    """Pick the batches whose records count, check and decompress them.

    Returns:
        Their indexes, the offset after the last batch seen, and the buffers that rows point into.
    """
    view = memoryview(raw.data)
    pending = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
    aborted_producers: set[int] = set()
    chosen: list[int] = []
    buffers: list[Any] = [raw]
    next_offset, sure, decompressed = start, 0, 0
    for index, row in enumerate(rows):
        if row[b.STATUS]:
            _raise_broken_header(where, row)
        if row[b.BASE_OFFSET] >= stop or sure >= limit or decompressed >= enough:
            break
        attributes = row[b.ATTRIBUTES]
        last = row[b.LAST_OFFSET]
        if pending or aborted_producers:
            while pending and pending[-1].first_offset <= last:
                aborted_producers.add(pending.pop().producer_id)
            if attributes & b.TRANSACTIONAL and row[b.PRODUCER_ID] in aborted_producers:
                if not attributes & b.CONTROL:
                    next_offset = last + 1
                    continue
                _check_crc(view, row, where, check_crc)
                if _is_abort_marker(row, where):
                    aborted_producers.discard(row[b.PRODUCER_ID])
        if last < start:
            continue
        next_offset = last + 1
        if attributes & b.CONTROL or row[b.COUNT] == 0:
            continue
        _check_crc(view, row, where, check_crc)
        if attributes & b.CODEC_MASK:
            buffers.append(_decompress(view, table, index, row, where=where, max_bytes=max_decompressed))
            decompressed += row[b.SIZE]
        chosen.append(index)
        if row[b.BASE_OFFSET] >= start:
            sure += row[b.COUNT]
    return chosen, next_offset, buffers


def _raise_broken_header(where: str, row: list[int]) -> None:
    at = f"{where}: the record batch at offset {row[b.BASE_OFFSET]} (byte {row[b.START]} of the response)"
    if row[b.STATUS] == b.OLD_FORMAT:
        error = UnsupportedVersionException(
            f"{at} is in message format v{row[b.CRC]}; formats before v2 (Kafka 0.11) are not read. "
            "Copy the topic with a current producer, or let retention or compaction remove the old segments."
        )
        error.offset = row[b.BASE_OFFSET]
        raise error
    raise _damaged(row[b.BASE_OFFSET], f"{at} is damaged: {b.STATUS_TEXT[row[b.STATUS]]}")


def _damaged(offset: int, message: str) -> CorruptRecordException:
    error = CorruptRecordException(message)
    error.offset = offset
    return error


def _check_crc(view: memoryview, row: list[int], where: str, check_crc: bool) -> None:
    if not check_crc:
        return
    actual = crc32c.crc32c(view[row[b.START] + 21 : row[b.STOP]])
    if actual != row[b.CRC]:
        raise _damaged(
            row[b.BASE_OFFSET],
            f"{where}: the record batch at offset {row[b.BASE_OFFSET]} is damaged: its CRC-32C is {actual:#010x}, "
            f"its header says {row[b.CRC]:#010x}. The network, the broker's disk or memory changed it.",
        )


def _is_abort_marker(row: list[int], where: str) -> bool:
    """Return whether a control batch is an abort marker. Compaction may have emptied it."""
    if not row[b.COUNT]:
        return False
    result = int(control_type(row[b.ADDRESS], row[b.SIZE]))
    if result < 0:
        raise _damaged(
            row[b.BASE_OFFSET],
            f"{where}: the control batch at offset {row[b.BASE_OFFSET]} is damaged: it has no readable marker",
        )
    return result == _ABORT_MARKER


def _decompress(
    view: memoryview, table: np.ndarray[Any, Any], index: int, row: list[int], *, where: str, max_bytes: int
) -> Any:
    """Decompress a batch and point its row at the result, which the caller keeps alive."""
    at = f"{where}: the record batch at offset {row[b.BASE_OFFSET]}"
    data = view[row[b.START] + b.HEADER_SIZE : row[b.STOP]]
    try:
        plain = decompress(data, row[b.ATTRIBUTES] & b.CODEC_MASK, max_bytes)
    except CodecError as error:
        raise _damaged(row[b.BASE_OFFSET], f"{at} cannot be decompressed: {error}") from error
    if row[b.COUNT] * b.MIN_RECORD_SIZE > len(plain):
        raise _damaged(
            row[b.BASE_OFFSET],
            f"{at} is damaged: {len(plain)} decompressed bytes cannot hold {row[b.COUNT]} records",
        )
    table[index, b.ADDRESS] = plain.ctypes.data
    table[index, b.SIZE] = row[b.SIZE] = len(plain)
    return plain


def _records(
    chosen: np.ndarray[Any, Any],
    rows: list[list[int]],
    *,
    where: str,
    start: int,
    stop: int,
    limit: int,
    wanted: list[str],
) -> tuple[dict[str, pa.Array], int, int]:
    """Read the records of the chosen batches, which ``chosen`` and ``rows`` both describe.

    Returns:
        The columns, the number of records, and the offset at which ``limit`` cut (-1: it did not).
    """
    # Few records at a time are common, and a NumPy call on a few numbers costs more than reading a record.
    capacity = min(sum(row[b.COUNT] for row in rows), limit)
    total = sum(row[b.SIZE] for row in rows)
    large = total > _BINARY_LIMIT
    keys = BinaryWriter(capacity, total if "key" in wanted else -1)
    values = BinaryWriter(capacity, total if "value" in wanted else -1)
    offsets, timestamps = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    types = np.empty(capacity, np.int32)
    headers = np.empty((capacity, 3) if "headers" in wanted else (0, 3), np.int64)
    state = np.zeros(4, np.int64)
    count: int = read_records(
        chosen, start, stop, capacity, offsets, timestamps, types,
        keys.address, keys.offsets, keys.valid, values.address, values.offsets, values.valid, headers, state,
    )  # fmt: skip
    error, failed, cut_at, header_count = state.tolist()
    if error:
        base = rows[failed][b.BASE_OFFSET]
        raise _damaged(base, f"{where}: the record batch at offset {base} is damaged: {_RECORD_ERRORS[error]}")
    arrays: dict[str, pa.Array] = {}
    numbers: dict[str, np.ndarray[Any, Any]] = {"offset": offsets, "timestamp": timestamps, "timestampType": types}
    for name in wanted:
        match name:
            case "key" | "value":
                arrays[name] = (keys if name == "key" else values).finish(count, large=large)
            case "headers":
                arrays[name] = _headers(headers[:count], header_count, offsets, where)
            case _:
                arrays[name] = fixed_width(_NUMBERS[name], numbers[name], count)
    return arrays, count, cut_at


def _headers(
    positions: np.ndarray[Any, Any], total: int, offsets: np.ndarray[Any, np.dtype[np.int64]], where: str
) -> pa.Array:
    """Build the headers column; records without headers are null, as in Spark's Kafka source."""
    if total == 0:
        return pa.nulls(len(positions), HEADERS_TYPE)
    size = int(positions[:, 1].sum())
    keys, values = BinaryWriter(total, size), BinaryWriter(total, size)
    failed = read_headers(positions, keys.address, keys.offsets, values.address, values.offsets, values.valid)
    if failed >= 0:
        raise _damaged(
            int(offsets[failed]), f"{where}: the headers of the record at offset {offsets[failed]} are damaged"
        )
    names = keys.finish(total)
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        # Kafka does not check UTF-8; invalid text is replaced, as in Java.
        names = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    entries = pa.StructArray.from_arrays([names, values.finish(total)], fields=list(HEADERS_TYPE.value_type))
    counts = positions[:, 2]
    offsets = offsets_of(counts, np.int32)
    validity = validity_bitmap(counts > 0)
    return pa.ListArray.from_buffers(HEADERS_TYPE, len(counts), [validity, pa.py_buffer(offsets)], children=[entries])
