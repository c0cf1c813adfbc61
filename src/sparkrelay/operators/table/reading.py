"""Reading rows of one task's store: in the driver if it is on its host, else in a worker step on the executor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from sparkrelay.errors import StateStoreException, StateStoreNotAvailableException
from sparkrelay.operators.table.search import rows_between, rows_of, stored_rows_of, windows_of
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, drain, report_row, reporting
from sparkrelay.state.reader import StoreReader
from sparkrelay.state.space import DATA_FILE
from sparkrelay.state.watermarks import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.state.reader import StoreSnapshot
    from sparkrelay.types import TopicPartition


@dataclass(frozen=True, slots=True)
class StoreReading:
    """A read of one store.

    Attributes:
        what: ``rows`` of keys; ``stored``: their entries, of layouts with one entry a row; ``windows`` of a key; or a
            ``page`` of rows.
        key: key columns; of ``windows`` without the window; None for a page.
        from_ms: earliest start of a window, ms since 1970, or None.
        to_ms: latest start of a window, inclusive, or None.
        start: of a page: first key of the store.
        stop: of a page: end of the range, exclusive; None: the end of the store.
        most: maximum number of rows.
        task_epoch: the owner's task epoch. Under another one, the copy may have been emptied and be restoring. None:
            any.
    """

    what: Literal["rows", "stored", "windows", "page"]
    key: pa.RecordBatch | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    start: bytes = b""
    stop: bytes | None = None
    most: int | None = None
    task_epoch: int | None = None

    def of(self, table: TableLayout, snapshot: StoreSnapshot) -> StoreRead:
        """Read a snapshot of the store.

        Raises:
            StateStoreNotAvailableException: its task epoch is another one.
        """
        if self.task_epoch not in {None, snapshot.header.task_epoch}:
            raise StateStoreNotAvailableException(
                f"the task of store {table.store!r} was closed during the query (expected task epoch "
                f"{self.task_epoch}, found {snapshot.header.task_epoch}); try again soon"
            )
        watermark = None if snapshot.watermark == NO_TIME else snapshot.watermark
        following: bytes | None = None
        places: list[int] = []
        if self.what == "page":
            start, stop = table.span(snapshot.expired)
            rows, following = rows_between(table, snapshot, max(start, self.start), self.stop or stop, self.most)
        elif self.what == "rows":
            rows, places = rows_of(table, snapshot, self.key)
        elif self.what == "stored":
            rows, places = stored_rows_of(table, snapshot, self.key)
        else:
            rows = self._windows(table, snapshot)
        return StoreRead(rows, following, snapshot.header.changelog, watermark, tuple(places))

    def _windows(self, table: TableLayout, snapshot: StoreSnapshot) -> pa.RecordBatch:
        found, count = [], 0
        for row in windows_of(table, snapshot, self.key, self.from_ms, self.to_ms):
            if self.most is not None and count >= self.most:
                break
            found.append(row)
            count += row.num_rows
        return pa.concat_batches(found) if found else table.no_rows()


@dataclass(frozen=True, slots=True)
class StoreRead:
    """Result of a read.

    Attributes:
        rows: rows; ``key, value`` for ``stored``.
        following: first key of the next page; None after the last.
        changelog: position of the copy: changelog partition -> offset.
        watermark: the store's, ms since 1970, or None.
        places: index of each requested key's row; -1: no row.
    """

    rows: pa.RecordBatch
    following: bytes | None
    changelog: Mapping[TopicPartition, int]
    watermark: int | None
    places: tuple[int, ...] = ()

    @staticmethod
    def by(reader: StoreReader, spec: TableRunner, reading: StoreReading, committed: int | None) -> StoreRead:
        """Read a store. Raises what ``StoreReader.read`` and :meth:`StoreReading.of` raise."""
        return reader.read(spec.store, lambda snapshot: reading.of(spec.layout, snapshot), committed=committed)


@dataclass(frozen=True, slots=True)
class ReadCommand:
    """Command to read a store on its executor.

    Attributes:
        directory: the task's directory.
        committed: see ``StoreReader.read``.
        reading: the read, without its key.
        key: the key columns as an Arrow stream; empty for a page.
    """

    directory: str
    committed: int | None
    reading: StoreReading
    key: bytes = b""

    @classmethod
    def of(cls, directory: str, committed: int | None, reading: StoreReading) -> ReadCommand:
        """Return the command for a read."""
        if reading.key is None:
            return cls(directory, committed, reading)
        return cls(directory, committed, replace(reading, key=None), _as_bytes(reading.key))


@dataclass(frozen=True, slots=True)
class ReadReport:
    """Result of a read on an executor: ``rows`` as an Arrow stream, the rest as in :class:`StoreRead`."""

    rows: bytes
    following: bytes | None
    changelog: Mapping[TopicPartition, int]
    watermark: int | None
    places: tuple[int, ...] = ()

    def read(self) -> StoreRead:
        """Decode the result."""
        return StoreRead(_from_bytes(self.rows), self.following, self.changelog, self.watermark, self.places)


@reporting
def read_store(spec: TableRunner, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the store of ``spec``; yield one row with the result."""
    drain(batches)
    command = current_command(ReadCommand)
    path = Path(command.directory)
    if not (path / DATA_FILE).exists():
        raise StateStoreException(f"{path} has no state")
    # LMDB allows one environment a process, and this process may write to it in its next step.
    store = connections.store(command.directory, map_limit=spec.map_limit)
    reading = replace(command.reading, key=_from_bytes(command.key)) if command.key else command.reading
    read = StoreRead.by(StoreReader.of(store), spec, reading, command.committed)
    report = ReadReport(_as_bytes(read.rows), read.following, read.changelog, read.watermark, read.places)
    yield report_row([report])


def _as_bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_bytes(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()
