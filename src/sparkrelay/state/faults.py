"""A note of a process that died while it used a state: by SIGSEGV, SIGBUS, or an assertion of LMDB's.

LMDB reads its file as memory. So a damaged page may lead to an address that is none, and a file that was cut short to
a page that is gone: the process dies, and so does the next one that comes to that page. Python's ``faulthandler``
writes where it was into a file, from within the signal. For the time of a transaction that is a file beside the state,
and whoever opens the state and finds something in it takes the state for damaged. SIGKILL leaves nothing there.
"""

from __future__ import annotations

import faulthandler
import os
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StoreCorruptedException

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FAULT_FILE", "FaultNotes", "require_no_fault"]

FAULT_FILE: Final = "fault"
_STANDARD_ERROR: Final = 2


class FaultNotes:
    """Where a fault within a transaction is noted; a context manager around each, on the only thread that has any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path / FAULT_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> None:
        # Another process may have died since this one opened the state.
        if os.fstat(self._file).st_size:
            raise _noted(self._path)
        faulthandler.enable(file=self._file, all_threads=False)

    def __exit__(self, *_: object) -> None:
        faulthandler.enable(file=_STANDARD_ERROR, all_threads=False)

    def close(self) -> None:
        """Close the file, which stays."""
        os.close(self._file)


def require_no_fault(path: Path) -> None:
    """Refuse a state that a process was reading or writing when it died of a fault.

    Raises:
        StoreCorruptedException: one has.
    """
    try:
        if (path / FAULT_FILE).stat().st_size:
            raise _noted(path)
    except FileNotFoundError:
        pass


def _noted(path: Path) -> StoreCorruptedException:
    with (path / FAULT_FILE).open(encoding="utf-8", errors="replace") as file:
        first = file.readline(200).strip()
    return StoreCorruptedException(
        f"a Python worker died while it read or wrote the state in {path} ({first}; the rest is in its file "
        f"{FAULT_FILE!r}): a page of it is damaged or missing. The disk, its file system or the machine's memory may "
        "be failing. The state must be rebuilt from its changelog"
    )
