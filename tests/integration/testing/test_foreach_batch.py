"""Rows of micro-batches that a function on the driver gets: which, in what order, and under which numbers."""

import pickle

import pytest
from pyspark.sql import functions as F

from sparkrelay import BatchId, Json, StreamsBuilder, String
from sparkrelay.errors import SparkRelayError
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

ORDER = Json("id long, shop string, tags array<string>, place struct<lat: double, lon: double>")


class Calls:
    """A function of foreachBatch that notes what it gets."""

    def __init__(self):
        self.seen, self.raises = [], None

    def __call__(self, df, batch_id):
        self.seen.append((batch_id, [row.id for row in df.collect()]))
        if self.raises is not None:
            raised, self.raises = self.raises, None
            raise raised


def pipe(topic, *numbers, users=("ada",)):
    for number in numbers:
        for user in users:
            topic.pipe_input(user, {"id": number, "shop": "a"})


def test_a_function_gets_the_rows_of_each_task_and_batch(spark):
    calls = Calls()
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=ORDER)
    orders.where("id IS NULL OR id > 1").foreachBatch(calls, name="sink")
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=2) as driver:
        topic = driver.create_input_topic("orders")
        users = [f"u{number}" for number in range(8)]
        pipe(topic, 1, 2, 3, users=users)
        topic.pipe_input("u1", None)
        driver.process()
        (first, ids), (second, others) = calls.seen
        assert (first, first.task, first.txn_app_id) == (1, "0_0", "topology-test-driver/sink/0_0")
        assert (second, second.task) == (1, "0_1")
        assert sorted(ids + others) == [2] * 8 + [3] * 8
        assert pickle.loads(pickle.dumps(first)).task == "0_0"
        with pytest.raises(AttributeError):
            first.task = "0_9"
        assert isinstance(first, BatchId)
        pipe(topic, 1)
        driver.process()
        assert len(calls.seen) == 2, "a batch without rows"
        driver.restart()
        pipe(topic, 4, users=users)
        driver.process()
        assert sorted(int(id_) for id_, _ in calls.seen[2:]) == [2, 3], "they go on behind those before the restart"


def test_rows_may_be_read_again_and_again(spark, tmp_path):
    """Counted, cached, joined, written; of all of Spark's types."""
    seen = []

    def write(df, batch_id):
        df.cache()
        rows = df.count()
        df.write.mode("overwrite").parquet(str(tmp_path / f"{batch_id.task}-{batch_id}"))
        names = df.join(df.groupBy("user").count(), "user").select("user", "count", "place.lat", "tags").collect()
        seen.append((rows, names, df.columns))
        df.unpersist()

    builder = StreamsBuilder()
    builder.stream("orders", key=String("user"), value=ORDER).foreachBatch(write)
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("orders")
        topic.pipe_input("ada", {"id": 1, "tags": ["x", None], "place": {"lat": 1.5}})
        topic.pipe_input("ada", {"id": 2})
        driver.process()
    ((rows, names, columns),) = seen
    assert (rows, columns) == (2, ["id", "shop", "tags", "place", "user"])
    found = {tuple(map(str, row)) for row in names}
    assert found == {("ada", "2", "1.5", "['x', None]"), ("ada", "2", "None", "None")}
    assert spark.read.parquet(str(tmp_path / "0_0-1")).count() == 2


def test_a_function_that_raises_gets_the_same_again(spark):
    """The other task's does, too: both are of one micro-batch."""
    calls = Calls()
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=ORDER)
    orders.groupBy("user").agg(F.max("id").alias("id")).to_stream().foreachBatch(calls)
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=2) as driver:
        topic = driver.create_input_topic("orders")
        users = [f"u{number}" for number in range(8)]
        pipe(topic, 1, users=users)
        driver.process()
        before, calls.seen = calls.seen, []
        calls.raises = ValueError("the sink is full")
        pipe(topic, 3, 2, users=users)
        driver.process()
        first, *again = calls.seen
        assert [first[0].task, *(id_.task for id_, _ in again)] == ["0_0", "0_0", "0_1"]
        assert first == again[0]
        assert {int(id_) for id_, _ in again} == {int(id_) + 1 for id_, _ in before}
        assert sorted(row for _, rows in again for row in rows) == [3] * 8


def test_what_a_function_raises_says_where(spark):
    def write(df, batch_id):
        raise ValueError(f"no room {batch_id}")

    builder = StreamsBuilder()
    builder.stream("orders", key=String("user"), value=ORDER).foreachBatch(write)
    words = r"test_foreach_batch.py:\d+: foreachBatch\(.*write\) of task 0_0, batch 1 failed: ValueError: no room 1"
    with (
        TopologyTestDriver(builder.build(), {"max.batch.retries": 1}, spark=spark) as driver,
        pytest.raises(SparkRelayError, match=rf"{words} \(.*test_foreach_batch.py:\d+, in write\)"),
    ):
        pipe(driver.create_input_topic("orders"), 1)


def test_the_rows_are_gone_once_the_function_has_returned(spark):
    kept = []
    builder = StreamsBuilder()
    builder.stream("orders", key=String("user"), value=ORDER).foreachBatch(lambda df, batch_id: kept.append(df))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        pipe(driver.create_input_topic("orders"), 1)
        with pytest.raises(Exception, match="is for its function alone"):
            kept[0].count()


def test_small_micro_batches_pass_through_the_job_that_stays(spark):
    calls = Calls()
    builder = StreamsBuilder()
    builder.stream(["orders", "returns"], key=String("user"), value=ORDER).foreachBatch(calls)
    topology = builder.build()
    with TopologyTestDriver(topology, spark=spark) as driver:
        orders, returns = driver.create_input_topic("orders"), driver.create_input_topic("returns")
        for number in range(6):
            pipe(orders, number)
            pipe(returns, 10 + number)
        assert (
            "topic: pass" in driver._plans.describe()
            or "pass through one resident Spark job" in driver._plans.describe()
        )
    assert [(int(id_), rows) for id_, rows in calls.seen] == [
        (number + 1, [number // 2 + 10 * (number % 2)]) for number in range(12)
    ]
