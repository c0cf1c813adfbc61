"""One LMDB environment: opening, growing, and errors with a remedy.

LMDB maps its file at a fixed size. The map begins small and doubles when it is full, up to a bound: mapping the bound
at once would fail under an address-space limit. Each process has its own map; another's growth appears as "resized" at
the next transaction, and is followed then.

LMDB runs without fsync: writes survive a SIGKILL in the page cache, and boot ids detect a power loss (cleanliness.py).
A transaction that runs out of space leaves the file's newest root unchanged.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

import lmdb

from sparkrelay.errors import StateStoreException, StoreCorruptedException, StoreOutOfStepException
from sparkrelay.state.damage.faults import FaultNotes, require_no_fault
from sparkrelay.state.lmdb.table import Table
from sparkrelay.state.space import DATA_FILE, full_disk, full_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

T = TypeVar("T")

#: Large enough that a restore seldom finds the map full, which repeats the slice.
_FIRST_MAP: Final = 64 << 20
_MAX_DATABASES: Final = 256
_MAX_READERS: Final = 512
# LMDB reports an incomplete write, the usual symptom of a full disk, as an input/output error.
_FULL_DISK: Final = ("No space left", "File too large", "Disk quota exceeded", "Input/output error")
#: LMDB's errors for invalid pages.
_DAMAGED: Final = (
    lmdb.BadDbiError,
    lmdb.BadTxnError,
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.InvalidParameterError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
#: py-lmdb's message for a file of another version, which has no error class.
_OTHER_FORMAT: Final = "is not supported by this build"


class UnfinishedError(Exception):
    """A transaction open beside others failed in LMDB and is undone, as by a full map or a damaged page.

    :meth:`Environment.write` handles these cases.
    """


class Begun:
    """A write transaction open beside others; it is only used ``with`` this object.

    Thus faults are recorded beside the state whose page is damaged (``faults``), and LMDB's errors become
    UnfinishedError.
    """

    def __init__(self, transaction: Any, faults: AbstractContextManager[None]) -> None:
        self.transaction = transaction
        self._faults = faults
        self._open = True

    def __enter__(self) -> Any:
        self._faults.__enter__()
        return self.transaction

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._faults.__exit__(None, None, None)
        if isinstance(error, lmdb.Error):
            raise UnfinishedError from error

    def commit(self) -> None:
        """Commit, within its ``with``, which raises if that failed."""
        self._open = False
        self.transaction.commit()

    def end(self) -> None:
        """Undo the transaction unless it is committed."""
        if self._open:
            self._open = False
            with self._faults:
                self.transaction.abort()


class Environment:
    """An open LMDB environment of this process. Threads take turns; a forked child opens its own."""

    def __init__(self, path: Path, *, map_limit: int, readonly: bool = False, in_worker: bool = False) -> None:
        """Open the environment; create it unless it is opened read-only.

        Args:
            path: its directory.
            map_limit: bound on its size, bytes.
            readonly: True to only read.
            in_worker: True in a Python worker, which records faults that kill it (``faults``).

        Raises:
            StateStoreException: the directory cannot be used; also StoreFullException, StoreCorruptedException.
        """
        self._path = path
        self._map_limit = map_limit
        self._pid = os.getpid()
        #: Held by the thread that uses the environment, possibly over several transactions.
        self.turn = threading.RLock()
        self._databases: dict[str, Table] = {}
        self._faults: AbstractContextManager[None] = contextlib.nullcontext()
        try:
            require_no_fault(path)
            if in_worker:
                self._faults = FaultNotes(path)
            with self._faults:
                self._env = lmdb.open(
                    os.fspath(path),
                    map_size=min(_FIRST_MAP, map_limit),
                    max_dbs=_MAX_DATABASES,
                    max_readers=_MAX_READERS,
                    mode=0o600,
                    sync=False,
                    metasync=False,
                    # Reads are random and small: readahead would only fill the page cache.
                    readahead=False,
                    readonly=readonly,
                    create=not readonly,
                )
                # Killed readers would keep freed pages from being reused.
                self._env.reader_check()
        except (lmdb.Error, OSError) as error:
            self._close_faults()
            raise self._explained(error) from error
        self._data_file = os.fspath(path / DATA_FILE)
        self._inode = os.stat(self._data_file).st_ino  # noqa: PTH116 - see replaced

    @property
    def map_size(self) -> int:
        """Size of the map in this process, bytes."""
        return int(self._env.info()["map_size"])

    @property
    def replaced(self) -> bool:
        """Whether the directory was wiped or re-created since the environment was opened."""
        try:
            # Before each transaction, so not by a Path, which takes twice as long.
            return os.stat(self._data_file).st_ino != self._inode  # noqa: PTH116
        except FileNotFoundError:
            return True

    def write(self, action: Callable[[Any], T]) -> T:
        """Run ``action`` atomically in one write transaction, again from the start if the map had to grow.

        Raises:
            StoreFullException: the disk, or the map at its bound, is full; nothing changed.
            StoreOutOfStepException: the directory was wiped by another process.
        """
        return self._run(action, write=True)

    def read(self, action: Callable[[Any], T]) -> T:
        """Run ``action``, which must not keep cursors, in one read transaction."""
        return self._run(action, write=False)

    @contextlib.contextmanager
    def begun(self) -> Iterator[Begun]:
        """Begin a write transaction beside those of other environments; undo it unless it is committed.

        Raises:
            UnfinishedError: it cannot simply begin, as when another process has grown the map.
        """
        with self.turn:
            self._check()
            try:
                with self._faults:
                    begun = Begun(self._env.begin(write=True), self._faults)
            except lmdb.Error as error:
                raise UnfinishedError from error
            try:
                yield begun
            finally:
                begun.end()

    def database(self, name: str) -> Table:
        """Return a named table, created if it is missing. Not to be called within a transaction."""
        table = self._databases.get(name)
        return self._open(name, create=True) if table is None else table

    def existing(self, name: str) -> Table | None:
        """Return a named table, or None; :meth:`database` for readers."""
        table = self._databases.get(name)
        if table is None:
            try:
                table = self._open(name, create=False)
            except StateStoreException as error:
                if isinstance(error.__cause__, lmdb.NotFoundError):
                    return None
                raise
        return table

    def _open(self, name: str, *, create: bool) -> Table:
        with self.turn, self._faults:
            self._check()
            handle = self._guarded(lambda: self._env.open_db(name.encode(), create=create))
        self._databases[name] = Table.of(handle, name, self._path)
        return self._databases[name]

    def opened(self, name: str) -> Table:
        """Return a table that :meth:`database` has opened before; for use within a transaction."""
        try:
            return self._databases[name]
        except KeyError:
            raise StoreOutOfStepException(
                f"the state in {self._path} was changed by another process at the same time; try again"
            ) from None

    def sync(self) -> None:
        """Write everything to the disk synchronously."""
        try:
            self._env.sync(True)
        except lmdb.Error as error:
            raise self._explained(error) from error

    def close(self) -> None:
        """Close; without effect in a forked child, whose parent still uses the map."""
        with self.turn:
            if os.getpid() == self._pid:
                self._env.close()
                self._close_faults()

    def _close_faults(self) -> None:
        if isinstance(self._faults, FaultNotes):
            self._faults.close()

    def _run(self, action: Callable[[Any], T], *, write: bool) -> T:
        def attempt() -> T:
            with self._env.begin(write=write) as transaction:
                return action(transaction)

        with self.turn, self._faults:
            self._check()
            return self._guarded(attempt)

    def _guarded(self, attempt: Callable[[], T]) -> T:
        while True:
            try:
                return attempt()
            except lmdb.MapResizedError as error:
                self._follow_growth(error)
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise self._explained(error) from error

    def _follow_growth(self, resized: lmdb.Error) -> None:
        """Map the file as another process has resized it; if none has, the error means damage."""
        size = self.map_size
        try:
            self._env.set_mapsize(0)
        except lmdb.Error as error:
            raise self._explained(error) from error
        if self.map_size <= size:
            raise self._damaged(str(resized)) from resized

    def _grow(self) -> None:
        # A killed reader may have kept pages from being reused.
        self._env.reader_check()
        size = self.map_size
        if size >= self._map_limit:
            raise full_map(self._path, self._map_limit)
        self._env.set_mapsize(min(size * 2, self._map_limit))

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise StateStoreException(
                f"the state in {self._path} was opened by process {self._pid} and is used by its forked child "
                f"{os.getpid()}; open it after the fork"
            )
        if self.replaced:
            raise StoreOutOfStepException(
                f"the state in {self._path} was wiped by another process since this one opened it; open it again"
            )

    def _fits_first_map(self) -> bool:
        """Return whether the file is small, so that only a damaged page can demand a large map."""
        try:
            return (self._path / DATA_FILE).stat().st_size <= _FIRST_MAP
        except OSError:
            return False

    def _damaged(self, text: str) -> StoreCorruptedException:
        return StoreCorruptedException(
            f"the state in {self._path} cannot be read ({text}); it must be rebuilt from its changelog"
        )

    def _explained(self, error: lmdb.Error | OSError) -> StateStoreException:
        text = str(error)
        if any(reason in text for reason in _FULL_DISK) or isinstance(error, lmdb.DiskError):
            return full_disk(self._path, text)
        too_large = isinstance(error, lmdb.MemoryError) and self._fits_first_map()
        if isinstance(error, _DAMAGED) or too_large or _OTHER_FORMAT in text:
            return self._damaged(text)
        if "already open in this process" in text:
            return StateStoreException(
                f"the state in {self._path} cannot be used: it is already open in this Python worker, under the name "
                "that the directory had before it was renamed, if it was. Rename it back, or end the Spark session, "
                "spark.stop(), and start a new one"
            )
        return StateStoreException(
            f"the state in {self._path} cannot be used: {text}. Check that this user may write there; if the files "
            "are damaged, remove the directory: stores with a changelog are rebuilt from it"
        )
