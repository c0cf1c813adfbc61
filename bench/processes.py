"""What an instance's processes use, from /proc: the Python driver, its JVM, the JVM's Python workers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from sparkrelay.demo.children import executor_among

__all__ = ["ROLES", "CpuClock", "executor_pid", "family", "heap_mb", "memory_mb"]

ROLES = ("driver", "jvm", "workers")
_TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> dict[int, list[str]]:
    """Return each process of the tree below ``pid`` with the fields of its stat file that follow the name."""
    parents: dict[int, list[int]] = {}
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            stats[int(entry.name)] = fields
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    family: dict[int, list[str]] = {}
    open_ends = [pid]
    while open_ends:
        member = open_ends.pop()
        if member in stats:
            family[member] = stats[member]
            open_ends += parents.get(member, [])
    return family


def executor_pid(pid: int, executor: str) -> int | None:
    """Return the process id of the JVM of a Spark executor below ``pid``, None if there is none."""
    return executor_among(family(pid), executor)


class CpuClock:
    """The processor time of a whole tree of processes; those that have ended count with what was last seen of them.

    The kernel's own sums of ended children do not do: Spark's worker daemon reaps its idle workers uncounted.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks: dict[int, int] = {}

    def seconds(self) -> float:
        """Return the processor time so far."""
        self._ticks.update({member: int(fields[11]) + int(fields[12]) for member, fields in family(self._pid).items()})
        return sum(self._ticks.values()) / _TICKS


def memory_mb(pid: int) -> dict[str, tuple[float, float]]:
    """Return role -> (RSS, PSS) in MB. PSS shares pages that several processes have among them."""
    total = dict.fromkeys(ROLES, (0.0, 0.0))
    for member in family(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            name = Path(f"/proc/{member}/comm").read_text().strip()
        except OSError:
            continue
        sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
        role = "driver" if member == pid else "jvm" if name == "java" else "workers"
        rss, pss = total[role]
        total[role] = (rss + sizes.get("Rss", 0.0), pss + sizes.get("Pss", 0.0))
    return total


def heap_mb(pid: int) -> dict[str, float] | None:
    """Collect the JVM's garbage and return its heap in MB, ``used`` and ``committed``; None without a JDK's tools."""
    jvm = next((m for m in family(pid) if Path(f"/proc/{m}/comm").read_text().strip() == "java"), None)
    if jvm is None or shutil.which("jstat") is None or shutil.which("jcmd") is None:
        return None
    subprocess.run(["jcmd", str(jvm), "GC.run"], capture_output=True, check=False)
    run = subprocess.run(["jstat", "-gc", str(jvm)], capture_output=True, text=True, check=False)
    if run.returncode:
        return None
    names, values = (line.split() for line in run.stdout.splitlines()[:2])
    sizes = {name: float(value) for name, value in zip(names, values, strict=True) if value != "-"}
    used = sum(sizes.get(name, 0.0) for name in ("S0U", "S1U", "EU", "OU"))
    committed = sum(sizes.get(name, 0.0) for name in ("S0C", "S1C", "EC", "OC"))
    return {"used": round(used / 1024, 1), "committed": round(committed / 1024, 1)}
