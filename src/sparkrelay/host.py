"""Identity of a boot and of a process, for locks and records of processes.

Pids are reused; a pid with its start time is unique. The boot id shows whether the page cache that an unsynced store
relies on still exists.
"""

from __future__ import annotations

import functools
import platform
import subprocess
import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> str:
    """Return an id that changes with every boot of this machine.

    Without support of the system each process gets a new id: stores are then rebuilt unless closed cleanly.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        answer = subprocess.run(
            ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False, timeout=10
        )
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.strip()
    return f"unknown-{uuid.uuid4()}"


def stat_fields(pid: int) -> list[str]:
    """Return state, parent, process group, session, ... of a process, as in ``/proc/PID/stat``; raises OSError."""
    # The command's name before them, in brackets, may contain anything.
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def process_start(pid: int) -> str | None:
    """Return the start time of a process, as text for comparison only; None if there is no such process."""
    try:
        fields = stat_fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
    else:
        return None if fields[0] in {"Z", "X"} else fields[19]  # a zombie has ended
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10
    )
    state, _, start = answer.stdout.strip().partition(" ")
    return None if state.startswith("Z") else start.strip() or None
