"""Copies of errors that are kept, for raising them more than once.

An exception gathers the frames of all who raise it, and holds what is in them. Where several calls, perhaps of several
threads, raise what went wrong once, each raises a copy; its cause is the original.
"""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["copy_of"]

E = TypeVar("E", bound=Exception)


def copy_of(error: E) -> E:
    """Return a copy of an error: its type, arguments and attributes; the original is its cause."""
    kind = type(error)
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    # Not by calling the class: it may want other arguments than those that an exception keeps. OSError keeps one more
    # than ``args`` has, and some, like UnicodeError, keep them all a second time.
    arguments = builtin.__reduce__(error)[1]
    copy = kind.__new__(kind, *arguments)
    builtin.__init__(copy, *arguments)
    vars(copy).update(vars(error))
    copy.__cause__ = error
    return copy
