"""Reading a task's state in another process than its writers', for interactive queries.

A reader opens LMDB read-only. Each call is one short transaction: it sees a consistent store and does not block
writers. While a micro-batch is open the table already has its changes, and the journal the values before them; so the
committed state is the table overlaid by those values, read in the same transaction. The store only learns with the next
batch that one is committed, so the caller says up to which batch.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StateStoreException
from sparkrelay.state import journal
from sparkrelay.state.damage import cleanliness
from sparkrelay.state.header import TaskHeader
from sparkrelay.state.header_record import HeaderRecord
from sparkrelay.state.lmdb import rows
from sparkrelay.state.lmdb.environment import Environment
from sparkrelay.state.lmdb.long_keys import PREFIX_BYTES, spell
from sparkrelay.state.lmdb.ranges import TableView
from sparkrelay.state.lmdb.store_file import JOURNAL, META, STORE_PREFIX
from sparkrelay.state.space import DATA_FILE
from sparkrelay.state.window_keys import LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from sparkrelay.state.lmdb.store_file import StoreFile
    from sparkrelay.state.lmdb.table import Table

T = TypeVar("T")

#: Instead of a batch: include everything that is applied, also what may be undone.
UNCOMMITTED: Final = 1 << 62
_MAP_LIMIT: Final = 1 << 46
#: Among the changed keys of open batches, single keys are searched for: one per this many keys if these are in order,
_SEARCHED: Final = 128
#: up to this many if they are not.
_FEW: Final = 4
_CHUNK: Final = 10_000
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class StoreReader:
    """The state of one task, opened for reading by :meth:`open`; threads take turns."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path = path
        self._environment = environment
        #: Id of the last transaction, and its header; transactions of equal ids see the same. Guarded by the turn.
        self._seen: tuple[int, TaskHeader] = (-1, TaskHeader())
        #: Store and batch -> its state in that transaction.
        self._states: dict[tuple[str, int | None], _StoreState] = {}

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a task's state, once per process.

        Raises:
            StoreCorruptedException: it was written before the machine's last start and not closed cleanly.
            StateStoreException: it is missing or unreadable.
        """
        try:
            there = (path / DATA_FILE).exists()
            if there:
                cleanliness.check(path)
        except OSError as error:
            raise StateStoreException(f"the state in {path} cannot be read ({error.strerror})") from error
        if not there:
            raise StateStoreException(f"there is no state in {path}")
        return cls(path, Environment(path, map_limit=_MAP_LIMIT, readonly=True))

    @classmethod
    def of(cls, store: StoreFile) -> Self:
        """Return a reader of a store that this process has open, which also closes it."""
        return cls(store.path, store.environment)

    @property
    def replaced(self) -> bool:
        """Whether the state was removed or re-created since it was opened: reads fail."""
        return self._environment.replaced

    def close(self) -> None:
        """Close, after a read on another thread."""
        self._environment.close()

    def read(self, store: str, find: Callable[[StoreSnapshot], T], *, committed: int | None) -> T:
        """Return what ``find`` returns for a consistent snapshot of a store.

        Args:
            store: its name.
            find: reads the snapshot, which is invalid afterwards.
            committed: the last batch that is known to be committed; later ones are hidden. None: the last one that the
                store knows of. ``UNCOMMITTED``: nothing is hidden.

        Raises:
            StoreOutOfStepException: the state was removed or re-created since it was opened.
            StateStoreException: it cannot be read.
        """
        tables = (self._environment.existing(META), self._environment.existing(JOURNAL))
        table = self._environment.existing(STORE_PREFIX + store)

        def look(transaction: Any) -> T:
            meta, journals = tables
            if transaction.id() != self._seen[0]:
                header = TaskHeader() if meta is None else HeaderRecord(meta).load(transaction)
                self._seen, self._states = (transaction.id(), header), {}
            state = self._states.get((store, committed))
            if state is None:
                state = _StoreState.of(transaction, journals, self._seen[1], store, committed)
                self._states[store, committed] = state
            return find(StoreSnapshot(transaction, table, state))

        return self._environment.read(look)


@dataclass(frozen=True, slots=True)
class _StoreState:
    """A store in a transaction, without its table.

    Attributes:
        header: the task's.
        watermark: as of the batch, ms since 1970; ``NO_TIME`` if there is none.
        expired: the end up to which windows are hidden, ms since 1970.
        changed: ``key, old`` of the changes by later batches, in order of application; None if there are none.
        ascending: whether these keys are in the order of bytes.
    """

    header: TaskHeader
    watermark: int
    expired: int
    changed: pa.RecordBatch | None
    ascending: bool

    @classmethod
    def of(
        cls, transaction: Any, journals: Table | None, header: TaskHeader, store: str, committed: int | None
    ) -> _StoreState:
        """Read the journals of hidden batches."""
        limit = header.batch if committed is None else committed
        hidden = [entry for entry in header.shares(store) if entry.batch > limit]
        changes = [] if journals is None else [journal.read(transaction, journals, entry)[0] for entry in hidden]
        changed = pa.concat_batches(changes) if changes else None
        return cls(
            header,
            header.watermark(store, limit),
            header.expired_by(store, limit),
            changed,
            changed is not None and rows.ascending(changed.column("key")),
        )

    def place(self, key: bytes) -> int:
        """Return the first index of a key among the changed ones; -1 if there is none."""
        assert self.changed is not None, "something was"
        keys = self.changed.column("key")
        if not self.ascending:
            return int(pc.index(keys, pa.scalar(key, pa.binary())).as_py())
        place = bisect.bisect_left(range(len(keys)), key, key=lambda at: keys[at].as_py())
        return place if place < len(keys) and keys[place].as_py() == key else -1


class StoreSnapshot:
    """A consistent store as of a batch; attributes as :class:`_StoreState`."""

    def __init__(self, transaction: Any, table: Table | None, state: _StoreState) -> None:
        self._transaction = transaction
        self._table = table
        self._state = state
        self.header = state.header
        self.watermark = state.watermark
        self.expired = state.expired
        self._changed = state.changed

    def get(self, keys: pa.Array) -> pa.Array:
        """Return the value of each key, null where there is none."""
        keys = rows.as_binary(keys)
        if self._table is None:
            return pa.nulls(len(keys), pa.binary())
        values = rows.get(self._transaction, self._table, keys)
        if self._changed is None:
            return values
        # Of a key that two legs have changed, the first one's journal has the value before the batch.
        if len(keys) > max(1, self._changed.num_rows // _SEARCHED if self._state.ascending else _FEW):
            places = pc.index_in(keys, value_set=self._changed.column("key"))
        else:
            # Searching is faster than hashing all changed keys.
            found = [self._state.place(key) for key in keys.to_pylist()]
            places = pa.array([place if place >= 0 else None for place in found], pa.int32())
        return pc.if_else(places.is_valid(), self._changed.column("old").take(places), values)

    def between(self, start: bytes = b"", stop: bytes | None = None, most: int | None = None) -> pa.RecordBatch:
        """Return ``key, value`` of the first ``most`` keys in ``[start, stop)``, in the order of bytes.

        Among long keys with the same prefix, ``most`` may leave out any.
        """
        pairs: list[tuple[bytes, bytes]] = []
        at = start
        for some, end in self._chunks(start, stop, _CHUNK if most is None else max(1, most)):
            old = self._changed_between(at, end)
            at = b"" if end is None else end
            pairs += sorted(
                [
                    *((key, value) for key, value in some if key not in old),
                    *((key, value) for key, value in old.items() if value is not None),
                ]
            )
            if most is not None and len(pairs) >= most:
                break
        pairs = pairs[:most]
        return pa.record_batch([[key for key, _ in pairs], [value for _, value in pairs]], schema=_SCHEMA)

    def ranges(self, spans: Iterable[tuple[bytes, bytes]]) -> pa.RecordBatch:
        """Return ``key, value`` of several ranges ``[start, stop)`` in sequence."""
        found = [self.between(start, stop) for start, stop in spans]
        return pa.concat_batches(found) if found else pa.RecordBatch.from_pylist([], _SCHEMA)

    def ends(self, after_ms: int) -> Iterator[int]:
        """Yield the ends of windows later than this, ms since 1970, also of windows without visible rows."""
        if self._table is None:
            return
        for end in TableView(self._transaction, self._table).ends_after(after_ms):
            if end < LATEST:
                yield end

    def _changed_between(self, start: bytes, stop: bytes | None) -> dict[bytes, bytes | None]:
        """Return the changed keys in a range, and their old values."""
        if self._changed is None:
            return {}
        keys = self._changed.column("key")
        inside = pc.greater_equal(keys, pa.scalar(start, pa.binary()))
        if stop is not None:
            inside = pc.and_(inside, pc.less(keys, pa.scalar(stop, pa.binary())))
        some = self._changed.filter(inside)
        found: dict[bytes, bytes | None] = {}
        for key, old in zip(some.column("key").to_pylist(), some.column("old").to_pylist(), strict=True):
            found.setdefault(key, old)
        return found

    def _chunks(
        self, start: bytes, stop: bytes | None, size: int
    ) -> Iterator[tuple[list[tuple[bytes, bytes]], bytes | None]]:
        """Yield rows of the table, some at a time, each with a bound below all that follow."""
        names: list[bytes] = []
        stored: list[bytes] = []
        for name, value in self._stored(start, stop):
            # Long keys with the same prefix have no order, so they are not separated.
            if len(names) >= size and name[:PREFIX_BYTES] != names[-1][:PREFIX_BYTES]:
                yield self._inside(names, stored, start, stop), name[:PREFIX_BYTES]
                names, stored = [], []
            names.append(name)
            stored.append(value)
        yield self._inside(names, stored, start, stop), stop

    def _inside(
        self, names: list[bytes], stored: list[bytes], start: bytes, stop: bytes | None
    ) -> list[tuple[bytes, bytes]]:
        """Return the keys and values of those stored rows that lie in a range."""
        if self._table is None:
            return []
        keys, values = rows.opened(self._table, names, stored)
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        return [(key, value) for key, value in pairs if key >= start and (stop is None or key < stop)]

    def _stored(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield stored rows that may lie in a range, long keys ordered only by prefix; the empty key is first."""
        if self._table is None:
            return
        empty, table = spell(b""), self._table.handle
        if not start and stop != b"" and (value := self._transaction.get(empty, db=table)) is not None:
            yield empty, value
        beyond = None if stop is None else stop[:PREFIX_BYTES]
        with self._transaction.cursor(db=table) as cursor:
            found = cursor.set_range(start[:PREFIX_BYTES]) if start else cursor.first()
            while found and (beyond is None or cursor.key()[: len(beyond)] <= beyond):
                name, value = cursor.item()
                if name != empty:
                    yield name, value
                found = cursor.next()
