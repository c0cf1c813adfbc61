"""Reading rows of one task's store: in the driver if it is on its host, else in a worker step on the executor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sparkrelay.errors import StateStoreException, StateStoreNotAvailableException
from sparkrelay.operators.table.search import rows_between, rows_of, stored_rows_of, windows_of
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, drain, report_row, reporting
from sparkrelay.state.reader import StoreReader
from sparkrelay.state.space import DATA_FILE
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.state.reader import StoreSnapshot
    from sparkrelay.types import TopicPartition


class StoreReading(NamedTuple):
    """A read of one task's store, in the driver or as the command of a worker step.

    A named tuple, as :class:`StoreRead`: a query makes several, in a quarter of the time of a dataclass.

    Attributes:
        what: ``rows`` of keys; ``stored``: their entries, of layouts with one entry a row; ``windows`` of a key; or a
            ``page`` of rows.
        directory: the task's directory.
        key: key columns; of ``windows`` without the window; None for a page.
        from_ms: earliest start of a window, ms since 1970, or None.
        to_ms: latest start of a window, inclusive, or None.
        start: of a page: first key of the store.
        stop: of a page: end of the range, exclusive; None: the end of the store.
        most: maximum number of rows.
        committed: see ``StoreReader.read``.
        task_epoch: the owner's task epoch. Under another one, the copy may have been emptied and be restoring. None:
            any.
        changelog: the store's changelog partition, if it has one.
    """

    what: Literal["rows", "stored", "windows", "page"]
    directory: str
    key: pa.RecordBatch | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    start: bytes = b""
    stop: bytes | None = None
    most: int | None = None
    committed: int | None = None
    task_epoch: int | None = None
    changelog: TopicPartition | None = None

    def by(self, reader: StoreReader, table: TableLayout) -> StoreRead:
        """Read the store. Raises what ``StoreReader.read`` and :meth:`of` raise."""
        return reader.read(table.store, lambda snapshot: self.of(table, snapshot), committed=self.committed)

    def of(self, table: TableLayout, snapshot: StoreSnapshot) -> StoreRead:
        """Read a snapshot of the store.

        Raises:
            StateStoreNotAvailableException: its task epoch is another one.
        """
        header = snapshot.header
        if self.task_epoch not in {None, header.task_epoch}:
            raise StateStoreNotAvailableException(
                f"the task of store {table.store!r} was closed during the query (expected task epoch "
                f"{self.task_epoch}, found {header.task_epoch}); try again soon"
            )
        watermark = None if snapshot.watermark == NO_TIME else snapshot.watermark
        position = None if self.changelog is None else header.changelog.get(self.changelog, 0)
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
            rows = windows_of(table, snapshot, self.key, self.from_ms, self.to_ms, self.most)
        return StoreRead(rows, following, position, watermark, tuple(places))


class StoreRead(NamedTuple):
    """Result of a read.

    Attributes:
        rows: rows in the order of the store's keys; ``key, value`` for ``stored``; None if ``text`` is set.
        following: first key of the next page; None after the last.
        position: changelog offset of the copy; None without changelog.
        watermark: the store's, ms since 1970, or None.
        places: index of each requested key's row; -1: no row.
        text: the one row as JSON, if it was written.
    """

    rows: pa.RecordBatch
    following: bytes | None = None
    position: int | None = None
    watermark: int | None = None
    places: tuple[int, ...] = ()
    text: bytes | None = None

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return int(self.rows.num_rows) if self.text is None else 1


@reporting
def read_store(spec: TableRunner, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the store of ``spec``; yield one row with the result."""
    drain(batches)
    reading = current_command(StoreReading)
    path = Path(reading.directory)
    if not (path / DATA_FILE).exists():
        raise StateStoreException(f"{path} has no state")
    # LMDB allows one environment a process, and this process may write to it in its next step.
    store = connections.store(reading.directory, map_limit=spec.map_limit)
    yield report_row([reading.by(StoreReader.of(store), spec.layout)])
