"""Errors of queries, which PySpark logs with their stacks, and we report in a sentence."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

_QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_here = threading.local()


@contextlib.contextmanager
def query_errors_unlogged() -> Iterator[None]:
    """Keep PySpark from logging errors with their stacks on this thread: we report them in a sentence."""
    for name in _QUERY_LOGGERS:
        # Created like PySpark does: with a plain logger of that name each of its calls would raise TypeError.
        logger = PySparkLogger.getLogger(name)
        if _loud not in logger.filters:
            logger.addFilter(_loud)
    before = getattr(_here, "quiet", False)
    _here.quiet = True
    try:
        yield
    finally:
        _here.quiet = before


def _loud(_: logging.LogRecord) -> bool:
    return not getattr(_here, "quiet", False)
