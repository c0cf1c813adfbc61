"""What the demo's story runs on: child processes, what they report, logs, and waiting for it all with a bound."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.demo.children import Child, Report
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.demo.board import Board
    from sparkrelay.demo.screen import Screen

__all__ = ["Stage"]

_TICK_S: Final = 0.1
#: How long anything may take: far more than it does on a slow machine, far less than for ever.
_BOUND_S: Final = 240.0


class Stage:
    """A context manager: leaving it ends every child, however it went.

    Args:
        screen: shows what goes on.
        board: what it shows.

    Attributes:
        logs: the folder with the logs of the broker and of every child; removed at a good end.
        keep_logs: whether it stays.
    """

    def __init__(self, screen: Screen, board: Board) -> None:
        self._screen = screen
        self.board = board
        self._began_at = time.monotonic()
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._children: dict[str, Child] = {}
        self._expected_to_end: set[str] = set()
        self.keep_logs = False
        self.logs = Path(tempfile.mkdtemp(prefix="sparkrelay-demo-"))
        # Undone in reverse: children, reader, feeder, broker, folders. One that fails does not keep the others.
        self._leaving = contextlib.ExitStack()
        self._leaving.callback(self._remove_logs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # Who is interrupted does not ask why.
        self.keep_logs = self.keep_logs or isinstance(error, Exception)
        self._leaving.close()

    def _remove_logs(self) -> None:
        if not self.keep_logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    def _start_child(self, name: str, module: str, options: dict[str, Any]) -> Child:
        child = self._children[name] = Child(name, module, options, folder=self.logs, reports=self._reports)
        self._leaving.callback(child.kill)
        return child

    def _await_end(self, name: str, what: str) -> None:
        child = self._children[name]
        self._expected_to_end.add(name)
        self._until(what, lambda: child.exit_code is not None)
        if child.exit_code:
            raise SparkRelayError(self._last_words(name, f"{name} failed (exit code {child.exit_code})"))

    def _until(self, what: str, condition: Callable[[], bool], bound_s: float = _BOUND_S) -> None:
        """Go on until the condition holds.

        Raises:
            SparkRelayError: it did not within the bound, or somebody died.
        """
        deadline = time.monotonic() + bound_s
        while not condition():
            if time.monotonic() > deadline:
                states = "; ".join(f"{c.name}: {c.status or c.phase}" for c in self.board.clients.values())
                raise SparkRelayError(
                    f"The demo waited {bound_s:.0f} s for this, in vain: {what}. ({states or 'no instance yet'}) "
                    f"{self._hint()}The logs are in {self.logs}"
                )
            self._turn()

    def _hint(self) -> str:
        """Return what else may be at fault, a sentence with a space behind it."""
        return ""

    def _turn(self) -> None:
        """Take in what the children report for a moment, look after everybody, and show it."""
        self._wait(_TICK_S)
        while not self._reports.empty():
            report = self._reports.get()
            if report.child in self.board.clients:
                self.board.apply(report.child, report.what)
        for name, child in self._children.items():
            if name not in self._expected_to_end and child.exit_code is not None:
                raise SparkRelayError(self._last_words(name, f"{name} ended unasked (exit code {child.exit_code})"))
        self._show()

    def _wait(self, seconds: float) -> None:
        """Let so much time pass; raise what went wrong outside of the children."""
        time.sleep(seconds)

    def _last_words(self, name: str, what: str) -> str:
        client = self.board.clients.get(name)
        why = f": {client.failure}" if client is not None and client.failure else ""
        child = self._children[name]
        return f"{what}{why}\nThe end of its log, {child.log_path}:\n{child.last_lines()}"

    def _show(self) -> None:
        self.board.elapsed = time.monotonic() - self._began_at
        self._screen.show(self.board)
