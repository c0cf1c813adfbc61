"""Tables with a history, and streams that look into them as of their rows' times, on the test driver."""

import random

import pytest
from pyspark.sql import functions as F
from tests.marks import first_of

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

RATE = Json("rate long")


def found(topic):
    return [(record.key, record.value, record.timestamp) for record in topic.read_records()]


def looking(history="1 hour", how="inner", **options):
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("cur"), value=RATE, history=history, **options)
    orders = builder.stream("orders", key=String("cur"), value=Json("n long"))
    orders.join(rates, "cur", how).to("out", value=Json())
    return builder.build()


@pytest.mark.parametrize("batch", ["record", "all"])
def test_a_row_finds_what_was_there_at_its_time(spark, batch):
    with TopologyTestDriver(looking(how="left"), spark=spark, batch=batch) as driver:
        rates, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        out = driver.create_output_topic("out", key=String())
        rates.pipe_input("eur", {"rate": 1}, 1000)
        rates.pipe_input("eur", {"rate": 2}, 2000)
        rates.pipe_input("usd", {"rate": 7}, 1500)
        rates.pipe_input("eur", None, 3000)
        rates.pipe_input("eur", {"rate": 4}, 4000)
        driver.process()
        times = (999, 1000, 1999, 2000, 2999, 3000, 3999, 4000, 9000)
        for at in times:
            orders.pipe_input("eur", {"n": at}, at)
        orders.pipe_input("usd", {"n": 1}, 1499)
        orders.pipe_input("usd", {"n": 2}, 1501)
        orders.pipe_input(None, {"n": 3}, 1501)
        rows = found(out)
        assert {at: value.get("rate") for key, value, at in rows if key == "eur"} == dict(
            zip(times, (None, 1, 1, 2, 2, None, None, 4, 4), strict=True)
        )
        assert [(key, value.get("rate")) for key, value, _ in rows if key != "eur"] == [
            ("usd", None),
            ("usd", 7),
            (None, None),
        ]
        assert driver.store("rates-table") == [{"cur": "eur", "rate": 4}, {"cur": "usd", "rate": 7}]
        driver.restart(from_changelog=True)
        assert driver.store("rates-table") == [{"cur": "eur", "rate": 4}, {"cur": "usd", "rate": 7}]
        orders.pipe_input("eur", {"n": 1}, 2500)
        assert [value["rate"] for _, value, _ in found(out)] == [2]


def test_a_row_that_comes_late_takes_its_place_and_changes_nothing_else(spark):
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("cur"), value=RATE, history="1 second", name="rates")
    rates.where("rate > 0").to("positive", value=Json())
    rates.groupBy("rate").count(name="counts")
    builder.stream("orders", key=String("cur"), value=Json("n long")).join(rates, "cur", "left").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        table, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        out, positive = (driver.create_output_topic(name, key=String()) for name in ("out", "positive"))

        def rate_at(at):
            orders.pipe_input("eur", {"n": at}, at)
            ((_, value, _),) = found(out)
            return value.get("rate")

        table.pipe_input("eur", {"rate": 1}, 1000)
        table.pipe_input("eur", {"rate": 3}, 3000)
        assert [value["rate"] for _, value, _ in found(positive)] == [1, 3]
        assert rate_at(2500) == 1
        table.pipe_input("eur", {"rate": 2}, 2000)
        table.pipe_input("eur", None, 2200)
        assert [rate_at(at) for at in (1999, 2000, 2199, 2200, 2999, 3000)] == [None, 2, 2, None, None, 3]
        assert rate_at(1500) is None, "the history does not go so far back"
        table.pipe_input("eur", {"rate": 9}, 1999)
        assert rate_at(2000) == 2, "and takes no row of that time"
        table.pipe_input("eur", {"rate": 8}, 3000)
        assert rate_at(3000) == 8, "the last one of one time counts"
        assert [value["rate"] for _, value, _ in found(positive)] == [8]
        assert driver.store("counts") == [{"rate": 8, "count": 1}]
        driver.restart(from_changelog=True)
        assert [rate_at(at) for at in (2199, 2200, 3500)] == [2, None, 8]
        table.pipe_input("usd", {"rate": 5}, 9000)
        assert rate_at(3500) == 8, "the newest row stays for ever"
        assert rate_at(2999) is None


