"""One LMDB environment: opening, growing, and errors that say what to do.

LMDB maps its file at a fixed size. We begin small and double when it is full, up to a bound: mapping the bound at
once would do on most systems, but not under an address-space limit. Each process maps for itself, so another's
growth shows here as "resized" at the next transaction and is followed then.

LMDB runs without fsync: what a process wrote survives its SIGKILL in the page cache, and power loss is dealt with by
boot ids (see cleanliness.py). A transaction that fails for want of space leaves the file's newest root as it was.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

import lmdb

from sparkrelay.errors import StateStoreException, StoreCorruptedException, StoreOutOfStepException
from sparkrelay.state.space import full_disk, full_map

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["DATA_FILE", "Environment"]

T = TypeVar("T")

DATA_FILE: Final = "data.mdb"

#: A slice whose transaction finds the map full is applied again, so a restore should seldom meet that.
_FIRST_MAP: Final = 64 << 20
_MAX_DATABASES: Final = 256
_MAX_READERS: Final = 512
# LMDB reports a write that stopped half way, which is how most disks fill up, as an input/output error.
_FULL_DISK: Final = ("No space left", "File too large", "Disk quota exceeded", "Input/output error")


class Environment:
    """An open LMDB environment of this process. Threads take turns; a forked child must open its own."""

    def __init__(self, path: Path, *, map_limit: int, readonly: bool = False) -> None:
        """Open or make the environment; one that is only to be read must be there.

        Raises:
            StateStoreException: the directory cannot be used; StoreFullException, StoreCorruptedException likewise.
        """
        self._path = path
        self._map_limit = map_limit
        self._pid = os.getpid()
        #: Held by whoever works on the environment; a caller may hold it over several transactions.
        self.turn = threading.RLock()
        self._databases: dict[str, Any] = {}
        try:
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
        except lmdb.Error as error:
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

    def database(self, name: str) -> Any:
        """Return the handle of a named table, made if it is missing. Not to be called inside a transaction."""
        handle = self._databases.get(name)
        if handle is None:
            with self.turn:
                self._check()
                handle = self._guarded(lambda: self._env.open_db(name.encode()))
            self._databases[name] = handle
        return handle

    def existing(self, name: str) -> Any | None:
        """Return the handle of a named table, None if there is none yet; as :meth:`database`, for who only reads."""
        handle = self._databases.get(name)
        if handle is None:
            with self.turn:
                self._check()
                try:
                    handle = self._guarded(lambda: self._env.open_db(name.encode(), create=False))
                except StateStoreException as error:
                    if isinstance(error.__cause__, lmdb.NotFoundError):
                        return None
                    raise
            self._databases[name] = handle
        return handle

    def opened(self, name: str) -> Any:
        """Return the handle of a table that :meth:`database` was asked for before; fit for use in a transaction."""
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

    def _run(self, action: Callable[[Any], T], *, write: bool) -> T:
        def attempt() -> T:
            with self._env.begin(write=write) as transaction:
                return action(transaction)

        with self.turn:
            self._check()
            return self._guarded(attempt)

    def _guarded(self, attempt: Callable[[], T]) -> T:
        while True:
            try:
                return attempt()
            except lmdb.MapResizedError:
                self._env.set_mapsize(0)
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise self._explained(error) from error

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

    def _explained(self, error: lmdb.Error) -> StateStoreException:
        text = str(error)
        if any(reason in text for reason in _FULL_DISK) or isinstance(error, lmdb.DiskError):
            return full_disk(self._path, text)
        damaged = (
            lmdb.BadDbiError,
            lmdb.CorruptedError,
            lmdb.InvalidError,
            lmdb.PageNotFoundError,
            lmdb.PanicError,
            lmdb.VersionMismatchError,
        )
        if isinstance(error, damaged):
            return StoreCorruptedException(
                f"the state in {self._path} cannot be read ({text}); it must be rebuilt from its changelog"
            )
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
