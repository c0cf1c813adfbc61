"""Names of columns in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["columns_there_are"]


def columns_there_are(names: Sequence[str], missing: str) -> str:
    """Return the names as a text, and which one is meant where ``missing`` differs in upper and lower case alone.

    Spark resolves names without their case unless set otherwise; names that make keys are taken as they are written.
    """
    text = ", ".join(names)
    alike = [name for name in names if name.casefold() == missing.casefold()]
    return f"{text}; upper and lower case count here: write {alike[0]!r}" if len(alike) == 1 else text
