"""``foreachBatch``: functions are called between the job of a micro-batch and its commit.

The same task and number must always have the same rows, in any process and after any crash. So what a micro-batch takes
is committed before it runs (``tasks.batch_notes``), and functions are called once all of its rows exist. Their output
is not part of the transaction: sinks must recognize a number that they have already.
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
from sparkrelay.runtime.spark.job_errors import read_job_error
from sparkrelay.runtime.spark.jobs import REPORT_SCHEMA, JobFailed, TaskFailed
from sparkrelay.runtime.worker.rows_file import read_kept_rows, remove_kept_rows, remove_step
from sparkrelay.topology.schemas import arrow_schema
from sparkrelay.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.contract.commands import KeptRows, LegReport
    from sparkrelay.runtime.spark.jobs import Jobs

log = logging.getLogger(__name__)

#: Directory in a slot for rows of ``foreachBatch``.
KEPT_ROWS: Final = "foreach-batch"
_LONGEST_TEXT: Final = 2_000


class BatchFunctions:
    """Calls the functions for one stream thread's micro-batches. One batch thread owns it.

    ``home`` is a directory on the process's host, only for this stream thread; its content is removed.
    """

    def __init__(self, jobs: Jobs, application_id: str, home: Path) -> None:
        self._jobs = jobs
        self._application_id = application_id
        self._home = home
        # A name that no earlier process used.
        self._name = uuid.uuid4().hex[:12]
        self.clear()

    def directory(self, number: int) -> str:
        """Return the directory for the rows of a micro-batch."""
        return str(self._home / f"{self._name}-{number}")

    def clear(self) -> None:
        """Remove the rows of earlier micro-batches on this host; for executors, see :meth:`release`."""
        if self._jobs.target.executor is None:
            remove_kept_rows(self._home)

    def release(self, reports: Sequence[LegReport]) -> None:
        """Remove the rows of a finished micro-batch. If that fails, the next one's job removes them."""
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
        """Call the functions with the rows of a micro-batch's legs, in the order of tasks.

        Raises TaskFailed for a function's exception, JobCancelled if the micro-batch was cancelled, and ExecutorLost or
        another SparkRelayError if the executor or session is gone.
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
                action.function(rows, id_)
            # SystemExit must not end this thread silently.
            except (Exception, SystemExit) as error:
                target.require_alive()
                failure = JobFailed(f"{action.call_site}: {what} failed: {_cause(error)}")
                raise TaskFailed(report.task, failure) from error


def _cause(error: BaseException) -> str:
    """Return an exception and the user's line, including exceptions of Spark's Python functions."""
    if isinstance(error, PySparkException | Py4JJavaError):
        text = read_job_error(error).cause
    elif isinstance(error, Py4JError | SparkRelayError):
        text = str(error)
    else:
        text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    # The first frames are this module's.
    theirs = [frame for frame in frames if frame.filename != __file__]
    own = [frame for frame in theirs if f"{os.sep}site-packages{os.sep}" not in frame.filename] or theirs
    where = f" ({own[-1].filename}:{own[-1].lineno}, in {own[-1].name})" if own else ""
    text = printable(" ".join(text.split()))
    return (text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}...") + where
