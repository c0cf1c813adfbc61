"""A slot: one process's directory and identity, ``<state.dir>/<application.id>/<number>/``.

An OS file lock claims it for the life of the process. So two instances on one host or shared volume take different
slots, and the next process takes over a dead owner's slot with its state. The lowest free number is taken, so that a
restarted instance finds its state.
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

log = logging.getLogger(__name__)

LOCK: Final = ".lock"
IDENTITY: Final = "process.json"
_MADE_FOR: Final = "lockInode"


class Slot:
    """A slot claimed by :meth:`claim`."""

    def __init__(self, path: Path, number: int, process_id: ProcessId, lock: FileLock) -> None:
        self.path = path
        self.number = number
        self.process_id = process_id
        self._lock = lock

    @classmethod
    def claim(cls, state_dir: Path | str | None, application_id: str, *, max_slots: int = 256) -> Self:
        """Take the lowest slot that no living process holds.

        ``state_dir`` is ``state.dir``, None for the state folder of this process's user.

        Raises:
            StateStoreException: ``state.dir`` is not writable, or is writable for others.
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
        """Require that the slot is still the directory that was claimed.

        Raises:
            StateStoreException: it was removed or replaced; another process could claim its replacement.
        """
        if self._lock.held and not self._lock.in_place:
            raise StateStoreException(
                f"{self.path} was removed or replaced while this instance used it. No record is lost: start the "
                "instance again, and it restores its state from the changelogs; leave state.dir alone while it runs"
            )

    def task_dir(self, task: TaskId) -> Path:
        """Return the directory of a task's state, which opening its store creates."""
        return self.path / str(task)

    def holds(self, task: TaskId) -> bool:
        """Return whether a task has a directory here."""
        return self.task_dir(task).is_dir()

    def task_ids(self) -> list[TaskId]:
        """Return the tasks that have local state here, in order."""
        entries = [(task_named(entry.name), entry) for entry in os.scandir(self.path)]
        return sorted(task for task, entry in entries if task and entry.is_dir() and any(os.scandir(entry.path)))

    def release(self) -> None:
        """Release the slot, with its state."""
        self._lock.release()

    def __repr__(self) -> str:
        return f"Slot({str(self.path)!r}, process_id={self.process_id})"


def task_named(name: str) -> TaskId | None:
    """Return the task whose directory has this name, if any."""
    try:
        return TaskId.parse(name)
    except ValueError:
        return None


def _identity(path: Path, inode: int) -> ProcessId:
    """Return the slot's identity, or give it one. Unknown fields are kept.

    A copied slot gets a new one: the group would take two members of one identity for threads of one process. A copy is
    recognized by the inode of its lock file.
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
