"""A store as a DataFrame of any Spark application: beside Spark batch over the input, with and without an instance."""

import datetime as dt
import json
import random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String

pytestmark = pytest.mark.integration

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
SALE = "shop string, n long, x double, time timestamp"


def sales(seed, count):
    draw = random.Random(seed)
    for number in range(count):
        at = START + dt.timedelta(seconds=number)
        yield (
            f"user-{draw.randrange(40)}",
            {
                "shop": draw.choice(["north", "south", "east", "west"]),
                "n": draw.randrange(100),
                "x": draw.randrange(100) / 4,
                "time": at.isoformat(),
            },
        )


@pytest.fixture
def state(session, kafka, application_id):
    """`state(store, **options)` reads a store."""

    def read(store, schema=None, **options):
        reader = session.read.format("sparkrelay-state").option("application.id", application_id)
        reader = reader.option("storeName", store).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        for name, value in options.items():
            reader = reader.option(name.replace("_", "."), value)
        return (reader.schema(schema) if schema else reader).load()

    return read


def batch_of(session, rows):
    frame = session.createDataFrame(
        [(user, *row.values()) for user, row in rows], "user string, shop string, n long, x double, time string"
    )
    return frame.withColumn("time", F.col("time").cast("timestamp"))


def utc(time):
    return time.astimezone(dt.UTC).isoformat()


