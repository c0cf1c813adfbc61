"""The target of a process's jobs: the driver's own JVM (``local[N]``), or one executor of a cluster.

On an executor every job starts from a *placed source*: one Spark partition per core, with the executor as its preferred
location, which a long ``spark.locality.wait`` makes binding. Never ``coalesce``: it drops the preference. Spark may
still start a task elsewhere, especially after the executor has died. So each job carries the executor's id, and a
worker on another executor refuses it (``worker.context``).

A lost executor never returns under its id: its target is closed for good. Its jobs are cancelled; otherwise they would
wait for a replacement that refuses them.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commands import EXECUTOR_PROPERTY
from sparkrelay.runtime.contract.failure_marks import new_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from sparkrelay.runtime.spark.executors import Executor, Executors

log = logging.getLogger(__name__)

SESSION_GONE: Final = "the Spark session is gone"
#: For unique job groups: Spark refuses all later jobs of a closed group.
_numbers = itertools.count(1)
_ASK_SECONDS: Final = 1.0


class ExecutorLost(StreamsException):
    """The executor of a process is gone, and the process with it, but not the instance."""


class ExecutorTarget:
    """See the module. Thread-safe: Spark separates the threads' properties."""

    def __init__(self, spark: SparkSession, *, spark_partitions: int, slots: int | None = None) -> None:
        """Target the driver's JVM, by default with one slot per Spark partition."""
        self.spark = spark
        self._context = spark.sparkContext
        self.spark_partitions = spark_partitions
        #: Signs errors that this target's workers embed in Spark's text.
        self.failure_key = new_key()
        self.executor: Executor | None = None
        self._executors: Executors | None = None
        self._lost = threading.Event()
        self._groups: set[str] = set()
        self._number = next(_numbers)
        #: Concurrent Spark tasks, and how many of them resident jobs hold.
        self._slots = spark_partitions if slots is None else slots
        self._held = 0
        self._slots_lock = threading.Lock()
        #: What Spark is busy with here, and since when (monotonic seconds).
        self._under_way: dict[int, tuple[float, str]] = {}
        #: When to ask the JVM again whether the session is alive.
        self._ask_at = 0.0

    @classmethod
    def on(cls, spark: SparkSession, executor: Executor, executors: Executors) -> ExecutorTarget:
        """Return the target for an executor, whose liveness ``executors`` knows."""
        target = cls(spark, spark_partitions=executor.spark_partitions)
        target.executor, target._executors = executor, executors
        return target

    def renewed(self) -> ExecutorTarget:
        """Return a new target for the same executor, after this one was closed."""
        assert self.executor is not None, "the driver's target is never closed"
        assert self._executors is not None
        return ExecutorTarget.on(self.spark, self.executor, self._executors)

    @property
    def lost(self) -> bool:
        """True once the executor is known to be gone."""
        return self._lost.is_set()

    @property
    def description(self) -> str:
        """The target in words."""
        return "the driver" if self.executor is None else str(self.executor)

    def source(self, spark_partitions: int | None = None) -> DataFrame:
        """Return a DataFrame placed here, with one row per Spark partition (default: all of them)."""
        count = self.spark_partitions if spark_partitions is None else spark_partitions
        if self.executor is None:
            return self.spark.range(0, count, 1, count)
        jvm: Any = self._context._jvm
        gateway: Any = self._context._gateway
        convert = jvm.scala.jdk.javaapi.CollectionConverters
        rows = jvm.java.util.ArrayList()
        for number in range(count):
            fields = gateway.new_array(jvm.java.lang.Object, 1)
            fields[0] = number
            locations = jvm.java.util.ArrayList()
            locations.append(self.executor.location)
            row = jvm.org.apache.spark.sql.RowFactory.create(fields)
            rows.append(jvm.scala.Tuple2(row, convert.asScala(locations).toSeq()))
        any_class = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
        rdd = self._context._jsc.sc().makeRDD(convert.asScala(rows).toSeq(), any_class)
        schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("spark_partition int not null")
        return DataFrame(self.spark._jsparkSession.createDataFrame(rdd.toJavaRDD(), schema), self.spark)

    def hold_slots(self, count: int) -> bool:
        """Take slots for a resident job; return False if that would leave none for other jobs."""
        with self._slots_lock:
            if self._held + count >= self._slots:
                return False
            self._held += count
            return True

    def free_slots(self, count: int) -> None:
        """Return slots after :meth:`hold_slots`."""
        with self._slots_lock:
            self._held -= count

    def driver_address(self) -> tuple[str, str] | None:
        """Return the driver's address for workers and its bind address; None if the workers are on its host."""
        if self.executor is None:
            return None
        conf = self._context.getConf()
        host = str(conf.get("spark.driver.host"))
        return host, str(conf.get("spark.driver.bindAddress") or host)

    def mark_jobs(self) -> None:
        """Have the jobs of this driver thread carry their executor's id from now on."""
        id_ = "" if self.executor is None else self.executor.id
        self._context.setLocalProperty(EXECUTOR_PROPERTY, id_)

    def job_group(self, name: str) -> str:
        """Return a unique name for a group of jobs, which :meth:`lose` closes."""
        group = name if self.executor is None else f"{name}@{self.executor.id}-{self._number}"
        self._groups.add(group)
        return group

    @contextlib.contextmanager
    def under_way(self, what: str) -> Iterator[None]:
        """Record that Spark is busy with something during the block, for :meth:`overdue`."""
        number = next(_numbers)
        self._under_way[number] = time.monotonic(), what
        try:
            yield
        finally:
            del self._under_way[number]

    def overdue(self, seconds: float) -> str:
        """Describe what Spark has been doing here for longer than this; empty if nothing."""
        now = time.monotonic()
        late = [(now - since, what) for since, what in list(self._under_way.values()) if now - since > seconds]
        if not late:
            return ""
        lasted, what = max(late)
        return f"on {self.description} {what} has not ended for {lasted:.0f} s"

    def cancel(self, group: str) -> None:
        """Cancel the running jobs of a group; without a session they have ended."""
        try:
            self._context.cancelJobGroup(group)
        except (Py4JError, ConnectionError, AttributeError) as error:
            log.debug("jobs of %s could not be cancelled: %s", group, error)

    def require(self, *, ask: bool = False) -> None:
        """Check that jobs can run here. Cheap: the JVM is asked at most once a second, unless ``ask`` is true.

        Raises:
            ExecutorLost: the executor is known to be gone.
            StreamsException: the session was stopped, or its JVM has ended.
        """
        jvm = getattr(self._context._gateway, "proc", None)
        java = getattr(self._context, "_jsc", None)
        if java is None:
            raise StreamsException(
                f"{SESSION_GONE}: it was stopped. Stop the KafkaStreams instance before the Spark session"
            )
        if jvm is not None and jvm.poll() is not None:
            raise StreamsException(
                f"{SESSION_GONE}: its JVM ended with exit code {jvm.poll()}. Start the application again"
            )
        if ask or time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + _ASK_SECONDS
            try:
                with self.under_way("a question to Spark's JVM"):
                    stopped = java.sc().isStopped()
            except (Py4JError, ConnectionError) as error:
                raise StreamsException(f"{SESSION_GONE} ({error})") from error
            if stopped:
                # Python notices later, if it stopped the session at all.
                raise StreamsException(
                    f"{SESSION_GONE}: it was stopped in its JVM, by spark.stop(), by the cluster manager, or because "
                    "the JVM ran out of memory (see its log; increase spark.driver.memory). Stop the KafkaStreams "
                    "instance before its Spark session, or start it again"
                )
        if self.lost:
            raise ExecutorLost(f"{self.description} is gone, and this process with it")

    def require_alive(self) -> None:
        """Raise as :meth:`require` after a failed job, but ask Spark, also whether the executor is alive."""
        self.require(ask=True)
        if self.executor is None or self._executors is None:
            return
        try:
            alive = self._executors.alive(self.executor.id)
        except (Py4JError, ConnectionError) as error:
            self.require()
            raise StreamsException(f"{SESSION_GONE} ({error})") from error
        if not alive:
            self.lose()
            self.require()

    def lose(self) -> None:
        """Close the target for good: its executor is gone."""
        if self.executor is None or self.lost:
            return
        self._lost.set()
        try:
            for group in tuple(self._groups):
                self._context._jsc.sc().cancelJobGroupAndFutureJobs(group)
        except (Py4JError, ConnectionError, AttributeError) as error:
            # The session is ending, and its jobs with it.
            log.debug("jobs of %s could not be cancelled: %s", self.description, error)
