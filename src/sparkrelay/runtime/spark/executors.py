"""Which executors a Spark application has: on a cluster each of them is one process (KIP-924's client).

Liveness comes from the scheduler's own table (``getExecutorIds``, ``isExecutorActive``): quick calls, and an executor
has left it before Spark fails the jobs that ran there. One that is being decommissioned stays in the table until its
last task has ended, but gets no further one: what is pinned to it would run elsewhere. So it counts as gone. Host and
cores come from Spark's status store, which lists new executors a moment later; ``getExecutorMemoryStatus`` was
refused because it does not tell executors of one host apart. The driver is in none of it: with ``local[N]`` it is the
only place where jobs run, and there is nothing to watch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

__all__ = ["Executor", "Executors"]


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor.

    Attributes:
        id: Spark's id of it; a replacement has another one.
        host: where it runs, as Spark's scheduler names it.
        spark_partitions: Spark tasks that it runs at a time.
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
    """Asks the driver's JVM. Any thread may call it."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._task_cpus = int(self._context.getConf().get("spark.task.cpus") or 1)

    @property
    def separate(self) -> bool:
        """True on a cluster; False where the driver itself is the only executor."""
        return not self._context._jsc.sc().isLocal()

    def ids(self) -> frozenset[str]:
        """Return the ids of the executors that are there now, and take jobs."""
        text = str(self._context._jsc.sc().getExecutorIds().mkString(","))
        return frozenset(id_ for id_ in text.split(",") if self.alive(id_)) if text else frozenset()

    def alive(self, id_: str) -> bool:
        """Return whether an executor is there now, and takes jobs."""
        return bool(self._context._jsc.sc().schedulerBackend().isExecutorActive(id_))

    def describe(self, ids: Collection[str]) -> list[Executor]:
        """Return those of the given executors that Spark can describe by now; a new one takes a moment."""
        known = self._context._jsc.sc().statusStore().executorList(True)
        found = []
        for index in range(known.size()):
            summary = known.apply(index)
            if summary.id() in ids:
                spark_partitions = max(1, int(summary.totalCores()) // self._task_cpus)
                found.append(Executor(str(summary.id()), host_of(str(summary.hostPort())), spark_partitions))
        return sorted(found, key=lambda executor: executor.id)


def host_of(address: str) -> str:
    """Return the host of ``host:port``, ``[v6]:port``, or of a host alone, as Spark writes them."""
    if address.startswith("["):
        return address.partition("]")[0] + "]"
    return address.rpartition(":")[0] or address
