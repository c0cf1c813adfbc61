"""The disk usage of state, and the errors for a full disk or a full store."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StoreFullException

if TYPE_CHECKING:
    from pathlib import Path

#: LMDB's file name. The files beside it are small.
DATA_FILE: Final = "data.mdb"
#: Error numbers of a full disk, quota or file.
FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def disk_bytes(path: str | Path) -> int:
    """Return the disk usage of a task's state in bytes; 0 if it is missing."""
    try:
        # With each micro-batch, so not by a Path, which takes twice as long.
        return os.stat(os.path.join(path, DATA_FILE)).st_blocks * 512  # noqa: PTH116, PTH118
    except OSError:
        return 0


def full_disk(path: Path, reason: str) -> StoreFullException:
    """Return the error for a state in ``path`` that could not be written."""
    return StoreFullException(
        f"task {path.name}: the disk below {path} did not take what was written ({reason}): it is full, or failing. "
        f"The state has {disk_bytes(path)} bytes{_free(path)}{_aside(path)}. Nothing that was committed is lost. "
        "Free some space or move state.dir to a larger disk, then start the instance again"
    )


def full_map(path: Path, limit: int) -> StoreFullException:
    """Return the error for a state that has grown to its bound."""
    return StoreFullException(
        f"task {path.name}: the state in {path} has {disk_bytes(path)} bytes and has reached store.max.bytes={limit}. "
        "Nothing that was committed is lost. Raise store.max.bytes and start the instance again, or start over with "
        "more tasks: repartition(..., partitions=N) before the step with the state, and sparkrelay reset"
    )


def _aside(path: Path) -> str:
    """Describe the disk usage of copies that were set aside: rebuilding the state needs space beside them."""
    taken = sum(disk_bytes(copy) for copy in path.parent.glob(f"{path.name}.corrupt-*"))
    return f"; copies of it that were set aside take {taken} bytes more and may be removed" if taken else ""


def _free(path: Path) -> str:
    for folder in (path, path.parent):
        try:
            usage = shutil.disk_usage(folder)
        except OSError:
            continue
        return f", the disk has {usage.free} of {usage.total} left"
    return ""