def test_steps_of_the_table_are_of_each_of_its_rows(spark):
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("cur"), value=RATE, history="1 hour")
    good = rates.where("rate > 1").selectExpr("cur", "rate + rate AS twice")
    builder.stream("orders", key=String("cur"), value=Json("n long")).join(good, "cur", "left").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        table, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        for at, rate in ((10, 2), (20, 1), (30, 3)):
            table.pipe_input("eur", {"rate": rate}, at)
        for at in (9, 10, 20, 29, 30):
            orders.pipe_input("eur", {"n": at}, at)
        rows = found(driver.create_output_topic("out", key=String()))
        assert [value.get("twice") for _, value, _ in rows] == [None, 4, None, None, 6]


def test_rows_are_found_by_their_event_time(spark):
    """That of a watermark before the join; where it is null, and without one, by the record's timestamp."""
    builder = StreamsBuilder()
    rates = builder.table(
        "rates", key=String("cur"), value=Json("rate long, since long"), timestamp="since", history="1 hour"
    )
    orders = builder.stream("orders", value=Json("cur string, n long, at timestamp"))
    timed = orders.withWatermark("at", "1 minute").join(rates.drop("since"), "cur", "left", name="timed")
    timed.select("n", "rate").to("timed", value=Json())
    orders.join(rates.drop("since"), "cur", "left", name="stamped").select("n", "rate").to("stamped", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        table, stream = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        table.pipe_input("eur", {"rate": 1, "since": 10_000}, 90_000)
        table.pipe_input("eur", {"rate": 2, "since": 20_000}, 90_000)
        driver.process()
        stream.pipe_input(None, {"cur": "eur", "n": 1, "at": "1970-01-01T00:00:19.999Z"}, 20_000)
        stream.pipe_input(None, {"cur": "eur", "n": 2, "at": "1970-01-01T00:00:20Z"}, 10_000)
        stream.pipe_input(None, {"cur": "eur", "n": 3}, 10_000)
        rates_of = {
            name: {row["n"]: row.get("rate") for row in driver.create_output_topic(name).read_rows()}
            for name in ("timed", "stamped")
        }
        assert rates_of == {"timed": {1: 1, 2: 2, 3: 1}, "stamped": {1: 2, 2: 1, 3: 1}}


def test_the_column_of_the_watermark_must_still_be_there(spark):
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("cur"), value=RATE, history="1 hour")
    orders = builder.stream("orders", key=String("cur"), value=Json("n long, at timestamp"))
    timed = orders.withWatermark("at", "1 minute").select("cur", "n")
    with pytest.raises(TopologyException, match=r"test_versioned_tables.py:\d+: .*withWatermark\(\), and that is no"):
        timed.join(rates, "cur")


def test_a_history_is_an_interval(spark):
    with pytest.raises(TopologyException, match=r'history="soon".*soon'):
        TopologyTestDriver(looking("soon"), spark=spark)


def rows_of(seed):
    """Return rows of both topics, of which some come late."""
    draw = random.Random(seed)
    rows, now = [], 10_000
    for number in range(150):
        now += draw.choice((0, 1, 5, 60, 900))
        at = now - draw.choice((0, 0, 0, 3, 50, 700))
        key = f"k{draw.randrange(5)}"
        if draw.random() < 0.5:
            rows.append(("rates", key, None if draw.random() < 0.2 else {"rate": number}, at))
        else:
            rows.append(("orders", key, {"n": number}, at - draw.choice((0, 0, 100, 2000))))
    return rows


def model(rows, history_ms):
    """Return what each order finds, where they are taken one by one."""
    was, clock, results = {}, -1, {}
    for topic, key, value, at in rows:
        known = was.setdefault(key, {})
        if topic == "rates":
            if at >= clock - history_ms:
                clock = max(clock, at)
                known[at] = value
            continue
        reached = [then for then in known if then <= at]
        valid = max(reached, default=None)
        if at < clock - history_ms and valid != max(known, default=None):
            valid = None
        results[value["n"]] = None if valid is None or known[valid] is None else known[valid]["rate"]
    return results


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_restarts_and_restores_make_no_difference(spark, seed):
    rows, cuts = rows_of(seed), random.Random(seed)
    expected = model(rows, 1000)
    with TopologyTestDriver(looking("1 second", "left"), spark=spark, partitions=1 + seed % 2) as driver:
        inputs = {name: driver.create_input_topic(name) for name in ("rates", "orders")}
        out = driver.create_output_topic("out")
        if seed % 2:
            # Each partition has a stream time of its own: a key that both know of what the others have moved.
            rows = [row for row in rows if row[1] == "k0"]
            expected = model(rows, 1000)
        seen = {}
        for topic, key, value, at in rows:
            inputs[topic].pipe_input(key, value, at)
            if (cut := cuts.randrange(12)) < 2:
                driver.restart(from_changelog=bool(cut))
            if cut > 9:
                seen |= {row["n"]: row.get("rate") for row in out.read_rows()}
        seen |= {row["n"]: row.get("rate") for row in out.read_rows()}
        assert seen == expected


