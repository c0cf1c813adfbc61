"""A slot: one process's directory and identity, ``<state.dir>/<application.id>/<number>/``.

Whoever lives as long as the process claims it with an OS file lock. Two instances on one host, or on one shared
volume, thereby take different slots; a dead owner's slot, with its state, is taken over by the next. The lowest free
number is tried first, so that a restarted instance finds its state again.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.errors import LockException, StateStoreException
from sparkrelay.own_files import make_directory, read_file, replace_file
from sparkrelay.state.home.file_lock import FileLock
from sparkrelay.state.home.safe_home import not_writable, safe_home
from sparkrelay.types import ProcessId, TaskId

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["IDENTITY", "LOCK", "Slot"]

log = logging.getLogger(__name__)

LOCK: Final = ".lock"
IDENTITY: Final = "process.json"
_MADE_FOR: Final = "lockInode"


class Slot:
    """A claimed slot. Made by :meth:`claim` only."""

    def __init__(self, path: Path, number: int, process_id: ProcessId, lock: FileLock) -> None:
        self.path = path
        self.number = number
        self.process_id = process_id
        self._lock = lock

    @classmethod
    def claim(cls, state_dir: Path | str | None, application_id: str, *, max_slots: int = 256) -> Self:
        """Take the lowest slot that no living process holds.

        Args:
            state_dir: ``state.dir``; None for the state folder of the user that this process runs as.
            application_id: whose slot.
            max_slots: how many there may be.

        Raises:
            StateStoreException: ``state.dir`` cannot be written to, or others may write to what would be used of it.
            LockException: all ``max_slots`` slots are held.
        """
        home = safe_home(state_dir, application_id, make=True)
        holders: list[str] = []
        for number in range(max_slots):
            path = home / str(number)
            try:
                make_directory(path)
            except OSError as error:
                raise not_writable(home.parent, error) from error
            lock = FileLock(path / LOCK)
            if not lock.acquire():
                holders.append(str(lock.holder() or "unknown"))
                continue
            try:
                return cls(path, number, _identity(path / IDENTITY, lock.inode), lock)
            except OSError as error:
                lock.release()
                raise not_writable(home.parent, error) from error
        raise LockException(
            f"all {max_slots} slots of application {application_id!r} in state.dir={str(home.parent)!r} are held, by "
            f"{', '.join(sorted(set(holders))[:5])}; stop some of them or give this instance a state.dir of its own"
        )

    @property
    def held(self) -> bool:
        """True until :meth:`release`."""
        return self._lock.held

    def require_in_place(self) -> None:
        """Make sure that the slot is still the directory that was claimed.

        Raises:
            StateStoreException: it was removed or replaced; another process could claim what stands there now.
        """
        if self._lock.held and not self._lock.in_place:
            raise StateStoreException(
                f"{self.path} was removed or replaced while this instance used it. No record is lost: start the "
                "instance again, and it restores its state from the changelogs; leave state.dir alone while it runs"
            )

    def task_dir(self, task: TaskId) -> Path:
        """Return the directory of a task's state; opening its store makes it."""
        return self.path / str(task)

    def holds(self, task: TaskId) -> bool:
        """Return whether a task has a directory here."""
        return self.task_dir(task).is_dir()

    def task_ids(self) -> list[TaskId]:
        """Return the tasks that have local state here, in order."""
        found = []
        for entry in os.scandir(self.path):
            try:
                task = TaskId.parse(entry.name)
            except ValueError:
                continue
            if entry.is_dir() and any(os.scandir(entry.path)):
                found.append(task)
        return sorted(found)

    def release(self) -> None:
        """Give the slot back; its state stays."""
        self._lock.release()

    def __repr__(self) -> str:
        return f"Slot({str(self.path)!r}, process_id={self.process_id})"


def _identity(path: Path, inode: int) -> ProcessId:
    """Return the identity that the slot carries, or give it one. Fields that we do not know are left in place.

    A copied slot gets one of its own: two members of one identity would be taken for two threads of one process. A copy
    is known by its lock file, which is another one than the identity was made for.
    """
    fields: dict[str, object] = {}
    try:
        fields = json.loads(read_file(path))
        process_id = ProcessId.parse(str(fields["processId"]))
        made_for = fields.get(_MADE_FOR, inode)
        if made_for == inode:
            if _MADE_FOR not in fields:
                replace_file(path, json.dumps({**fields, _MADE_FOR: inode}).encode())
            return process_id
        log.warning(
            "%s was copied or moved here from another directory: this process gets a new identity in place of %s; the "
            "state itself is used",
            path.parent,
            process_id,
        )
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError) as error:
        log.warning("%s is not readable (%s); this process gets a new identity", path, error)
    process_id = ProcessId.random()
    known = fields if isinstance(fields, dict) else {}
    replace_file(path, json.dumps({**known, "processId": str(process_id), _MADE_FOR: inode}).encode())
    return process_id
