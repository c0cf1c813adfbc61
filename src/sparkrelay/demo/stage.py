"""The demo's resources (broker, feeder, reader, child processes, logs) and waiting for them, always with a bound."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.demo.children import Child
from sparkrelay.demo.tables import BY_CARRIER
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.demo.board import Board
    from sparkrelay.demo.feed import Feeder
    from sparkrelay.demo.reader import OutputReader
    from sparkrelay.demo.screen import Screen
    from sparkrelay.devkafka import DevKafka

_TICK_S: Final = 0.1
#: The bound on any wait: far above what a slow machine needs.
_BOUND_S: Final = 240.0


class Stage:
    """A context manager that ends every child on exit.

    Attributes:
        board: the state that the screen shows.
        logs: folder of the logs of the broker and of every child; removed after a success.
        keep_logs: whether to keep it.
    """

    def __init__(self, screen: Screen, board: Board, *, hint: str = "") -> None:
        self._screen = screen
        self._hint = hint
        self.board = board
        self._began_at = time.monotonic()
        self._children: dict[str, Child] = {}
        self._kafka: DevKafka | None = None
        self._feeder: Feeder | None = None
        self._reader: OutputReader | None = None
        self.keep_logs = False
        self.logs = Path(tempfile.mkdtemp(prefix="sparkrelay-demo-"))
        # Undone in reverse: children, reader, feeder, broker, folders; a failure does not stop the others.
        self._leaving = contextlib.ExitStack()
        self._leaving.callback(self._remove_logs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # After Ctrl-C nobody reads the logs.
        self.keep_logs = self.keep_logs or isinstance(error, Exception)
        self._leaving.close()

    def _remove_logs(self) -> None:
        if not self.keep_logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    def _start_child(self, name: str, module: str, options: dict[str, Any]) -> Child:
        child = self._children[name] = Child(name, module, options, folder=self.logs)
        self._leaving.callback(child.kill)
        return child

    def _await_end(self, name: str, what: str) -> None:
        child = self._children[name]
        child.may_end = True
        self._until(what, lambda: child.exit_code is not None)
        if child.exit_code:
            raise SparkRelayError(self._failure(name, "failed"))

    def _until(self, what: str, condition: Callable[[], bool], bound_s: float = _BOUND_S) -> None:
        """Run the demo until the condition holds.

        Raises:
            SparkRelayError: it did not within the bound, or a child, the broker, the feeder or the reader failed.
        """
        deadline = time.monotonic() + bound_s
        while not condition():
            if time.monotonic() > deadline:
                states = "; ".join(f"{c.name}: {c.status or c.phase}" for c in self.board.clients.values())
                raise SparkRelayError(
                    f"The demo waited {bound_s:.0f} s in vain for: {what}. ({states or 'no instance yet'}) "
                    f"{self._hint}The logs are in {self.logs}"
                )
            self._tick()

    def _tick(self) -> None:
        """Read results for a moment, apply the children's reports, check on everybody, and show it."""
        if self._kafka is not None and not self._kafka.running:
            raise SparkRelayError(f"The broker ended unexpectedly. Its log: {self._kafka.log_path}")
        if self._feeder is not None:
            self._feeder.feed()
        if self._reader is None:
            time.sleep(_TICK_S)
        else:
            self._reader.read(_TICK_S)
        for name, child in self._children.items():
            ended = child.exit_code is not None
            for report in child.reports():
                self.board.apply(name, report)
            if ended and not child.may_end:
                raise SparkRelayError(self._failure(name, "ended unexpectedly"))
        self._show()

    def _failure(self, name: str, what: str) -> str:
        client, child = self.board.clients.get(name), self._children[name]
        why = f": {client.failure}" if client is not None and client.failure else ""
        return (
            f"{name} {what} (exit code {child.exit_code}){why}\n"
            f"The end of its log, {child.log_path}:\n{child.last_lines()}"
        )

    def _show(self) -> None:
        board = self.board
        board.elapsed = time.monotonic() - self._began_at
        if self._feeder is not None:
            board.total, board.produced = self._feeder.records, self._feeder.produced
            board.to_count = self._feeder.counted
        if self._reader is not None:
            board.counted = self._reader.counted[BY_CARRIER.topic]
        self._screen.show(board)
