"""Rows of ``show()`` as text, laid out as in Spark's ``DataFrame.show``."""

from __future__ import annotations

import sys
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDE: Final = frozenset("WF")
_LEAST_WIDTH: Final = 3


def print_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
    """Print the rows of a micro-batch; the first cell of each marks deletions."""
    marked = any(row[0] for row in rows)
    names = ("", *columns) if marked else tuple(columns)
    cells = [tuple(row) if marked else tuple(row[1:]) for row in rows]
    sys.stdout.write(f"{title}\n{table_text(names, cells)}\n")
    sys.stdout.flush()


def table_text(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> str:
    """Return a framed table; numbers and text are right-aligned, as in Spark."""
    cells = [[_printable(name) for name in names]]
    cells += [["NULL" if cell is None else _printable(cell) for cell in row] for row in rows]
    widths = [max(_LEAST_WIDTH, *map(_width, column)) for column in zip(*cells, strict=True)]
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    lines = [
        "|" + "|".join(" " * (width - _width(cell)) + cell for cell, width in zip(row, widths, strict=True)) + "|"
        for row in cells
    ]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def _printable(text: str) -> str:
    """Return text without characters that move a terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in _WIDE else 1 for c in text)
