"""The test driver: the same answers however records are cut into micro-batches, and after restarts."""

import datetime as dt
import random

import pytest
from pyspark.sql import functions as F
from tests.marks import first_of

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import RecordTooLargeException, SerializationException, TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

ORDER = Json("id long, shop string, amount long")
TOTALS = "n", "total"


def shops():
    """Two stores, one of them behind a repartition topic, and a filter."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=ORDER)
    totals = F.count("*").alias("n"), F.sum("amount").alias("total")
    orders.groupBy("user").agg(*totals).to("users")
    orders.groupBy("shop").agg(*totals).to_stream().where("total > 100").to("shops")
    orders.where("amount % 7 = 0").select("user", "id").to("sevens", key=String("user"), value=Json())
    return builder.build()


def orders(seed, count):
    chosen = random.Random(seed)
    return [
        (
            f"user-{chosen.randrange(5)}",
            {"id": number, "shop": f"shop-{chosen.randrange(3)}", "amount": chosen.randrange(-50, 200)},
            number * 10,
        )
        for number in range(count)
    ]


def expected(rows, column):
    found = {}
    for user, order, _ in rows:
        group = user if column == "user" else order[column]
        n, total = found.get(group, (0, 0))
        found[group] = n + 1, total + order["amount"]
    return found


def stored(driver, store, column):
    return {row[column]: (row["n"], row["total"]) for row in driver.store(store)}


def last(records, column):
    return {record.value[column]: (record.value["n"], record.value["total"]) for record in records}


def test_each_record_is_taken_as_it_comes(spark):
    with TopologyTestDriver(shops(), spark=spark) as driver:
        topic = driver.create_input_topic("orders")
        users, found = driver.create_output_topic("users", key=String()), driver.create_output_topic("shops")
        sevens = driver.create_output_topic("sevens")
        topic.pipe_input("ada", {"id": 1, "shop": "x", "amount": 70}, 1000)
        topic.pipe_input("bob", {"id": 2, "shop": "x", "amount": 40}, 500)
        records = users.read_records()
        assert [(r.key, r.value, r.timestamp) for r in records] == [
            ("ada", {"user": "ada", "n": 1, "total": 70}, 1000),
            ("bob", {"user": "bob", "n": 1, "total": 40}, 500),
        ]
        assert found.read_rows() == [{"shop": "x", "n": 2, "total": 110}]
        assert [(r.key, r.value) for r in sevens.read_records()] == [("ada", {"user": "ada", "id": 1})]
        assert users.is_empty
        topic.pipe_input("ada", None, 1)
        assert users.is_empty, "a tombstone ends before an aggregation"


def test_a_driver_that_was_cleared_is_as_if_it_were_new(spark):
    with TopologyTestDriver(shops(), spark=spark, wall_clock_time=5) as driver:
        topic, out = driver.create_input_topic("orders"), driver.create_output_topic("users")
        for name in ("read before", "not read before"):
            for amount, total in ((3, 3), (4, 7)):
                topic.pipe_input("ada", {"id": 1, "shop": "x", "amount": amount})
                if name == "read before":
                    assert [row["total"] for row in out.read_rows()] == [total]
            driver.clear(wall_clock_time=9)
            assert out.is_empty
            assert (driver.store("orders-by-user"), driver.store("orders-by-shop")) == ([], [])
        topic.pipe_input("ada", {"id": 1, "shop": "x", "amount": 1})
        assert [(row.value["total"], row.timestamp) for row in out.read_records()] == [(1, 9)]
        driver.restart(from_changelog=True)
        assert stored(driver, "orders-by-user", "user") == {"ada": (1, 1)}
    with pytest.raises(ValueError, match="closed"):
        driver.clear()


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_cuts_restarts_and_restores_make_no_difference(spark, seed):
    rows, cuts = orders(seed, 60), random.Random(seed)
    users, totals = expected(rows, "user"), expected(rows, "shop")
    with TopologyTestDriver(shops(), spark=spark, batch="all", partitions=1 + seed) as driver:
        topic, out = driver.create_input_topic("orders"), driver.create_output_topic("users")
        seen = {}
        for row in rows:
            topic.pipe_input(*row)
            match cuts.randrange(20):
                case 0 | 1 | 2:
                    driver.process()
                case 3:
                    driver.restart()
                case 4:
                    driver.restart(from_changelog=True)
                case 5:
                    seen |= last(out.read_records(), "user")
        seen |= last(out.read_records(), "user")
        assert seen == users
        for _ in range(2):
            assert stored(driver, "orders-by-user", "user") == users
            assert stored(driver, "orders-by-shop", "shop") == totals
            driver.restart(from_changelog=True)


@pytest.mark.long
def test_one_record_a_batch_says_what_one_batch_says_in_the_end(spark):
    rows = orders(7, 25)
    found = []
    for batch in ("record", "all"):
        with TopologyTestDriver(shops(), spark=spark, batch=batch) as driver:
            driver.create_input_topic("orders").pipe_rows(rows)
            out = driver.create_output_topic("users").read_records()
            sevens = driver.create_output_topic("sevens").read_rows()
            found.append((last(out, "user"), sevens, driver.store("orders-by-shop")))
            assert len(out) == (25 if batch == "record" else len(found[0][0]))
    assert found[0] == found[1]


def test_windows_and_the_wall_clock(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("page"), value=Json("n long"))
    clicks.select("page", F.col("kafka.timestamp").alias("at"), "n").groupBy(F.window("at", "10 seconds"), "page").agg(
        F.sum("n").alias("n")
    ).to("windows")
    with TopologyTestDriver(builder.build(), spark=spark, wall_clock_time=3_000) as driver:
        topic = driver.create_input_topic("clicks")
        topic.pipe_input("a", {"n": 1})
        driver.advance_wall_clock_time(dt.timedelta(seconds=8))
        topic.pipe_input("a", {"n": 2})
        rows = driver.create_output_topic("windows").read_rows()
        assert [(row["window"]["start"][11:19], row["n"]) for row in rows] == [("00:00:00", 1), ("00:00:10", 2)]
        assert [row["window"]["end"].second for row in driver.store("clicks-by-window-page")] == [10, 20]
        with pytest.raises(ValueError, match="time does not go back"):
            driver.advance_wall_clock_time(dt.timedelta(seconds=-1))


def test_a_window_that_no_datetime_holds_is_named(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("page"), value=Json("at timestamp"))
    clicks.groupBy(F.window("at", "10 seconds")).count().to("windows")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("clicks").pipe_input("a", {"at": "9999-12-31T23:59:55Z"})
        with pytest.raises(ValueError, match="store 'clicks-by-window' has a row with a time outside"):
            driver.store("clicks-by-window")
        (row,) = driver.create_output_topic("windows").read_rows()
        assert row["window"]["end"][:6] == "+10000"


@pytest.mark.parametrize(("size", "fits"), [(900_000, True), (1_100_000, False)])
def test_a_record_that_no_producer_sends_is_refused(spark, size, fits):
    builder = StreamsBuilder()
    builder.stream("texts", key=String("name"), value=Json("text string")).to("out")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("texts")
        if fits:
            topic.pipe_input("a", {"text": "a" * size})
            assert len(driver.create_output_topic("out").read_rows()[0]["text"]) == size
            return
        with pytest.raises(RecordTooLargeException, match="for out-0 is larger than max.request.size=1048576"):
            topic.pipe_input("a", {"text": "a" * size})


def test_what_ends_an_instance_ends_the_test(spark):
    with TopologyTestDriver(shops(), spark=spark) as driver:
        topic = driver.create_input_topic("orders")
        with pytest.raises(SerializationException, match=r"record orders-0 at offset 0 does not decode"):
            topic.pipe_input("ada", b"{no json")
    skipping = {"deserialization.exception.handler": "log-and-continue"}
    with TopologyTestDriver(shops(), skipping, spark=spark) as driver:
        topic = driver.create_input_topic("orders")
        topic.pipe_rows([("ada", b"{no json"), ("ada", {"id": 1, "shop": "x", "amount": 1})])
        assert len(driver.create_output_topic("users").read_rows()) == 1


def test_what_cannot_be_written_is_refused_when_the_driver_is_made(spark):
    builder = StreamsBuilder()
    builder.stream("orders", value=ORDER).to("out", key="price", value=Json())
    topology = builder.build()
    with pytest.raises(TopologyException, match=r"test_topology_test_driver.py:\d+: .*'price'"):
        TopologyTestDriver(topology, spark=spark)


def test_names_that_the_pipeline_does_not_know_are_refused(spark):
    with TopologyTestDriver(shops(), spark=spark) as driver:
        with pytest.raises(ValueError, match="does not read 'shops', but 'orders'"):
            driver.create_input_topic("shops")
        with pytest.raises(ValueError, match="does not write 'orders', but 'sevens', 'shops', 'users'"):
            driver.create_output_topic("orders")
        with pytest.raises(ValueError, match="no store 'x', but 'orders-by-shop', 'orders-by-user'"):
            driver.store("x")
