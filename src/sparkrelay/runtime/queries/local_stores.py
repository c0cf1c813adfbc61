"""The stores of the tasks that one process has: which of them may answer, and what they say."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import (
    InvalidStateStorePartitionException,
    StateStoreException,
    StateStoreNotAvailableException,
    StoreOutOfStepException,
)
from sparkrelay.operators.table.reading import StoreRead, StoreReading
from sparkrelay.operators.table.search import key_spans
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.queries.shared_reads import SharedReads
from sparkrelay.runtime.queries.store_keys import KeptKeys
from sparkrelay.state.lmdb.rows import as_binary
from sparkrelay.state.reader import UNCOMMITTED, StoreReader
from sparkrelay.state.watermarks import ENDLESS, over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.compile.queryable_stores import QueryableStores
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["ACTIVE", "RESTORING", "STANDBY", "LocalStores", "LocalTask", "Query", "QueryScope", "TaskRows"]

ACTIVE: Final = "active"
STANDBY: Final = "standby"
RESTORING: Final = "restoring"
#: Between two looks for stores that are open here and gone from the disk.
_LOOK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class LocalTask:
    """A task that this process has, as it is now.

    Attributes:
        directory: its state.
        role: ``active``, ``standby``, or ``restoring``: it is to run here and is not in service yet.
        committed: of an active one: its last batch that is known as committed.
        changelogs: store -> changelog partition.
        lag: offsets that its copy lacks; None where that is not known.
        task_epoch: of an active one: under which its copy was taken over; that under another one is none of it.
        width: how many tasks its subtopology has; 0 where nobody knows, as of a global table.
        read: reads its store where the driver cannot, on an executor; None where it can.
    """

    id: TaskId
    directory: str
    role: str
    committed: int | None
    changelogs: dict[str, TopicPartition] = field(default_factory=dict)
    lag: int | None = 0
    task_epoch: int | None = None
    width: int = 0
    read: Callable[[TableRunner, StoreReading, int | None], StoreRead] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class QueryScope:
    """Which copies may answer, and with what.

    Attributes:
        isolation: ``read_committed``, or ``read_uncommitted`` to see also what an open micro-batch has changed.
        stale: True to let standbys and copies that are being restored answer where the active task does not.
        max_lag: offsets that such a copy may lack; None for any number.
        partitions: those to look into; None to look where a key belongs, or into all that are here.
    """

    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    stale: bool = False
    max_lag: int | None = None
    partitions: frozenset[int] | None = None

    def __post_init__(self) -> None:
        if self.isolation not in {"read_committed", "read_uncommitted"}:
            raise ValueError(f"isolation={self.isolation!r} must be 'read_committed' or 'read_uncommitted'")
        if self.max_lag is not None and self.max_lag < 0:
            raise ValueError(f"max_lag={self.max_lag} must be 0 or more")

    def allows(self, task: LocalTask) -> bool:
        """Return whether a copy may answer."""
        fresh = self.max_lag is None or (task.lag is not None and task.lag <= self.max_lag)
        return task.role == ACTIVE or (self.stale and fresh)


@dataclass(frozen=True, slots=True)
class TaskRows:
    """What one task's copy says.

    Attributes:
        task: the copy.
        rows: in the order of the store's keys; None where ``text`` is the one row.
        position: changelog offset where the copy stands; None where it has no changelog.
        watermark: the store's, ms since 1970; None if it has none.
        following: where the next page goes on; None if these are all.
        text: the one row as JSON, where it was wanted so.
    """

    task: LocalTask
    rows: pa.RecordBatch
    position: int | None = None
    watermark: int | None = None
    following: bytes | None = None
    text: bytes | None = None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.rows.num_rows) if self.text is None else 1


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of a store.

    Attributes:
        keys: of the store.
        scope: which copies may answer.
        what: the ``row`` of a key; the ``windows`` of one, or of all; the ``rows`` from one key to another; or a
            ``page``: some rows of the one partition of the scope, in the order of the store.
        key: all columns of a row's; of windows those without the window, or None for all keys.
        span: of rows: the first key and the last one, both included; None: there is no bound.
        times: of windows: when the first one begins and when the last one does, ms since 1970; None: no bound.
        after: of a page: where the one before ended (``TaskRows.following``); empty for the first one.
        limit: how many rows at most.
        as_json: of a row: whether it is wanted as JSON.
    """

    keys: KeptKeys
    scope: QueryScope
    what: Literal["row", "windows", "rows", "page"]
    key: pa.RecordBatch | None = None
    span: tuple[pa.RecordBatch | None, pa.RecordBatch | None] = (None, None)
    times: tuple[int | None, int | None] = (None, None)
    after: bytes = b""
    limit: int | None = None
    as_json: bool = False

    @property
    def store(self) -> str:
        """The store's name."""
        return self.keys.spec.store

    @property
    def paged(self) -> bool:
        """Whether the answer says where the next page begins."""
        return self.what == "page"

    def committed(self, task: LocalTask) -> int | None:
        """Return as of which batch a task's store is to be read, as ``StoreReader.read`` has it."""
        return UNCOMMITTED if self.scope.isolation == "read_uncommitted" else task.committed


