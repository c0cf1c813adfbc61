"""The jobs of one stream thread: prepared DataFrames, a command beside them, and the reports they bring back.

An :class:`ExecutorTarget` knows where jobs run: in the driver's own JVM, or on one executor. This module knows which of
Spark's FAIR pools they share, and what a failure means.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StructField, StructType

from sparkrelay.errors import SparkRelayError, StreamsException
from sparkrelay.printable import printable, printable_lines
from sparkrelay.runtime.contract.commands import COMMAND_PROPERTY, BatchCommand, decode_bytes, encode
from sparkrelay.runtime.contract.failure_marks import MisplacedTask, find_failure, without_marks
from sparkrelay.runtime.contract.socket_folders import NoSocketFolder
from sparkrelay.runtime.spark.cancelling import cancelled_when
from sparkrelay.runtime.spark.executor_target import SESSION_GONE
from sparkrelay.runtime.spark.job_errors import JobError, failed_partitions, read_input, read_job_error
from sparkrelay.runtime.spark.spark_logs import query_errors_unlogged
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

__all__ = [
    "BATCH_POOL",
    "REPORT_SCHEMA",
    "RESTORE_POOL",
    "JobCancelled",
    "JobFailed",
    "Jobs",
    "TaskFailed",
    "collect_frame",
    "run_job",
]

log = logging.getLogger(__name__)

#: What comes back from a job: one row a Spark partition, its pickled reports.
REPORT_SCHEMA = StructType([StructField("report", BinaryType(), False)])
#: FAIR pools: restoring must not hold up running tasks.
BATCH_POOL = "sparkrelay-batches"
RESTORE_POOL = "sparkrelay-restore"
#: What ``SparkContext.addJobTag`` sets, by which Spark's API finds jobs.
_TAGS_PROPERTY = "spark.job.tags"
#: What is set of a thread's jobs.
_PROPERTIES = (
    *("spark.scheduler.pool", _TAGS_PROPERTY, "spark.jobGroup.id", "spark.job.description"),
    "spark.job.interruptOnCancel",
)
#: What Java says of an idle worker, in ``PythonWorkerFactory.create``, which takes only a cancelled selection key for a
#: dead one.
_CLOSED_WORKER = "java.nio.channels.ClosedChannelException"
#: So often a job that is no micro-batch is begun again for it.
_CLOSED_WORKERS = 3
#: And where Spark's executor starts Python.
_NO_PYTHON = re.compile(r'java\.io\.IOException: Cannot run program "([^"]+)"')
#: And what the Python said that was to become our daemon there.
_NO_DAEMON = re.compile(
    r"Error from python worker:\s*\n(.*?)\n\s*PYTHONPATH was:.*?sparkrelay\.runtime\.worker\.daemon's stdout", re.DOTALL
)
#: And what our daemon says where it finds no folder for its socket.
_NO_SOCKET_FOLDER = re.compile(rf"(?:[\w.]+\.)?{NoSocketFolder.__name__}: (.*)")


#: What a dead letter says of the stacks.
_LONGEST_TRACE: Final = 4_000


class JobFailed(StreamsException):
    """A Spark job failed in user code or with its Python worker; the message names the job and its cause."""


class UserCodeFailed(JobFailed):
    """A step of the user's has raised something over its rows, or Spark has in evaluating it.

    Attributes:
        exception: name of the class, or of Spark's error condition.
        message: what it said, and where.
        trace: Spark's text with the stacks, cut where it is very long.
    """

    def __init__(self, text: str, found: JobError) -> None:
        super().__init__(text)
        self.exception = found.raised
        self.message = found.cause.removeprefix(f"{found.raised}: ")
        self.trace = printable_lines(found.text)[:_LONGEST_TRACE]


class ClosedWorkerLent(JobFailed):
    """Spark lent a Python worker whose channel is closed: the Spark task that got it has not begun."""


class JobCancelled(JobFailed):
    """A micro-batch was cancelled here, because tasks in it have to leave; the others run theirs again."""


class TaskFailed(StreamsException):
    """One task's own trouble ended the Spark job it ran in with others."""

    def __init__(self, task: TaskId, cause: SparkRelayError) -> None:
        super().__init__(f"task {task}: {cause}")
        self.task = task
        self.cause = cause


