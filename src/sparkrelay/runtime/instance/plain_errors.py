"""Errors as a user's script sees them: the line that called us, and the sentence.

What a refused start says is all that its reader can act on. Without this it stands below a page of our own frames, and
Spark's error with its Java stack as the cause. All that is in the log at DEBUG.
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

__all__ = ["plain_errors"]

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


def plain_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Have a public function raise errors of ours as if it had made them itself."""

    @functools.wraps(function)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except SparkRelayError as error:
            log.debug("%s raises", function.__qualname__, exc_info=True)
            cause = error.__cause__
            # A user's own error stays: an assignor's, say.
            raise error.with_traceback(None) from None if isinstance(cause, PySparkException | Py4JError) else cause
        except KeyboardInterrupt as error:
            # Where we were when Ctrl-C was pressed means nothing to the script's reader.
            raise error.with_traceback(None) from None

    return plain
