"""What ``foreachBatch`` adds to a micro-batch: the intent before its job, and the calls between its job and its commit.

The same task and number must always come with the same rows, in whatever process and after whatever death. So what a
micro-batch takes is committed before anything of it is run (``tasks.batch_notes``), and the functions are called once
all of its rows are there. What they write is no part of the transaction: sinks know a number again.
"""

from __future__ import annotations

import functools
import logging
import os
import traceback
import uuid
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from sparkrelay.errors import SparkRelayError
from sparkrelay.printable import printable
from sparkrelay.runtime.compile.schemas import arrow_schema
from sparkrelay.runtime.spark.job_errors import read_job_error
from sparkrelay.runtime.spark.jobs import REPORT_SCHEMA, JobFailed, TaskFailed
from sparkrelay.runtime.worker.kept_rows import read_kept_rows, remove_kept_rows, remove_step
from sparkrelay.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.contract.commands import KeptRows, LegReport
    from sparkrelay.runtime.spark.jobs import Jobs
    from sparkrelay.topology import ForeachBatch

__all__ = ["KEPT_ROWS", "BatchFunctions"]

log = logging.getLogger(__name__)

#: The directory of a slot in which rows wait for their functions.
KEPT_ROWS: Final = "foreach-batch"
_LONGEST_TEXT: Final = 2_000


class BatchFunctions:
    """Calls the functions of one stream thread's micro-batches. One batch thread owns it.

    Args:
        jobs: the stream thread's.
        application_id: the application's.
        home: a directory for the rows, of this stream thread alone, on the host of the process; what is in it is
            removed.
    """

    def __init__(self, jobs: Jobs, application_id: str, home: Path) -> None:
        self._jobs = jobs
        self._application_id = application_id
        self._home = home
        # No former process had directories of this name.
        self._name = uuid.uuid4().hex[:12]
        self.clear()

    def directory(self, number: int) -> str:
        """Return where the rows of a micro-batch of that number wait."""
        return str(self._home / f"{self._name}-{number}")

    def clear(self) -> None:
        """Remove the rows of former micro-batches of this host; on an executor's, see :meth:`release`."""
        if self._jobs.target.executor is None:
            remove_kept_rows(self._home)

    def release(self, reports: Sequence[LegReport]) -> None:
        """Remove the rows of a micro-batch that has ended. Where it fails, the next one's job removes them."""
        if all(report.kept is None for report in reports):
            return
        if self._jobs.target.executor is None:
            self.clear()
            return
        try:
            with self._jobs.of_user("removing the rows of a micro-batch") as target:
                target.source(1).mapInArrow(functools.partial(remove_step, str(self._home)), REPORT_SCHEMA).collect()
        except (SparkRelayError, PySparkException, Py4JError, ConnectionError) as error:
            log.debug("rows below %s are left for now: %s", self._home, error)

    def call(self, plans: PreparedLegs, reports: Sequence[LegReport]) -> None:
        """Call the functions with what a micro-batch's legs have kept for them, in the order of tasks.

        Raises:
            ExecutorLost: the process's executor is gone.
            JobCancelled: the micro-batch was cancelled meanwhile, and a function's Spark job with it.
            TaskFailed: a function has raised something.
            SparkRelayError: the session is gone.
        """
        for report in sorted(reports, key=lambda report: (report.task, report.leg)):
            if report.kept is not None:
                self._call(plans, report, report.kept)

    def _call(self, plans: PreparedLegs, report: LegReport, kept: KeptRows) -> None:
        action, schema = plans.batch_function(report.leg)
        step = functools.partial(read_kept_rows, kept, arrow_schema(schema))
        id_ = BatchId(report.batch, str(report.task), f"{self._application_id}/{action.name}/{report.task}")
        what = f"{action.text} of task {report.task}, batch {report.batch}"
        with self._jobs.cancellable(), self._jobs.of_user(what) as target:
            rows = target.source(1).mapInArrow(step, schema)
            try:
                _apply(action, rows, id_)
            # What ends a thread must not end this one without a word.
            except (Exception, SystemExit) as error:
                target.require_alive()
                failure = JobFailed(f"{action.call_site}: {what} failed: {_cause(error)}")
                raise TaskFailed(report.task, failure) from error


def _apply(action: ForeachBatch, rows: DataFrame, id_: BatchId) -> None:
    action.function(rows, id_)


def _cause(error: BaseException) -> str:
    """Return what was raised and the user's line, as of what a Python function of Spark's raises."""
    if isinstance(error, PySparkException | Py4JJavaError):
        text = read_job_error(error).cause
    elif isinstance(error, Py4JError | SparkRelayError):
        text = str(error)
    else:
        text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    # The first frames are ours: this module's.
    behind = [frame for frame in frames if frame.filename != __file__]
    own = [frame for frame in behind if f"{os.sep}site-packages{os.sep}" not in frame.filename] or behind
    where = f" ({own[-1].filename}:{own[-1].lineno}, in {own[-1].name})" if own else ""
    text = printable(" ".join(text.split()))
    return (text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}...") + where
