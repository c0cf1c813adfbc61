"""The jobs of one stream thread: prepared DataFrames that run with a command and return reports.

An :class:`ExecutorTarget` decides where jobs run: in the driver's JVM, or on one executor. This module chooses Spark's
FAIR pool and interprets failures.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StructField, StructType

from sparkrelay.catalyst.query_errors import query_errors_unlogged
from sparkrelay.errors import SparkRelayError, StreamsException
from sparkrelay.printable import printable, printable_lines
from sparkrelay.runtime.contract.commands import COMMAND_PROPERTY, BatchCommand, decode_bytes, encode
from sparkrelay.runtime.contract.failure_marks import MisplacedTask, find_failure, without_marks
from sparkrelay.runtime.contract.socket_folders import NoSocketFolder
from sparkrelay.runtime.spark.cancelling import cancelled_when
from sparkrelay.runtime.spark.executor_target import SESSION_GONE
from sparkrelay.runtime.spark.job_errors import JobError, failed_partitions, read_input, read_job_error
from sparkrelay.runtime.spark.unusable_session import no_daemon, no_python
from sparkrelay.runtime.spark.worker_sockets import is_long_socket_path, long_socket_path
from sparkrelay.runtime.worker.restore import RestoreSpec, restore_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from sparkrelay.records.framing import WriterSchemas
    from sparkrelay.runtime.contract.commands import LegReport, RestoreReport, RestoreSlice
    from sparkrelay.runtime.contract.resident import ResidentCommand
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.types import TaskId

T = TypeVar("T")

log = logging.getLogger(__name__)

#: The result of a job: one row per Spark partition, with its pickled reports.
REPORT_SCHEMA = StructType([StructField("report", BinaryType(), False)])
#: FAIR pools, so that restoring does not delay running tasks.
BATCH_POOL = "sparkrelay-batches"
RESTORE_POOL = "sparkrelay-restore"
#: Set by ``SparkContext.addJobTag``; Spark's API finds jobs by it.
_TAGS_PROPERTY = "spark.job.tags"
#: Local properties that are set for a thread's jobs.
_PROPERTIES = (
    *("spark.scheduler.pool", _TAGS_PROPERTY, "spark.jobGroup.id", "spark.job.description"),
    "spark.job.interruptOnCancel",
)
#: Java's error for a closed idle worker: ``PythonWorkerFactory.create`` detects only those with a cancelled selection
#: key.
_CLOSED_WORKER = "java.nio.channels.ClosedChannelException"
#: Attempts of a job other than a micro-batch after that error.
_CLOSED_WORKERS = 3
#: Java's error if the executor cannot start Python.
_NO_PYTHON = re.compile(r'java\.io\.IOException: Cannot run program "([^"]+)"')
#: The output of a Python that could not become our daemon.
_NO_DAEMON = re.compile(
    r"Error from python worker:\s*\n(.*?)\n\s*PYTHONPATH was:.*?sparkrelay\.runtime\.worker\.daemon's stdout", re.DOTALL
)
#: The output of our daemon if it finds no folder for its socket.
_NO_SOCKET_FOLDER = re.compile(rf"(?:[\w.]+\.)?{NoSocketFolder.__name__}: (.*)")

#: Longest trace of a dead letter.
_LONGEST_TRACE: Final = 4_000


class JobFailed(StreamsException):
    """A Spark job failed in user code or with its Python worker; the message names the job and its cause."""


class UserCodeFailed(JobFailed):
    """The user's code, or Spark's evaluation of it, raised an error over its rows.

    Attributes:
        exception: name of the class, or of Spark's error condition.
        message: the error's message and place.
        trace: Spark's text with the stacks, truncated.
    """

    def __init__(self, text: str, found: JobError) -> None:
        super().__init__(text)
        self.exception = found.raised
        self.message = found.cause.removeprefix(f"{found.raised}: ")
        self.trace = printable_lines(found.text)[:_LONGEST_TRACE]


class ClosedWorkerLent(JobFailed):
    """Spark assigned a Python worker with a closed channel; the Spark task has not begun."""


class JobCancelled(JobFailed):
    """A micro-batch was cancelled because some of its tasks have to leave; the others run theirs again."""


class TaskFailed(StreamsException):
    """One task's error ended a Spark job of several tasks."""

    def __init__(self, task: TaskId, cause: SparkRelayError) -> None:
        super().__init__(f"task {task}: {cause}")
        self.task = task
        self.cause = cause


