"""Checks of this machine: Python, packages, Java, cores, memory, open files, the clock."""

from __future__ import annotations

import ctypes
import operator
import os
import platform
import re
import resource
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkrelay.doctor.findings import fail, ok, skip, warn
from sparkrelay.errors import JavaException
from sparkrelay.java import require_java
from sparkrelay.records import kernel_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkrelay.doctor.findings import Finding

_LEAST_PYTHON: Final = (3, 11)
#: For a container with local[2], as in docs/deploying.md.
_ADVISED_MB: Final = 4_000
_LEAST_MB: Final = 2_000
_ADVISED_FILES: Final = 4_096
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*([^;]*)(;.*)?")
_BOUND: Final = re.compile(r"(>=|<|==|>|<=)\s*([0-9][0-9.]*)")
_RELATIONS: Final = {">=": operator.ge, "<": operator.lt, "==": operator.eq, ">": operator.gt, "<=": operator.le}
_MB: Final = 1 << 20
#: adjtimex(2): the clock is not synchronised.
_TIME_ERROR: Final = 5
_UNLIMITED: Final = 1 << 60


def check_python(version: tuple[int, ...], executable: str) -> Finding:
    """Check the Python that runs this, and the workers."""
    shown = f"{'.'.join(map(str, version))}, {executable}"
    if version[:2] < _LEAST_PYTHON:
        return fail("python", shown, "Run it with Python 3.11 or newer")
    return ok("python", shown)


def check_packages(requirements: Iterable[str], version_of: Callable[[str], str | None]) -> Iterator[Finding]:
    """Check whether each required package is installed in a compatible version.

    Args:
        requirements: from ``importlib.metadata.requires``; those of extras do not count.
        version_of: returns a package's version, None if it is not installed.
    """
    fine = []
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None or (match[3] and "extra" in match[3]):
            continue
        name, bounds = match[1], match[2].strip(" ()")
        found = version_of(name)
        if found is None:
            yield fail(f"package {name}", "not installed", f"pip install '{name}{bounds}'")
        elif not _within(found, bounds):
            yield fail(f"package {name}", f"{found}, which is not {bounds}", f"pip install '{name}{bounds}'")
        else:
            fine.append(f"{name} {found}")
    if fine:
        yield ok("packages", ", ".join(fine))


def check_java(find: Callable[[], str]) -> Finding:
    """Check for a Java that Spark supports; ``find`` returns its path or raises JavaException."""
    try:
        return ok("java", find())
    except JavaException as error:
        return fail("java", "none that Spark can use", str(error))
    except (OSError, subprocess.SubprocessError) as error:
        return fail("java", f"it does not start: {error}", "Set JAVA_HOME to a JDK or JRE 17 or newer")


def check_spark_home(home: Path | None, pyspark: str | None) -> Finding | None:
    """Check that ``SPARK_HOME`` is of the installed PySpark's version; None without SPARK_HOME."""
    if home is None:
        return None
    found = [jar.stem.rpartition("-")[2] for jar in home.glob("jars/spark-core_*.jar")]
    if not found:
        return fail("SPARK_HOME", f"{home} contains no Spark", "Unset it: PySpark brings its own Spark")
    if pyspark not in found:
        return fail(
            "SPARK_HOME",
            f"{home} is Spark {', '.join(found)}, and the package pyspark is {pyspark}",
            f"Unset it, or install that version: pip install 'pyspark=={found[0]}'",
        )
    return ok("SPARK_HOME", f"{home}, Spark {pyspark}")


def check_kernels(*, compiled: bool) -> Finding:
    """Check whether this release's record codecs were compiled on this machine."""
    if compiled:
        return ok("record codecs", "compiled")
    return warn(
        "record codecs",
        "not compiled yet: the first start takes fifteen seconds of a core longer",
        "Run: sparkrelay prepare",
    )


def check_cores(cores: float) -> Finding:
    """Check the number of cores that this process may use, by affinity and its container's quota."""
    if cores < 2:
        return warn("cores", f"{cores:g}", "Give it two: the JVM, its Python workers and the driver share them")
    return ok("cores", f"{cores:g}")


