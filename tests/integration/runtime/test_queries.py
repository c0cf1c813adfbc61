"""Interactive queries of real instances: what is committed in their stores, by key, by window and by range."""

import datetime as dt
import threading

import pytest
from pyspark.sql import Row, Window, functions as F

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.errors import (
    InvalidStateStoreException,
    SerializationException,
    StreamsNotStartedException,
    UnknownStateStoreException,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS = 2


def at(minute):
    return dt.datetime(2026, 1, 1, 0, minute, tzinfo=dt.UTC)


@pytest.fixture
def topics(make_topic):
    return tuple(make_topic(name, PARTITIONS) for name in ("orders", "users", "numbers", "prices"))


def pipeline(topics, make_topic):
    orders, users, numbers, prices = topics
    builder = StreamsBuilder()
    stream = builder.stream(orders, key=String("user"), value=Json("shop string, amount int, time timestamp"))
    stream.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("total"), name="totals").to(
        make_topic("totals", PARTITIONS)
    )
    stream.groupBy("user", "shop").agg(
        F.count_distinct("amount").alias("amounts"), F.collect_list("amount").alias("list"), name="shops"
    ).to(make_topic("shops", PARTITIONS))
    stream.withWatermark("time", "5 minutes").groupBy("user", F.window("time", "1 minute")).count(name="minutes").to(
        make_topic("minutes", PARTITIONS)
    )
    stream.join(builder.global_table(users, key=String("user"), value=Json("country string"), name="who"), "user").to(
        make_topic("joined", PARTITIONS)
    )
    builder.table(numbers, key=Long("n"), value=Json("word string"), name="words").to(make_topic("words", PARTITIONS))
    sessions = stream.withWatermark("time", "5 minutes").groupBy("user", F.session_window("time", "2 minutes"))
    sessions.agg(F.count("*").alias("n"), name="visits").to(make_topic("visits", PARTITIONS))
    priced = builder.table(prices, key=String("shop"), value=Json("price int"), name="prices", history="1 hour")
    stream.join(priced, "shop", "left").select("user", "price").to(make_topic("priced", PARTITIONS))
    place = F.row_number().over(Window.partitionBy("user").orderBy(F.desc("amount")))
    stream.select("user", "amount").withColumn("place", place).where("place <= 2").to(make_topic("best", PARTITIONS))
    return builder


