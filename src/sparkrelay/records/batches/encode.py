"""Encode Arrow columns as record batches of format v2, ready for a Produce request.

A compiled loop sizes and writes each record in one pass, until the batch is full. Batches of one call have consecutive
sequences, so a worker can use a transaction's producer id with nothing but an epoch and a next sequence. Inspecting a
column costs more than writing some records of it: the records of many partitions are encoded in one call.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import crc32c
import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import BinaryColumn, flatten, offsets_of, validity_bytes
from sparkrelay.records.batches.codecs import codec_id, compress
from sparkrelay.records.batches.headers import HEADER_SIZE, TRANSACTIONAL
from sparkrelay.records.batches.write_loop import write_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NO_TIMESTAMP: Final = -1
_NO_PRODUCER: Final = -1
_SEQUENCE_MASK: Final = (1 << 31) - 1
_MAX_RECORD: Final = (1 << 31) - 1 - 1024
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_START: Final = 21


@dataclass(frozen=True, slots=True)
class ProducerState:
    """An idempotent producer, with the sequence of the next record."""

    producer_id: int
    epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One record batch as bytes, with what the sender needs to know of it."""

    data: bytes | bytearray | memoryview
    record_count: int
    base_sequence: int


Part: TypeAlias = "tuple[int, int, ProducerState | None]"


def next_sequence(sequence: int, records: int) -> int:
    """Return the sequence after some records; sequences wrap to 0 after 2^31 - 1."""
    return (sequence + records) & _SEQUENCE_MASK


def encode(
    keys: pa.Array | None,
    values: pa.Array | None,
    *,
    timestamps: pa.Array | int,
    headers: pa.Array | None = None,
    producer: ProducerState | None = None,
    transactional: bool = False,
    compression: str = "none",
    max_batch_bytes: int = 1_000_000,
) -> Iterator[EncodedBatch]:
    """Encode rows as record batches, in order.

    Args:
        keys: strings or bytes; None: all null.
        values: strings or bytes; null is a tombstone. At least one of keys and values must be given.
        timestamps: milliseconds since 1970 for all, or an array of them (integers, or timestamps of any unit);
            null becomes -1, Kafka's "none".
        headers: ``list<struct<key: string, value: binary>>``; null is the same as empty.
        producer: an idempotent producer, with the first sequence.
        transactional: mark the batches as part of a transaction; needs ``producer``.
        compression: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``.
        max_batch_bytes: of a batch before compression. A larger record gets its own batch, and the broker decides.

    Raises:
        SerializationException: a column has a type that cannot be written, or a record is larger than 2 GiB.
        ConfigException: the compression is unknown.
    """
    rows = len(keys) if keys is not None else len(values) if values is not None else -1
    if rows < 0:
        raise ValueError("keys and values are both None: the number of records is unknown")
    (batches,) = encode_parts(
        keys,
        values,
        [(0, rows, producer)],
        timestamps=timestamps,
        headers=headers,
        transactional=transactional,
        compression=compression,
        max_batch_bytes=max_batch_bytes,
    )
    return batches


def encode_parts(
    keys: pa.Array | None,
    values: pa.Array | None,
    parts: Sequence[Part],
    *,
    timestamps: pa.Array | int,
    headers: pa.Array | None = None,
    transactional: bool = False,
    compression: str = "none",
    max_batch_bytes: int = 1_000_000,
) -> list[Iterator[EncodedBatch]]:
    """Return the batches of each part, encoded as by :func:`encode`: its rows ``[start, stop)`` and its producer."""
    codec = codec_id(compression)
    if transactional and any(producer is None for *_, producer in parts):
        raise ValueError("transactional=True needs producer=ProducerState(...): a transaction belongs to a producer id")
    rows = len(keys) if keys is not None else len(values) if values is not None else 0
    for name, column in (("values", values), ("timestamps", timestamps), ("headers", headers)):
        if column is not None and not isinstance(column, int) and len(column) != rows:
            raise ValueError(f"keys has {rows} rows and {name} {len(column)}; columns must be of one length")
    key = _binary("keys", keys, rows)
    value = _binary("values", values, rows)
    times = _milliseconds(timestamps)
    header_columns = _headers(headers)
    attributes = codec | (TRANSACTIONAL if transactional else 0)
    return [_batches(part, key, value, times, header_columns, attributes, codec, max_batch_bytes) for part in parts]