def test_a_large_micro_batch_hides_nothing(spark):
    """Rows of a topic that is read from its beginning find what they would have found one by one, and none less."""
    rows = sorted(rows_of(5), key=lambda row: (row[3], row[0] == "orders"))
    expected = model(rows, 100)
    with TopologyTestDriver(looking("100 milliseconds", "left"), spark=spark, batch="all") as driver:
        inputs = {name: driver.create_input_topic(name) for name in ("rates", "orders")}
        for topic, key, value, at in rows:
            inputs[topic].pipe_input(key, value, at)
        seen = {row["n"]: row.get("rate") for row in driver.create_output_topic("out").read_rows()}
        assert seen == expected


def graceful(stream, grace="100 milliseconds", **options):
    """Return a pipeline whose orders wait; ``stream`` makes them of a builder."""
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("cur"), value=RATE, history="1 second")
    stream(builder).join(rates, "cur", "left", grace=grace, **options).select("n", "rate").to("out", value=Json())
    return builder.build()


def keyed(builder):
    return builder.stream("orders", key=String("cur"), value=Json("n long"))


def unkeyed(builder):
    return builder.stream("orders", value=Json("cur string, n long")).where("n >= 0")


def timed(builder):
    orders = builder.stream("orders", key=String("cur"), value=Json("n long, at timestamp"))
    return orders.withWatermark("at", "50 milliseconds")


def of_two(builder):
    others = builder.stream("others", key=String("cur"), value=Json("n long"))
    return keyed(builder).unionByName(others)


def without_duplicates(builder):
    return keyed(builder).dropDuplicates(["n"])


@pytest.mark.parametrize("stream", [keyed, unkeyed, of_two, without_duplicates])
@pytest.mark.parametrize("batch", ["record", "all"])
def test_rows_wait_for_the_tables_that_come_late(spark, stream, batch):
    topology = graceful(stream, name="waiting")
    assert {"waiting-changelog", "waiting-repartition"} <= topology.internal_topics
    with TopologyTestDriver(topology, spark=spark, batch=batch) as driver:
        rates, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        out = driver.create_output_topic("out")

        def order(n, at, cur="eur"):
            orders.pipe_input(cur, {"cur": cur, "n": n} if stream is unkeyed else {"n": n}, at)

        rates.pipe_input("eur", {"rate": 1}, 1000)
        order(1, 1050)
        assert out.is_empty
        rates.pipe_input("eur", {"rate": 3}, 1100)
        rates.pipe_input("eur", {"rate": 2}, 1040)
        driver.process()
        order(2, 1149)
        assert out.is_empty
        driver.restart(from_changelog=True)
        order(3, 1150)
        assert out.read_rows() == [{"n": 1, "rate": 2}]
        driver.restart()
        rates.pipe_input("eur", {"rate": 4}, 1149)
        driver.process()
        order(4, 1249, "usd")
        assert out.read_rows() == [{"n": 2, "rate": 4}]
        order(5, 1149)
        assert out.read_rows() == [{"n": 5, "rate": 4}], "whoever comes so late does not wait"
        order(6, 9000)
        assert out.read_rows() == [{"n": 3, "rate": 4}, {"n": 4}]
        with pytest.raises(ValueError, match="holds rows that wait for a table.s; look at what comes out of join"):
            driver.store("waiting")


