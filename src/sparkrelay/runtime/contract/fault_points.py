"""Fault points: places between two writes where a test kills the process deterministically.

``SPARKRELAY_FAULTS`` names a file that a test writes while the instance runs. Its line ``<id> <point> <count> <whom>``
means: the process that reaches the point for the count-th time, counted over all processes under this id, kills
``instance`` (every process of this session: driver, JVM, Python workers) or ``worker`` (only itself). Without the file
nothing happens, so an instance can recover before it is armed. Unset, as always outside of tests, a point costs one
comparison.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

#: Every point, in the order in which a task passes them: assigned, initialized, restoring, then one micro-batch.
POINTS: Final = (
    "leader-before-answer",
    "initialize-after-epoch",
    "restore-before-undo",
    "restore-after-undo",
    "restore-after-slice",
    "driver-before-job",
    "fetch-first-rows",
    "state-before-apply",
    "state-after-apply",
    "changelog-before-flush",
    "changelog-after-flush",
    "publish-after-send",
    "publish-before-flush",
    "publish-after-flush",
    "driver-between-waves",
    "driver-before-commit",
    "driver-before-end-txn",
    "driver-after-end-txn",
    "driver-after-commit",
)

_ARMED: Final = os.environ.get("SPARKRELAY_FAULTS")


def reach(point: str) -> None:
    """Die here if a test asked for it."""
    if _ARMED is None:
        return
    try:
        id_, wanted, count, whom = Path(_ARMED).read_text(encoding="utf-8").split()
    except (FileNotFoundError, ValueError):
        return
    if point != wanted:
        return
    counter = Path(f"{_ARMED}.{id_}")
    # Appending a byte is atomic, so two workers never count as one.
    descriptor = os.open(counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b".")
    reached = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.close(descriptor)
    if reached != int(count):
        return
    if whom == "instance":
        _kill_session()
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_session() -> None:
    """Kill every process of this session but the caller: the workers have a process group of their own."""
    session = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
