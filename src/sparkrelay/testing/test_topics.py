"""The topics of a test: input as written by a producer, and output as seen by a reader."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from sparkrelay.errors import SerializationException
from sparkrelay.records.batches.columns import HEADERS_TYPE
from sparkrelay.records.batches.encode import encode
from sparkrelay.records.formats import Arrow, Json, Raw, RegistryFormat
from sparkrelay.records.formatted import columns_to_format, declared_schema, format_to_columns
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.topology.schemas import arrow_schema, format_fields
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparkrelay.client.file_log import FileLog
    from sparkrelay.records.formats import Format


@dataclass(frozen=True, slots=True)
class TopicFiles:
    """The topics of a test driver, and its functions for them.

    Attributes:
        log: the files.
        partitions: number of partitions of each topic.
        process: processes all records.
        now_ms: returns the driver's wall clock.
        waits: returns whether records wait for the next read (``batch="all"``).
    """

    log: FileLog
    partitions: int
    process: Callable[[], None]
    now_ms: Callable[[], int] = lambda: 0
    waits: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class TestRecord:
    """One record of a topic.

    Attributes:
        key: decoded by its format; None without a key.
        value: decoded by its format; None for a tombstone.
        timestamp: milliseconds since 1970.
        partition: of the topic.
        headers: names and values, in order.
    """

    #: Not a test class for pytest.
    __test__ = False

    key: Any
    value: Any
    timestamp: int
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


class TestInputTopic:
    """A topic that the pipeline reads. Made by :meth:`TopologyTestDriver.create_input_topic`."""

    __test__ = False

    def __init__(self, topic: str, key: Format | None, value: Format | None, files: TopicFiles) -> None:
        self._topic = topic
        self._key = key or Raw()
        self._value = value or Raw()
        self._files = files

    def pipe_input(
        self,
        key: Any,
        value: Any,
        timestamp: int | dt.datetime | None = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write one record, and process it unless the driver waits for more (``batch="all"``).

        Args:
            key: a value of the source's key format; None for a record without a key. Bytes are written unchanged.
            value: a value of the source's value format: for ``Json`` anything that ``json.dumps`` accepts, such as a
                dict; for ``Avro`` a dict of the fields, of which those with defaults may be missing. None is a
                tombstone. Bytes are written unchanged, so that a test can write records that cannot be decoded.
            timestamp: milliseconds since 1970, or a datetime with a zone; None for the driver's wall clock.
            partition: None for that of the key.
            headers: names and values.

        Raises:
            SparkRelayError: the error of an instance.
            TypeError: the format cannot encode the key or value.
        """
        self._write([(key, value, timestamp, partition, headers)])
        if not self._files.waits():
            self._files.process()

    def pipe_rows(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write records in order, each a tuple of :meth:`pipe_input`'s arguments.

        With ``batch="all"`` they are written at once: a hundred thousand take seconds.
        """
        given = list(rows)
        for some in [given] if self._files.waits() else [[row] for row in given]:
            self._write([(*row, *(None, None, ())[len(row) - 2 :]) for row in some])
            if not self._files.waits():
                self._files.process()

    def _write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        for _, _, _, partition, _ in rows:
            if partition is not None and not 0 <= partition < self._files.partitions:
                raise ValueError(
                    f"partition={partition} of {self._topic!r} must be from 0 to {self._files.partitions - 1}"
                )
        keys = pa.array([_encoded(self._key, key, "key") for key, *_ in rows], pa.binary())
        values = pa.array([_encoded(self._value, value, "value") for _, value, *_ in rows], pa.binary())
        now = self._files.now_ms()
        times = pa.array([now if row[2] is None else _millis(row[2]) for row in rows], pa.int64())
        headers = [[{"key": name, "value": data} for name, data in row[4]] or None for row in rows]
        given = pa.array(headers, HEADERS_TYPE)
        by_key = np.maximum(murmur2_partitions(keys, self._files.partitions), 0)
        partitions = np.array(
            [key if row[3] is None else row[3] for key, row in zip(by_key, rows, strict=True)], np.int64
        )
        for partition in np.unique(partitions).tolist():
            chosen = pa.array(np.flatnonzero(partitions == partition))
            columns = (column.take(chosen) for column in (keys, values))
            batches = encode(*columns, timestamps=times.take(chosen), headers=given.take(chosen))
            for batch in batches:
                self._files.log.append(TopicPartition(self._topic, partition), bytes(batch.data))


class TestOutputTopic:
    """A topic that the pipeline writes. Made by :meth:`TopologyTestDriver.create_output_topic`."""

    __test__ = False

    def __init__(self, topic: str, key: Format | None, value: Format | None, files: TopicFiles) -> None:
        self._topic = topic
        self._key = key or Raw()
        self._value = value or Raw()
        self._files = files
        self._next = dict.fromkeys(range(files.partitions), 0)
        self._cleared = files.log.cleared

    def read_records(self) -> list[TestRecord]:
        """Return the records written since the last call, each partition's in order."""
        self._files.process()
        found = []
        for number, start in self._read_up_to().items():
            partition = TopicPartition(self._topic, number)
            end = self._files.log.end(partition)
            columns = self._files.log.read(partition, start, end, ("key", "value", "timestamp", "headers"))
            times = columns.column("timestamp").cast(pa.timestamp("ms", "UTC")).view(pa.int64()).to_pylist()
            rest = (columns.column(name).to_pylist() for name in ("key", "value", "headers"))
            for time, key, value, given in zip(times, *rest, strict=True):
                headers = tuple((one["key"], one["value"]) for one in given or ())
                record = TestRecord(
                    _decoded(self._key, key, "key"), _decoded(self._value, value, "value"), time, number, headers
                )
                found.append(record)
            self._next[number] = end
        return found

    def read_rows(self) -> list[Any]:
        """Return the values of :meth:`read_records`, such as dicts for ``Json`` and ``Avro``; None for a tombstone."""
        return [record.value for record in self.read_records()]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written since the last read."""
        self._files.process()
        ends = (self._files.log.end(TopicPartition(self._topic, number)) for number in self._next)
        return [*ends] == [*self._read_up_to().values()]

    def _read_up_to(self) -> dict[int, int]:
        """Return the offsets that the next records have, by partition."""
        if self._cleared != self._files.log.cleared:
            self._cleared, self._next = self._files.log.cleared, dict.fromkeys(self._next, 0)
        return self._next


def _json(value: Any) -> str:
    """Encode types that JSON does not have as the reader of ``Json`` expects them."""
    if isinstance(value, dt.datetime | dt.date | decimal.Decimal):
        return str(value) if isinstance(value, decimal.Decimal) else value.isoformat()
    raise TypeError(f"{value!r} cannot be written as JSON")


def _millis(timestamp: int | dt.datetime) -> int:
    if isinstance(timestamp, int) and not isinstance(timestamp, bool):
        return timestamp
    if not isinstance(timestamp, dt.datetime):
        raise TypeError(f"timestamp={timestamp!r} must be milliseconds since 1970, or a datetime with a zone")
    if timestamp.tzinfo is None:
        raise TypeError(f"timestamp={timestamp!r} has no time zone; add one, such as dt.UTC")
    return round(timestamp.timestamp() * 1000)


def _encoded(format_: Format, value: Any, place: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(format_, Json):
        return json.dumps(value, default=_json).encode()
    try:
        schema = _schema(format_, place)
        row = {schema.names[0]: value} if _is_one_value(format_, place) else value
        if isinstance(format_, RegistryFormat):
            if unknown := [name for name in row if name not in schema.names]:
                raise TypeError(f"{unknown[0]!r} is not a field of the schema")
            # Absent fields take the schema's defaults.
            schema = pa.schema([field for field in schema if field.name in row])
        data: bytes = columns_to_format(pa.RecordBatch.from_pylist([row], schema), format_)[0].as_py()
    except (pa.ArrowException, AttributeError, TypeError, OverflowError, SerializationException) as error:
        raise TypeError(f"{value!r} cannot be written as {format_.in_few_words()}: {error}") from error
    return data


def _schema(format_: Format, place: str) -> pa.Schema:
    declared = declared_schema(format_, place)
    return arrow_schema(StructType(format_fields(format_, place, place))) if declared is None else declared


def _is_one_value(format_: Format, place: str) -> bool:
    """Return whether the value of a record is the one column's, and not a row."""
    is_record = not isinstance(format_, RegistryFormat) or format_.is_record
    return not is_record or format_.only_column(place) is not None


def _decoded(format_: Format, data: bytes | None, place: str) -> Any:
    if data is None:
        return None
    if isinstance(format_, Json):
        return json.loads(data)
    if isinstance(format_, Arrow) and format_.schema is None:
        rows = pa.ipc.open_stream(data).read_all().to_pylist()
        return rows if format_.column is not None else rows[0]
    schema = _schema(format_, place)
    columns, bad = format_to_columns(pa.array([data], pa.binary()), format_, place, schema)
    if bad:
        raise SerializationException(f"a record's {place} does not decode: {bad[0].reason}")
    row = {name: column[0].as_py() for name, column in columns.items()}
    return row[schema.names[0]] if _is_one_value(format_, place) else row
