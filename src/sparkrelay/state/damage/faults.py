"""A record of processes that died while they used a state: by SIGSEGV, SIGBUS, or an assertion of LMDB.

LMDB maps its file into memory. A damaged page may point to an invalid address, and a truncated file lacks pages: the
process dies, as does the next one that reads the page. During a transaction, Python's ``faulthandler`` writes to a file
beside the state; a state with a nonempty file is treated as damaged. SIGKILL leaves nothing there.
"""

from __future__ import annotations

import faulthandler
import os
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StoreCorruptedException

if TYPE_CHECKING:
    from pathlib import Path

FAULT_FILE: Final = "fault"
_STANDARD_ERROR: Final = 2


class FaultNotes:
    """Records a fault within a transaction; a context manager around each, on the only thread that has one."""

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
    """Raise StoreCorruptedException if a process died of a fault while it used the state."""
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
