"""What an instance says on stderr: a few lines, and one a minute, so that a script that only starts one is not silent.

Each line goes to the log at INFO. Where no logging shows it there, because none is set up or only from WARNING on, it
is printed too. Refused: a handler of our own on the logger ``sparkrelay``, because lines would come twice in a program
that sets logging up later, and loggers' levels are the program's to set.
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

__all__ = ["Console"]

log = logging.getLogger(__name__)

_MINUTE: Final = 60.0


class Console:
    """One instance's. Any thread may call it; between ``start`` and the instance's end it has a thread of its own.

    Args:
        name: the application's.
        quiet: True to print nothing; the log has the lines all the same.
        read: gives the instance as it is now.
        interval: seconds between two lines of a running instance.
    """

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
        """Say that the steps are compiled: a large pipeline takes a while, and would seem to hang."""
        legs = (*topology.legs, *topology.global_tables)
        steps = sum(len(leg.before) + len(leg.after) + (leg.stateful_step is not None) for leg in legs)
        self._say(f"compiling {_counted(steps, 'step')} in {_counted(len(legs), 'leg')}")

    def start(self, what: str) -> None:
        """Say that the instance starts, and with what; from now on say once a minute how it is."""
        self._began = time.monotonic()
        self._was_running, self._stopping = False, None
        self._closed = closed = threading.Event()
        self._say(f"starting with {what}")
        threading.Thread(target=self._run, args=(closed,), name=f"{self._name}-console", daemon=True).start()

    def close(self) -> None:
        """End the thread; nothing more is said by itself."""
        self._closed.set()

    def on_state(self, new: State, old: State) -> None:
        """Say what a change of the instance's state means; a rebalance says itself what it does."""
        now = time.monotonic()
        if new == RUNNING and not self._was_running:
            self._was_running = True
            self._say(f"RUNNING after {now - self._began:.1f} s: {_tasks(self._read())}")
        elif new == PENDING_SHUTDOWN and old != CREATED:
            self._stopping = now, _count(self._read())[0]
            self._say("stopping")
        elif new == NOT_RUNNING and self._stopping is not None:
            since, active = self._stopping
            self._say(f"stopped after {now - since:.1f} s: {_counted(active, 'task')} released")
        elif new == ERROR:
            self._say(f"ERROR after {now - self._began:.0f} s; awaitTermination() and exception() have the cause")
        if new in {NOT_RUNNING, ERROR}:
            self.close()

    def show(self, logger: logging.Logger, line: str) -> None:
        """Print a line that was logged at INFO, unless logging shows it or the instance is quiet."""
        if self._quiet or (logger.isEnabledFor(logging.INFO) and logger.hasHandlers()):
            return
        # A closed or broken stderr keeps nobody from working.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)  # noqa: T201 - this is the terminal

    def _say(self, text: str) -> None:
        line = f"{self._name}: {text}"
        log.info("%s", line)
        self.show(log, line)

    def _run(self, closed: threading.Event) -> None:
        records = 0
        while not closed.wait(self._interval):
            now = self._read()
            total = sum(now.totals.records.values())
            trouble = "" if now.trouble is None else f"; {now.trouble}"
            self._say(
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
    """Return how many records of input are not processed yet; of tasks that do not run yet it is not known."""
    tasks = [task for thread in now.threads for task in thread.active_tasks]
    known = [task.lag for task in tasks if task.state == "running" and task.lag is not None]
    if len(known) < len(tasks):
        return f"at least {sum(known):,}" if known else "unknown"
    return f"{sum(known):,}" if tasks or now.ready else "unknown"
