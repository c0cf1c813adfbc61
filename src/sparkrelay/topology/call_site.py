"""The line of the user's program that wrote a step.

A topology is checked long after it was written, and a message without a line sends people searching; so every node
remembers where it came from. Lines never enter the fingerprint: two instances may run different editions of a file.
"""

from __future__ import annotations

import contextlib
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE: Final = __name__.rpartition(".")[0] + "."


@dataclass(frozen=True, slots=True)
class CallSite:
    """One line of the user's program; as text ``flights.py:12``.

    Attributes:
        file: path of the file, as Python knows it.
        line: line number, from 1.
        function: name of the function the line stands in, ``<module>`` outside of any.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


_written: ContextVar[CallSite | None] = ContextVar("written", default=None)


@contextlib.contextmanager
def written_at(call_site: CallSite) -> Iterator[None]:
    """Have the steps that are written meanwhile come from this line, which is no line of Python."""
    before = _written.set(call_site)
    try:
        yield
    finally:
        _written.reset(before)


def find_call_site() -> CallSite:
    """Return the innermost line outside of this package, or that of :func:`written_at`."""
    if (written := _written.get()) is not None:
        return written
    frame = sys._getframe(1)
    while frame.f_back is not None and f"{frame.f_globals.get('__name__', '')}.".startswith(_PACKAGE):
        frame = frame.f_back
    return CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
