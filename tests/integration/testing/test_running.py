"""Running aggregates beside Spark batch, over rows in any order that the watermark allows, cut at random."""

import datetime as dt
import json
import random
from decimal import Decimal

import pytest
from pyspark.sql import Window, functions as F
from tests.marks import first_of

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

COLUMNS = "k string, at timestamp, id long, v long, x decimal(10,2), u string"
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BY = "PARTITION BY k ORDER BY at"
UPTO = f"({BY} ROWS UNBOUNDED PRECEDING)"
RUNNING = f"""SELECT k, id, sum(v) OVER {UPTO} AS total, count(*) OVER {UPTO} AS n, avg(x) OVER {UPTO} AS mean,
    max(u) OVER {UPTO} AS most, first_value(v) OVER {UPTO} AS first, row_number() OVER ({BY}) AS place,
    sum(v) OVER ({BY} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS three, stddev(v) OVER {UPTO} AS deviation,
    min(u) OVER ({BY} ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS before,
    last_value(v) OVER ({BY} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous,
    lag(v) OVER ({BY}) AS lagged, lag(u, 2, 'none') OVER ({BY}) AS lagged_2 FROM s"""
AHEAD = f"""SELECT k, id, lead(v) OVER ({BY}) AS next, lead(u, 2, 'none') OVER ({BY}) AS later,
    sum(v) OVER ({BY} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS around, sum(v) OVER {UPTO} AS total FROM s"""
INTERVALS = f"""SELECT k, id, sum(v) OVER ({BY} RANGE BETWEEN INTERVAL 3 SECONDS PRECEDING AND CURRENT ROW) AS recent,
    count(*) OVER ({BY}) AS upto, sum(v) OVER ({BY} RANGE BETWEEN CURRENT ROW AND CURRENT ROW) AS peers,
    max(x) OVER (PARTITION BY k ORDER BY unix_millis(at) RANGE BETWEEN 2500 PRECEDING AND CURRENT ROW) AS most FROM s"""
SESSIONS = f"""SELECT k, id, sum(new) OVER {UPTO} AS session FROM
    (SELECT k, at, id, IF(at - lag(at) OVER ({BY}) > INTERVAL 3 SECONDS, 1, 0) AS new FROM s)"""


def rows_of(chosen, count, *, ties):
    """Return rows whose times are at most 10 seconds out of order."""
    made = []
    for number in range(count):
        at = number * 400 + chosen.randint(-4000, 4000)
        at = at // 2000 * 2000 if ties else at * 1000 + number
        made.append(
            {
                "k": chosen.choice(["a", "b", "c", None]),
                "at": BEGIN + (dt.timedelta(milliseconds=at) if ties else dt.timedelta(microseconds=at)),
                "id": number,
                "v": chosen.choice([None, chosen.randint(-9, 99)]),
                "x": chosen.choice([None, round(chosen.uniform(-5, 5), 2)]),
                "u": chosen.choice([None, *"pqrs"]),
            }
        )
    return made


def run(spark, query, rows, chosen, closing):
    builder = StreamsBuilder(spark)
    stream = builder.stream("s", key=String("key"), value=Json(COLUMNS)).drop("key", "kafka")
    stream.withWatermark("at", "10 seconds").createOrReplaceTempView("s")
    builder.sql(query).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2, batch="all") as driver:
        topic = driver.create_input_topic("s")
        for row in rows:
            topic.pipe_input(row["u"], row)
            match chosen.randrange(12):
                case 0 | 1:
                    driver.process()
                case 2:
                    driver.restart(from_changelog=chosen.random() < 0.5)
        for later in range(closing):
            for partition in "abcdefgh":
                at = rows[-1]["at"] + dt.timedelta(minutes=1 + later)
                topic.pipe_input(partition, {"k": f"close {partition}", "at": at, "id": -1, "v": 0, "x": 0, "u": ""})
            driver.process()
        return [record.value for record in driver.create_output_topic("out").read_records()]


def batch(spark, query, rows):
    """Return what Spark batch makes of rows. Those whose key is null belong to none here."""
    known = [{**row, "x": None if row["x"] is None else Decimal(str(row["x"]))} for row in rows if row["k"] is not None]
    spark.createDataFrame(known, COLUMNS).createOrReplaceTempView("s")
    made = spark.sql(f"SELECT to_json(struct(*)) AS row FROM ({query})")
    return [json.loads(row.row) for row in made.collect()]


def texts(rows):
    """Return rows as texts, without nulls, sorted; doubles of as many digits as are sure."""
    doubles = {"deviation", "mean", "most"}
    shown = (
        {n: round(float(v), 6) if n in doubles and not isinstance(v, str) else v for n, v in row.items()}
        for row in rows
    )
    kept = ({name: value for name, value in row.items() if value is not None} for row in shown)
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