class Jobs:
    """Runs one stream thread's jobs. Any driver thread may call it: Spark keeps their jobs and properties apart."""

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
        """Have the schemas fetched by which records were written that tables are restored from.

        Raises:
            SchemaRegistryException: the registry does not answer.
        """
        for writers in self._writers:
            writers.learn(numbers)

    def _plan_restore(self) -> None:
        # Before the plan: it has what was known when it was made, and another thread may get to know more meanwhile.
        self._known_schemas = sum(writers.version for writers in self._writers)
        self._restore = self.target.source().mapInArrow(self._restore_step, REPORT_SCHEMA)

    def run_batch(self, legs: DataFrame, command: BatchCommand, *, description: str) -> list[LegReport]:
        """Run one micro-batch: the union of its legs.

        Raises:
            ExecutorLost: the process's executor is gone; nothing can be run here any more.
            JobCancelled: by :meth:`cancel_batch`.
            JobFailed: user code raised, a Python worker died, or Spark ran the job elsewhere.
            TaskFailed: the trouble is one task's own, such as a store that cannot be trusted.
            SparkRelayError: a worker's own error, such as a record that does not decode.
        """
        with self.cancellable():
            return self._collect(legs, command, pool=BATCH_POOL, group=self._batch_group, description=description)

    @contextlib.contextmanager
    def cancellable(self) -> Iterator[None]:
        """Have a micro-batch that runs in the block fail with JobCancelled if :meth:`cancel_batch` ended it."""
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
        """Have Spark jobs that the user's code begins on this thread count as the micro-batch's; yield their place.

        Raises:
            ExecutorLost: the process's executor is gone.
            StreamsException: the session is gone.
        """
        self.target.require()
        context = self.target.spark.sparkContext
        text = f"{self._name}: {what}"
        with self.target.under_way(what):
            self.target.mark_jobs()
            context.setLocalProperty("spark.scheduler.pool", BATCH_POOL)
            context.setLocalProperty(_TAGS_PROPERTY, f"sparkrelay,{self._name},{BATCH_POOL}")
            # It is long, and nobody's here; Java's null takes a property away.
            context.setLocalProperty(COMMAND_PROPERTY, cast("str", None))
            context.setJobGroup(self._batch_group, text, interruptOnCancel=True)
            yield self.target

    def collect(self, frame: DataFrame, description: str) -> pa.Table:
        """Collect a DataFrame for the micro-batch under way; what cancels that ends this too.

        Raises:
            JobCancelled: by :meth:`cancel_batch`.
            SparkRelayError: what :func:`collect_frame` raises.
        """
        text = f"{self._name}: {description}"
        with self.cancellable():
            return collect_frame(self.target, frame, pool=BATCH_POOL, group=self._batch_group, description=text)

    def run_resident(
        self, legs: DataFrame, command: ResidentCommand, *, description: str, current: Callable[[], BatchCommand | None]
    ) -> None:
        """Run a job that stays, until its steps are asked to end; raises as :meth:`run_batch` does.

        Args:
            legs: the job.
            command: where its steps find the driver.
            description: what Spark's UI shows.
            current: says, on any thread, which micro-batch is under way in it.
        """
        self._collect(
            legs, command, pool=BATCH_POOL, group=self._resident_group, description=description, stays=current
        )

    def cancel_resident(self) -> None:
        """Have Spark end the resident job, if there is one; it fails with JobFailed on its own thread."""
        self.target.cancel(self._resident_group)

    def prewarm(self, legs: DataFrame, command: BatchCommand, due: Callable[[], bool]) -> None:
        """Run one wave of legs for a command without tasks; raises as :meth:`run_batch` does.

        Args:
            legs: the wave.
            command: has no tasks.
            due: says, on another thread, whether it is to end; then it is cancelled, which is a JobFailed.
        """
        group = self._prewarm_group
        with cancelled_when(due, lambda: self.target.cancel(group)):
            self._collect(legs, command, pool=BATCH_POOL, group=group, description="prewarm, without a task")

    def restore(self, command: RestoreSlice, *, description: str) -> list[RestoreReport]:
        """Bring stores forward by one slice; raises as :meth:`run_batch` does."""
        for writers in self._writers:
            writers.forget()
        if sum(writers.version for writers in self._writers) != self._known_schemas:
            self._plan_restore()
        return self._collect(
            self._restore, command, pool=RESTORE_POOL, group=self._restore_group, description=description
        )

    def drop_journals(self, command: RestoreSlice, *, description: str, seconds: float) -> list[RestoreReport]:
        """Do what stores need as their tasks leave; raises as :meth:`run_batch` does.

        Args:
            command: what to do.
            description: what Spark's UI shows.
            seconds: how long it may take: it may wait for a core behind a batch of other tasks. Then it is cancelled,
                which is a JobFailed.
        """
        group, deadline = self._leave_group, time.monotonic() + seconds
        with cancelled_when(lambda: time.monotonic() >= deadline, lambda: self.target.cancel(group)):
            return self._collect(self._restore, command, pool=RESTORE_POOL, group=group, description=description)

    def cancel_batch(self) -> None:
        """Have Spark end the micro-batch that runs, if one does; it fails with JobCancelled on its own thread."""
        self._cancels += 1
        self.target.cancel(self._batch_group)
        self.cancel_resident()

    def cancel_restore(self) -> None:
        """Have Spark end the restore slice that runs, if one does; it fails with JobFailed on its own thread."""
        self.target.cancel(self._restore_group)

    def require_session(self) -> None:
        """Make sure that Spark is there, and the process's executor; cheap enough for each turn.

        Raises:
            ExecutorLost: the executor is known to be gone.
            StreamsException: the session was stopped, or its JVM has ended.
        """
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
    """Run a prepared DataFrame at its target with a command beside it; return what its rows report.

    A micro-batch that Spark lent a closed worker is its runner's to try again, which numbers the tries; any other job
    begins again here.

    Args:
        target: where it belongs.
        frame: built on the target's source.
        command: what the workers read.
        pool: the FAIR pool.
        group: what cancels the job, from ``target.job_group``.
        description: what Spark's UI shows.
        tags: by which Spark's API finds it, separated by commas.
        stays: of a resident job: says which micro-batch is under way in it. It is not expected to end.

    Raises:
        ExecutorLost: the target's executor is gone.
        JobFailed: user code raised, a Python worker died, or Spark ran the job elsewhere.
        TaskFailed: the trouble is one task's own.
        SparkRelayError: a worker's own error, or the session is gone.
    """
    for left in reversed(range(_CLOSED_WORKERS)):
        try:
            return _run_once(target, frame, command, pool, group, description, tags, stays)
        except ClosedWorkerLent as error:
            if isinstance(command, BatchCommand) or stays is not None or not left:
                raise
            log.debug("%s; once more", error)
    raise AssertionError("the last try returns or raises")


