"""What is said when a disk, or a store's own bound, is full: which task, where, how much there is, and what helps."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StoreFullException

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FULL_DISK", "full_disk", "full_map"]

#: Error numbers of a disk, a quota or a file that takes no more.
FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def full_disk(path: Path, reason: str) -> StoreFullException:
    """Return the error for a state below ``path`` that did not get written."""
    return StoreFullException(
        f"task {path.name}: the disk below {path} did not take what was written ({reason}): it is full, or failing. "
        f"The state has {_used(path)} bytes{_free(path)}{_aside(path)}. Nothing was changed. "
        "Free some space or move state.dir to a larger disk, then start the instance again"
    )


def full_map(path: Path, limit: int) -> StoreFullException:
    """Return the error for a state that has grown to its bound."""
    return StoreFullException(
        f"task {path.name}: the state in {path} has {_used(path)} bytes and has reached store.max.bytes={limit}. "
        "Nothing was changed. Raise store.max.bytes and start the instance again, or spread the state over more tasks "
        "(partitions)"
    )


def _used(path: Path) -> int:
    """Return the bytes that a state takes on the disk."""
    try:
        return sum(entry.stat().st_blocks * 512 for entry in os.scandir(path) if entry.is_file())
    except OSError:
        return 0


def _aside(path: Path) -> str:
    """Return what copies take that were set aside: renaming them needed no room, building the state anew does."""
    taken = sum(_used(copy) for copy in path.parent.glob(f"{path.name}.corrupt-*"))
    return f"; copies of it that were set aside take {taken} bytes more and may be removed" if taken else ""


def _free(path: Path) -> str:
    for folder in (path, path.parent):
        try:
            usage = shutil.disk_usage(folder)
        except OSError:
            continue
        return f", the disk has {usage.free} of {usage.total} left"
    return ""
