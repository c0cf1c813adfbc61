"""What a failed test leaves: the logs of its own time, in one folder that the failure names.

Brokers, instances and clusters outlive a test. So their logs are watched, and of each the part that was written while
the test ran is kept, beside what pytest captured and the logs below `tmp_path`.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

import pytest

#: Where a run leaves it, below the project's root.
FOLDER = Path("artifacts", "failed")

#: How many lines of a captured section the terminal shows; the folder has them all.
SHOWN_LINES = 60

#: The end of a log explains a failure; a test may run for minutes under debug output.
LARGEST_BYTES = 4 << 20

#: Folders, each with the pattern of its logs.
_watched: set[tuple[Path, str]] = set()


def watch(log: Path) -> None:
    """Keep a file's new part when a test fails, from now on. It need not exist yet."""
    watch_all(log.parent, log.name)


def watch_all(folder: Path, pattern: str) -> None:
    """Keep the new parts of all files that match a glob pattern in a folder, such as the executors' of a cluster."""
    _watched.add((folder, pattern))


def _logs(own: Path | None = None) -> list[Path]:
    """Return the watched logs that exist, and those in a test's folder. Names of topics' segments are numbers."""
    found = {log for folder, pattern in _watched for log in folder.glob(pattern)}
    if own is not None:
        found.update(path for path in own.rglob("*.log") if not path.stem.isdigit())
    return sorted(log for log in found if log.is_file())


class Evidence:
    """A plugin of pytest that keeps the logs of failed tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begins: dict[Path, int] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Remember where the logs end as the test begins. Real instances report their steps; unit tests need none.

        What an earlier run left of this test is removed: it would look like a part of this run's failure.
        """
        shutil.rmtree(self._folder / folder_name(item.nodeid), ignore_errors=True)
        self._begins = {log: log.stat().st_size for log in _logs()}
        ours = logging.getLogger("sparkrelay")
        before = ours.level
        if item.get_closest_marker("integration"):
            ours.setLevel(logging.INFO)
        try:
            return (yield)
        finally:
            ours.setLevel(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Write the folder, and name it in the failure."""
        report = yield
        if report.failed and (kept := self._keep(item, report)):
            report.sections = [(name, shortened(text)) for name, text in report.sections]
            report.sections.append(
                ("Logs of this test", f"{kept}: {', '.join(sorted(p.name for p in kept.iterdir()))}")
            )
        return report

    def _keep(self, item, report) -> Path | None:
        parts = {f"{name.lower().replace(' ', '-')}.txt": text.encode() for name, text in report.sections if text}
        # The end of a fixture may fail after the test has: each has a file of its own.
        name = "failure.txt" if report.when == "call" else f"failure-in-{report.when}.txt"
        parts[name] = report.longreprtext.encode()
        own = getattr(item, "funcargs", {}).get("tmp_path")
        for number, log in enumerate(_logs(own)):
            if new := _read(log, self._begins.get(log, 0)):
                parts[f"{number:02}-{log.parent.name}-{log.name}"] = new
        folder = self._folder / folder_name(item.nodeid)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in parts.items():
                (folder / name).write_bytes(content)
        except OSError as error:
            # A full disk is no reason to hide the failure itself.
            report.sections.append(("Logs of this test", f"could not be kept: {error}"))
            return None
        return folder


def folder_name(nodeid: str) -> str:
    """Return a test's folder: its id, in letters that any file system takes."""
    return re.sub(r"[^\w.-]+", "-", nodeid.removeprefix("tests/"))[-200:].strip("-")


def shortened(text: str) -> str:
    """Return the last lines of a section."""
    lines = text.splitlines()
    left_out = len(lines) - SHOWN_LINES
    return text if left_out <= 0 else "\n".join([f"... {left_out} lines before", *lines[-SHOWN_LINES:]])


def _read(log: Path, begins: int) -> bytes:
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            # A log that was begun anew is shorter than it was.
            file.seek(max(begins if begins <= end else 0, end - LARGEST_BYTES))
            return file.read()
    except OSError:
        return b""
