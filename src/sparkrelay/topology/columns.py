"""Arguments of the user's calls."""

from __future__ import annotations

from typing import Any


def flat(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a method that takes them one by one or as one list, as PySpark's do."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], list | tuple) else args


def function_text(function: object) -> str:
    """Return a function as people read it, the same in every process."""
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition("<locals>.")[2]


def quoted(name: str) -> str:
    """Return a column's name as Spark reads it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
