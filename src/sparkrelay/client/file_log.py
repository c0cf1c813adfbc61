"""Topics as local files: the test driver's replacement for a broker.

The files hold record batches in the broker's format, so records are read and written by the usual code. A transaction
writes to files of its own, which become visible at its commit and are removed at its abort. One process commits and no
other writes: there is no group, no fencing, no lock.

A partition is a directory with the file ``log``, and a file ``open-<id>`` for each transaction that has written to it.
"""

from __future__ import annotations

import mmap
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.client.config import longest_request
from sparkrelay.client.produce import Flushed, require_sendable
from sparkrelay.errors import OffsetOutOfRangeException
from sparkrelay.records.batches.decode import KAFKA_SCHEMA, decode
from sparkrelay.records.batches.headers import end_offset
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from sparkrelay.client.transaction_calls import ProducerIdentity

#: The client setting that names the directory, instead of ``bootstrap.servers``.
LOG_DIRECTORY: Final = "sparkrelay.log.directory"

_LOG: Final = "log"
_OPEN: Final = "open-"
#: A record batch begins with its base offset and the length of the rest; the header ends with the record count.
_BEGINNING: Final = struct.Struct(">qi")
_COUNT: Final = struct.Struct(">i")
_COUNT_AT: Final = 57


class FileLog:
    """The partitions below a directory."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        #: How often all records were removed.
        self.cleared = 0

    def clear(self) -> None:
        """Remove all records, and begin at offset 0 again."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self.cleared += 1

    def append(self, partition: TopicPartition, batches: bytes) -> None:
        """Append record batches outside of any transaction, assigning their offsets."""
        path = self._path(partition) / _LOG
        path.parent.mkdir(parents=True, exist_ok=True)
        offset, data, start = self.end(partition), bytearray(batches), 0
        while start < len(data):
            _, length = _BEGINNING.unpack_from(data, start)
            _BEGINNING.pack_into(data, start, offset, length)
            (count,) = _COUNT.unpack_from(data, start + _COUNT_AT)
            offset, start = offset + count, start + _BEGINNING.size + length
        with path.open("ab") as file:
            file.write(data)

    def write(self, partition: TopicPartition, batch: bytes | memoryview, transactional_id: str) -> None:
        """Add a record batch to a transaction."""
        path = self._path(partition) / f"{_OPEN}{transactional_id}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(batch)

    def commit(self, transactional_id: str) -> None:
        """Append the batches of a transaction to their logs."""
        for path in self._written(transactional_id):
            topic, _, number = path.parent.name.rpartition("-")
            self.append(TopicPartition(topic, int(number)), path.read_bytes())
            path.unlink()

    def abort(self, transactional_id: str) -> None:
        """Remove the batches of a transaction."""
        for path in self._written(transactional_id):
            path.unlink()

    def end(self, partition: TopicPartition) -> int:
        """Return the offset after the last record."""
        return _end(self._data(partition))

    def read(
        self, partition: TopicPartition, start: int, stop: int, columns: Collection[str] | None = None
    ) -> pa.RecordBatch:
        """Return the records of ``[start, stop)`` with the given columns of ``KAFKA_SCHEMA``.

        Raises:
            OffsetOutOfRangeException: the log ends earlier.
        """
        if start >= stop:
            names = [name for name in KAFKA_SCHEMA.names if columns is None or name in columns]
            return pa.RecordBatch.from_pylist([], pa.schema([KAFKA_SCHEMA.field(name) for name in names]))
        data = self._data(partition)
        if (end := _end(data)) < stop:
            raise OffsetOutOfRangeException(f"{partition} ends at {end}, before {stop}")
        parts, at = [], start
        while at < stop:
            decoded = decode(
                data, topic=partition.topic, partition=partition.partition, start=at, stop=stop, columns=columns
            )
            parts.append(decoded.batch)
            at = decoded.next_offset
        return pa.concat_batches(parts)

    def _data(self, partition: TopicPartition) -> memoryview:
        """Return the log, memory-mapped: mostly only headers are read."""
        try:
            with (self._path(partition) / _LOG).open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (FileNotFoundError, ValueError):  # missing or empty
            return memoryview(b"")

    def _written(self, transactional_id: str) -> list[Path]:
        return sorted(self._directory.glob(f"*/{_OPEN}{transactional_id}"))

    def _path(self, partition: TopicPartition) -> Path:
        return self._directory / f"{partition.topic}-{partition.partition}"


def _end(data: memoryview) -> int:
    end = end_offset(data, 0)
    assert end is not None, "only whole batches are appended"
    return end


class FileFetcher:
    """Reads ranges like ``BoundedFetcher``."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._log = FileLog(settings[LOG_DIRECTORY])

    def fetch(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        *,
        columns: Collection[str] | None = None,
        max_bytes: int | None = None,  # noqa: ARG002 - of BoundedFetcher
        topic_ids: Mapping[str, str] | None = None,  # noqa: ARG002 - of BoundedFetcher
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Yield the records of ``[from, to)`` of each partition; topics have no ids here."""
        for partition, (start, stop) in ranges.items():
            yield partition, self._log.read(partition, start, stop, columns)

    def log_start(self, partition: TopicPartition) -> int:  # noqa: ARG002 - of BoundedFetcher
        """Return 0: nothing is ever deleted."""
        return 0

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets after the last records."""
        return {partition: self._log.end(partition) for partition in partitions}

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class FileProducer:
    """Writes record batches like ``Producer``."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        #: In bytes.
        self.max_request_size = longest_request(settings)
        self._log = FileLog(settings[LOG_DIRECTORY])

    def begin(self, identity: ProducerIdentity) -> None:
        """Do nothing: a transaction begins with its first write."""

    def send(
        self,
        tp: TopicPartition,
        batch: Any,
        *,
        transactional_id: str | None,
        topic_id: uuid.UUID | None = None,  # noqa: ARG002 - of Producer
        sender: object = None,  # noqa: ARG002 - of Producer
    ) -> None:
        """Write a record batch into the transaction; raises RecordTooLargeException."""
        assert transactional_id is not None, "workers write in transactions"
        data = memoryview(batch).cast("B")
        require_sendable(tp, len(data), self.max_request_size)
        self._log.write(tp, data, transactional_id)

    def flush_each(self, timeout: float) -> Flushed:
        """Return at once: everything is written already."""
        del timeout
        return Flushed({}, {})
