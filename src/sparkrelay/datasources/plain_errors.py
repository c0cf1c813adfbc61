"""Errors of data sources that begin with their message, not with a traceback.

A data source runs in a Python worker, which reports an error with its stack first. Spark quotes that in its own error,
so that a user has to read past five hundred characters of our code. Spark's setting
``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` omits stacks, but for the whole session. It reaches a worker
as an environment variable, and a worker ends after an error: so we set the variable there, for our own errors.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_HIDES_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
#: The main modules of Python workers: Spark's, and ours for executors.
_WORKERS: Final = ("pyspark.", "sparkrelay.runtime.worker.")


def plain_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Have a worker report a SparkRelayError without its stack; ``SPARKRELAY_TRACEBACK=1`` keeps it."""

    @functools.wraps(method)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except SparkRelayError:
            if _in_worker() and not os.environ.get("SPARKRELAY_TRACEBACK"):
                os.environ[_HIDES_TRACEBACK] = "1"
            raise

    return plain


def _in_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKERS)