class Jobs:
    """Runs one stream thread's jobs. Thread-safe: Spark separates the threads' jobs and properties."""

    def __init__(self, target: ExecutorTarget, *, restore: RestoreSpec, name: str) -> None:
        self.target = target
        self.spark_partitions = target.spark_partitions
        self._name = name
        #: How often micro-batches were cancelled.
        self._cancels = 0
        self._batch_group = target.job_group(f"{name}-batch")
        self._restore_group = target.job_group(f"{name}-restore")
        self._prewarm_group = target.job_group(f"{name}-prewarm")
        self._resident_group = target.job_group(f"{name}-resident")
        self._leave_group = target.job_group(f"{name}-leave")
        writers = (getattr(source.fetch.value, "writers", None) for source in restore.sources.values())
        self._writers: list[WriterSchemas] = [one for one in writers if one is not None]
        self._restore_step = functools.partial(restore_partition, restore)
        self._plan_restore()

    def learn_schemas(self, numbers: Collection[int]) -> None:
        """Fetch writers' schemas of restored tables; raises SchemaRegistryException if the registry does not answer."""
        for writers in self._writers:
            writers.learn(numbers)

    def _plan_restore(self) -> None:
        # Read first: the plan contains the schemas known at this moment, and another thread may be adding more.
        self._known_schemas = sum(writers.version for writers in self._writers)
        self._restore = self.target.source().mapInArrow(self._restore_step, REPORT_SCHEMA)

    def run_batch(self, legs: DataFrame, command: BatchCommand, *, description: str) -> list[LegReport]:
        """Run one micro-batch: the union of its legs.

        Raises:
            ExecutorLost: the process's executor is gone; nothing can run here any more.
            JobCancelled: by :meth:`cancel_batch`.
            JobFailed: user code raised, a Python worker died, or Spark ran the job elsewhere.
            TaskFailed: the error is one task's own, such as a corrupted store.
            SparkRelayError: a worker's own error, such as a record that cannot be decoded.
        """
        with self.cancellable():
            return self._collect(legs, command, pool=BATCH_POOL, group=self._batch_group, description=description)

    @contextlib.contextmanager
    def cancellable(self) -> Iterator[None]:
        """Within the block, failures caused by :meth:`cancel_batch` are raised as JobCancelled."""
        cancels = self._cancels
        try:
            yield
        except JobFailed as error:
            if self._cancels > cancels:
                raise JobCancelled(str(error)) from error
            raise
        except TaskFailed as error:
            if self._cancels > cancels and isinstance(error.cause, JobFailed):
                raise JobCancelled(str(error)) from error
            raise

    @contextlib.contextmanager
    def of_user(self, what: str) -> Iterator[ExecutorTarget]:
        """Within the block, Spark jobs that the user's code starts on this thread belong to the micro-batch.

        Raises:
            ExecutorLost: the process's executor is gone.
            StreamsException: the session is gone.
        """
        self.target.require()
        context = self.target.spark.sparkContext
        text = f"{self._name}: {what}"
        with self.target.under_way(what):
            self.target.mark_jobs()
            # These jobs do not need the command, which is long; null removes a property in Java.
            context.setLocalProperty(COMMAND_PROPERTY, cast("str", None))
            tags = f"sparkrelay,{self._name},{BATCH_POOL}"
            _mark(context, pool=BATCH_POOL, group=self._batch_group, tags=tags, description=text)
            yield self.target

    def collect(self, frame: DataFrame, description: str) -> pa.Table:
        """Collect a DataFrame as part of the current micro-batch; raises as :func:`collect_frame`, or JobCancelled."""
        text = f"{self._name}: {description}"
        with self.cancellable():
            return collect_frame(self.target, frame, pool=BATCH_POOL, group=self._batch_group, description=text)

    def run_resident(
        self, legs: DataFrame, command: ResidentCommand, *, description: str, current: Callable[[], BatchCommand | None]
    ) -> None:
        """Run a resident job until its steps have to end; raises as :meth:`run_batch`.

        ``current`` returns, on any thread, the micro-batch that is running in it.
        """
        self._collect(
            legs, command, pool=BATCH_POOL, group=self._resident_group, description=description, stays=current
        )

    def cancel_resident(self) -> None:
        """Cancel the resident job, if any, which then raises JobFailed on its own thread."""
        self.target.cancel(self._resident_group)

    def prewarm(self, legs: DataFrame, command: BatchCommand, due: Callable[[], bool]) -> None:
        """Run one wave of legs for a command without tasks; raises as :meth:`run_batch`.

        ``due`` returns, on another thread, whether to cancel it, which raises JobFailed.
        """
        group = self._prewarm_group
        with cancelled_when(due, lambda: self.target.cancel(group)):
            self._collect(legs, command, pool=BATCH_POOL, group=group, description="prewarm, without a task")

    def restore(self, command: RestoreSlice, *, description: str) -> list[RestoreReport]:
        """Restore stores by one slice; raises as :meth:`run_batch`."""
        for writers in self._writers:
            writers.forget()
        if sum(writers.version for writers in self._writers) != self._known_schemas:
            self._plan_restore()
        return self._collect(
            self._restore, command, pool=RESTORE_POOL, group=self._restore_group, description=description
        )

    def drop_journals(self, command: RestoreSlice, *, description: str, seconds: float) -> list[RestoreReport]:
        """Prepare stores for the release of their tasks; raises as :meth:`run_batch`.

        The job may have to wait for a core of other tasks' batch; after ``seconds`` it is cancelled: JobFailed.
        """
        group, deadline = self._leave_group, time.monotonic() + seconds
        with cancelled_when(lambda: time.monotonic() >= deadline, lambda: self.target.cancel(group)):
            return self._collect(self._restore, command, pool=RESTORE_POOL, group=group, description=description)

    def cancel_batch(self) -> None:
        """Cancel the running micro-batch, if any, which then raises JobCancelled on its own thread."""
        self._cancels += 1
        self.target.cancel(self._batch_group)
        self.cancel_resident()

    def cancel_restore(self) -> None:
        """Cancel the running restore slice, if any, which then raises JobFailed on its own thread."""
        self.target.cancel(self._restore_group)

    def require_session(self) -> None:
        """Check that the session and the process's executor exist; raises as ``ExecutorTarget.require``."""
        self.target.require()

    def _collect(
        self,
        frame: DataFrame,
        command: object,
        *,
        pool: str,
        group: str,
        description: str,
        stays: Callable[[], BatchCommand | None] | None = None,
    ) -> list[Any]:
        tags = f"sparkrelay,{self._name},{pool}"
        text = f"{self._name}: {description}"
        return run_job(self.target, frame, command, pool=pool, group=group, tags=tags, description=text, stays=stays)


