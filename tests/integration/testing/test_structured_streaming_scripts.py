"""docs/how-to/structured-streaming.md: its scripts give here what Spark gives over the same records."""

import ast
import json

import pytest
from pyspark.sql import functions as F
from tests.docs_pages import titled

from sparkrelay import Json, StreamsBuilder, register_data_sources
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import TopologyException
from sparkrelay.runtime.topics.configured_topology import as_configured
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _registered(spark):
    register_data_sources(spark)


class BatchSession:
    """A session whose streams are batches of these records."""

    def __init__(self, spark, records):
        self._spark = spark
        self._records = records
        self.readStream = self

    def __getattr__(self, name):
        return getattr(self._spark, name)

    def format(self, name):
        assert name == "kafka"
        return self

    def option(self, name, value):
        if name == "subscribe":
            self._topic = value
        return self

    def load(self):
        rows = [(None, json.dumps(row).encode()) for row in self._records[self._topic]]
        frame = self._spark.createDataFrame(rows, "key binary, value binary")
        return frame.withColumn("timestamp", F.current_timestamp())


def names_of(script, spark, **replaced):
    """Run a script but for what makes the session and starts; return its names."""
    for old, new in replaced.values():
        script = script.replace(old, new)
    tree = ast.parse(script)
    tree.body = [one for one in tree.body if not _left_out(one)]
    names = {"spark": spark}
    exec(compile(tree, "script", "exec"), names)
    return names


def _left_out(statement):
    if isinstance(statement, ast.With):
        return True
    if isinstance(statement, ast.Assign) and statement.targets[0].id in {"spark", "query"}:
        return True
    return "awaitTermination" in ast.unparse(statement)


def both(spark, heading, records, frame, **replaced):
    """Return Spark's rows of a script as it was, and the builder of the script as it is now."""
    before = names_of(titled(heading, "before"), BatchSession(spark, records), **replaced)
    after = names_of(titled(heading, "after"), spark, **replaced)
    return before[frame].collect(), after


def piped(driver, records):
    for topic, rows in records.items():
        driver.create_input_topic(topic).pipe_rows([(None, json.dumps(row).encode()) for row in rows])


def ordered(rows):
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))


def at(minute):
    return f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"


@pytest.mark.parametrize("batch", ["record", "all"])
def test_counts_in_windows(spark, batch):
    rows = [("a", "x", 3.0, 0), ("b", "X", 7.0, 1), ("c", "y", None, 2), ("d", "y", 2.5, 3), ("a", "x", 8.0, 6)]
    # What ends the windows of the others.
    rows.append(("z", "z", 1.0, 300))
    keys = ("device", "model", "signal", "time")
    records = {"signals": [dict(zip(keys, (*row[:3], at(row[3])), strict=True)) for row in rows]}
    expected, after = both(spark, "Counts in windows", records, "out")
    with TopologyTestDriver(after["builder"].build(), after["config"], spark=spark, batch=batch) as driver:
        piped(driver, records)
        found = driver.create_output_topic("signal-counts", value=Json()).read_rows()
    assert len(found) == 3
    assert ordered(found) == ordered(row for one in expected if (row := json.loads(one.value))["model"] != "Z")


@pytest.mark.long
@pytest.mark.parametrize("batch", ["record", "all"])
def test_a_join_of_two_streams(spark, batch):
    shown = [(1, "a", 0), (2, "b", 1), (3, "c", 2), (99, "z", 300)]
    clicked = [(1, "ada", 5), (1, "bob", 10), (3, "cid", 13), (7, "dan", 6), (98, "z", 301)]
    records = {
        "impressions": [{"ad_id": ad, "page": page, "shown_at": at(minute)} for ad, page, minute in shown],
        "clicks": [{"ad_id": ad, "user": user, "clicked_at": at(minute)} for ad, user, minute in clicked],
    }
    expected, after = both(spark, "A join of two streams", records, "out")
    with TopologyTestDriver(after["builder"].build(), after["config"], spark=spark, batch=batch) as driver:
        piped(driver, records)
        found = driver.create_output_topic("matched-ads", value=Json()).read_rows()
    assert len(found) == 4
    assert ordered(found) == ordered(row for one in expected if (row := json.loads(one.value))["ad_id"] != 99)


@pytest.mark.parametrize("batch", ["record", "all"])
def test_no_duplicates_a_static_table_and_foreach_batch(spark, tmp_path, batch):
    products = tmp_path / "products.csv"
    products.write_text("product,title,price\np1,Tea,2.5\np2,Cup,4\n")
    rows = [("1", "Ada L", "p1", 2, 0), ("1", "Ada L", "p1", 2, 0), ("2", "Bob", "p3", 1, 5), ("3", None, "p2", 3, 6)]
    keys = ("id", "user", "product", "pieces", "at")
    records = {"orders": [dict(zip(keys, (*row[:4], at(row[4])), strict=True)) for row in rows]}
    expected, after = both(
        spark,
        "No duplicates, a static table, and `foreachBatch`",
        records,
        "priced",
        products=("/data/products.csv", str(products)),
        orders=("/data/orders", str(tmp_path / "orders")),
    )
    with TopologyTestDriver(after["builder"].build(), after["config"], spark=spark, batch=batch) as driver:
        piped(driver, records)
        driver.process()
    found = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert ordered(row.asDict() for row in found) == ordered(row.asDict() for row in expected)