def _run_once(  # noqa: PLR0917 - as run_job has them
    target: ExecutorTarget,
    frame: DataFrame,
    command: object,
    pool: str,
    group: str,
    description: str,
    tags: str,
    stays: Callable[[], BatchCommand | None] | None,
) -> list[Any]:
    target.require()
    context = frame.sparkSession.sparkContext
    try:
        target.mark_jobs()
        context.setLocalProperty("spark.scheduler.pool", pool)
        context.setLocalProperty(_TAGS_PROPERTY, tags)
        context.setLocalProperty(COMMAND_PROPERTY, encode(command))
        context.setJobGroup(group, description, interruptOnCancel=True)
        # The Java DataFrame's own collect: no limit, no head, which would leave input unread and end the workers.
        expected = contextlib.nullcontext() if stays else target.under_way(f"the Spark job {description!r}")
        with query_errors_unlogged(), expected:
            rows = frame._jdf.collect()
    except (PySparkException, Py4JJavaError) as error:
        target.require_alive()
        found = read_job_error(error)
        batch = stays() if stays else command
        work = read_input(batch, failed_partitions(context, group)) if isinstance(batch, BatchCommand) else ""
    except (Py4JError, ConnectionError) as error:
        target.require()
        raise StreamsException(f"{SESSION_GONE} ({error})") from error
    else:
        reports = [report for row in rows for report in decode_bytes(row.get(0))]
        for report in reports:
            if isinstance(report, SparkRelayError):
                raise _meant(report)
        return reports
    log.debug("%s: %s", description, printable_lines(without_marks(found.text)))
    # Without Spark's own error as the cause: it says the same in a hundred lines.
    raise _error(found, target.failure_key, description, work)


def collect_frame(target: ExecutorTarget, frame: DataFrame, *, pool: str, group: str, description: str) -> pa.Table:
    """Evaluate a DataFrame of the user's anew, wherever Spark likes, and bring its rows to the driver.

    What Spark has kept of an earlier time is not used: neither a plan that has run, whose exchanges it keeps, nor a
    list of files.

    Args:
        target: whose session it is; the job ends with it.
        frame: the DataFrame.
        pool: the FAIR pool.
        group: what cancels the job, from ``target.job_group``.
        description: what Spark's UI shows.

    Raises:
        ExecutorLost: the target's executor is gone.
        JobFailed: its source cannot be read or has no files, or user code in it raised.
        StreamsException: the session is gone.
    """
    target.require()
    context = frame.sparkSession.sparkContext
    try:
        with (
            _properties_restored(context),
            query_errors_unlogged(),
            target.under_way(f"the Spark job {description!r}"),
        ):
            context.setLocalProperty("spark.scheduler.pool", pool)
            context.setLocalProperty(_TAGS_PROPERTY, "sparkrelay")
            context.setJobGroup(group, description, interruptOnCancel=True)
            plan = frame._jdf.queryExecution().analyzed()
            plan.refresh()
            _require_files(plan, description)
            return frame.select("*").toArrow()
    except (PySparkException, Py4JJavaError) as error:
        target.require_alive()
        found = read_job_error(error)
    except (Py4JError, ConnectionError) as error:
        target.require()
        raise StreamsException(f"{SESSION_GONE} ({error})") from error
    except (pa.ArrowException, EOFError, OSError) as error:
        target.require_alive()
        raise JobFailed(f"{description} failed: {error}") from error
    log.debug("%s: %s", description, printable_lines(found.text))
    raise _error(found, target.failure_key, description, "")


def _require_files(plan: Any, description: str) -> None:
    """Make sure that a plan's files are there: Spark reads a folder that is gone, or being written, as an empty one.

    Raises:
        JobFailed: a file source has none.
    """
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
    """Leave a thread as it was: it may be the user's, who makes an instance and has jobs of their own afterwards."""
    before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    try:
        yield
    finally:
        for name, value in before.items():
            # Java's null takes a property away.
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