@pytest.mark.parametrize("seed", first_of(range(6)))
@pytest.mark.parametrize(
    ("query", "ties"),
    [(RUNNING, False), (INTERVALS, True), (SESSIONS, False)],
    ids=["rows", "intervals", "sessions"],
)
def test_rows_are_those_of_spark_batch(spark, query, ties, seed):
    chosen = random.Random(seed)
    rows = rows_of(chosen, 120, ties=ties)
    found = [row for row in run(spark, query, rows, chosen, closing=4) if row["id"] >= 0]
    assert texts(found) == texts(batch(spark, query, rows))


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of(range(4)))
def test_a_row_waits_for_its_successors(spark, seed):
    chosen = random.Random(seed)
    rows = rows_of(chosen, 120, ties=False)
    wanted = batch(spark, AHEAD, rows)
    # Nobody knows that the last two of each key have no successor.
    last = {row["id"] for row in rows}
    for key in "abc":
        own = sorted((row for row in rows if row["k"] == key), key=lambda row: row["at"])
        last -= {row["id"] for row in own[:-2]}
    found = run(spark, AHEAD, rows, chosen, closing=4)
    assert texts(row for row in found if row["id"] >= 0) == texts(row for row in wanted if row["id"] not in last)


#: The first function's rows come late: of keys with few rows much later than of others.
BEHIND = f"""SELECT k, id, next, lag(next) OVER ({BY}) AS before, sum(v) OVER {UPTO} AS total,
    max(u) OVER ({BY} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS most
    FROM (SELECT k, at, id, v, u, lead(v) OVER ({BY}) AS next FROM s)"""


@pytest.mark.parametrize("seed", first_of(range(4)))
def test_frames_of_rows_that_have_waited_for_successors_are_those_of_spark_batch(spark, seed):
    chosen = random.Random(seed)
    rows = rows_of(chosen, 90, ties=False)
    for row in rows:
        # A key whose successors come late.
        row["k"] = "c" if row["id"] % 40 == 0 else row["k"] if row["k"] != "c" else "a"
    last = {row["id"] for row in rows}
    for key in "abc":
        own = sorted((row for row in rows if row["k"] == key), key=lambda row: row["at"])
        last -= {row["id"] for row in own[:-2]}
    found = run(spark, BEHIND, rows, chosen, closing=4)
    wanted = batch(spark, BEHIND, rows)
    assert texts(row for row in found if row["id"] >= 0) == texts(row for row in wanted if row["id"] not in last)


@pytest.mark.parametrize("batch", ["record", "all"])
def test_without_a_watermark_rows_come_in_the_order_of_arrival(spark, batch):
    builder = StreamsBuilder(spark)
    orders = builder.stream("orders", key=String("id"), value=Json("customer string, amount long"))
    window = Window.partitionBy("customer").orderBy("kafka.offset")
    spent = orders.withColumn("spent", F.sum("amount").over(window)).withColumn("first", F.first("id").over(window))
    spent.selectExpr("id", "first", "IF(spent >= 20, 'FAIL', 'PASS') AS verdict").to("verdicts", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch=batch) as driver:
        topic, out = driver.create_input_topic("orders"), driver.create_output_topic("verdicts")
        for number, (customer, amount) in enumerate([("a", 5), ("b", 30), ("a", 14), ("a", 1), ("b", -20), (None, 1)]):
            topic.pipe_input(str(number), {"customer": customer, "amount": amount})
        found = {row.value["id"]: (row.value["verdict"], row.value["first"]) for row in out.read_records()}
    assert found == {
        "0": ("PASS", "0"),
        "1": ("FAIL", "1"),
        "2": ("PASS", "0"),
        "3": ("FAIL", "0"),
        "4": ("PASS", "1"),
    }


def test_rows_are_counted_in_the_order_of_arrival(spark):
    """Of such rows nothing is kept but their number."""
    builder = StreamsBuilder(spark)
    orders = builder.stream("orders", key=String("id"), value=Json("customer string"))
    window = Window.partitionBy("customer").orderBy("kafka.offset")
    orders.select("customer", F.count("*").over(window).alias("n")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("orders")
        for customers in ("aba", "ab"):
            topic.pipe_rows([(str(n), {"customer": customer}) for n, customer in enumerate(customers)])
            driver.process()
        found = [(row.value["customer"], row.value["n"]) for row in driver.create_output_topic("out").read_records()]
    assert sorted(found) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]


def test_late_rows_are_left_out(spark):
    builder = StreamsBuilder(spark)
    rows = builder.stream("s", key=String("k"), value=Json("at timestamp, v long")).withWatermark("at", "1 second")
    window = Window.partitionBy("k").orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
    rows.select("k", "v", F.sum("v").over(window).alias("total")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("s"), driver.create_output_topic("out")
        for second, value in [(5, 1), (4, 2), (60, 4), (3, 8), (120, 16)]:
            topic.pipe_input("a", {"at": BEGIN + dt.timedelta(seconds=second), "v": value})
        found = [(row.value["v"], row.value["total"]) for row in out.read_records()]
        assert [row for row in found if row[0] < 16] == [(2, 2), (1, 3), (4, 7)]
