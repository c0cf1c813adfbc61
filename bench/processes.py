"""What an instance's processes use, from /proc: the Python driver, its JVM, the JVM's Python workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sparkrelay.demo.children import executor_among
from sparkrelay.host import stat_fields

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ROLES", "CpuClock", "MemoryPeak", "executor_pid", "family", "heap_mb", "memory_mb"]

ROLES = ("driver", "jvm", "workers")
_TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> dict[int, list[str]]:
    """Return each process of the tree below ``pid`` with the fields of its stat file that follow the name."""
    parents: dict[int, list[int]] = {}
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = stat_fields(int(entry.name))
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


class MemoryPeak:
    """The most memory that a tree of processes has had at once; use it as a context manager while they run.

    It looks every so often, at the beginning, and at the end of the context.

    Args:
        pid: of the first process of the tree.
        every_s: seconds between two looks. A look at 5 GB takes some 20 ms.

    Attributes:
        rss_mb: RSS of all processes together: pages that several have among them count with each.
        pss_mb: PSS of all processes together, at its own moment.
        roles_mb: PSS of each role at that moment.
    """

    def __init__(self, pid: int, *, every_s: float = 1.0) -> None:
        self._pid = pid
        self._every_s = every_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-memory", daemon=True)
        self.rss_mb = 0.0
        self.pss_mb = 0.0
        self.roles_mb = dict.fromkeys(ROLES, 0.0)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        sizes = memory_mb(self._pid)
        self.rss_mb = max(self.rss_mb, sum(rss for rss, _ in sizes.values()))
        pss_mb = sum(pss for _, pss in sizes.values())
        if pss_mb > self.pss_mb:
            self.pss_mb, self.roles_mb = pss_mb, {role: pss for role, (_, pss) in sizes.items()}


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
