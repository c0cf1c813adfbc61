"""Reduces Spark's logs of failed jobs, which we report in a sentence, and of each task.

Spark logs each failed or cancelled task two or three times, with its stack: over a hundred lines for one bad record,
and more for jobs cancelled on purpose. Our own error names topic, partition, offsets, cause and remedy; our log has the
whole text at DEBUG.

Executors log ten lines of INFO per task, about 1.2 kB: a gigabyte a day.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from sparkrelay.runtime.spark.unusable_session import is_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Silenced messages of Spark's Executor, TaskSetManager, DAGScheduler and Python runner. The Python runner mistakes an
#: error of an upstream step for the end of the worker. The last two are about tasks that begin or end after the script.
_SILENCED: Final = (
    r"(?s)(Exception in task|Executor (interrupted and )?killed task|Lost task|Task \d+\S* in stage \S+ failed"
    r"|Failed to cancel job group|Incomplete task interrupted"
    r"|Python worker exited unexpectedly \(crashed\)|This may have been caused by a prior exception"
    r"|Executor launch task task \S+ in stage \S+ \(TID \d+\) failed, reason: Task \S+ rejected"
    r"|Failed to update accumulator \d+ \(org\.apache\.spark\.api\.python\.PythonAccumulatorV2\)).*"
)


def silence_failed_tasks(spark: SparkSession) -> None:
    """Remove failed and cancelled tasks from the log of the session's JVM.

    Only for sessions made for us: in others, such lines may be about other queries.
    """
    try:
        _add_filter(spark.sparkContext._jvm)
    except (Py4JError, TypeError) as error:
        # With another logging backend than Spark's own, Spark logs more.
        log.debug("Spark's log of failed tasks could not be silenced: %s", error)


def _add_filter(jvm: Any) -> None:
    core = jvm.org.apache.logging.log4j.core
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    # In Spark's own configuration, and most others, all messages reach the root logger.
    root = context.getConfiguration().getRootLogger()
    if root.getFilter() is not None and _SILENCED in root.getFilter().toString():
        return
    result = getattr(jvm, "org.apache.logging.log4j.core.Filter$Result")
    root.addFilter(core.filter.RegexFilter.createFilter(_SILENCED, None, False, result.DENY, result.NEUTRAL))
    context.updateLoggers()


def quiet_executors(spark: SparkSession) -> None:
    """Set the log level of the current executors to WARN, or to ``spark.log.level``; not that of the driver.

    A log4j file in ``spark.executor.extraJavaOptions``, or ``spark.executor.syncLogLevel.enabled``, takes precedence.
    """
    conf = spark.sparkContext.getConf()
    if is_on(conf, "spark.executor.syncLogLevel.enabled") or "log4j" in (
        conf.get("spark.executor.extraJavaOptions") or ""
    ):
        return
    level = (conf.get("spark.log.level") or "WARN").upper()
    try:
        spark.sparkContext._jsc.sc().schedulerBackend().updateExecutorsLogLevel(level)
    except (Py4JError, TypeError) as error:
        log.debug("the executors' log level could not be set: %s", error)