class LocalStores:
    """Reads stores; any thread may call it."""

    def __init__(
        self,
        stores: Callable[[], QueryableStores],
        tasks: Callable[[str], Sequence[LocalTask]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what there is.

        Args:
            stores: gives those of the pipeline.
            tasks: gives this process's tasks that a store is of, by its name; raises if it cannot be asked.
            clock: monotonic time in seconds.
        """
        self._stores = stores
        self._tasks = tasks
        self._clock = clock
        self._looked_at = clock()
        self._readers: dict[str, StoreReader] = {}
        self._keys: dict[str, KeptKeys] = {}
        #: Directory of a task and store -> those who wait for keys of it.
        self._shared: dict[tuple[str, str], SharedReads] = {}
        self._lock = threading.Lock()
        self._closed = False

    def keys(self, store: str) -> KeptKeys:
        """Return what keys a store has.

        Raises:
            UnknownStateStoreException: there is no such store.
        """
        spec = self._stores().spec(store)
        known = self._keys.get(store)
        if known is None or known.spec is not spec:
            known = self._keys[store] = KeptKeys(spec)
        return known

    def answer(self, query: Query) -> list[TaskRows]:
        """Return what the copies here say, task by task; of a row, the one that knows it best.

        Raises:
            InvalidStateStorePartitionException: the key is in no partition that this process has.
            StateStoreNotAvailableException: it is, but its task does not answer just now, or is too far behind.
        """
        if query.what == "row":
            return [self._row_of(query)]
        found: list[TaskRows] = []
        for task in self.answering(query):
            left = None if query.limit is None else query.limit - sum(one.rows.num_rows for one in found)
            found.append(self._part(query, task, left))
        if query.key is not None and query.limit != 0 and not any(one.count for one in found):
            self._require_known(query, found)
        return found

    def _row_of(self, query: Query) -> TaskRows:
        asked = self.answering(query)
        found = [self._row(query, task) for task in asked]
        if query.scope.partitions is None and not any(one.count for one in found):
            # The producer may have another partitioner than Kafka's default one.
            tasks, known = self._tasks(query.store), {one.id for one in asked}
            found += [self._row(query, task) for task in tasks if task.role == ACTIVE and task.id not in known]
            self._require_all(query, tasks, found)
        # Where there is nothing, the one that lacks most says how much that is worth.
        best = next((one for one in found if one.count), None) or max(found, key=lambda one: _lag(one.task))
        if not best.count:
            self._require_known(query, [best])
        return best

    def _part(self, query: Query, task: LocalTask, limit: int | None) -> TaskRows:
        """Return the rows that one task has of a query for many; ``limit`` of them at most."""
        layout = query.keys.layout
        if query.what == "page" and not limit:
            return TaskRows(task, layout.no_rows())
        if query.what == "page":
            return self._pages(query, task, layout.span_behind(query.after), limit, None)
        if query.what == "windows":
            if query.key is not None and layout.window is not None and not layout.sessions:
                first, last = query.times
                reading = StoreReading("windows", key=query.key, from_ms=first, to_ms=last, most=limit)
                return self._read(query, task, reading)[0]
            # A window ends after it has begun.
            begun = query.times[0]
            span = (b"", None) if layout.window is None or begun is None else (over(begun), ENDLESS)
            return self._pages(query, task, span, limit, _windows(query))
        if query.keys.window is not None or not layout.in_key_order:
            return self._pages(query, task, (b"", None), limit, _between(query))
        found: TaskRows | None = None
        for part in key_spans(layout.keys, *query.span):
            left = None if limit is None else limit - (0 if found is None else found.rows.num_rows)
            some = self._pages(query, task, layout.span_of(part), left, None)
            rows = some.rows if found is None else pa.concat_batches([found.rows, some.rows])
            found = TaskRows(task, rows, some.position, some.watermark)
        return found or TaskRows(task, layout.no_rows())

    def answering(self, query: Query) -> list[LocalTask]:
        """Return the tasks that are to be asked: where a key is, or those of all partitions that are here.

        Raises:
            InvalidStateStorePartitionException: the key is in no partition that this process has.
            StateStoreNotAvailableException: it is, but its task does not answer just now, or is too far behind.
        """
        name, keys, key, scope = query.store, query.keys, query.key, query.scope
        tasks = list(self._tasks(name))
        width = max((task.width for task in tasks), default=0)
        wanted = scope.partitions
        if wanted is None and key is not None and width and (partition := keys.partition(key, width)) is not None:
            wanted = frozenset({partition})
        own = _best([task for task in tasks if wanted is None or not width or task.id.partition in wanted], scope)
        missing = sorted((wanted or set()) - {task.id.partition for task in own}) if width or not tasks else []
        if missing or not own:
            where = f"not partition {', '.join(map(str, missing))}" if missing else "no partition"
            raise InvalidStateStorePartitionException(
                f"this instance has {where} of store {name!r}"
                + (f", but {', '.join(str(task.id.partition) for task in tasks)}" if tasks else ""),
                partition=missing[0] if missing else None,
            )
        fit = [task for task in own if scope.allows(task)]
        # Who asks for no partition in particular has those that run here; but one that is coming up would be missed.
        left = [task for task in own if task not in fit and (wanted is not None or task.role != STANDBY)]
        if not fit or left:
            raise self._unavailable(name, left or own, scope)
        return sorted(fit, key=lambda task: task.id)

    def close(self) -> None:
        """Close every store that is open here; nothing is read any more."""
        with self._lock:
            self._closed = True
            readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            reader.close()

    def _require_all(self, query: Query, tasks: Sequence[LocalTask], found: Sequence[TaskRows]) -> None:
        """Refuse to call a key missing that may be in another instance, as its columns do not say where it is."""
        width = max((task.width for task in tasks), default=0)
        if any(one.count for one in found) or not width or query.keys.partition(query.key, width) is not None:
            return
        if len({one.task.id.partition for one in found}) < width:
            raise InvalidStateStorePartitionException(
                f"store {query.store!r} has no such key in the partitions of this instance, and the grouping "
                f"columns do not say in which of its {width} partitions it would be; ask the other instances, too"
            )

    def _require_known(self, query: Query, found: Sequence[TaskRows]) -> None:
        """Refuse to call a key missing by a copy of which nobody knows what it lacks: it may lack all."""
        if unknown := [one.task for one in found if one.task.lag is None]:
            raise self._unavailable(query.store, unknown, query.scope)

    def _unavailable(
        self, store: str, own: Sequence[LocalTask], scope: QueryScope
    ) -> StateStoreNotAvailableException | InvalidStateStorePartitionException:
        if any(task.role == RESTORING for task in own) or scope.stale:
            lags = ", ".join(f"{t.id} ({t.role}): {'not known' if t.lag is None else t.lag}" for t in own)
            how = "" if scope.stale else "; stale=True asks a copy that is behind"
            return StateStoreNotAvailableException(
                f"store {store!r} does not answer just now, because the copies here are not in service or lag behind "
                f"more than allowed ({lags} offsets); try again soon{how}"
            )
        return InvalidStateStorePartitionException(
            f"this instance has only standby copies of what was asked for of store {store!r}; stale=True asks them",
            partition=own[0].id.partition,
        )

    def _pages(
        self,
        query: Query,
        task: LocalTask,
        span: tuple[bytes, bytes | None],
        limit: int | None,
        keep: Callable[[pa.RecordBatch], pa.Array] | None,
    ) -> TaskRows:
        """Read page by page, each of one moment: no transaction is open for long."""
        parts: list[pa.RecordBatch] = []
        at: bytes | None
        at, stop = span
        answer, count = TaskRows(task, query.keys.layout.no_rows()), 0
        while at is not None and (limit is None or count < limit):
            most = None if limit is None or keep is not None else limit - count
            answer, at = self._read(query, task, StoreReading("page", start=at, stop=stop, most=most))
            parts.append(
                answer.rows if keep is None or not answer.rows.num_rows else answer.rows.filter(keep(answer.rows))
            )
            count += parts[-1].num_rows
        rows = pa.concat_batches(parts) if parts else answer.rows
        return TaskRows(task, rows if limit is None else rows.slice(0, limit), answer.position, answer.watermark, at)

    def _read(self, query: Query, task: LocalTask, reading: StoreReading) -> tuple[TaskRows, bytes | None]:
        try:
            found = self._found(query.keys.spec, task, reading, query.committed(task))
        except StateStoreException as error:
            raise _unreadable(query, task, error) from error
        return TaskRows(task, found.rows, _position(query, task, found), found.watermark), found.following

    def _row(self, query: Query, task: LocalTask) -> TaskRows:
        committed, layout = query.committed(task), query.keys.layout
        shared = self._shared.get((task.directory, query.store))
        if shared is None:
            # An executor sends rows.
            made = SharedReads(layout.rows if task.read is None and not layout.lies_apart else None)
            shared = self._shared.setdefault((task.directory, query.store), made)
        what: Literal["stored", "rows"] = "rows" if shared.shown is None else "stored"
        try:
            found = shared.row(
                query.key,
                (committed, task.task_epoch),
                lambda some: self._found(query.keys.spec, task, StoreReading(what, key=some), committed),
                as_json=query.as_json,
            )
        except StateStoreException as error:
            raise _unreadable(query, task, error) from error
        read = found.read
        rows = layout.no_rows() if found.rows is None and found.text is None else found.rows
        return TaskRows(task, rows, _position(query, task, read), read.watermark, text=found.text)

    def _found(self, spec: TableRunner, task: LocalTask, reading: StoreReading, committed: int | None) -> StoreRead:
        # Before this reading, or between two pages, the task may have fallen out of service, and its copy be made anew.
        reading = replace(reading, task_epoch=task.task_epoch)
        if task.read is not None:
            return task.read(spec, reading, committed)
        try:
            return StoreRead.by(self._reader(task.directory), spec, reading, committed)
        except StoreOutOfStepException:
            # It was made anew since.
            self._forget(task.directory)
            return StoreRead.by(self._reader(task.directory), spec, reading, committed)
        except StateStoreException:
            self._forget(task.directory)
            raise

    def _reader(self, directory: str) -> StoreReader:
        with self._lock:
            if self._closed:
                raise StateStoreNotAvailableException("the instance is ending")
            self._close_replaced()
            found = self._readers.get(directory)
            if found is None:
                found = self._readers[directory] = StoreReader.open(Path(directory))
            return found

    def _close_replaced(self) -> None:
        """Close now and then what is gone from the disk, which keeps its space for as long as it is open."""
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        for directory in [directory for directory, reader in self._readers.items() if reader.replaced]:
            self._readers.pop(directory).close()
            for known in [known for known in list(self._shared) if known[0] == directory]:
                self._shared.pop(known, None)

    def _forget(self, directory: str) -> None:
        with self._lock:
            reader = self._readers.pop(directory, None)
        if reader is not None:
            with contextlib.suppress(StateStoreException):
                reader.close()


def _position(query: Query, task: LocalTask, found: StoreRead) -> int | None:
    changelog = task.changelogs.get(query.store)
    return None if changelog is None else found.changelog.get(changelog, 0)


def _unreadable(query: Query, task: LocalTask, error: StateStoreException) -> StateStoreNotAvailableException:
    return StateStoreNotAvailableException(f"store {query.store!r} of task {task.id} cannot be read just now: {error}")


def _best(tasks: Sequence[LocalTask], scope: QueryScope) -> list[LocalTask]:
    """Return one copy of each task: an instance with several executors may have more."""
    best: dict[TaskId, LocalTask] = {}

    def order(task: LocalTask) -> tuple[bool, bool, float]:
        return not scope.allows(task), task.role != ACTIVE, _lag(task)

    for task in sorted(tasks, key=order):
        best.setdefault(task.id, task)
    return list(best.values())


def _lag(task: LocalTask) -> float:
    # Of which nobody knows what it lacks, that may lack all.
    return math.inf if task.lag is None else task.lag


def _windows(query: Query) -> Callable[[pa.RecordBatch], pa.Array]:
    """Return what finds the rows of a key whose windows begin between two times."""
    keys, times = query.keys, query.times
    wanted = None if query.key is None else as_binary(key_bytes(query.key.columns))[0]

    def keep(rows: pa.RecordBatch) -> pa.Array:
        begun = pc.struct_field(rows.column(keys.window), "start").cast(pa.timestamp("us", "UTC"))
        kept = begun.is_valid()
        for ms, compare in zip(times, (pc.greater_equal, pc.less_equal), strict=True):
            if ms is not None:
                kept = pc.and_(kept, pc.fill_null(compare(begun, pa.scalar(ms * 1000, begun.type)), False))
        if wanted is not None:
            own = as_binary(key_bytes([rows.column(name) for name in keys.plain.names]))
            kept = pc.and_(kept, pc.fill_null(pc.equal(own, wanted), False))
        return kept

    return keep


def _between(query: Query) -> Callable[[pa.RecordBatch], pa.Array] | None:
    """Return what finds the rows of keys in a range, where they do not stand together."""
    if query.span == (None, None):
        return None
    names = query.keys.schema.names
    spans = key_spans(query.keys.schema, *query.span)

    def keep(rows: pa.RecordBatch) -> pa.Array:
        encoded = as_binary(key_bytes([rows.column(name) for name in names]))
        return pa.array([any(start <= key < stop for start, stop in spans) for key in encoded.to_pylist()], pa.bool_())

    return keep
