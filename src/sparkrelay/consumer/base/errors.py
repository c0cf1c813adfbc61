"""Errors that are raised more than once, and the error for a fork."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from sparkrelay.errors import DisconnectException

E = TypeVar("E", bound=Exception)


def copy_of(error: E) -> E:
    """Return a copy of an error with its type, arguments and attributes; the original is its cause.

    An exception collects the frames of every raise and keeps their variables alive. So several calls, perhaps in
    several threads, raise copies.
    """
    kind = type(error)
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    # Not by calling the class, whose arguments may differ from ``args``. OSError has one more, and some, such as
    # UnicodeError, keep them twice.
    arguments = builtin.__reduce__(error)[1]
    copy = kind.__new__(kind, *arguments)
    builtin.__init__(copy, *arguments)
    vars(copy).update(vars(error))
    copy.__cause__ = error
    return copy


def forked_error(what: str, process: int) -> DisconnectException:
    """Return the error for using an object of class ``what`` outside of the process that made it.

    A fork copies no threads: the copy has no network thread, and its sockets are the other process's. So it cannot be
    used, and closing it does nothing.
    """
    return DisconnectException(
        f"this {what} belongs to process {process}, which made it, and was used in process {os.getpid()}: a fork has "
        f"no network thread; make a {'consumer' if what.endswith('Consumer') else what} in this process",
        retriable=False,
    )
