"""All slots of one application in one ``state.dir``, for an application reset.

Lock files and identities are kept: a deleted lock file could be locked twice, and a process may return under its old
identity without state.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import LockException, StateStoreException
from sparkrelay.state.home.file_lock import FileLock
from sparkrelay.state.home.removal import wipe
from sparkrelay.state.home.safe_home import safe_home
from sparkrelay.state.home.slot import IDENTITY, LOCK, task_named
from sparkrelay.state.store import TaskStore

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEPT: Final = frozenset({LOCK, IDENTITY})


@dataclass(frozen=True, slots=True)
class ApplicationHome:
    """The directory ``<state.dir>/<application.id>``, which need not exist."""

    path: Path

    @classmethod
    def of(cls, state_dir: Path | str | None, application_id: str) -> ApplicationHome:
        """Return the home of an application; ``state_dir`` None is the state folder of this process's user.

        Raises:
            StateStoreException: ``state.dir`` does not exist (a typo), or another user may have written to it.
        """
        if state_dir is not None and not Path(state_dir).is_dir():
            raise StateStoreException(f"state.dir={str(state_dir)!r} is not a directory; give the instances' state.dir")
        return cls(safe_home(state_dir, application_id, make=False))

    def slots(self) -> list[Path]:
        """Return the directories of the slots, in order."""
        return sorted(
            (entry for entry in _entries(self.path) if entry.name.isdecimal() and entry.is_dir()),
            key=lambda entry: int(entry.name),
        )

    def state(self) -> list[Path]:
        """Return all state in the slots: directories of tasks, and copies that were set aside."""
        return [entry for slot in self.slots() for entry in self.state_of(slot)]

    @staticmethod
    def state_of(slot: Path) -> list[Path]:
        """Return the state in one slot."""
        return sorted(entry for entry in _entries(slot) if entry.name not in _KEPT)

    def remove_state(self) -> None:
        """Remove all state in the slots, but not their identities.

        Raises:
            LockException: a slot is held by a living process.
            StateStoreException: something cannot be removed.
        """
        with self.claimed():
            for path in self.state():
                remove_state(path)

    def topics(self) -> dict[str, str]:
        """Return the changelog and source topics of all readable state, and their ids; processes may be running."""
        found: dict[str, str] = {}
        for directory in self.state():
            if task_named(directory.name) is not None:
                with suppress(StateStoreException):
                    store = TaskStore.open(directory, create=False)
                    try:
                        found.update(store.header.topics)
                    finally:
                        store.close(clean=False)
        return found

    def holders(self) -> dict[Path, str]:
        """Return the slots that a living process holds, and its description. Nothing is changed."""
        held = {}
        for slot in self.slots():
            lock = FileLock(slot / LOCK)
            if lock.is_held_elsewhere():
                held[slot] = str(lock.holder() or "an unknown process")
        return held

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold every slot, so that no process of this host can claim one.

        Raises:
            LockException: a slot is held by a living process.
        """
        with ExitStack() as until_done:
            for slot in self.slots():
                lock = FileLock(slot / LOCK)
                if not lock.acquire():
                    raise LockException(f"{slot} is in use by {lock.holder() or 'an unknown process'}; stop it first")
                until_done.callback(lock.release)
            yield


def remove_state(path: Path) -> None:
    """Remove a task's directory, or another entry of a slot, if it exists.

    Raises:
        StateStoreException: a part of it cannot be removed.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            if task_named(path.name) is not None:
                wipe(path)
            if path.exists():
                shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StateStoreException(
            f"{error.filename or path} cannot be removed ({error.strerror}); remove {path} by hand, or run this as the "
            "user that the instances run as"
        ) from error


def _entries(path: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StateStoreException(f"{path} cannot be read ({error.strerror})") from error
