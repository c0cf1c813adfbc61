"""PySpark's loggers of errors that a sentence of ours replaces, and what executors log."""

import logging
import re
import threading
from types import SimpleNamespace

import pytest
from pyspark.logger import PySparkLogger

from sparkrelay.catalyst.query_errors import query_errors_unlogged
from sparkrelay.runtime.spark.spark_logs import _SILENCED, quiet_executors


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


@pytest.fixture(params=["SQLQueryContextLogger", "DataFrameQueryContextLogger"])
def logger(request):
    with query_errors_unlogged():
        pass
    logger, kept = PySparkLogger.getLogger(request.param), Kept()
    logger.handlers = [kept]
    return logger


def test_they_take_what_pyspark_gives_them(logger):
    logger.error("division by zero", errorClass="DIVIDE_BY_ZERO")
    assert logger.handlers[0].messages == ["division by zero"]


def test_they_keep_still_meanwhile_on_this_thread_alone(logger):
    with query_errors_unlogged():
        with query_errors_unlogged():
            logger.error("inner", errorClass="A")
        logger.error("outer", errorClass="A")
        other = threading.Thread(target=logger.error, args=("of another thread",))
        other.start()
        other.join()
    logger.error("after", errorClass="A")
    assert logger.handlers[0].messages == ["of another thread", "after"]


@pytest.mark.parametrize(
    ("conf", "level"),
    [
        ({}, "WARN"),
        ({"spark.log.level": "error"}, "ERROR"),
        ({"spark.executor.extraJavaOptions": "-Xss4m"}, "WARN"),
        ({"spark.executor.extraJavaOptions": "-Dlog4j2.configurationFile=file:/etc/log4j2.properties"}, None),
        ({"spark.executor.syncLogLevel.enabled": "true"}, None),
    ],
)
def test_executors_log_as_the_session_says_or_from_warnings_on(conf, level):
    levels = []
    java = SimpleNamespace(schedulerBackend=lambda: SimpleNamespace(updateExecutorsLogLevel=levels.append))
    context = SimpleNamespace(getConf=lambda: conf, _jsc=SimpleNamespace(sc=lambda: java))
    quiet_executors(SimpleNamespace(sparkContext=context))
    assert levels == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("message", "silent"),
    [
        ("Executor launch task task 1.0 in stage 0.0 (TID 1) failed, reason: Task a.B$C@1f rejected from d.E@58", True),
        ("Executor launch task task 1.0 in stage 0.0 (TID 1) failed, reason: no memory", False),
        ("Failed to update accumulator 0 (org.apache.spark.api.python.PythonAccumulatorV2) for task 0", True),
        ("Failed to update accumulator 7 (org.apache.spark.util.LongAccumulator) for task 0", False),
        ("Lost task 0.0 in stage 1.0 (TID 1) (vm executor driver): TaskKilled (cancelled)\n\tat x", True),
        ("Lost executor 1 on vm: worker lost", False),
        ("Python worker exited unexpectedly (crashed) - task 2.0 in stage 16 (TID 46)", True),
        ("This may have been caused by a prior exception:", True),
    ],
)
def test_what_spark_keeps_to_itself(message, silent):
    assert bool(re.fullmatch(_SILENCED, message)) is silent
