"""Instances as child processes of the bench: started, listened to, stopped, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.processes import CpuClock, family

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["BenchError", "Instance"]

_ROOT = Path(__file__).parents[1]
_STOP_TIMEOUT_S = 90.0
_TAIL = 3000


class BenchError(RuntimeError):
    """A run went wrong: an instance failed, was too slow, or wrote something that is not exact."""


class Instance:
    """A running instance; use it as a context manager.

    Args:
        module: what to run, such as ``bench.relay_instance``.
        orders: its argument.

    Attributes:
        started: when the process was started, in seconds since 1970.
    """

    def __init__(self, module: str, orders: dict[str, Any]) -> None:
        self._name = module
        self._log = tempfile.NamedTemporaryFile(prefix="bench-", suffix=".log")  # noqa: SIM115 - lives as long as we
        self._reports: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._ended = False
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
        self.started = time.time()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            # Ctrl-C reaches only the bench, which stops its instances; the group is what may have to be killed.
            start_new_session=True,
        )
        #: Processor time of the driver and everything below it.
        self.cpu = CpuClock(self._process.pid)
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id of the instance's driver."""
        return self._process.pid

    @property
    def log(self) -> Path:
        """Its log, until the context ends."""
        return Path(self._log.name)

    def next_report(self, timeout: float) -> dict[str, Any] | None:
        """Return the next report, or None if there is none within ``timeout`` seconds.

        Raises:
            BenchError: the instance failed or ended on its own.
        """
        try:
            report = None if self._ended else self._reports.get(timeout=max(0.0, timeout))
            if report is None:
                self._ended = True
                raise BenchError(f"{self._name} ended with exit code {self._process.wait()}. {self._story()}")
        except queue.Empty:
            return None
        if report["event"] == "failed":
            raise BenchError(f"{self._name} failed: {report['text']}. {self._story()}")
        return report

    def wait_for(self, event: str, timeout: float) -> dict[str, Any]:
        """Return the first report of this kind; others are dropped.

        Raises:
            BenchError: there is none within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            report = self.next_report(deadline - time.monotonic())
            if report is None:
                raise BenchError(f"{self._name} did not report {event!r} within {timeout:g} s. {self._story()}")
            if report["event"] == event:
                return report

    def batches_until(self, rows: int, timeout: float) -> list[dict[str, Any]]:
        """Return the micro-batches that together took so many records, with the processor time so far (``cpu_s``).

        Raises:
            BenchError: they did not within ``timeout`` seconds, or took more.
        """
        deadline = time.monotonic() + timeout
        batches: list[dict[str, Any]] = []
        taken = 0
        while taken < rows:
            report = self.next_report(deadline - time.monotonic())
            if report is None:
                raise BenchError(f"{self._name} took {taken} of {rows} records in {timeout:g} s. {self._story()}")
            if report["event"] == "batch":
                batches.append({**report, "cpu_s": self.cpu.seconds()})
                taken += report["rows"]
        if taken != rows:
            raise BenchError(f"{self._name} took {taken} records of {rows}. {self._story()}")
        return batches

    def batches_until_still(self, rows: int, timeout: float) -> list[dict[str, Any]]:
        """Return the micro-batches until so many records were taken and nothing is left to do, as ``batches_until``.

        For an instance whose orders want it to say when it is ``still``: topics between are part of what is to do.

        Raises:
            BenchError: it is not within ``timeout`` seconds, or more records were taken.
        """
        deadline = time.monotonic() + timeout
        batches: list[dict[str, Any]] = []
        taken, still = 0, False
        while not still or taken < rows:
            report = self.next_report(deadline - time.monotonic())
            if report is None:
                raise BenchError(f"{self._name} took {taken} of {rows} records in {timeout:g} s. {self._story()}")
            if report["event"] == "batch":
                batches.append({**report, "cpu_s": self.cpu.seconds()})
                taken += report["rows"]
            still = report["event"] == "still"
        if taken != rows:
            raise BenchError(f"{self._name} took {taken} records of {rows}. {self._story()}")
        return batches

    def jobs(self, timeout: float = 30.0) -> int:
        """Return how many Spark jobs the instance has run."""
        self._say(b"\n")
        return int(self.wait_for("jobs", timeout)["count"])

    def go(self) -> None:
        """Let an instance that was ordered to wait (``paused``) begin."""
        self._say(b"go\n")

    def kill(self) -> None:
        """SIGKILL it and everything below it: driver, JVM, Python workers, which have groups of their own."""
        for pid in [self.pid, *family(self.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def batches_so_far(self) -> list[dict[str, Any]]:
        """Return the micro-batches reported since the last look."""
        batches = []
        while (report := self.next_report(0.0)) is not None:
            if report["event"] == "batch":
                batches.append(report)
        return batches

    def stop(self) -> None:
        """Let the instance end in an orderly way.

        Raises:
            BenchError: it did not, or failed while doing so.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self._name} did not end within {_STOP_TIMEOUT_S:g} s. {self._story()}") from None
        if code:
            raise BenchError(f"{self._name} ended with exit code {code}. {self._story()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The driver may have gone and left its JVM or workers: they are in its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._reports.put(json.loads(line))
        self._reports.put(None)

    def _story(self) -> str:
        return f"End of its log:\n{self.log.read_text(errors='replace')[-_TAIL:]}"
