"""What Spark logs too much: of failed jobs, which this package says itself in a sentence, and of each task that runs.

Spark logs each failed or cancelled task two or three times, with its stack: a hundred lines and more for one bad
record, and some for jobs that were cancelled on purpose. An error that comes out of a job of ours names topic,
partition, offsets, cause and remedy; the whole text is in our own log at DEBUG.

Executors log ten lines of INFO for each task, some 1.2 kB, for as long as batches come: a gigabyte a day.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["query_errors_unlogged", "quiet_executors", "silence_failed_tasks"]

log = logging.getLogger(__name__)

#: Messages of Spark's Executor, TaskSetManager, DAGScheduler and Python runner that it keeps to itself. The Python
#: runner takes an error of a step in front of a worker's for the worker's end. The last two come for a task that
#: begins, or ends, after its script has: nobody is there any more to whom Spark could report it.
_SILENCED: Final = (
    r"(?s)(Exception in task|Executor (interrupted and )?killed task|Lost task|Task \d+\S* in stage \S+ failed"
    r"|Failed to cancel job group|Incomplete task interrupted"
    r"|Python worker exited unexpectedly \(crashed\)|This may have been caused by a prior exception"
    r"|Executor launch task task \S+ in stage \S+ \(TID \d+\) failed, reason: Task \S+ rejected"
    r"|Failed to update accumulator \d+ \(org\.apache\.spark\.api\.python\.PythonAccumulatorV2\)).*"
)
_QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_here = threading.local()


def silence_failed_tasks(spark: SparkSession) -> None:
    """Have the session's JVM leave failed and cancelled tasks out of its log; all else stays as it is.

    For sessions that are made for us: in another, such lines may be about somebody else's query.
    """
    try:
        _add_filter(spark.sparkContext._jvm)
    except (Py4JError, TypeError) as error:
        # Another logging backend than Spark's own: more is logged, nothing else.
        log.debug("Spark's log of failed tasks could not be silenced: %s", error)


def _add_filter(jvm: Any) -> None:
    core = jvm.org.apache.logging.log4j.core
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    # What other loggers let through comes here, in Spark's own configuration and in most others.
    root = context.getConfiguration().getRootLogger()
    if root.getFilter() is not None and _SILENCED in root.getFilter().toString():
        return
    result = getattr(jvm, "org.apache.logging.log4j.core.Filter$Result")
    root.addFilter(core.filter.RegexFilter.createFilter(_SILENCED, None, False, result.DENY, result.NEUTRAL))
    context.updateLoggers()


def quiet_executors(spark: SparkSession) -> None:
    """Have the executors that there are now log from WARN on, or from ``spark.log.level``; the driver stays as it is.

    Not where somebody has said how executors log: by a log4j file in ``spark.executor.extraJavaOptions``, or by
    ``spark.executor.syncLogLevel.enabled``.
    """
    conf = spark.sparkContext.getConf()
    synced = (conf.get("spark.executor.syncLogLevel.enabled") or "false").lower() == "true"
    if synced or "log4j" in (conf.get("spark.executor.extraJavaOptions") or ""):
        return
    level = (conf.get("spark.log.level") or "WARN").upper()
    try:
        spark.sparkContext._jsc.sc().schedulerBackend().updateExecutorsLogLevel(level)
    except (Py4JError, TypeError) as error:
        log.debug("the executors' log level could not be set: %s", error)


@contextlib.contextmanager
def query_errors_unlogged() -> Iterator[None]:
    """Keep PySpark from logging, on this thread, an error with a stack that is about to be said in a sentence."""
    for name in _QUERY_LOGGERS:
        # Asked for as PySpark does: a plain logger of that name would make each of its calls a TypeError.
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
