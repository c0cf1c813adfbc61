"""Rows out of changelogs are those of the stores, whatever these hold: on the test driver."""

import collections
import datetime as dt
import json
import random

import pyarrow as pa
import pytest
from pyspark.sql import Window, functions as F
from tests.marks import marked

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.client.file_log import FileFetcher
from sparkrelay.datasources.changelog_rows import changelog_rows
from sparkrelay.datasources.cluster import Span
from sparkrelay.datasources.key_values import WantedKeys
from sparkrelay.datasources.tables import Store, description
from sparkrelay.errors import SerializationException
from sparkrelay.records.batches.encode import encode
from sparkrelay.testing import TopologyTestDriver
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
ROW = Json("n long, x double, d decimal(10,2), s string, time timestamp, tags array<string>")
PARTITIONS = 2


def rows(seed, count):
    draw = random.Random(seed)
    for _ in range(count):
        at = START + dt.timedelta(seconds=draw.randrange(600))
        yield (
            draw.choice(["ada", "bob", "cid", "dan", "eve" * 100]),
            {
                "n": draw.randrange(5),
                "x": draw.choice([None, 0.5, 1.25, -3.0]),
                "d": str(draw.randrange(1000) / 100),
                "s": draw.choice(["a", "bb", None, "ü"]),
                "time": at,
                "tags": draw.choice([[], ["x"], ["x", "y"]]),
            },
        )


def store_of(driver, name):
    topic = f"topology-test-driver-{name}-changelog"
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    return Store(name, topic, tuple(Span(p, 0, driver._log.end(p)) for p in partitions))


def read(driver, name, message_keys=None):
    """Return the rows that the changelog of a store says it has."""
    fetcher, store = FileFetcher({"sparkrelay.log.directory": str(driver._log._directory)}), store_of(driver, name)
    spec = description(fetcher, store).layout
    found = (batch for span in store.spans for batch in changelog_rows(fetcher, spec, span, message_keys))
    return [row for batch in found for row in batch.to_pylist()]


def check_partitions(driver, name):
    """Rows are in the partition that their key is said to be of, where one is."""
    fetcher, store = FileFetcher({"sparkrelay.log.directory": str(driver._log._directory)}), store_of(driver, name)
    spec, known = description(fetcher, store).layout, 0
    for span in store.spans:
        for row in (row for batch in changelog_rows(fetcher, spec, span) for row in batch.to_pylist()):
            values = {key: row[key] for key in spec.keys.names}
            partitions = WantedKeys.of_values(spec, values).partitions(PARTITIONS)
            assert partitions in (None, {span.partition.partition}), row
            known += partitions is not None
    return known


def check_keys(driver, name):
    """Some keys alone have the rows that they have among all."""
    fetcher, store = FileFetcher({"sparkrelay.log.directory": str(driver._log._directory)}), store_of(driver, name)
    spec, everything = description(fetcher, store).layout, read(driver, name)
    keys = collections.defaultdict(list)
    for row in everything:
        keys[key_text([row[key] for key in spec.keys.names])].append(row)
    some = [key for key in sorted(keys) if "null" not in key][:3]
    wanted = WantedKeys.of_texts(spec, some)
    partitions = wanted.partitions(PARTITIONS)
    found = [
        row
        for span in store.spans
        if partitions is None or span.partition.partition in partitions
        for batch in wanted.of(changelog_rows(fetcher, spec, span, wanted.message_keys))
        for row in batch.to_pylist()
    ]
    assert in_order(found) == in_order(row for key in some for row in keys[key])
    return len(found)


def key_text(values):
    """Return a key as a path of /stores spells it."""

    def as_json(value):
        return value.isoformat() if isinstance(value, dt.datetime) else str(value)

    if len(values) == 1:
        return values[0] if isinstance(values[0], str) else json.dumps(values[0], default=as_json)
    return json.dumps(values, default=as_json)


def in_order(found):
    return sorted(found, key=repr)


def stream(builder):
    return builder.stream("rows", key=String("user"), value=ROW)


def simple(builder):
    stream(builder).groupBy("user").agg(
        F.count("*").alias("count"),
        F.sum("n").alias("sum"),
        F.avg("d").alias("avg"),
        F.min("s").alias("min"),
        F.stddev("x").alias("deviation"),
        F.max_by("s", "n").alias("by"),
        F.first("x", ignorenulls=True).alias("first"),
        F.approx_count_distinct("s").alias("about"),
    )


def collected(builder):
    stream(builder).groupBy("n").agg(
        F.count_distinct("user").alias("users"),
        F.collect_list("s").alias("list"),
        F.collect_set("s").alias("set"),
        F.listagg("s", ", ").alias("text"),
        F.mode("s").alias("mode"),
        F.percentile("x", [0.25, 0.5]).alias("p"),
        F.sum_distinct("n").alias("once"),
    )


def windows(builder):
    (
        stream(builder)
        .withWatermark("time", "20 seconds")
        .groupBy("user", F.window("time", "1 minute"))
        .agg(F.count("*").alias("count"), F.collect_set("n").alias("set"))
    )


def kept_windows(builder):
    late = stream(builder).withWatermark("time", "20 seconds")
    late.groupBy(F.window("time", "1 minute"), "user").agg(F.avg("x").alias("avg"), retention="3 minutes")


def sessions(builder):
    late = stream(builder).withWatermark("time", "2 minutes")
    late.groupBy("user", F.session_window("time", "5 seconds")).agg(F.count("*").alias("count"))


