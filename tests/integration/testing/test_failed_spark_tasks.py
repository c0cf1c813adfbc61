"""A Spark task that fails halfway: Spark closes the socket to the stateful step, to which that looks like the end."""

import os
import signal

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import SparkRelayError
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

ROWS, AN_ARROW_BATCH = 2000, 200


@pytest.fixture
def small_arrow_batches(spark):
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, str(AN_ARROW_BATCH))
    yield
    spark.conf.set(name, before)


def fails_once(flag):
    """A step that passes rows on, but for one time in which it raises at the tenth from the end."""

    @F.udf("int")
    def checked(n):
        if n == ROWS - 10:
            try:
                flag.touch(exist_ok=False)
            except FileExistsError:
                return n
            raise ValueError("once")
        return n

    return checked


def test_what_a_failed_task_took_in_is_taken_in_once_and_whole(small_arrow_batches, spark, tmp_path):
    flag = tmp_path / "failed"
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json("n int, pad string"))
    sums = F.count("*").alias("rows"), F.sum("m").alias("n"), F.max("pad").alias("pad")
    stream.withColumn("m", fails_once(flag)("n")).groupBy("user").agg(*sums).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        # More bytes in an Arrow batch than Spark buffers, so that some are sent before the failure.
        driver.create_input_topic("in").pipe_rows(("a", {"n": n, "pad": f"{n:04d}" * 250}) for n in range(ROWS))
        found = driver.create_output_topic("out").read_rows()
    assert found == [{"user": "a", "rows": ROWS, "n": sum(range(ROWS)), "pad": f"{ROWS - 1:04d}" * 250}]
    assert flag.exists()


def test_a_python_worker_that_is_killed_is_named_as_such(spark):
    @F.udf("string")
    def killed(text):
        os.kill(os.getpid(), signal.SIGKILL)
        return text

    builder = StreamsBuilder()
    builder.stream("in", key=String("user"), value=Json("n string")).withColumn("m", killed("n")).to(
        "out", value=Json()
    )
    with (
        pytest.raises(
            SparkRelayError, match=r"topic in, partition 0, offsets 0 to 0\): a Python worker died: a signal"
        ),
        TopologyTestDriver(builder.build(), spark=spark) as driver,
    ):
        driver.create_input_topic("in").pipe_input("a", {"n": "x"})
