"""The stores of one process's tasks: which copies may answer a query, and their rows."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import pyarrow as pa

from sparkrelay.errors import (
    InvalidStateStorePartitionException,
    StateStoreException,
    StateStoreNotAvailableException,
    StoreOutOfStepException,
)
from sparkrelay.operators.table.reading import StoreRead, StoreReading
from sparkrelay.runtime.queries.shared_reads import SharedReads
from sparkrelay.runtime.queries.store_keys import KeptKeys
from sparkrelay.state.reader import StoreReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.compile.queryable_stores import QueryableStores
    from sparkrelay.runtime.queries.query import Query, QueryScope
    from sparkrelay.types import TaskId, TopicPartition

ACTIVE: Final = "active"
STANDBY: Final = "standby"
RESTORING: Final = "restoring"
#: Interval between checks for open stores that were removed from disk.
_CHECK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class LocalTask:
    """A snapshot of a task of this process.

    Attributes:
        role: ``active``, ``standby``, or ``restoring``: assigned as active, but not in service yet.
        committed: last batch of an active task that is known to be committed.
        lag: offsets that the copy lacks; None if unknown.
        task_epoch: epoch under which an active task took its copy over. A copy under another epoch is not this task's.
        width: number of tasks of the subtopology; 0 if unknown, as for a global table.
        read: reads the store on an executor; None where the driver can read it.
    """

    id: TaskId
    directory: str
    role: str
    committed: int | None
    changelogs: dict[str, TopicPartition] = field(default_factory=dict)
    lag: int | None = 0
    task_epoch: int | None = None
    width: int = 0
    read: Callable[[TableRunner, StoreReading], StoreRead] | None = field(default=None, compare=False)

    @property
    def most_lag(self) -> float:
        """The lag; infinite if unknown: such a copy may lack everything."""
        return math.inf if self.lag is None else self.lag

    def may_answer(self, scope: QueryScope) -> bool:
        """Return whether this copy may answer."""
        fresh = scope.max_lag is None or self.most_lag <= scope.max_lag
        return self.role == ACTIVE or (scope.stale and fresh)


class TaskRead(NamedTuple):
    """The answer of one task's copy."""

    task: LocalTask
    read: StoreRead