def in_order(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


@pytest.mark.long
def test_tables_are_what_spark_makes_of_the_input(session, kafka, instance, make_topic, produce, wait_until, state):
    topic = make_topic("sales", partitions=3)
    rows = list(sales(1, 400))
    produce(topic, rows)
    results = [
        F.count("*").alias("count"),
        F.avg("x").alias("avg"),
        F.count_distinct("n").alias("distinct"),
        F.collect_set("shop").alias("shops"),
    ]
    builder = StreamsBuilder()
    stream = builder.stream(topic, key=String("user"), value=Json(SALE))
    stream.groupBy("user").agg(*results, name="users")
    stream.groupBy("shop").agg(F.sum("n").alias("sum"), F.max("time").alias("last"), name="shops")
    windowed = stream.withWatermark("time", "10 minutes").groupBy(F.window("time", "1 minute"), "shop")
    windowed.agg(F.count("*").alias("count"), name="minutes")
    streams = instance(builder)
    streams.start()
    batch = batch_of(session, rows)
    wait_until(lambda: _sum(state, "shops") == sum(row["n"] for _, row in rows), "not everything is counted")
    sorted_shops = F.array_sort("shops").alias("shops")
    expected_users = batch.groupBy("user").agg(*results).select("user", "count", "avg", "distinct", sorted_shops)
    expected_shops = batch.groupBy("shop").agg(F.sum("n").alias("sum"), F.max("time").alias("last"))
    expected_minutes = batch.groupBy(F.window("time", "1 minute"), "shop").agg(F.count("*").alias("count"))

    def check():
        users = state("users")
        assert users.schema.simpleString() == (
            "struct<user:string,count:bigint,avg:double,distinct:bigint,shops:array<string>>"
        )
        assert in_order(users.select("user", "count", "avg", "distinct", sorted_shops)) == in_order(expected_users)
        assert in_order(state("shops")) == in_order(expected_shops)
        assert in_order(state("minutes")) == in_order(expected_minutes)

    wait_until(lambda: state("users").agg(F.sum("count")).first()[0] == len(rows), "not everything is counted")
    wait_until(lambda: state("minutes").agg(F.sum("count")).first()[0] == len(rows), "not everything is counted")
    check()
    assert streams.stop(60)
    check()
    # A DataFrame is what it was, whatever was derived from it: with this on, Spark's own sources in Python are not.
    assert session.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    shops = state("shops")
    assert in_order(shops.where("shop = 'north'")) == in_order(expected_shops.where("shop = 'north'"))
    assert in_order(shops) == in_order(expected_shops)
    both = shops.where("shop = 'north'").union(shops.where("shop = 'south'"))
    assert in_order(both) == in_order(expected_shops.where("shop in ('north', 'south')"))
    # The partition of a key is known after a repartition topic.
    one = state("shops", key="north")
    assert one.rdd.getNumPartitions() == 1
    assert in_order(one) == in_order(expected_shops.where("shop = 'north'"))
    assert shops.rdd.getNumPartitions() == 3
    # Producers partition the users' topic in their own ways.
    users = state("users", keys='["user-7", "user-9", "user-7", "nobody"]').select("user", "count")
    assert users.rdd.getNumPartitions() == 3
    assert in_order(users) == in_order(expected_users.where("user in ('user-7', 'user-9')").select("user", "count"))
    window = expected_minutes.where("shop = 'north'").orderBy("window").first()["window"]
    key = json.dumps([{"start": utc(window.start), "end": utc(window.end)}, "north"])
    wanted = expected_minutes.where(F.col("window.start") == F.lit(window.start)).where("shop = 'north'")
    assert in_order(state("minutes", key=key)) == in_order(wanted)
    for options, words in (
        ({"key": '["north", 1]', "storeName": "minutes"}, "not a key of store 'minutes', which has the columns window"),
        ({"key": "a", "keys": '["a"]'}, "not both"),
        ({"keys": "a"}, 'keys=.a. must be a JSON array of 1 to 1,000 keys, such as ..ada", "bob".'),
    ):
        with pytest.raises(PySparkException, match=words):
            state(options.pop("storeName", "users"), **options).collect()
    some = state("users", schema="count long, user string")
    assert some.columns == ["count", "user"]
    assert in_order(some) == in_order(expected_users.select("count", "user"))


def _sum(state, store):
    try:
        return state(store).agg(F.sum("sum")).first()[0]
    except PySparkException as error:
        # Not one batch is committed yet.
        if "is still empty" in str(error) or "no changelog topic" in str(error):
            return None
        raise


@pytest.mark.long
def test_what_cannot_be_read_is_refused_with_what_can(
    session, kafka, instance, make_topic, produce, wait_until, state, application_id
):
    topic = make_topic("sales")
    produce(topic, list(sales(1, 10)))
    builder = StreamsBuilder()
    stream = builder.stream(topic, key=String("user"), value=Json(SALE))
    stream.groupBy("user").agg(F.sum("n").alias("sum"), name="sums")
    stream.dropDuplicates(["user"], name="firsts").to(make_topic("firsts"))
    streams = instance(builder)
    streams.start()
    wait_until(lambda: _sum(state, "sums") is not None, "nothing is counted")
    assert streams.stop(60)
    with pytest.raises(PySparkException, match="keys that a stream has had.*can be read: 'sums'"):
        state("firsts")
    with pytest.raises(PySparkException, match="no store 'other' with a changelog, but 'firsts', 'sums'"):
        state("other")
    with pytest.raises(PySparkException, match="application.id='nobody' right"):
        state("sums", application_id="nobody")
    with pytest.raises(PySparkException, match="no option 'storenam'; did you mean 'storeName'"):
        state("sums", storenam="x")
    with pytest.raises(PySparkException, match="column 'no', but store 'sums' has user, sum"):
        state("sums", schema="no string").collect()
    with pytest.raises(PySparkException, match="column 'sum' is string; in store 'sums' it is int64"):
        state("sums", schema="sum string").collect()
    with pytest.raises(PySparkException, match="isolation.level='read_uncommitted': tables consist of committed"):
        state("sums", kafka_isolation_level="read_uncommitted")
    secret = state("sums", kafka_sasl_password="hunter2-secret")
    assert secret.count() == len({user for user, _ in sales(1, 10)})
    said = secret._jdf.queryExecution().toString() + secret._jdf.queryExecution().stringWithStats()
    assert "sparkrelay-state" in said
    assert "hunter2" not in said
    executions = session._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(index).physicalPlanDescription() for index in range(executions.size())]
    assert any("sparkrelay-state" in plan for plan in plans)
    assert not [plan for plan in plans if "hunter2" in plan]
