"""One LMDB environment with a header: how a task's state is opened, changed and closed, whatever the change."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from sparkrelay import host
from sparkrelay.errors import StateStoreException
from sparkrelay.own_files import make_directory
from sparkrelay.state import journal, preconditions
from sparkrelay.state.damage import cleanliness
from sparkrelay.state.header_record import HeaderRecord
from sparkrelay.state.home.file_lock import FileLock
from sparkrelay.state.lmdb import ranges, rows
from sparkrelay.state.lmdb.environment import Environment
from sparkrelay.state.lmdb.running_sum import RunningSum
from sparkrelay.state.space import DATA_FILE, FULL_DISK, full_disk
from sparkrelay.state.window_keys import NO_TIME, over

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from sparkrelay.state.header import TaskHeader
    from sparkrelay.state.lmdb.running_sum import Change
    from sparkrelay.state.lmdb.table import Table
    from sparkrelay.types import TopicPartition

T = TypeVar("T")
K = TypeVar("K")

META: Final = "#meta"
JOURNAL: Final = "#journal"
STORE_PREFIX: Final = "s:"
_CLEANLINESS_LOCK: Final = "boot.lock"
_CLEANLINESS_SECONDS: Final = 60.0
_DEFAULT_LIMIT: Final = 64 << 30
#: Expired windows removed at a time, beside twice as many as a batch has keys.
_DROPPED: Final = 10_000


class StoreFile:
    """The open state of a task. Made by :meth:`open`; threads of a process take turns."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path = path
        self._environment = environment
        self._record = HeaderRecord(environment.database(META))
        self._journal = environment.database(JOURNAL)
        self._clean_lock = FileLock(path / _CLEANLINESS_LOCK)

    @classmethod
    def open(cls, path: Path, *, map_limit: int = _DEFAULT_LIMIT, create: bool = True, in_worker: bool = False) -> Self:
        """Open a task's state; create it if it is missing.

        Args:
            path: the task's directory.
            map_limit: bound on its size, bytes (``store.max.bytes``).
            create: False to reject a task without state.
            in_worker: True in a Python worker, which records faults that kill it.

        Raises:
            StoreCorruptedException: written before the machine's last start and not closed cleanly, or damaged: move
                it with :func:`~sparkrelay.state.home.removal.set_aside` and restore it.
            StateStoreException: the directory cannot be used, or the state is already open in this process.
        """
        try:
            if (path / DATA_FILE).exists():
                cleanliness.check(path)
            elif not create:
                raise StateStoreException(f"there is no state in {path}")
            else:
                make_directory(path)
                # An interrupted removal may have left a file that says "clean", which a power loss must not restore.
                cleanliness.mark(path, clean=False, durable=(path / cleanliness.BOOT_FILE).exists())
        except OSError as error:
            if error.errno in FULL_DISK:
                raise full_disk(path, str(error.strerror)) from error
            raise StateStoreException(
                f"the state in {path} cannot be opened ({error.strerror}); state.dir must be a directory that this "
                "user may write to"
            ) from error
        return cls(path, Environment(path, map_limit=map_limit, in_worker=in_worker))

    def close(self, *, clean: bool) -> None:
        """Close; ``clean`` syncs to the disk and marks the state as valid after a reboot."""
        try:
            if clean:
                self._mark_clean()
        finally:
            self._environment.close()

    @property
    def environment(self) -> Environment:
        """The LMDB environment, one per process."""
        return self._environment

    @property
    def header(self) -> TaskHeader:
        """The current header."""
        return self._environment.read(self._load)

    # -- steps of a change ----------------------------------------------------------------------------------------

    def _change(
        self,
        change: Callable[[Any, TaskHeader], tuple[TaskHeader, T]],
        *,
        task_epoch: int | None = None,
        restoring: TopicPartition | None = None,
    ) -> T:
        """Run ``change`` in a write transaction that reads the header first and writes it last.

        With ``task_epoch`` the store must not have been taken over under another one; ``restoring`` a changelog, it
        must have no unfinished batch.
        """
        with contextlib.ExitStack() as until_committed:

            def run(transaction: Any) -> T:
                header = self._load(transaction)
                if header.clean:
                    if not self._clean_lock.held:
                        self._hold_clean_lock()
                        until_committed.callback(self._clean_lock.release)
                    cleanliness.mark(self.path, clean=False)
                preconditions.require_task_epoch(self.path, header, task_epoch)
                if restoring is not None:
                    preconditions.require_no_journals(self.path, header, restoring)
                header, result = change(transaction, header)
                if header.clean or header.boot_id != host.boot_id():
                    header = header._replace(clean=False, boot_id=host.boot_id())
                self._save(transaction, header)
                return result

            return self._environment.write(run)

    def _load(self, transaction: Any) -> TaskHeader:
        return self._record.load(transaction)

    def _save(self, transaction: Any, header: TaskHeader) -> None:
        self._record.save(transaction, header)

    def _put(  # noqa: PLR0917 - a write has these
        self,
        transaction: Any,
        header: TaskHeader,
        store: str,
        keys: pa.Array,
        values: pa.Array,
        old: pa.Array | None = None,
    ) -> TaskHeader:
        """Write values under a store's keys, null to delete; ``old`` are the present values if known."""
        table, sums = self._opened(store), header.sums.get(store, RunningSum())
        return self._counted(header, store, rows.put(transaction, table, keys, values, old, sums.scrubbed_to))

    def _drop_expired(self, transaction: Any, header: TaskHeader, store: str, expired: int, keys: int) -> TaskHeader:
        """Remove some of the windows that have expired by what is committed: more than a batch adds."""
        if expired == NO_TIME:
            return header
        most, passed = _DROPPED + 2 * keys, header.sums.get(store, RunningSum()).scrubbed_to
        change = ranges.drop_below(transaction, self._opened(store), over(expired), most, passed)
        return self._counted(header, store, change)

    @staticmethod
    def _counted(header: TaskHeader, store: str, change: Change) -> TaskHeader:
        """Return the header after a write to a store."""
        return _summed(header, store, header.sums.get(store, RunningSum()).changed(change))

    def _empty(self, transaction: Any, header: TaskHeader, store: str) -> TaskHeader:
        """Remove all rows of a store."""
        transaction.drop(self._opened(store).handle, delete=False)
        return header._replace(sums=without(header.sums, {store}), suspect=header.suspect - {store})

    def _scrub(self, transaction: Any, header: TaskHeader, store: str, most: int) -> TaskHeader:
        """Verify some of a store's rows."""
        sums = ranges.scrub(transaction, self._opened(store), header.sums.get(store, RunningSum()), most)
        header = _summed(header, store, sums)
        return header if sums.scrubbed_to else header._replace(suspect=header.suspect - {store})

    def _require_rows(self, transaction: Any, header: TaskHeader, store: str) -> None:
        """Require that a store has as many rows as it was left with.

        Raises:
            StoreCorruptedException: LMDB's tree of tables was damaged.
        """
        table = self._opened(store)
        wanted, found = header.sums.get(store, RunningSum()).rows, int(transaction.stat(table.handle)["entries"])
        if wanted != found:
            raise table.damaged(f"store {store!r} was left with {wanted} rows, and has {found}")

    def _opened(self, store: str) -> Table:
        return self._environment.opened(STORE_PREFIX + store)

    def _drop_journals(
        self, transaction: Any, header: TaskHeader, committed: int, changelog_next: Mapping[TopicPartition, int]
    ) -> TaskHeader:
        """Drop the journals up to ``committed``, and advance the committed positions past them."""
        done = [entry for entry in header.journals if entry.batch <= committed]
        positions, contents, sources = dict(header.positions), header.contents, header.sources
        watermarks, expired = header.watermarks, header.expired
        for entry in done:
            positions.update(entry.positions_after)
            # An unchanged mapping remains the same object, which is how the header's record reuses its encoding.
            if contents.get(entry.store) != entry.contents:
                contents = {**contents, entry.store: entry.contents}
            if entry.watermark != NO_TIME:
                watermarks = {**watermarks, entry.store: entry.watermark}
                expired = {**expired, entry.store: entry.expired}
            if sources.get(entry.store, {}) != entry.sources:
                sources = {store: topics for store, topics in {**sources, entry.store: entry.sources}.items() if topics}
            journal.drop(transaction, self._journal, entry)
        changelog = dict(header.changelog)
        for partition, offset in changelog_next.items():
            changelog[partition] = max(offset, changelog.get(partition, 0))
        return header._replace(
            batch=max(header.batch, committed),
            positions=positions,
            changelog=changelog,
            contents=contents,
            journals=tuple(entry for entry in header.journals if entry.batch > committed) if done else header.journals,
            watermarks=watermarks,
            expired=expired,
            sources=sources,
        )

    def _take_back(self, transaction: Any, header: TaskHeader) -> TaskHeader:
        """Restore the old values of all journals."""
        # Backwards, so that a key that two legs changed ends with its oldest value.
        for entry in reversed(header.journals):
            for changes in journal.read_changes(transaction, self._journal, entry):
                header = self._put(transaction, header, entry.store, changes.column(0), changes.column(1))
            journal.drop(transaction, self._journal, entry)
        return header._replace(journals=())

    def _open_tables_of_journals(self) -> None:
        """Open the tables that undoing needs, which cannot be done within a transaction."""
        self._open_tables([entry.store for entry in self.header.journals])

    def _open_tables(self, stores: Iterable[str]) -> None:
        for store in stores:
            self._table(store)

    def _table(self, store: str) -> Table:
        return self._environment.database(STORE_PREFIX + store)

    # -- clean close ----------------------------------------------------------------------------------------------

    def _hold_clean_lock(self) -> None:
        if not self._clean_lock.acquire(_CLEANLINESS_SECONDS):
            raise StateStoreException(
                f"{self._clean_lock.holder()} has been closing the state in {self.path} for more than "
                f"{_CLEANLINESS_SECONDS:g} s"
            )

    def _mark_clean(self) -> None:
        """Sync, and mark the state clean. A concurrent writer waits for the lock, then marks it dirty again."""
        with self._environment.turn:
            self._hold_clean_lock()
            try:
                # All data must be on the disk before the state is marked clean.
                self._environment.sync()
                if not self.header.clean:
                    self._environment.write(lambda t: self._save(t, self._load(t)._replace(clean=True)))
                    self._environment.sync()
                cleanliness.mark(self.path, clean=True)
            finally:
                self._clean_lock.release()


def without(values: Mapping[K, T], keys: Container[K]) -> dict[K, T]:
    """Return a mapping without some keys."""
    return {key: value for key, value in values.items() if key not in keys}


def _summed(header: TaskHeader, store: str, sums: RunningSum) -> TaskHeader:
    return header._replace(sums={**header.sums, store: sums})
