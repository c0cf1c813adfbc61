"""Finding obsolete directories: of tasks that moved away, and of stores that were set aside.

They are found by their last change, as in Kafka Streams. A store's file changes with every batch, and closing it
changes a file beside it, so a task that has just left is young, however idle it was.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StateStoreException
from sparkrelay.state.home.application_home import ApplicationHome, remove_state
from sparkrelay.state.home.file_lock import FileLock
from sparkrelay.state.home.slot import LOCK, task_named

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from sparkrelay.types import TaskId

#: State in an unclaimed slot is kept this long for its owner's return. Older state is never used: its changelog may
#: have dropped deletions by then (``delete.retention.ms``, a day).
ABANDONED_SECONDS: Final = 24 * 3600.0


def obsolete(slot: Path, kept: Collection[TaskId], before: float) -> list[Path]:
    """Return the removable state of a slot: not of a task in ``kept``, not changed since ``before`` (epoch seconds).

    Stores that were set aside are never kept, directories that are not a task's always.
    """
    found = []
    for path in ApplicationHome.state_of(slot):
        name, aside, _ = path.name.partition(".")
        task = task_named(name)
        if task is not None and (aside or task not in kept) and last_change(path) < before:
            found.append(path)
    return found


def clear_abandoned(slot: Path, before: float) -> list[Path]:
    """Remove obsolete state in the application's unclaimed other slots; return what was removed.

    A slot is claimed only if there is something to remove, as an owner that returns meanwhile would take another slot.

    Raises:
        StateStoreException: something cannot be removed.
    """
    removed = []
    for other in ApplicationHome(slot.parent).slots():
        if other == slot or not obsolete(other, (), before):
            continue
        lock = FileLock(other / LOCK)
        if not lock.acquire():
            continue
        try:
            for path in obsolete(other, (), before):
                remove_state(path)
                removed.append(path)
        finally:
            lock.release()
    return removed


def last_change(path: Path) -> float:
    """Return when a directory or a file in it was last written; infinity if it is missing.

    Raises:
        StateStoreException: it cannot be read.
    """
    try:
        newest = path.stat().st_mtime
        if path.is_dir():
            for entry in os.scandir(path):
                newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    except FileNotFoundError:
        return float("inf")
    except OSError as error:
        raise StateStoreException(f"{path} cannot be read ({error.strerror})") from error
    return newest