def run_job(
    target: ExecutorTarget,
    frame: DataFrame,
    command: object,
    *,
    pool: str,
    group: str,
    description: str,
    tags: str = "sparkrelay",
    stays: Callable[[], BatchCommand | None] | None = None,
) -> list[Any]:
    """Run a prepared DataFrame at its target with a command, and return its reports.

    After a closed worker (ClosedWorkerLent) the job is started again, unless it is a micro-batch: its runner counts the
    attempts.

    Args:
        target: where the job runs.
        frame: built on the target's source.
        command: for the workers.
        pool: the FAIR pool.
        group: from ``target.job_group``; cancelling it cancels the job.
        description: shown in Spark's UI.
        tags: for Spark's API, separated by commas.
        stays: returns the current micro-batch of a resident job, which is not expected to end.

    Raises:
        ExecutorLost: the target's executor is gone.
        JobFailed: user code raised, a Python worker died, or Spark ran the job elsewhere.
        TaskFailed: the error is one task's own.
        SparkRelayError: a worker's own error, or the session is gone.
    """

    def collected() -> list[Any]:
        context = frame.sparkSession.sparkContext
        target.mark_jobs()
        context.setLocalProperty(COMMAND_PROPERTY, encode(command))
        _mark(context, pool=pool, group=group, tags=tags, description=description)
        # A resident job is not expected to end.
        expected = contextlib.nullcontext() if stays else target.under_way(f"the Spark job {description!r}")
        with expected:
            # The Java DataFrame's collect, not limit or head, which would leave input unread and end the workers.
            rows: list[Any] = frame._jdf.collect()
            return rows

    def read() -> str:
        batch = stays() if stays else command
        if not isinstance(batch, BatchCommand):
            return ""
        return read_input(batch, failed_partitions(frame.sparkSession.sparkContext, group))

    attempts = 1 if isinstance(command, BatchCommand) or stays else _CLOSED_WORKERS
    while True:
        try:
            rows = _run(target, description, collected, read)
        except ClosedWorkerLent as failure:
            attempts -= 1
            if not attempts:
                raise
            log.debug("%s; trying again", failure)
            continue
        reports = [report for row in rows for report in decode_bytes(row.get(0))]
        for report in reports:
            if isinstance(report, SparkRelayError):
                raise _meant(report)
        return reports