class LocalStores:
    """Reads local stores. Thread-safe."""

    def __init__(
        self,
        stores: Callable[[], QueryableStores],
        tasks: Callable[[str], Sequence[LocalTask]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._tasks = tasks
        self._clock = clock
        self._checked_at = clock()
        self._readers: dict[str, StoreReader] = {}
        self._keys: dict[str, KeptKeys] = {}
        #: By directory of a task, and store.
        self._shared: dict[tuple[str, str], SharedReads] = {}
        self._lock = threading.Lock()
        self._closed = False

    def keys(self, store: str) -> KeptKeys:
        """Return the keys of a store; raises UnknownStateStoreException if there is no such store."""
        spec = self._stores().spec(store)
        known = self._keys.get(store)
        if known is None or known.spec is not spec:
            known = self._keys[store] = KeptKeys(spec)
        return known

    def answer(self, query: Query) -> list[TaskRead]:
        """Return the rows of the local copies, by task; of a single row only the best answer.

        Raises:
            InvalidStateStorePartitionException: this process has no task of the key's partition.
            StateStoreNotAvailableException: the task is not in service, or lags too far behind.
        """
        if query.kind == "row":
            return [self._row_of(query)]
        found: list[TaskRead] = []
        for task in self._answering(query):
            left = None if query.limit is None else query.limit - sum(one.read.row_count for one in found)
            found.append(self._of(query, task, left))
        if query.key is not None and query.limit != 0 and not any(one.read.row_count for one in found):
            self._require_known(query, found)
        return found

    def close(self) -> None:
        """Close every open store; later reads fail."""
        with self._lock:
            self._closed = True
            readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            reader.close()

    # -- which copies answer ----------------------------------------------------------------------------------------

    def _answering(self, query: Query) -> list[LocalTask]:
        """Return the tasks to ask: those of the key's partition, or of all local partitions."""
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
        fit = [task for task in own if task.may_answer(scope)]
        # A query for no particular partition may skip standbys, but not a restoring task: its rows would be missing.
        left = [task for task in own if task not in fit and (wanted is not None or task.role != STANDBY)]
        if not fit or left:
            raise _unavailable(name, left or own, scope)
        return sorted(fit, key=lambda task: task.id)

    def _row_of(self, query: Query) -> TaskRead:
        asked = self._answering(query)
        found = [self._of(query, task) for task in asked]
        if query.scope.partitions is None and not any(one.read.row_count for one in found):
            # The producer may use another partitioner than Kafka's default one.
            tasks, known = self._tasks(query.store), {one.id for one in asked}
            found += [self._of(query, task) for task in tasks if task.role == ACTIVE and task.id not in known]
            self._require_all(query, tasks, found)
        # An empty answer is only as good as the copy with the largest lag.
        best = next((one for one in found if one.read.row_count), None) or max(found, key=lambda one: one.task.most_lag)
        if not best.read.row_count:
            self._require_known(query, [best])
        return best

    def _require_all(self, query: Query, tasks: Sequence[LocalTask], found: Sequence[TaskRead]) -> None:
        """Do not report a key as missing if its columns leave the partition open and another instance may have it."""
        width = max((task.width for task in tasks), default=0)
        if any(one.read.row_count for one in found) or not width or query.keys.partition(query.key, width) is not None:
            return
        if len({one.task.id.partition for one in found}) < width:
            raise InvalidStateStorePartitionException(
                f"store {query.store!r} has no such key in the partitions of this instance, and its grouping columns "
                f"do not determine the key's partition (1 of {width}): ask the other instances, too"
            )

    def _require_known(self, query: Query, found: Sequence[TaskRead]) -> None:
        """Do not report a key as missing if the lag of a copy is unknown."""
        if unknown := [one.task for one in found if one.task.lag is None]:
            raise _unavailable(query.store, unknown, query.scope)

    # -- reading one copy -------------------------------------------------------------------------------------------

    def _of(self, query: Query, task: LocalTask, limit: int | None = None) -> TaskRead:
        """Return the row of one task, or at most ``limit`` of its rows."""
        # The task may leave service while it is read, or between two pages, and its copy be recreated.
        reading = StoreReading(
            "page",
            task.directory,
            committed=query.batch(task.committed),
            task_epoch=task.task_epoch,
            changelog=task.changelogs.get(query.store),
        )
        read = self._row if query.kind == "row" else self._rows
        try:
            return TaskRead(task, read(query, task, reading, limit))
        except StateStoreException as error:
            raise StateStoreNotAvailableException(
                f"store {query.store!r} of task {task.id} cannot be read now: {error}"
            ) from error

    def _rows(self, query: Query, task: LocalTask, reading: StoreReading, limit: int | None) -> StoreRead:
        """Read page by page, so that no transaction stays open for long; each page shows one moment."""
        read = StoreRead(query.keys.layout.no_rows())
        parts: list[pa.RecordBatch] = []
        count = 0
        readings, keep = query.readings(reading)
        for first in readings:
            at: StoreReading | None = first
            while at is not None and (limit is None or count < limit):
                most = None if limit is None or keep is not None else limit - count
                read = self._found(query.keys.spec, task, at._replace(most=most))
                parts.append(read.rows if keep is None or not read.rows.num_rows else read.rows.filter(keep(read.rows)))
                count += parts[-1].num_rows
                at = None if read.following is None else at._replace(start=read.following)
        rows = pa.concat_batches(parts) if parts else read.rows
        return read._replace(rows=rows if limit is None else rows.slice(0, limit))

    def _row(self, query: Query, task: LocalTask, reading: StoreReading, _: int | None) -> StoreRead:
        layout = query.keys.layout
        shared = self._shared.get((task.directory, query.store))
        if shared is None:
            # An executor sends rows.
            made = SharedReads(layout.rows if task.read is None and not layout.lies_apart else None)
            shared = self._shared.setdefault((task.directory, query.store), made)
        what: Literal["stored", "rows"] = "rows" if shared.shown is None else "stored"
        read = shared.row(
            query.key,
            (reading.committed, reading.task_epoch),
            lambda some: self._found(query.keys.spec, task, reading._replace(what=what, key=some)),
            as_json=query.as_json,
        )
        return read._replace(rows=layout.no_rows()) if read.rows is None and read.text is None else read

    def _found(self, spec: TableRunner, task: LocalTask, reading: StoreReading) -> StoreRead:
        if task.read is not None:
            return task.read(spec, reading)
        try:
            return reading.by(self._reader(task.directory), spec.layout)
        except StoreOutOfStepException:
            # The copy was recreated.
            self._forget(task.directory)
            return reading.by(self._reader(task.directory), spec.layout)
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
        """From time to time, close stores that were removed from disk: while open, they occupy their space."""
        now = self._clock()
        if now - self._checked_at < _CHECK_SECONDS:
            return
        self._checked_at = now
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


def _unavailable(
    store: str, own: Sequence[LocalTask], scope: QueryScope
) -> StateStoreNotAvailableException | InvalidStateStorePartitionException:
    if any(task.role == RESTORING for task in own) or scope.stale:
        lags = ", ".join(f"{t.id} ({t.role}): {'not known' if t.lag is None else t.lag}" for t in own)
        how = "" if scope.stale else "; stale=True allows answers of copies that lag"
        return StateStoreNotAvailableException(
            f"store {store!r} cannot answer now: the copies here are not in service or lag more than allowed "
            f"({lags} offsets); try again soon{how}"
        )
    return InvalidStateStorePartitionException(
        f"this instance has only standby copies of the requested part of store {store!r}; stale=True allows them to "
        "answer",
        partition=own[0].id.partition,
    )


def _best(tasks: Sequence[LocalTask], scope: QueryScope) -> list[LocalTask]:
    """Return the best copy of each task: an instance with several executors may have more than one."""
    best: dict[TaskId, LocalTask] = {}

    def order(task: LocalTask) -> tuple[bool, bool, float]:
        return not task.may_answer(scope), task.role != ACTIVE, task.most_lag

    for task in sorted(tasks, key=order):
        best.setdefault(task.id, task)
    return list(best.values())