def test_rows_wait_by_their_watermark(spark):
    with TopologyTestDriver(graceful(timed), spark=spark) as driver:
        rates, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        out = driver.create_output_topic("out")
        rates.pipe_input("eur", {"rate": 1}, 500)
        for n, at in ((1, 600), (2, 749)):
            orders.pipe_input("eur", {"n": n, "at": f"1970-01-01T00:00:00.{at}Z"}, 5000)
        rates.pipe_input("eur", {"rate": 2}, 600)
        driver.process()
        assert out.is_empty, "the watermark is 749 - 50 by now"
        orders.pipe_input("eur", {"n": 3, "at": "1970-01-01T00:00:00.750Z"}, 5000)
        assert out.read_rows() == [{"n": 1, "rate": 2}]
        orders.pipe_input("eur", {"n": 4}, 550)
        assert out.read_rows() == [{"n": 4, "rate": 1}], "without an event time it is the timestamp"


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_whatever_comes_within_the_grace_is_seen(spark, seed):
    """However both topics are cut, and with restarts and restores: late rows count as if they had come in time."""
    draw = random.Random(seed)
    # In whatever order, but none later than 100 ms.
    rows = [
        (topic, key, value, 10_000 + 7 * number - draw.randrange(100))
        for number, (topic, key, value, _) in enumerate(rows_of(seed + 50))
    ]
    in_order = sorted(rows, key=lambda row: (row[3], row[0] == "orders"))
    expected = model(in_order, 1000)
    topology = graceful(keyed if seed else unkeyed)

    def named(key):
        return {} if seed else {"cur": key}

    with TopologyTestDriver(topology, spark=spark, partitions=1 + seed, batch="all") as driver:
        inputs = {name: driver.create_input_topic(name) for name in ("rates", "orders")}
        for topic, key, value, at in rows:
            inputs[topic].pipe_input(key, value if topic == "rates" else {**value, **named(key)}, at)
            match draw.randrange(20):
                case 0 | 1 | 2:
                    driver.process()
                case 3:
                    driver.restart()
                case 4:
                    driver.restart(from_changelog=True)
        driver.process()
        for key in (f"k{number}" for number in range(20)):
            inputs["orders"].pipe_input(key, {"n": 999, **named(key)}, 99_000)
        out = driver.create_output_topic("out").read_rows()
        seen = {row["n"]: row.get("rate") for row in out if row["n"] < 999}
        assert seen == expected


def test_a_group_behind_rows_that_wait_knows_what_its_key_was_computed_from(spark):
    def contents(function):
        builder = StreamsBuilder()
        rates = builder.table("rates", key=String("cur"), value=RATE, history="1 hour")
        orders = builder.stream("orders", key=String("cur"), value=Json("n long, of string"))
        priced = orders.withColumn("of", function("of")).join(rates, "cur", grace="5 minutes")
        priced.groupBy("of").agg(F.count("*").alias("n"), name="counts").to("out", value=Json())
        with TopologyTestDriver(builder.build(), spark=spark) as driver:
            return driver._plans.state("counts").contents

    assert contents(F.upper) != contents(F.lower)


@pytest.mark.parametrize("way", ["same key", "other key", "grace"])
@pytest.mark.parametrize("settings", [{}, {"max.batch.records": 7}], ids=["whole", "in parts"])
def test_who_has_been_away_for_longer_than_the_history_misses_nothing(spark, way, settings):
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("cur"), value=RATE, history="1 hour")
    value = Json("n long, cur string" if way == "other key" else "n long")
    orders = builder.stream("orders", key=String("id" if way == "other key" else "cur"), value=value)
    orders.join(rates, "cur", "left", grace="5 minutes" if way == "grace" else None).to("out", value=Json())
    minutes = 60_000
    with TopologyTestDriver(builder.build(), settings, spark=spark, batch="all") as driver:
        rates, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        out = driver.create_output_topic("out")
        got = {}

        def feed(first, stop):
            rates.pipe_rows([("eur", {"rate": n}, n * minutes) for n in range(first, stop)])
            orders.pipe_rows(
                [
                    ("eur", {"n": n} | ({"cur": "eur"} if way == "other key" else {}), n * minutes + 1)
                    for n in range(first, stop)
                ]
            )
            got.update((row["n"], row["rate"]) for row in out.read_rows())

        feed(0, 10)
        driver.restart()
        feed(10, 300)
        feed(300, 310)
        expected = {n: n for n in range(305 if way == "grace" else 310)}
        assert {n: rate for n, rate in got.items() if n in expected} == expected
