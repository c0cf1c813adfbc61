"""The jobs of one stream thread: prepared DataFrames, with an order beside them, and the reports they bring back.

Where jobs go is the :class:`Place`'s to know: the driver's own JVM, or one executor. Here is which of Spark's FAIR
pools they share, and what a failure means.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from sparkrelay.errors import SparkRelayError, StreamsException
from sparkrelay.runtime.cancelling import cancelled_when
from sparkrelay.runtime.orders import ORDER_PROPERTY, decode_bytes, encode
from sparkrelay.runtime.place import SESSION_GONE
from sparkrelay.runtime.schemas import REPORT_SCHEMA
from sparkrelay.runtime.worker.context import MisplacedTask, find_failure
from sparkrelay.runtime.worker.replay import ReplaySpec, replay_slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from sparkrelay.runtime.orders import BatchOrder, LegReport, ReplayReport, ReplayRound
    from sparkrelay.runtime.place import Place
    from sparkrelay.types import TaskId

__all__ = [
    "BATCH_POOL",
    "REPLAY_POOL",
    "JobCancelled",
    "JobFailed",
    "Jobs",
    "TaskFailed",
    "run_job",
]

log = logging.getLogger(__name__)

#: FAIR pools: replaying must not hold up running tasks.
BATCH_POOL = "sparkrelay-batches"
REPLAY_POOL = "sparkrelay-replay"
#: What ``SparkContext.addJobTag`` sets, by which Spark's API finds jobs.
_TAGS_PROPERTY = "spark.job.tags"


class JobFailed(StreamsException):
    """A Spark job failed in user code or with its Python worker; the message names the job and its cause."""


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

    def __init__(self, place: Place, *, replay: ReplaySpec, name: str) -> None:
        self._place = place
        self.slots = place.slots
        self._name = name
        #: How often micro-batches were cancelled.
        self._cancels = 0
        self._batch_group = place.job_group(f"{name}-batch")
        self._replay_group = place.job_group(f"{name}-replay")
        self._rehearsal_group = place.job_group(f"{name}-rehearsal")
        self._farewell_group = place.job_group(f"{name}-farewell")
        self._replay = place.source().mapInArrow(functools.partial(replay_slot, replay), REPORT_SCHEMA)

    def run_batch(self, legs: DataFrame, order: BatchOrder, *, description: str) -> list[LegReport]:
        """Run one micro-batch: the union of its legs.

        Raises:
            ExecutorLost: the process's executor is gone; nothing can be run here any more.
            JobCancelled: by :meth:`cancel_batch`.
            JobFailed: user code raised, a Python worker died, or Spark ran the job elsewhere.
            TaskFailed: the trouble is one task's own, such as a store that cannot be trusted.
            SparkRelayError: a worker's own error, such as a record that does not decode.
        """
        cancels = self._cancels
        try:
            return self._collect(legs, order, pool=BATCH_POOL, group=self._batch_group, description=description)
        except JobFailed as error:
            if self._cancels > cancels:
                raise JobCancelled(str(error)) from error
            raise

    def rehearse(self, legs: DataFrame, order: BatchOrder, due: Callable[[], bool]) -> None:
        """Run one wave of legs for an order without tasks; raises as :meth:`run_batch` does.

        Args:
            legs: the wave.
            order: has no tasks.
            due: tells, on another thread, whether it is to end; then it is cancelled, which is a JobFailed.
        """
        group = self._rehearsal_group
        with cancelled_when(due, lambda: self._place.cancel(group)):
            self._collect(legs, order, pool=BATCH_POOL, group=group, description="rehearsal, without a task")

    def replay(self, order: ReplayRound, *, description: str) -> list[ReplayReport]:
        """Bring stores forward by one slice; raises as :meth:`run_batch` does."""
        return self._collect(self._replay, order, pool=REPLAY_POOL, group=self._replay_group, description=description)

    def settle(self, order: ReplayRound, *, description: str, seconds: float) -> list[ReplayReport]:
        """Do what stores need as their tasks leave; raises as :meth:`run_batch` does.

        Args:
            order: what to do.
            description: what Spark's UI shows.
            seconds: how long it may take: it may wait for a core behind a batch of other tasks. Then it is cancelled,
                which is a JobFailed.
        """
        group, deadline = self._farewell_group, time.monotonic() + seconds
        with cancelled_when(lambda: time.monotonic() >= deadline, lambda: self._place.cancel(group)):
            return self._collect(self._replay, order, pool=REPLAY_POOL, group=group, description=description)

    def cancel_batch(self) -> None:
        """Have Spark end the micro-batch that runs, if one does; it fails with JobCancelled on its own thread."""
        self._cancels += 1
        self._place.cancel(self._batch_group)

    def cancel_replay(self) -> None:
        """Have Spark end the slice of replaying that runs, if one does; it fails with JobFailed on its own thread."""
        self._place.cancel(self._replay_group)

    def require_session(self) -> None:
        """Make sure that Spark is there, and the process's executor; cheap enough for each turn.

        Raises:
            ExecutorLost: the executor is known to be gone.
            StreamsException: the session was stopped, or its JVM has ended.
        """
        self._place.require()

    def _collect(self, frame: DataFrame, order: object, *, pool: str, group: str, description: str) -> list[Any]:
        tags = f"sparkrelay,{self._name},{pool}"
        text = f"{self._name}: {description}"
        return run_job(self._place, frame, order, pool=pool, group=group, tags=tags, description=text)


def run_job(
    place: Place, frame: DataFrame, order: object, *, pool: str, group: str, description: str, tags: str = "sparkrelay"
) -> list[Any]:
    """Run a prepared DataFrame at its place with an order beside it; return what its rows report.

    Args:
        place: where it belongs.
        frame: built on the place's source.
        order: what the workers read.
        pool: the FAIR pool.
        group: what cancels the job, from ``place.job_group``.
        description: what Spark's UI shows.
        tags: by which Spark's API finds it, separated by commas.

    Raises:
        ExecutorLost: the place's executor is gone.
        JobFailed: user code raised, a Python worker died, or Spark ran the job elsewhere.
        TaskFailed: the trouble is one task's own.
        SparkRelayError: a worker's own error, or the session is gone.
    """
    place.require()
    context = frame.sparkSession.sparkContext
    try:
        place.mark_jobs()
        context.setLocalProperty("spark.scheduler.pool", pool)
        context.setLocalProperty(_TAGS_PROPERTY, tags)
        context.setLocalProperty(ORDER_PROPERTY, encode(order))
        context.setJobGroup(group, description, interruptOnCancel=True)
        # The Java DataFrame's own collect: no limit, no head, which would leave input unread and end the workers.
        rows = frame._jdf.collect()
    except PySparkException as error:
        place.require_alive()
        # py4j's errors of user code arrive translated.
        text = str(error)
    except Py4JJavaError as error:
        place.require_alive()
        text = _causes(error)
    except (Py4JError, ConnectionError) as error:
        place.require()
        raise StreamsException(f"{SESSION_GONE} ({error})") from error
    else:
        return [report for row in rows for report in decode_bytes(row.get(0))]
    log.debug("%s: %s", description, text)
    # Without Spark's own error as the cause: it says the same in a hundred lines.
    raise _readable(text, description)


def _causes(error: Py4JJavaError) -> str:
    texts = []
    cause = error.java_exception
    while cause is not None:
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(texts) or str(error)


def _readable(text: str, job: str) -> SparkRelayError:
    ours = find_failure(text)
    if ours is not None:
        error, task = ours
        if isinstance(error, MisplacedTask):
            return JobFailed(str(error))
        return error if task is None else TaskFailed(task, error)
    if "No module named 'sparkrelay'" in text:
        return StreamsException(
            "Spark's Python workers cannot import sparkrelay: they run another Python than the driver. Set "
            "PYSPARK_PYTHON to a Python that has it before the session is made; sparkrelay.spark_session() does so for "
            "local sessions"
        )
    return JobFailed(f"the Spark job {job!r} failed: {_shorten(text)}")


def _shorten(text: str) -> str:
    """Return what a user can act on: the Python error and its traceback if there is one."""
    lines = [line for line in text.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            end = next((i for i in range(index + 1, len(lines)) if not lines[i].startswith(" ")), len(lines) - 1)
            return "\n".join((lines[end], *lines[index : end + 1]))
    return "\n".join(lines[:6])
