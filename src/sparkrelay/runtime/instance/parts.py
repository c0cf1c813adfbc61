"""The parts of an instance, behind one import that takes a second of a core.

It loads Arrow, pandas (which PySpark requires for Arrow steps) and the Kafka client. A script imports ``KafkaStreams``
before it has a session, so that module imports this one only when an instance is made, and ``spark_session()`` loads it
while Spark's JVM starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment import load_assignor, require_known_settings
from sparkrelay.records import compile_missing_kernels
from sparkrelay.runtime.contract.client_settings import check_client_settings
from sparkrelay.runtime.instance.metadata import describe_thread
from sparkrelay.runtime.instance.page_details import page_address, page_details
from sparkrelay.runtime.process.context import RuntimeContext
from sparkrelay.runtime.process.driver_process import DriverProcess
from sparkrelay.runtime.process.processes import ExecutorProcesses
from sparkrelay.runtime.queries.instance_queries import InstanceQueries
from sparkrelay.runtime.queries.query_server import serve_queries
from sparkrelay.runtime.spark.executor_target import ExecutorTarget
from sparkrelay.runtime.spark.executors import Executors
from sparkrelay.runtime.spark.session import local_slots
from sparkrelay.runtime.topics.configured_topology import as_configured

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = [
    "InstanceQueries",
    "RuntimeContext",
    "as_configured",
    "check_client_settings",
    "describe_thread",
    "load_assignor",
    "make_processes",
    "page_address",
    "page_details",
    "require_known_settings",
    "serve_queries",
]


def make_processes(
    spark: SparkSession,
    context: RuntimeContext,
    *,
    on_change: Callable[[], None],
    on_failure: Callable[[Exception], None],
) -> DriverProcess | ExecutorProcesses:
    """Return the instance's processes, which have claimed nothing yet, after Catalyst has checked every column.

    Raises:
        TopologyException: a column does not exist or a step is not possible.
    """
    compile_missing_kernels()
    cores = max(1, spark.sparkContext.defaultParallelism)
    target = ExecutorTarget(spark, spark_partitions=cores, slots=local_slots(spark))
    executors = Executors(spark)
    processes: DriverProcess | ExecutorProcesses
    if executors.separate:
        processes = ExecutorProcesses(spark, context, executors, on_change=on_change, on_failure=on_failure)
    else:
        processes = DriverProcess(context, target)
    context.checked = context.plans(target)
    return processes
