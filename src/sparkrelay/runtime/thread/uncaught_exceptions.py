"""The response to the death of a stream thread, decided by the user's handler (KIP-671).

Kafka Streams' ``StreamsUncaughtExceptionHandler`` with its three responses.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, TypeAlias

from sparkrelay.errors import ApplicationShutdownException

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


class StreamThreadExceptionResponse(enum.StrEnum):
    """A response of an uncaught-exception handler, which may also return the string."""

    #: A new thread replaces the dead one and gets its tasks by a rebalance. For transient errors.
    REPLACE_THREAD = "replace-thread"
    #: The instance ends in ERROR; others take over its tasks. The default, also for None.
    SHUTDOWN_CLIENT = "shutdown-client"
    #: Every instance of the application ends in ERROR. For errors that would follow the task to its next owner.
    SHUTDOWN_APPLICATION = "shutdown-application"


UncaughtExceptionHandler: TypeAlias = "Callable[[Exception], StreamThreadExceptionResponse | str | None]"


def ask_handler(handler: UncaughtExceptionHandler | None, error: Exception) -> StreamThreadExceptionResponse:
    """Return the response to a stream thread's death.

    It is the default if the handler fails or returns anything else, and while the application shuts down.
    """
    default = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    if handler is None or isinstance(error, ApplicationShutdownException):
        return default
    try:
        answer = handler(error)
    except BaseException:  # also sys.exit(), which would end this thread alone
        log.exception("the uncaught-exception handler failed; the instance ends")
        return default
    if answer is None:
        return default
    try:
        return StreamThreadExceptionResponse(answer)
    except ValueError:
        log.error(  # noqa: TRY400 - the traceback is ours
            "the uncaught-exception handler returned %r instead of %s or None; the instance ends",
            answer,
            ", ".join(repr(str(one)) for one in StreamThreadExceptionResponse),
        )
        return default