@pytest.mark.long
def test_rows_are_found(instance, topics, make_topic, produce, wait_until):
    """By key, by window and by range; what cannot be asked is refused in words."""
    orders, users, numbers, prices = topics
    produce(users, [("ada", {"country": "uk"})])
    streams = instance(pipeline(topics, make_topic))
    with pytest.raises(StreamsNotStartedException, match=r"call start\(\) first"):
        streams.query("totals", "ada")
    assert {"minutes", "prices", "shops", "totals", "visits", "who", "words"} < {*streams.store_names}
    (best,) = {*streams.store_names} - {"minutes", "prices", "shops", "totals", "visits", "who", "words"}
    streams.start()
    wait_until(lambda: streams.state == "RUNNING", f"{streams.status}")
    rows = [
        (user, {"shop": shop, "amount": amount, "time": f"2026-01-01T00:{minute:02}:30Z"})
        for user, shop, amount, minute in (
            *(("ada", "a", 1, 1), ("ada", "a", 2, 1), ("ada", "b", 2, 2), ("bob", "a", 5, 3)),
            *((f"u{n:02}", "c", n, 3) for n in range(20)),
        )
    ]
    produce(orders, rows)
    for price, second in ((1, 1), (3, 3), (2, 2)):
        produce(prices, [{"key": "a", "value": {"price": price}, "timestamp": second * 1000}])
    produce(prices, [("b", {"price": 7}), ("c", {"price": 8}), ("c", None)])
    produce(numbers, [(n.to_bytes(8, "big", signed=True), {"word": str(n)}) for n in range(-5, 6)])
    wait_until(lambda: len(streams.range("totals")) == 22 and len(streams.range("words")) == 11, f"{streams.status}")
    assert streams.query("totals", "ada") == Row(user="ada", n=3, total=5)
    assert streams.query("totals", {"user": "bob"}) == Row(user="bob", n=1, total=5)
    assert streams.query("totals", "eve") is None
    assert streams.query("who", "ada") == Row(user="ada", country="uk")
    wait_until(lambda: len(streams.range("prices")) == 2 and streams.query("prices", "c") is None, "prices")
    assert streams.query("prices", "a") == Row(shop="a", price=3)
    assert sorted(streams.range("prices")) == [Row(shop="a", price=3), Row(shop="b", price=7)]
    assert streams.range("prices", "b") == [Row(shop="b", price=7)]
    wait_until(lambda: len(streams.fetch("visits")) == 22, "sessions")
    (visit,) = streams.fetch("visits", "ada", from_=at(1), to=at(2))
    assert (visit.n, visit.session_window.end) == (3, at(2) + dt.timedelta(minutes=2, seconds=30))
    assert streams.fetch("visits", "ada", from_=at(2)) == []
    wait_until(lambda: len(streams.range(best)) == 23, "the best rows")
    assert [streams.query(best, ("ada", n)).amount for n in (1, 2)] == [2, 2]
    assert streams.query("shops", ("ada", "a")) == Row(user="ada", shop="a", amounts=2, list=[1, 2])
    assert len(streams.range("shops")) == 23
    assert sorted(row.user for row in streams.range("totals", "u05", "u07")) == ["u05", "u06", "u07"]
    assert len(streams.range("totals", limit=3)) == 3
    assert streams.store("totals").agg(F.sum("total")).first()[0] == 10 + sum(range(20))
    frame = streams.store("minutes").where("user = 'ada'").orderBy("window")
    assert [(row.window.start, row["count"]) for row in frame.collect()] == [
        (at(minute).astimezone().replace(tzinfo=None), count) for minute, count in ((1, 2), (2, 1))
    ]
    for low, high in ((None, None), (-3, 2), (-3, -2), (1, None), (None, -1), (None, 4), (-2, None)):
        wanted = [n for n in range(-5, 6) if (low is None or n >= low) and (high is None or n <= high)]
        assert sorted(row.n for row in streams.range("words", low, high)) == wanted
    minutes = streams.fetch("minutes", "ada", from_=at(0), to=at(2))
    assert [(row.window.start, row["count"]) for row in minutes] == [(at(1), 2), (at(2), 1)]
    assert [row["count"] for row in streams.fetch("minutes", "ada", from_=at(2))] == [1]
    assert streams.fetch("minutes", "ada", to=at(0)) == []
    assert len(streams.fetch("minutes", from_=at(3))) == 21
    key = ("ada", {"start": at(1), "end": at(2)})
    assert streams.query("minutes", key)["count"] == 2

    naive = dt.datetime(2026, 1, 1, 0, 1)  # noqa: DTZ001 - it is refused
    for error, words, asked in (
        (UnknownStateStoreException, "no store 'x', but 'minutes', ", lambda: streams.query("x", "a")),
        (SerializationException, r"which has the columns user \(string\)", lambda: streams.query("totals", 1)),
        (SerializationException, "it has 1 values", lambda: streams.query("shops", "ada")),
        (
            SerializationException,
            "no time zone",
            lambda: streams.query("minutes", ("a", {"start": naive, "end": at(1)})),
        ),
        (InvalidStateStoreException, "has no windows", lambda: streams.fetch("totals", "ada")),
        (InvalidStateStoreException, "has a window among", lambda: streams.range("minutes", "a")),
    ):
        with pytest.raises(error, match=words):
            asked()
    # Of the last minute that a datetime knows; its window's end is none any more.
    produce(orders, [("ada", {"shop": "a", "amount": 2, "time": "9999-12-31T23:59:30Z"})])
    wait_until(lambda: streams.query("totals", "ada").n == 4, "the last minute")
    assert streams.fetch("minutes", "ada", from_=at(0), to=at(2)) == minutes
    with pytest.raises(InvalidStateStoreException, match="store 'minutes' has a row with a time outside"):
        streams.fetch("minutes", "ada")
    streams.stop()
    with pytest.raises(StreamsNotStartedException, match="it has ended"):
        streams.query("totals", "ada")


@pytest.mark.long
def test_only_committed_values_show(instance, make_topic, produce, wait_until):
    """Records come in tens, each ten in a transaction, and each answer is of whole tens, never going back."""
    source = make_topic("tens")
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("amount int"))
    stream.groupBy("user").count(name="tens").to(make_topic("counts"))
    streams = instance(builder)
    streams.start()
    wait_until(lambda: streams.state == "RUNNING", f"{streams.status}")
    seen, stopped = [], threading.Event()

    def ask():
        while not stopped.is_set():
            row = streams.query("tens", "a")
            seen.append(0 if row is None else row["count"])
            stopped.wait(0.001)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for total in (10, 20, 30, 40, 50):
            produce(source, [("a", {"amount": 1})] * 10, transactional_id=f"tens-{source}")
            wait_until(lambda total=total: total in seen, f"{total} never came")
    finally:
        stopped.set()
        asking.join()
    assert seen == sorted(seen)
    assert set(seen) <= {0, 10, 20, 30, 40, 50}
