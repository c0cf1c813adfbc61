"""Which directories nobody needs any more: of tasks that moved away, of stores that were set aside.

They are found by their last change, like Kafka Streams finds its own. A store's file changes with every batch, and its
closing is noted beside it, so a task that left a moment ago is young however idle it was.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StateStoreException
from sparkrelay.state.home.application_home import ApplicationHome, remove_state
from sparkrelay.state.home.file_lock import FileLock
from sparkrelay.state.home.slot import LOCK
from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

__all__ = ["ABANDONED_SECONDS", "clear_abandoned", "last_change", "obsolete"]

#: State in a slot that nobody holds waits so long for its owner's return. Later it would be of no use: a changelog may
#: have dropped deletions by then (``delete.retention.ms``, a day). So who returns later does not use it either.
ABANDONED_SECONDS: Final = 24 * 3600.0


def obsolete(slot: Path, kept: Collection[TaskId], before: float) -> list[Path]:
    """Return what may be removed of a slot: neither of a task in ``kept`` nor changed since ``before``, epoch seconds.

    Stores that were set aside belong to nobody, so they are never kept.
    """
    found = []
    for path in ApplicationHome.state_of(slot):
        name, aside, _ = path.name.partition(".")
        try:
            task = TaskId.parse(name)
        except ValueError:
            continue  # somebody else's
        if (aside or task not in kept) and last_change(path) < before:
            found.append(path)
    return found


def clear_abandoned(slot: Path, before: float) -> list[Path]:
    """Remove what is obsolete in the application's other slots, where nobody holds them; return what is gone.

    A slot is claimed for that only if there is something to remove: its owner, coming back just then, would take
    another one.

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
    """Return when a directory or a file in it was last written to; infinity if it is not there (any more).

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