def collect_frame(target: ExecutorTarget, frame: DataFrame, *, pool: str, group: str, description: str) -> pa.Table:
    """Evaluate a user's DataFrame again, on any executor, and return its rows.

    Nothing of an earlier evaluation is reused: neither the exchanges of an executed plan nor a list of files. The job
    is cancelled with the target.

    Raises:
        ExecutorLost: the target's executor is gone.
        JobFailed: the source cannot be read or has no files, or user code in it raised.
        StreamsException: the session is gone.
    """

    def collected() -> pa.Table:
        context = frame.sparkSession.sparkContext
        with _properties_restored(context), target.under_way(f"the Spark job {description!r}"):
            _mark(context, pool=pool, group=group, tags="sparkrelay", description=description)
            plan = frame._jdf.queryExecution().analyzed()
            plan.refresh()
            _require_files(plan, description)
            return frame.select("*").toArrow()

    try:
        return _run(target, description, collected)
    except (pa.ArrowException, EOFError, OSError) as error:
        target.require_alive()
        raise JobFailed(f"{description} failed: {error}") from error


def _mark(context: SparkContext, *, pool: str, group: str, tags: str, description: str) -> None:
    """Set the properties of the jobs that this thread starts."""
    context.setLocalProperty("spark.scheduler.pool", pool)
    context.setLocalProperty(_TAGS_PROPERTY, tags)
    context.setJobGroup(group, description, interruptOnCancel=True)


def _run(target: ExecutorTarget, description: str, job: Callable[[], T], read: Callable[[], str] = lambda: "") -> T:
    """Run a Spark job at a target, and raise its errors as ours; ``read`` describes the input of a failed job."""
    target.require()
    try:
        with query_errors_unlogged():
            return job()
    except (PySparkException, Py4JJavaError) as error:
        target.require_alive()
        found, work = read_job_error(error), read()
    except (Py4JError, ConnectionError) as error:
        target.require()
        raise StreamsException(f"{SESSION_GONE} ({error})") from error
    log.debug("%s: %s", description, printable_lines(without_marks(found.text)))
    # Not from Spark's error, which says the same in a hundred lines.
    raise _error(found, target.failure_key, description, work)


def _require_files(plan: Any, description: str) -> None:
    """Raise JobFailed if a file source has no files: Spark reads a missing or half-written folder as empty."""
    leaves = plan.collectLeaves()
    for leaf in (leaves.apply(index) for index in range(leaves.size())):
        if leaf.nodeName() != "LogicalRelation" or leaf.relation().getClass().getSimpleName() != "HadoopFsRelation":
            continue
        location = leaf.relation().location()
        if not len(location.inputFiles()):
            roots = location.rootPaths()
            paths = ", ".join(str(roots.apply(index)) for index in range(roots.size()))
            raise JobFailed(f"{description} failed: there are no files in {paths}")


@contextlib.contextmanager
def _properties_restored(context: SparkContext) -> Iterator[None]:
    """Restore a thread's properties after the block: it may be the user's own thread."""
    before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    try:
        yield
    finally:
        for name, value in before.items():
            # Java's null removes a property.
            context.setLocalProperty(name, cast("str", value))


def _error(found: JobError, key: bytes, job: str, work: str) -> SparkRelayError:
    ours = find_failure(found.text, key)
    if ours is not None:
        error, task = ours
        return _meant(error) if task is None else TaskFailed(task, error)
    if said := _NO_DAEMON.search(found.text):
        line = printable(said[1].strip().splitlines()[-1].strip())
        if no_folder := _NO_SOCKET_FOLDER.match(line):
            return StreamsException(
                f"Spark's Python workers cannot be started for the Spark job {job!r}: {no_folder[1]}"
            )
        return StreamsException(long_socket_path(job) if is_long_socket_path(line) else no_daemon(line, job))
    if is_long_socket_path(found.text):
        return StreamsException(long_socket_path(job))
    if missing := _NO_PYTHON.search(found.text):
        return StreamsException(no_python(missing[1]))
    text = f"the Spark job {job!r} failed" + (f" in {work}" if work else "") + f": {found.cause}"
    text = f"{text}. {found.remedy}" if found.remedy else text
    if _CLOSED_WORKER in found.cause:
        return ClosedWorkerLent(text)
    return UserCodeFailed(text, found) if found.raised else JobFailed(text)


def _meant(error: SparkRelayError) -> SparkRelayError:
    return JobFailed(str(error)) if isinstance(error, MisplacedTask) else error