def _batches(  # noqa: PLR0917 - apart from encode_parts(), so that bad arguments fail before iteration
    part: Part,
    key: BinaryColumn,
    value: BinaryColumn,
    times: np.ndarray[Any, Any],
    headers: tuple[np.ndarray[Any, Any], BinaryColumn, BinaryColumn],
    attributes: int,
    codec: int,
    max_batch_bytes: int,
) -> Iterator[EncodedBatch]:
    header_offsets, header_keys, header_values = headers
    first, stop, producer = part
    state = np.zeros(2, np.int64)
    capacity = _capacity(first, stop, key, value, headers, max_batch_bytes)
    sequence = producer.base_sequence if producer else _NO_PRODUCER
    while first < stop:
        buffer = np.empty(capacity, np.uint8)
        after = write_records(
            first, stop, key.address, key.offsets, key.valid, value.address, value.offsets, value.valid, times,
            header_offsets, header_keys.address, header_keys.offsets,
            header_values.address, header_values.offsets, header_values.valid,
            buffer.ctypes.data + HEADER_SIZE, capacity - HEADER_SIZE, state,
        )  # fmt: skip
        size, max_timestamp = state.tolist()
        if after == first:
            if size > _MAX_RECORD:
                raise SerializationException(f"row {first} takes {size} bytes as a record; Kafka's limit is 2 GiB")
            # One record that is larger than a batch.
            capacity = HEADER_SIZE + size
            continue
        count = after - first
        whole = memoryview(buffer.data)[: HEADER_SIZE + size]
        if codec:
            body = memoryview(compress(whole[HEADER_SIZE:], codec))
            whole = memoryview(bytearray(HEADER_SIZE + len(body)))
            whole[HEADER_SIZE:] = body
        base_timestamp = int(times[first] if len(times) > 1 else times[0])
        _HEADER.pack_into(
            whole, 0, 0, len(whole) - 12, -1, 2, 0, attributes, count - 1, base_timestamp, max_timestamp,
            producer.producer_id if producer else _NO_PRODUCER, producer.epoch if producer else -1, sequence, count,
        )  # fmt: skip
        struct.pack_into(">I", whole, 17, crc32c.crc32c(whole[_CRC_START:]))
        yield EncodedBatch(whole, count, sequence)
        if producer:
            sequence = next_sequence(sequence, count)
        first, capacity = after, min(capacity, max(max_batch_bytes, HEADER_SIZE + 64))


def _capacity(  # noqa: PLR0917 - all of a part
    first: int,
    stop: int,
    key: BinaryColumn,
    value: BinaryColumn,
    headers: tuple[np.ndarray[Any, Any], BinaryColumn, BinaryColumn],
    limit: int,
) -> int:
    """Return the buffer that a batch needs: the limit, or less if the part cannot reach it."""
    header_offsets, header_keys, header_values = headers
    content = sum(int(column.offsets[stop] - column.offsets[first]) for column in (key, value))
    entries = 0
    if len(header_offsets):
        start, end = int(header_offsets[first]), int(header_offsets[stop])
        content += sum(int(column.offsets[end] - column.offsets[start]) for column in (header_keys, header_values))
        entries = end - start
    # Per record: length, attributes, deltas, key and value lengths, header count; per header: two lengths.
    bound = HEADER_SIZE + content + (stop - first) * 32 + entries * 10
    return int(min(bound, max(limit, HEADER_SIZE + 64)))


def _binary(name: str, column: pa.Array | None, rows: int) -> BinaryColumn:
    if column is None:
        return BinaryColumn.nulls(rows)
    try:
        return BinaryColumn.of(column)
    except TypeError as error:
        raise SerializationException(f"{name} cannot be written to a topic: {error}; encode them first") from error


def _milliseconds(timestamps: pa.Array | int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return milliseconds; an array of length 1 stands for all records."""
    if isinstance(timestamps, int):
        return np.array([timestamps], np.int64)
    array = flatten(timestamps)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).view(pa.int64())
    elif not pa.types.is_integer(array.type):
        raise SerializationException(f"timestamps must be timestamps or integers, got {array.type}")
    if array.null_count:
        array = array.fill_null(NO_TIMESTAMP)
    # A copy, because kernels are compiled for writable arrays only.
    return np.array(array.to_numpy(zero_copy_only=False), np.int64)


def _headers(headers: pa.Array | None) -> tuple[np.ndarray[Any, Any], BinaryColumn, BinaryColumn]:
    """Return the offsets of each record's headers, and their keys and values; no offsets: no headers."""
    if headers is None or headers.null_count == len(headers):
        return np.empty(0, np.int64), BinaryColumn.nulls(0), BinaryColumn.nulls(0)
    array = flatten(headers)
    if not pa.types.is_list(array.type) or not pa.types.is_struct(array.type.value_type):
        raise SerializationException(f"headers must be list<struct<key: string, value: binary>>, got {array.type}")
    # flatten() leaves out the entries that null lists may span.
    entries = array.flatten()
    counts = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = offsets_of(counts)
    keys, values = BinaryColumn.of(entries.field(0)), BinaryColumn.of(entries.field(1))
    if len(validity_bytes(entries)) or len(keys.valid):
        raise SerializationException("a header without a key cannot be written; remove null headers first")
    return offsets, keys, values
