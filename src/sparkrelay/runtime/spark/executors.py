"""The executors of a Spark application: on a cluster each of them is one process (KIP-924's client).

Liveness comes from the scheduler's table (``getExecutorIds``, ``isExecutorActive``): the calls are quick, and an
executor leaves the table before Spark fails its jobs. A decommissioned executor stays in the table until its last task
has ended, but gets no new one: pinned jobs would run elsewhere. So it counts as gone. Host and cores come from Spark's
status store, which lists new executors a moment later. Refused: ``getExecutorMemoryStatus``, which does not distinguish
executors of one host. With ``local[N]`` the driver is the only executor, and there is nothing to watch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor.

    Attributes:
        id: Spark's id; a replacement has another one.
        host: as Spark's scheduler names it.
        spark_partitions: concurrent Spark tasks.
    """

    id: str
    host: str
    spark_partitions: int

    @property
    def location(self) -> str:
        """The preferred location that pins a Spark partition to this executor."""
        return f"executor_{self.host}_{self.id}"

    def __str__(self) -> str:
        return f"executor {self.id} on {self.host}"


class Executors:
    """Queries the driver's JVM. Thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._task_cpus = int(self._context.getConf().get("spark.task.cpus") or 1)

    @property
    def separate(self) -> bool:
        """Whether executors are processes other than the driver."""
        return not self._context._jsc.sc().isLocal()

    def ids(self) -> frozenset[str]:
        """Return the ids of the executors that currently accept jobs."""
        text = str(self._context._jsc.sc().getExecutorIds().mkString(","))
        return frozenset(id_ for id_ in text.split(",") if self.alive(id_)) if text else frozenset()

    def alive(self, id_: str) -> bool:
        """Return whether an executor currently accepts jobs."""
        return bool(self._context._jsc.sc().schedulerBackend().isExecutorActive(id_))

    def describe(self, ids: Collection[str]) -> list[Executor]:
        """Describe those of the given executors that Spark already lists; a new one takes a moment."""
        known = self._context._jsc.sc().statusStore().executorList(True)
        found = []
        for index in range(known.size()):
            summary = known.apply(index)
            if summary.id() in ids:
                spark_partitions = max(1, int(summary.totalCores()) // self._task_cpus)
                found.append(Executor(str(summary.id()), host_of(str(summary.hostPort())), spark_partitions))
        return sorted(found, key=lambda executor: executor.id)


def host_of(address: str) -> str:
    """Return the host of ``host:port``, ``[v6]:port`` or a host alone."""
    if address.startswith("["):
        return address.partition("]")[0] + "]"
    return address.rpartition(":")[0] or address
