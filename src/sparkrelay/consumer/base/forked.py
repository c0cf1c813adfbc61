"""What is said in a process that was forked from the one that made a consumer.

A fork copies everything but threads: the copy has no network thread, so nothing would ever be answered, and its
connections are those of the other process. So it may not be used there, and closing it does nothing.
"""

from __future__ import annotations

import os

from sparkrelay.errors import DisconnectException

__all__ = ["forked_error"]


def forked_error(what: str, process: int) -> DisconnectException:
    """Return the error for using something of another process.

    Args:
        what: ``Consumer`` or another class.
        process: the process that made it.
    """
    return DisconnectException(
        f"this {what} belongs to process {process}, which made it, and was used in process {os.getpid()}: a fork has "
        f"no network thread; make a {'consumer' if what.endswith('Consumer') else what} in this process",
        retriable=False,
    )