def check_memory(megabytes: int) -> Finding:
    """Check the available memory, by the machine and its container's limit."""
    shown = f"{megabytes:,} MB available"
    if megabytes < _LEAST_MB:
        return fail("memory", shown, f"An instance with local[2] takes 2 to 3 GB: give it {_ADVISED_MB:,} MB")
    if megabytes < _ADVISED_MB:
        return warn("memory", shown, f"Start with {_ADVISED_MB:,} MB for an instance with local[2]")
    return ok("memory", shown)


def check_open_files(soft: int, hard: int) -> Finding:
    """Check the limit of open files: a store, a connection and a Spark file take one or two each."""
    if 0 <= soft < _ADVISED_FILES:
        shown = "any number" if hard < 0 else str(hard)
        return warn(
            "open files",
            f"at most {soft}",
            f"Not enough with many tasks: ulimit -n {_ADVISED_FILES} before the start (up to {shown}), or "
            f"LimitNOFILE={_ADVISED_FILES} in the systemd unit",
        )
    return ok("open files", "not limited" if soft < 0 else f"at most {soft}")


def check_port(port: int) -> Finding:
    """Check whether an instance could listen at a port."""
    with socket.socket() as listener:
        # Like a server whose previous run has just ended.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            return fail(f"port {port}", f"{error.strerror}", "Stop who uses it (ss -ltnp shows it), or choose another")
    return ok(f"port {port}", "free")


def check_clock(synchronised: bool | None) -> Finding:
    """Check whether this machine's clock is synchronised: dead peers and event times are judged by it."""
    if synchronised is None:
        return skip("clock", "this system does not report whether its clock is synchronised")
    if not synchronised:
        return warn(
            "clock",
            "not synchronised (NTP), as far as the kernel knows",
            "Run chrony or systemd-timesyncd on the host: watermarks and processing time go by it",
        )
    return ok("clock", "synchronised (NTP)")


def read_system_file(path: str) -> str:
    """Return the text of a file of the kernel; empty if there is none."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def installed_requirements() -> list[str]:
    """Return the requirements in SparkRelay's installed metadata."""
    try:
        return metadata.requires("sparkrelay") or []
    except metadata.PackageNotFoundError:
        return []


def look_at_machine() -> Iterator[Finding]:
    """Check this machine."""
    yield ok("sparkrelay", _version("sparkrelay") or "not installed as a package")
    yield check_python(tuple(sys.version_info[:3]), sys.executable)
    yield from check_packages(installed_requirements(), _version)
    yield check_java(require_java)
    home = os.environ.get("SPARK_HOME")
    if finding := check_spark_home(Path(home) if home else None, _version("pyspark")):
        yield finding
    yield check_kernels(compiled=kernel_cache.compiled())
    yield check_cores(_cores())
    if (megabytes := _memory()) is not None:
        yield check_memory(megabytes)
    yield check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield check_clock(_synchronised())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _within(version: str, bounds: str) -> bool:
    found = _numbers(version)
    return all(_RELATIONS[relation](found, _numbers(bound)) for relation, bound in _BOUND.findall(bounds))


def _numbers(version: str) -> list[int]:
    """Return the numbers of a release without zeros at the end: 4.3 is 4.3.0."""
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def _cores() -> float:
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota = read_system_file("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit():
        cores = min(cores, int(quota[0]) / int(quota[1]))
    return cores


def _memory() -> int | None:
    match = re.search(r"MemAvailable:\s+(\d+) kB", read_system_file("/proc/meminfo"))
    found = [int(match[1]) * 1024] if match else []
    limit, used = (read_system_file(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED:
        # The page cache can be reclaimed; if its size is unknown, all used memory counts.
        cached = re.search(r"^inactive_file (\d+)$", read_system_file("/sys/fs/cgroup/memory.stat"), re.MULTILINE)
        found.append(int(limit) - int(used) + (int(cached[1]) if cached else 0))
    return min(found) // _MB if found else None


def _synchronised() -> bool | None:
    if platform.system() != "Linux":
        return None
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else bool(state != _TIME_ERROR)
