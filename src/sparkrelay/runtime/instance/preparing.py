"""``sparkrelay prepare``: one-time work that would slow down the first start on a machine.

It compiles the record codecs and archives Spark's classes (``spark.class_archive``). For the archive, a child process
does what an instance does before it connects to its broker: it makes a session, has Catalyst plan a pipeline, and runs
a job through Python workers. Its JVM writes the archive when it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkContext
from pyspark.sql import functions as F

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import StreamsException
from sparkrelay.java import require_java
from sparkrelay.own_files import make_directory
from sparkrelay.records import compile_kernels
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.compile.legs import LegCompiler
from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
from sparkrelay.runtime.contract.client_settings import worker_settings
from sparkrelay.runtime.contract.commands import BatchCommand
from sparkrelay.runtime.spark.class_archive import archive_path, written_at_exit
from sparkrelay.runtime.spark.collected_frames import CollectedFrames
from sparkrelay.runtime.spark.executor_target import ExecutorTarget
from sparkrelay.runtime.spark.jobs import BATCH_POOL, REPORT_SCHEMA, run_job
from sparkrelay.runtime.spark.session import spark_session
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.runtime.worker.context import no_rows
from sparkrelay.topology import StreamsBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "sparkrelay-prepare"
#: It takes about 20 s on an idle machine, and ten minutes if ten others compete for each core.
_LONGEST_SECONDS: Final = 1800.0
_SHOWN: Final = 2000


def prepare() -> Path:
    """Compile the record codecs and archive Spark's classes; return the archive, which replaces an existing one.

    Both are for this user, this Python environment and this Java.

    Raises:
        JavaException: Java is missing or too old.
        StreamsException: the archive could not be made; the message ends with Spark's output.
        OSError: the user's cache folder is not writable.
    """
    require_java()
    compile_kernels()
    archive = archive_path()
    make_directory(archive.parent)
    # Under a temporary name, so that nobody uses a partial archive.
    made = archive.with_suffix(f".{os.getpid()}")
    child = [sys.executable, "-m", __name__, str(made)]
    try:
        run = subprocess.run(
            child, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=_LONGEST_SECONDS
        )
        if run.returncode or not made.exists():
            raise StreamsException(
                f"Spark's classes could not be archived at {archive} (exit code {run.returncode}); everything works "
                f"without the archive, but starts slower. Output:\n{run.stdout[-_SHOWN:].strip()}"
            )
        made.replace(archive)
    except subprocess.TimeoutExpired:
        raise StreamsException(
            f"Spark's classes were not archived at {archive} within {_LONGEST_SECONDS:g} s; everything works without "
            "the archive, but starts slower"
        ) from None
    finally:
        made.unlink(missing_ok=True)
    return archive


def _train(archive: Path) -> None:
    """Run in the child: have a JVM load the classes of a start, which it archives when it ends."""
    with written_at_exit(archive):
        spark = spark_session(_NAME, **{"spark.master": "local[1]", "spark.ui.port": "0"})
    try:
        _plan_and_run(spark)
    finally:
        spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None, "the session was made here"
    jvm = gateway.proc
    gateway.shutdown()
    # The JVM ends when its standard input is closed.
    jvm.stdin.close()
    code = jvm.wait(_LONGEST_SECONDS)
    if code:
        raise StreamsException(f"the JVM ended with exit code {code}")


def _plan_and_run(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("user"), value=Json("place string, amount double, time timestamp"))
    kept = rows.where("amount is not null").withColumn("twice", F.col("amount") * 2)
    totals = F.count("*").alias("rows"), F.sum("twice").alias("total"), F.avg("amount").alias("mean")
    kept.groupBy("user", F.window("time", "1 day")).agg(*totals).to("by_user", value=Json())
    kept.groupBy("place").agg(*totals).to("by_place", value=Json())
    legs = builder.build().upstream_first
    # No broker is contacted.
    config = StreamsConfig.from_dict({"application.id": _NAME, "bootstrap.servers": "localhost:9092"})
    target = ExecutorTarget(spark, spark_partitions=1)
    client = worker_settings(config, "worker", run=1)
    names, frames = TopicNames(_NAME), CollectedFrames()
    PreparedLegs(LegCompiler(target, config, legs, names=names, client=client, frames=frames), legs)
    # The legs themselves would connect, so run a job of the same shape: Python, Spark's own steps, Python.
    step = target.source().mapInArrow(no_rows, "user string, amount double, time timestamp")
    chosen = step.where("amount is not null").select("user", F.window("time", "1 day"), F.col("amount") * 2)
    reports = chosen.mapInArrow(no_rows, REPORT_SCHEMA)
    group = target.job_group(_NAME)
    command = BatchCommand(((),), {})
    run_job(target, reports.union(reports), command, pool=BATCH_POOL, group=group, description="a first job")


if __name__ == "__main__":
    _train(Path(sys.argv[1]))
