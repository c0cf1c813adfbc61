"""Names of columns in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def columns_there_are(names: Sequence[str], missing: str) -> str:
    """Return the names as a text, and which one is meant where ``missing`` differs in upper and lower case alone.

    Spark resolves names without their case unless set otherwise; names that make keys are taken as they are written.
    """
    text = ", ".join(names)
    alike = [name for name in names if name.casefold() == missing.casefold()]
    return f"{text}; upper and lower case count here: write {alike[0]!r}" if len(alike) == 1 else text


def key_outside(name: str) -> str:
    """Return how a column becomes the message key without being a field of the value."""
    return (
        f"For a key that is not in the value, leave key= out: rows keep their message key. Make {name!r} the key with "
        f'repartition("{name}"), unless it is the key already, and then drop("{name}")'
    )