def newest(builder):
    builder.table("rows", key=String("user"), value=ROW, name="agg")


def history(builder):
    builder.table("rows", key=String("user"), value=ROW, name="agg", history="1 minute")


def ranked(builder):
    by_n = Window.partitionBy("n").orderBy(F.desc("x"), F.col("user"))
    stream(builder).withColumn("place", F.row_number().over(by_n)).where("place <= 3")


def table_groups(builder):
    users = builder.table("rows", key=String("user"), value=ROW, name="users")
    users.groupBy("n").agg(F.count("*").alias("count"), F.avg("d").alias("avg"), F.collect_set("s").alias("set"))


SHAPES = [simple, collected, windows, kept_windows, sessions, newest, history, ranked, table_groups]


@pytest.mark.parametrize("shape", marked(SHAPES, (simple, windows, history, ranked)))
def test_a_changelog_has_the_rows_of_its_store(spark, shape):
    builder = StreamsBuilder()
    shape(builder)
    topology = builder.build()
    (name,) = {leg.store for leg in topology.legs if leg.store is not None and leg.store != "users"}
    with TopologyTestDriver(topology, spark=spark, partitions=PARTITIONS, batch="all") as driver:
        topic = driver.create_input_topic("rows")
        for part in range(4):
            for index, (user, row) in enumerate(rows(part, 30)):
                topic.pipe_input(user, row, part * 10_000 + index)
            if shape in {newest, history, table_groups}:
                topic.pipe_input("ada", None, part * 10_000 + 5_000)
            expected = driver.store(name)
            assert expected
            assert in_order(read(driver, name)) == in_order(expected)
            check_partitions(driver, name)
            assert check_keys(driver, name) >= 1
        driver.restart(from_changelog=True)
        assert in_order(read(driver, name)) == in_order(driver.store(name))


def test_stores_without_rows_say_so(spark):
    builder = StreamsBuilder()
    stream(builder).dropDuplicates(["user"]).to("firsts")
    topology = builder.build()
    (name,) = {leg.store for leg in topology.legs if leg.store is not None}
    with TopologyTestDriver(topology, spark=spark, partitions=PARTITIONS, batch="all") as driver:
        driver.create_input_topic("rows").pipe_input("ada", {"n": 1})
        driver.process()
        fetcher = FileFetcher({"sparkrelay.log.directory": str(driver._log._directory)})
        assert description(fetcher, store_of(driver, name)).why_not == "the keys that a stream has had"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"ada", b"\x01\x01\x00"),
        (b"ada", b"\x01"),
        (b"ada", b"\x01" + b"\xff" * 40),
        (b"\xff\xfe", None),
    ],
)
@pytest.mark.parametrize("shape", [simple, newest])
def test_what_is_no_row_is_named(spark, shape, key, value):
    builder = StreamsBuilder()
    shape(builder)
    topology = builder.build()
    (name,) = {leg.store for leg in topology.legs if leg.store is not None}
    with TopologyTestDriver(topology, spark=spark, partitions=PARTITIONS, batch="all") as driver:
        topic = driver.create_input_topic("rows")
        for user, row in rows(1, 20):
            topic.pipe_input(user, row, 1)
        driver.process()
        store = store_of(driver, name)
        at = store.spans[1].partition
        if value is None:
            (good,) = driver._log.read(at, 0, 1, {"value"}).column("value").to_pylist()
            value = good
        (forged,) = encode(pa.array([key], pa.binary()), pa.array([value], pa.binary()), timestamps=1)
        driver._log.append(at, bytes(forged.data))
        end = driver._log.end(at) - 1
        with pytest.raises(SerializationException, match=rf"'{at.topic}', partition 1, offset {end}:"):
            read(driver, name)


def test_rows_of_some_keys_are_read_alone(spark):
    builder = StreamsBuilder()
    simple(builder)
    topology = builder.build()
    (name,) = {leg.store for leg in topology.legs if leg.store is not None}
    with TopologyTestDriver(topology, spark=spark, partitions=PARTITIONS, batch="all") as driver:
        topic = driver.create_input_topic("rows")
        for user, row in rows(1, 20):
            topic.pipe_input(user, row, 1)
        expected = [row for row in driver.store(name) if row["user"] == "ada"]
        assert expected
        assert read(driver, name, pa.array([b"ada"], pa.binary())) == expected


def regrouped(builder):
    stream(builder).groupBy("s").agg(F.count("*").alias("count"))


def regrouped_behind_a_change(builder):
    changed = stream(builder).repartition("s").withColumn("s", F.upper("s")).groupBy("s")
    changed.agg(F.count("*").alias("count"))


def regrouped_by_some(builder):
    stream(builder).repartition("s").groupBy("n", "s").agg(F.count("*").alias("count"))


@pytest.mark.parametrize("shape", [regrouped, regrouped_behind_a_change, regrouped_by_some])
def test_partitions_of_keys_behind_repartition_topics(spark, shape):
    builder = StreamsBuilder()
    shape(builder)
    topology = builder.build()
    (name,) = {leg.store for leg in topology.legs if leg.store is not None}
    with TopologyTestDriver(topology, spark=spark, partitions=PARTITIONS, batch="all") as driver:
        topic = driver.create_input_topic("rows")
        for user, row in rows(1, 60):
            topic.pipe_input(user, row, 1)
        assert driver.store(name)
        assert check_partitions(driver, name)
