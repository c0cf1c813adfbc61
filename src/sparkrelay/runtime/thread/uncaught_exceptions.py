"""What becomes of an instance when a stream thread dies: the user's handler decides.

Kafka Streams' ``StreamsUncaughtExceptionHandler`` and its three answers (KIP-671).
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, TypeAlias

from sparkrelay.errors import ApplicationShutdownException

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["StreamThreadExceptionResponse", "UncaughtExceptionHandler", "ask_handler"]

log = logging.getLogger(__name__)


class StreamThreadExceptionResponse(enum.StrEnum):
    """What an uncaught-exception handler may answer; its words will do as well."""

    #: A new thread takes the dead one's place, and gets its tasks by a rebalance. For errors that pass.
    REPLACE_THREAD = "replace-thread"
    #: The instance ends in ERROR; others take its tasks over. The default, and what None means.
    SHUTDOWN_CLIENT = "shutdown-client"
    #: Every instance of the application ends in ERROR. For errors that would follow the task from one to the next.
    SHUTDOWN_APPLICATION = "shutdown-application"


UncaughtExceptionHandler: TypeAlias = "Callable[[Exception], StreamThreadExceptionResponse | str | None]"


def ask_handler(handler: UncaughtExceptionHandler | None, error: Exception) -> StreamThreadExceptionResponse:
    """Return what is to be done about a stream thread's death.

    A handler that fails or answers something else does not decide; nor does anyone when the application is ending.
    """
    default = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    if handler is None or isinstance(error, ApplicationShutdownException):
        return default
    try:
        answer = handler(error)
    except BaseException:  # sys.exit() among them: it would end this thread alone
        log.exception("the uncaught-exception handler failed itself; the instance ends")
        return default
    if answer is None:
        return default
    try:
        return StreamThreadExceptionResponse(answer)
    except ValueError:
        log.error(  # noqa: TRY400 - its traceback says nothing
            "the uncaught-exception handler answered %r; it may answer %s or None. The instance ends",
            answer,
            ", ".join(repr(str(one)) for one in StreamThreadExceptionResponse),
        )
        return default
