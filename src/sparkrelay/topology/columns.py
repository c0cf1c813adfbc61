"""Reading names out of what users pass as columns, without importing pyspark.

Whether grouping keys include the message key decides whether a repartition topic is needed, and that must be known
when the topology is built, before any session runs it. A pyspark Column is recognised by its shape.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["describe", "plain_name"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def plain_name(column: Any) -> str | None:
    """Return the name if ``column`` is nothing but a reference to a column, else None."""
    if isinstance(column, str):
        return column if _NAME.fullmatch(column) else None
    java = getattr(column, "_jc", None)
    if java is None:
        return None
    node = java.node()
    # A literal prints like a reference; only its node tells them apart.
    if node.getClass().getSimpleName() != "UnresolvedAttribute":
        return None
    return str(java.toString())


def describe(column: Any) -> str:
    """Return a column as text, stable between runs of the same script."""
    if isinstance(column, str):
        return column
    java = getattr(column, "_jc", None)
    if java is not None:
        return str(java.toString())
    if callable(column):
        return f"{getattr(column, '__module__', '')}.{getattr(column, '__qualname__', type(column).__name__)}"
    if isinstance(column, dict):
        return "{" + ", ".join(f"{key}: {describe(value)}" for key, value in column.items()) + "}"
    if isinstance(column, list | tuple):
        return "[" + ", ".join(map(describe, column)) + "]"
    return repr(column)
