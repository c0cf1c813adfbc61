"""Errors as a user's script shows them: the calling line and the message.

The message is all that the user can act on. Without this module it would follow a page of our own frames, and Spark's
error with its Java stack as the cause. The log has these at DEBUG.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


def plain_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Strip our own frames, and causes from Spark, from the errors of a public function."""

    @functools.wraps(function)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except SparkRelayError as error:
            log.debug("%s raises", function.__qualname__, exc_info=True)
            cause = error.__cause__
            # An error of the user's code, such as an assignor, stays as the cause.
            raise error.with_traceback(None) from None if isinstance(cause, PySparkException | Py4JError) else cause
        except KeyboardInterrupt as error:
            # Our frames mean nothing to the user who pressed Ctrl-C.
            raise error.with_traceback(None) from None

    return plain
