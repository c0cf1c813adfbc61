"""What a bench prints while it runs: JSON lines on standard output, and in a file if one was named."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.machine import facts

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Journal"]


class Journal:
    """The lines of one run; use it as a context manager around what is measured.

    Its first line says what is measured on. The file is written when the context ends, however it does. SIGTERM ends
    the run by an exception, so that instances and folders are cleared away then, too.

    Args:
        file: where to write the lines as well, or None.
        versions: what else to say of the machine.

    Attributes:
        machine: what is measured on.
        lines: what was added so far.
    """

    def __init__(self, file: str | None, versions: dict[str, str] | None = None) -> None:
        self._file = file
        self.machine = {**facts(), **(versions or {})}
        self.lines: list[dict[str, Any]] = []

    def add(self, line: dict[str, Any]) -> None:
        """Add a line."""
        self.lines.append(line)
        print(json.dumps(line), flush=True)

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped by SIGTERM"))
        self.add({"bench": "machine", "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), **self.machine})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            Path(self._file).write_text("".join(json.dumps(line) + "\n" for line in self.lines))
