"""The lines of an instance on stderr: a few, and one a minute, so that a script that only starts one is not silent.

Each line is logged at INFO. If logging does not show it, because it is not set up or starts at WARNING, it is printed
as well. Refused: our own handler on the logger ``sparkrelay``, which would duplicate lines in a program that sets up
logging later, and would change log levels that are the program's to set.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from sparkrelay.runtime.instance.lifecycle import CREATED, ERROR, NOT_RUNNING, PENDING_SHUTDOWN, RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.observe.snapshot import InstanceSnapshot
    from sparkrelay.runtime.instance.lifecycle import State
    from sparkrelay.topology import Topology

log = logging.getLogger(__name__)

_MINUTE: Final = 60.0


class Console:
    """The console of one instance. Thread-safe; it has its own thread from ``start`` to the instance's end."""

    def __init__(
        self, name: str, *, quiet: bool, read: Callable[[], InstanceSnapshot], interval: float = _MINUTE
    ) -> None:
        self._name = name
        self._quiet = quiet
        self._read = read
        self._interval = interval
        self._closed = threading.Event()
        self._began = 0.0
        self._was_running = False
        self._stopping: tuple[float, int] | None = None

    def compiling(self, topology: Topology) -> None:
        """Announce the compilation of the steps: with a large pipeline the script would otherwise seem to hang."""
        legs = (*topology.legs, *topology.global_tables)
        steps = sum(len([*leg.texts]) + (leg.stateful_step is not None) for leg in legs)
        self.say(f"compiling {_counted(steps, 'step')} in {_counted(len(legs), 'leg')}")

    def start(self, what: str) -> None:
        """Announce the start, and report the instance's condition once a minute from now on."""
        self._began = time.monotonic()
        self._was_running, self._stopping = False, None
        self._closed = closed = threading.Event()
        self.say(f"starting with {what}")
        threading.Thread(target=self._run, args=(closed,), name=f"{self._name}-console", daemon=True).start()

    def close(self) -> None:
        """End the thread; there are no more periodic lines."""
        self._closed.set()

    def on_state(self, new: State, old: State) -> None:
        """Report a state change; a rebalance reports itself."""
        now = time.monotonic()
        if new == RUNNING and not self._was_running:
            self._was_running = True
            self.say(f"RUNNING after {now - self._began:.1f} s: {_tasks(self._read())}")
        elif new == PENDING_SHUTDOWN and old != CREATED:
            self._stopping = now, _count(self._read())[0]
            self.say("stopping")
        elif new == NOT_RUNNING and self._stopping is not None:
            since, active = self._stopping
            self.say(f"stopped after {now - since:.1f} s: {_counted(active, 'task')} released")
        elif new == ERROR:
            self.say(f"ERROR after {now - self._began:.0f} s; awaitTermination() and exception() have the cause")
        if new in {NOT_RUNNING, ERROR}:
            self.close()

    def show(self, logger: logging.Logger, line: str) -> None:
        """Print a line that was logged at INFO, unless logging shows it or the instance is quiet."""
        if self._quiet or (logger.isEnabledFor(logging.INFO) and logger.hasHandlers()):
            return
        # A closed or broken stderr must not stop the work.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)  # noqa: T201 - the terminal

    def say(self, text: str) -> None:
        """Print a line about the instance, and log it."""
        line = f"{self._name}: {text}"
        log.info("%s", line)
        self.show(log, line)

    def _run(self, closed: threading.Event) -> None:
        records = 0
        while not closed.wait(self._interval):
            now = self._read()
            total = sum(now.totals.records.values())
            trouble = "" if now.trouble is None else f"; {now.trouble}"
            self.say(
                f"{now.state}: {total - records:,} records in the last {self._interval:.0f} s, lag {_lag(now)}, "
                f"{_tasks(now)}{trouble}"
            )
            records = total


def _count(now: InstanceSnapshot) -> tuple[int, int]:
    return sum(len(t.active_tasks) for t in now.threads), sum(len(t.standby_tasks) for t in now.threads)


def _tasks(now: InstanceSnapshot) -> str:
    active, standby = _count(now)
    return f"{_counted(active, 'active task')}, {standby} standby"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _lag(now: InstanceSnapshot) -> str:
    """Return the number of unprocessed records, which is unknown for tasks that do not run yet."""
    tasks = [task for thread in now.threads for task in thread.active_tasks]
    known = [task.lag for task in tasks if task.state == "running" and task.lag is not None]
    if len(known) < len(tasks):
        return f"at least {sum(known):,}" if known else "unknown"
    return f"{sum(known):,}" if tasks or now.ready else "unknown"
