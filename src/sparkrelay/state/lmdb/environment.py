"""One LMDB environment: opening, growing, and errors that say what to do.

LMDB maps its file at a fixed size. We begin small and double when it is full, up to a bound: mapping the bound at
once would do on most systems, but not under an address-space limit. Each process maps for itself, so another's
growth shows here as "resized" at the next transaction and is followed then.

LMDB runs without fsync: what a process wrote survives its SIGKILL in the page cache, and power loss is dealt with by
boot ids (see cleanliness.py). A transaction that fails for want of space leaves the file's newest root as it was.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

import lmdb

from sparkrelay.errors import StateStoreException, StoreCorruptedException, StoreOutOfStepException
from sparkrelay.state.faults import FaultNotes, require_no_fault
from sparkrelay.state.lmdb.table import Table
from sparkrelay.state.space import DATA_FILE, full_disk, full_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["Begun", "Environment", "UnfinishedError"]

T = TypeVar("T")

#: A slice whose transaction finds the map full is applied again, so a restore should seldom meet that.
_FIRST_MAP: Final = 64 << 20
_MAX_DATABASES: Final = 256
_MAX_READERS: Final = 512
# LMDB reports a write that stopped half way, which is how most disks fill up, as an input/output error.
_FULL_DISK: Final = ("No space left", "File too large", "Disk quota exceeded", "Input/output error")
#: What LMDB says of pages that cannot be what it wrote.
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
#: What py-lmdb says of the version in a file's first pages, without an error class for it.
_OTHER_FORMAT: Final = "is not supported by this build"


class UnfinishedError(Exception):
    """LMDB cannot go on just now with a transaction that is open beside others, which is undone.

    The map is full, say, or a page is damaged: :meth:`Environment.write` sees to that.
    """


class Begun:
    """A write transaction that is open beside others; all that is done in it is done ``with`` it.

    So a fault of a damaged page is noted beside the state that the page is of (``faults``), and what LMDB refuses is an
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
        """Commit what is done; within its ``with``, which then says whether it was undone."""
        self._open = False
        self.transaction.commit()

    def end(self) -> None:
        """Undo what was not committed."""
        if self._open:
            self._open = False
            with self._faults:
                self.transaction.abort()


class Environment:
    """An open LMDB environment of this process. Threads take turns; a forked child must open its own."""

    def __init__(self, path: Path, *, map_limit: int, readonly: bool = False, in_worker: bool = False) -> None:
        """Open or make the environment; one that is only to be read must be there.

        Args:
            path: its directory.
            map_limit: bound on its size, bytes.
            readonly: True to read only.
            in_worker: True in a Python worker, which notes where it dies of a fault (``faults``).

        Raises:
            StateStoreException: the directory cannot be used; StoreFullException, StoreCorruptedException likewise.
        """
        self._path = path
        self._map_limit = map_limit
        self._pid = os.getpid()
        #: Held by whoever works on the environment; a caller may hold it over several transactions.
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
                    # Random reads of a few bytes: reading ahead would only fill the page cache.
                    readahead=False,
                    readonly=readonly,
                    create=not readonly,
                )
                # Readers that were killed would keep freed pages from being used again.
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
        """True once the directory was wiped, or made anew: what is open here is gone from it."""
        try:
            # Before each transaction, so not by a Path, which takes as long again.
            return os.stat(self._data_file).st_ino != self._inode  # noqa: PTH116
        except FileNotFoundError:
            return True

    def write(self, action: Callable[[Any], T]) -> T:
        """Run ``action`` in one write transaction: all of it happens or nothing.

        When the map turns out to be full, it is grown and the action runs again from the start.

        Raises:
            StoreFullException: the disk, or the map at its bound, is full; nothing changed.
            StoreOutOfStepException: the directory was wiped by another process.
        """
        return self._run(action, write=True)

    def read(self, action: Callable[[Any], T]) -> T:
        """Run ``action`` in one read transaction; it must not keep cursors."""
        return self._run(action, write=False)

    @contextlib.contextmanager
    def begun(self) -> Iterator[Begun]:
        """Begin a write transaction beside those of other environments; it is undone unless it is committed.

        Raises:
            UnfinishedError: it takes more than to begin: the map must follow another process, say.
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
        """Return a named table, made if it is missing. Not to be called inside a transaction."""
        table = self._databases.get(name)
        return self._open(name, create=True) if table is None else table

    def existing(self, name: str) -> Table | None:
        """Return a named table, None if there is none yet; as :meth:`database`, for who only reads."""
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
        """Return a table that :meth:`database` was asked for before; fit for use in a transaction."""
        try:
            return self._databases[name]
        except KeyError:
            raise StoreOutOfStepException(
                f"the state in {self._path} was changed by another process at the same time; try again"
            ) from None

    def sync(self) -> None:
        """Write everything to the disk, and wait for it."""
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
        """Map what another process has made of the file, or find that none has."""
        size = self.map_size
        try:
            self._env.set_mapsize(0)
        except lmdb.Error as error:
            raise self._explained(error) from error
        if self.map_size <= size:
            raise self._damaged(str(resized)) from resized

    def _grow(self) -> None:
        # Growth by another process may have been enough; a killed reader may have held pages back.
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
        """Return whether the file is small, so that nothing but a damaged page can ask for a large map."""
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
        asks_for_much = isinstance(error, lmdb.MemoryError) and self._fits_first_map()
        if isinstance(error, _DAMAGED) or asks_for_much or _OTHER_FORMAT in text:
            return self._damaged(text)
        if "already open in this process" in text:
            return StateStoreException(
                f"the state in {self._path} cannot be used: it is already open in this Python worker, under the name "
                "that the directory had before it was renamed, if it was. Rename it back, or end the Spark session, "
                "spark.stop(), and start a new one"
            )
        return StateStoreException(
            f"the state in {self._path} cannot be used: {text}. Look whether this user may write there; if the files "
            "are damaged, remove the directory: stores with a changelog are rebuilt from it"
        )