def rows_alone(key, rows, state):
    yield from rows


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda df: (df.limit(3),), "no end to count from"),
        (lambda df: (df.orderBy("value"),), "no order"),
        (lambda df: (df.groupBy("key").count(), {"outputMode": "complete"}), "the whole table"),
        (lambda df: (df.groupBy("key").count(),), "withWatermark"),
        (lambda df: (df.select("value", "topic"),), "topic= says where rows go"),
        (lambda df: (df.select("value", "partition"),), "the key decides the partition"),
        (lambda df: (df.select("value").mapInPandas(lambda rows: rows, "value binary"),), "pandas_udf"),
        (lambda df: (df.groupBy("key").transformWithState(None, "a int", "append", "None"),), r"add\(df\).groupBy"),
        (
            lambda df: (df.groupBy("key").applyInPandasWithState(rows_alone, "a int", "a int", "append", "NoTimeout"),),
            r"add\(df\).groupBy",
        ),
    ],
)
def test_what_is_refused(spark, make, error):
    stream = spark.readStream.format("sparkrelay").option("kafka.bootstrap.servers", "localhost:9092")
    frame, *more = make(stream.option("subscribe", "a").load())
    with pytest.raises(TopologyException, match=rf"test_structured_streaming_scripts.py:\d+: .*{error}"):
        added(spark, frame, **(more[0] if more else {}))


def added(spark, frame, **how):
    builder = StreamsBuilder(spark)
    builder.add(frame, "out", **how)
    return builder.build()


def test_brokers_agree_with_the_settings(spark):
    stream = spark.readStream.format("sparkrelay").option("kafka.bootstrap.servers", "elsewhere:9092")
    frame = stream.option("subscribe", "a").load()
    settings = StreamsConfig.from_dict({"application.id": "a", "bootstrap.servers": "localhost:9092"})
    with pytest.raises(TopologyException, match=r"elsewhere:9092.*bootstrap\.servers is 'localhost:9092'"):
        as_configured(added(spark, frame.select("value")), settings, sources=True)


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("startingOffsets", "latest", "from: latest"),
        ("startingOffsets", '{"a": {"0": 1, "1": -2}}', "from: 0: 1, 1: earliest"),
        ("startingTimestamp", "1000", "from: 1970-01-01T00:00:01+00:00"),
    ],
)
def test_where_a_stream_begins_is_described(spark, option, value, shown):
    stream = spark.readStream.format("sparkrelay").option("kafka.bootstrap.servers", "localhost:9092")
    frame = stream.option("subscribe", "a").option(option, value).load()
    assert shown in str(added(spark, frame.select("value")).describe())


def test_columns_that_the_sink_does_not_take_are_left_out(spark):
    stream = spark.readStream.format("sparkrelay").option("kafka.bootstrap.servers", "localhost:9092")
    frame = stream.option("subscribe", "a").load().drop("topic", "partition")
    with TopologyTestDriver(added(spark, frame), spark=spark) as driver:
        driver.create_input_topic("a").pipe_input(b"k", b"v")
        (record,) = driver.create_output_topic("out").read_records()
    assert (record.key, record.value) == (b"k", b"v")


def test_queries_of_one_builder_share_their_steps(spark):
    stream = spark.readStream.format("sparkrelay").option("kafka.bootstrap.servers", "localhost:9092")
    counts = stream.option("subscribe", "a").load().groupBy("key").count()
    builder = StreamsBuilder(spark)
    builder.add(counts, "all", outputMode="update")
    builder.add(counts.where("count > 1"), "many", outputMode="update")
    topology = builder.build()
    assert [one.stores for one in topology.subtopologies] == [("a-by-key",)]
    with TopologyTestDriver(topology, spark=spark) as driver:
        for _ in range(2):
            driver.create_input_topic("a").pipe_input(b"k", b"v")
        found = {name: driver.create_output_topic(name, value=Json()).read_rows() for name in ("all", "many")}
    assert [[row["count"] for row in rows] for rows in found.values()] == [[1, 2], [2]]


def test_windows_of_windows_are_written_one_after_the_other(spark):
    stream = spark.readStream.format("sparkrelay").option("kafka.bootstrap.servers", "localhost:9092")
    frame = stream.option("subscribe", "a").load().withWatermark("timestamp", "1 minute")
    inner = frame.groupBy("key", F.window("timestamp", "1 minute")).count()
    outer = inner.groupBy("key", F.window(F.window_time("window"), "5 minutes")).agg(F.sum("count").alias("n"))
    with pytest.raises(TopologyException, match="needs to know when a window is over"):
        added(spark, outer)
    builder = StreamsBuilder(spark)
    final = builder.add(inner, outputMode="append").withWatermark("window", "0 seconds")
    by_five = final.groupBy("key", F.window("window", "5 minutes")).agg(F.sum("count").alias("n"))
    by_five.outputMode("append").select(F.col("window.start").alias("start"), "n").to("out", key=None, value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        for minute in (0, 1, 4, 5, 6):
            driver.create_input_topic("a").pipe_input(b"k", b"v", minute * 60_000)
        driver.process()
        for minute in (20, 30, 40):
            driver.create_input_topic("a").pipe_input(b"k", b"v", minute * 60_000)
            driver.process()
        rows = driver.create_output_topic("out").read_rows()
    assert [(row["start"][14:16], row["n"]) for row in rows][:2] == [("00", 3), ("05", 2)]


def test_options_without_effect_are_named(spark, caplog):
    stream = spark.readStream.format("sparkrelay").option("kafka.bootstrap.servers", "localhost:9092")
    frame = stream.option("subscribe", "a").option("failOnDataLoss", "false").load()
    StreamsBuilder(spark).add(frame.select("value"), "out")
    assert "failondataloss" in caplog.text
