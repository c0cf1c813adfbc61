"""The first rows of each key, on the test driver and beside Spark batch."""

import datetime as dt
import random

import pytest
from pyspark.sql import Window, functions as F
from tests.marks import first_of

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration

BID = Json("auction long, bidder string, price double, at timestamp")
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def bids(builder):
    return builder.stream("bids", key=String("id"), value=BID)


def newest(topic):
    """Return the newest value of each key of a topic, those that are deleted left out."""
    rows = {record.key: record.value for record in topic.read_records()}
    return [row for row in rows.values() if row is not None]


def by_price():
    return F.row_number().over(Window.partitionBy("auction").orderBy(F.desc("price"), "bidder"))


def test_a_better_row_moves_the_others_on(spark):
    builder = StreamsBuilder()
    best = bids(builder).withColumn("n", by_price()).where("n <= 2")
    best.select("auction", "n", "bidder", "price").to("best", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("bids"), driver.create_output_topic("best")
        store = "bids-top-2-by-auction"

        def bid(auction, bidder, price):
            topic.pipe_input("x", {"auction": auction, "bidder": bidder, "price": price})
            return [(row["auction"], row["n"], row["bidder"]) for row in out.read_rows()]

        assert bid(1, "ada", 5.0) == [(1, 1, "ada")]
        assert bid(1, "bob", 4.0) == [(1, 2, "bob")]
        assert bid(1, "cid", 4.0) == []
        assert bid(2, "cid", None) == [(2, 1, "cid")]
        assert bid(1, "dan", 4.5) == [(1, 2, "dan")]
        assert bid(1, "eve", 9.0) == [(1, 1, "eve"), (1, 2, "ada")]
        assert bid(None, "eve", 9.0) == []
        driver.restart(from_changelog=True)
        assert bid(2, "fay", float("nan")) == [(2, 1, "fay"), (2, 2, "cid")]
        held = [(row["auction"], row["n"], row["bidder"]) for row in driver.store(store)]
        assert held == [(1, 1, "eve"), (1, 2, "ada"), (2, 1, "fay"), (2, 2, "cid")]


@pytest.mark.parametrize("read", ["stream", "table"])
def test_the_order_may_name_what_the_rows_are_parted_by(spark, read):
    """Found by an attack: the build took it, and each micro-batch failed."""
    builder = StreamsBuilder()
    rows = getattr(builder, read)("bids", key=String("id"), value=BID)
    order = Window.partitionBy("auction").orderBy("auction", F.desc("price"), "id")
    rows.withColumn("n", F.row_number().over(order)).where("n <= 1").to("best", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("bids"), driver.create_output_topic("best")
        for id_, price in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
            topic.pipe_input(id_, {"auction": 1, "price": price})
        assert [row["id"] for row in out.read_rows()] == ["a", "b"]


@pytest.mark.parametrize("seed", first_of([1, 2]))
def test_spark_batch_ranks_the_same_rows(spark, seed):
    draw = random.Random(seed)
    order = [F.desc("price"), F.asc_nulls_last("at"), F.col("bidder").desc_nulls_first()]
    place = F.row_number().over(Window.partitionBy("auction", "bidder").orderBy(*order[:2], "id"))
    rows = [
        {
            "id": f"{index:04}",
            "auction": draw.choice([None, 1, 2, 3]),
            "bidder": draw.choice(["a", "b", None]),
            "price": draw.choice([None, -0.0, 0.0, 1.5, 2.5, float("nan")]),
            "at": draw.choice([None, START, START + dt.timedelta(seconds=draw.randrange(5))]),
        }
        for index in range(300)
    ]
    top = F.row_number().over(Window.partitionBy("auction").orderBy(*order, "id"))
    builder = StreamsBuilder()
    bids(builder).withColumn("n", top).filter(F.col("n") < 6).to("five", value=Json())
    bids(builder).where(place == 1).to("one", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("bids")
        outs = [driver.create_output_topic(name) for name in ("five", "one")]
        cuts = sorted(draw.sample(range(300), 6))
        for first, end in zip([0, *cuts], [*cuts, 300], strict=True):
            for row in rows[first:end]:
                value = {name: item for name, item in row.items() if name != "id"}
                topic.pipe_input(row["id"], value, 0)
            driver.process()
            if draw.random() < 0.4:
                driver.restart(from_changelog=draw.random() < 0.5)
        ours = [
            sorted((row["id"], row[n]) for row in newest(out)) for out, n in zip(outs, ("n", "row_number"), strict=True)
        ]
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows],
        "id string, auction long, bidder string, price double, at timestamp",
    )
    five = frame.where("auction is not null").withColumn("n", top).where("n <= 5")
    one = frame.withColumn("n", place).where("n = 1")
    assert ours == [sorted((row.id, row.n) for row in wanted.collect()) for wanted in (five, one)]


def test_the_first_rows_of_a_window_go_out_once_it_is_over(spark):
    builder = StreamsBuilder()
    place = F.row_number().over(Window.partitionBy("auction", "window").orderBy(F.desc("price")))
    top = (
        bids(builder)
        .withWatermark("at", "0 seconds")
        .withColumn("window", F.window("at", "10 seconds"))
        .withColumn("n", place)
        .where("n <= 2")
    )
    top.outputMode("append").select("auction", "n", "price").to("best", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("bids"), driver.create_output_topic("best")
        for second, price in ((1, 5.0), (3, 7.0), (4, 6.0)):
            topic.pipe_input("x", {"auction": 1, "price": price, "at": START + dt.timedelta(seconds=second)})
            assert out.read_rows() == []
        driver.restart(from_changelog=True)
        topic.pipe_input("x", {"auction": 1, "price": 9.0, "at": START + dt.timedelta(seconds=10)})
        assert out.read_rows() == [{"auction": 1, "n": 1, "price": 7.0}, {"auction": 1, "n": 2, "price": 6.0}]


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of([1, 2, 3]))
def test_spark_batch_ranks_the_same_rows_of_windows(spark, seed):
    """With equal rows, and rows that are the same: of each auction's windows, and of all windows by themselves."""
    draw = random.Random(seed)
    count = draw.randint(1, 3)
    order = [F.desc("price"), *([F.col("bidder").asc_nulls_last()] if draw.random() < 0.5 else [])]
    rows = [
        {
            "auction": draw.choice([None, 1, 2, 3]),
            "bidder": draw.choice(["a", "b", None]),
            "price": draw.choice([None, -0.0, 0.0, 1.5, 2.5, float("nan")]),
            "at": START + dt.timedelta(seconds=max(0, second - draw.randrange(3))),
        }
        for second in range(100)
        for _ in range(draw.randrange(4))
    ]
    window = F.window("at", "10 seconds")
    of_auction = F.rank().over(Window.partitionBy("auction", "window").orderBy(*order))
    of_window = F.rank().over(Window.partitionBy("window").orderBy(*order))
    number = F.row_number().over(Window.partitionBy("bidder", "window").orderBy("price", "auction", "at"))
    builder = StreamsBuilder()
    timed = bids(builder).withWatermark("at", "3 seconds").withColumn("window", window)
    columns = ("auction", "bidder", "price", F.unix_millis("at").alias("at"), "n")
    best = timed.withColumn("n", of_auction).where(f"n <= {count}").outputMode("append")
    best.select(*columns).to("auctions", value=Json())
    one = timed.repartition("window", partitions=1)
    one = one.where(of_window <= count) if count > 1 else one.filter(of_window == 1)
    one.outputMode("append").withColumnRenamed("rank", "n").select(*columns).to("windows", value=Json())
    numbered = timed.withColumn("n", number).where(F.col("n") < count + 1).outputMode("append")
    numbered.select(*columns).to("bidders", value=Json())
    topology = builder.build()
    with TopologyTestDriver(topology, spark=spark, batch="all", partitions=2) as driver:
        topic = driver.create_input_topic("bids")
        outs = [driver.create_output_topic(name) for name in ("auctions", "windows", "bidders")]
        cuts = sorted(draw.sample(range(len(rows)), 5))
        for first, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            for index in range(first, end):
                topic.pipe_input(f"{index % 7}", rows[index], 0)
            driver.process()
            if draw.random() < 0.5:
                driver.restart(from_changelog=draw.random() < 0.5)
        # So that each task's windows end, wherever it is.
        for index in range(60):
            late = {"auction": -index, "bidder": f"-{index}", "price": 0.0, "at": START + dt.timedelta(seconds=1000)}
            topic.pipe_input(f"{index}", late, 0)
        driver.process()
        names = ("auction", "bidder", "price", "at", "n")
        ours = [sorted(_text(row.get(name) for name in names) for row in out.read_rows()) for out in outs]
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows], "auction long, bidder string, price double, at timestamp"
    ).withColumn("window", window)
    wanted = [
        frame.withColumn("n", place).where(F.col("n") <= count).select(*columns).collect()
        for place in (of_auction, of_window, number)
    ]
    assert ours == [sorted(map(_text, some)) for some in wanted]


def test_what_a_filter_behind_the_topic_leaves_out_beats_nobody(spark):
    """And the clock goes by rows that others have beaten, too."""
    builder = StreamsBuilder()
    rank = F.rank().over(Window.partitionBy("window").orderBy(F.desc("price")))
    timed = bids(builder).withWatermark("at", "0 seconds").withColumn("window", F.window("at", "10 seconds"))
    for topic, condition in (("cheap", F.col("price") < 5), ("all", None)):
        rows = timed.repartition("window", partitions=1, name=topic)
        rows = rows if condition is None else rows.where(condition)
        best = rows.withColumn("rank", rank).where("rank <= 1").outputMode("append")
        best.select("bidder").to(topic, value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic, outs = driver.create_input_topic("bids"), [driver.create_output_topic(name) for name in ("cheap", "all")]
        rows = (("ada", 4.0, 1), ("bob", 9.0, 2), ("cid", 4.5, 11), ("dan", 1.0, 22), ("eve", 2.0, 21))
        for bidder, price, second in rows:
            topic.pipe_input("x", {"bidder": bidder, "price": price, "at": START + dt.timedelta(seconds=second)})
        driver.process()
        topic.pipe_input("x", {"bidder": "fay", "price": 0.0, "at": START + dt.timedelta(seconds=22)})
        driver.process()
        assert [[row["bidder"] for row in out.read_rows()] for out in outs] == [["ada", "cid"], ["bob", "cid"]]


def test_beaten_rows_stay_where_they_are_whatever_number_of_ways_lead_out(spark):
    builder = StreamsBuilder()
    best = bids(builder).withColumn("n", by_price()).where("n <= 2")
    best.where("n = 1").to("best", value=Json())
    best.where("n = 2").to("second", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        for price in range(50):
            driver.create_input_topic("bids").pipe_input(
                "x", {"auction": 1, "bidder": "b", "price": price, "at": START}
            )
        prices = [driver.create_output_topic(topic).read_rows()[-1]["price"] for topic in ("best", "second")]
        assert prices == [49.0, 48.0]
        partition = TopicPartition("topology-test-driver-bids-by-auction-repartition", 0)
        assert 2 <= driver._log.end(partition) < 10


def _text(row):
    return " ".join(str(value).lower() for value in row)


@pytest.mark.parametrize("read", ["stream", "table"])
def test_ranks_have_no_table(spark, read):
    rank = F.rank().over(Window.partitionBy("auction").orderBy(F.desc("price")))

    def build():
        builder = StreamsBuilder()
        getattr(builder, read)("bids", key=String("id"), value=BID).where(rank <= 2).to("best", value=Json())
        return builder.build()

    with pytest.raises(TopologyException, match=r"F\.row_number\(\) keeps"):
        build()


def test_what_passes_a_filter_behind_the_table_no_more_is_deleted(spark):
    builder = StreamsBuilder()
    best = bids(builder).withColumn("n", by_price()).where("n <= 2")
    best.where("price > 3 and n = 2").to("second", value=Json())
    best.select("auction", "n", "price").to("all", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("bids")
        second, all_ = driver.create_output_topic("second"), driver.create_output_topic("all")
        for bidder, price in (("ada", 5.0), ("bob", 4.0), ("cid", 8.0)):
            topic.pipe_input("x", {"auction": 1, "bidder": bidder, "price": price})
        assert [row["bidder"] for row in newest(second)] == ["ada"]
        assert sorted(row["price"] for row in newest(all_)) == [5.0, 8.0]


@pytest.mark.long
def test_a_table_gives_way_and_moves_up(spark):
    """Of a table whose rows change: who is no more makes room for one that was not among the first."""
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=Json("country string, age long"))
    oldest = users.where(F.row_number().over(Window.partitionBy("country").orderBy(F.desc("age"))) <= 2)
    oldest.to("oldest", value=Json())
    oldest.where("row_number = 2").select("country", "user").to("second", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("users")
        outs = driver.create_output_topic("oldest"), driver.create_output_topic("second")

        def put(user, at, **value):
            topic.pipe_input(user, value or None, at)
            rows, second = (out.read_records() for out in outs)
            said = [(r.value and (r.value["row_number"], r.value["user"], r.value["age"]), r.timestamp) for r in rows]
            return said, [r.value and r.value["user"] for r in second]

        assert put("ada", 1, country="NO", age=30) == ([((1, "ada", 30), 1)], [])
        assert put("bob", 2, country="NO", age=20) == ([((2, "bob", 20), 2)], ["bob"])
        assert put("cid", 3, country="NO", age=10) == ([], [])
        assert put("cid", 4, country="NO", age=11) == ([], []), "it is not among them"
        assert put("bob", 5, country="NO", age=21) == ([((2, "bob", 21), 5)], ["bob"])
        driver.restart(from_changelog=True)
        assert put("ada", 6) == ([((1, "bob", 21), 5), ((2, "cid", 11), 4)], ["cid"])
        assert put("cid", 7, country="UK", age=11) == ([(None, 7), ((1, "cid", 11), 7)], [None])
        assert put("bob", 8) == ([(None, 8)], [])
        assert put("ada", 9) == ([], [])
        with pytest.raises(ValueError, match="holds rows of each key, and not their places"):
            driver.store("users-table-top-2-by-country")


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of([1, 2]))
def test_spark_batch_ranks_the_rows_that_a_table_has(spark, seed):
    """Three of each group, of a filtered table, of one that is joined, and their average."""
    draw = random.Random(seed)
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=Json("country string, age long"))
    scores = builder.table("scores", key=String("user"), value=Json("score double"))
    place = F.row_number().over(
        Window.partitionBy("country").orderBy(F.desc("score"), F.asc_nulls_first("age"), "user")
    )
    top = users.where("age > 1 or age is null").join(scores, "user", "left").withColumn("n", place).where("n <= 3")
    top.to("top", value=Json())
    top.groupBy("country").agg(F.count("*").alias("n"), F.sum("age").alias("age")).to("groups", value=Json())
    values = [None, -0.0, 0.0, 1.5, float("nan"), float("inf")]
    tables = {"users": {}, "scores": {}}
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=2) as driver:
        inputs = {name: driver.create_input_topic(name) for name in tables}
        for _ in range(260):
            name, user = draw.choice(list(tables)), draw.choice("abcdefghijkl")
            value = {"country": draw.choice([None, "NO", "UK"]), "age": draw.choice([None, 1, 2, 3])}
            value = value if name == "users" else {"score": draw.choice(values)}
            tables[name][user] = value = None if draw.random() < 0.25 else value
            inputs[name].pipe_input(user, value)
            if draw.random() < 0.06:
                driver.process()
            if draw.random() < 0.03:
                driver.restart(from_changelog=draw.random() < 0.5)
        found = sorted((row["country"], row["n"], row["user"]) for row in newest(driver.create_output_topic("top")))
        groups = {row["country"]: (row["n"], row.get("age")) for row in newest(driver.create_output_topic("groups"))}
    frames = [
        spark.createDataFrame([(user, *row.values()) for user, row in tables[name].items() if row is not None], schema)
        for name, schema in (
            ("users", "user string, country string, age long"),
            ("scores", "user string, score double"),
        )
    ]
    joined = frames[0].where("age > 1 or age is null").join(frames[1], "user", "left").where("country is not null")
    ranked = joined.withColumn("n", place).where("n <= 3")
    assert found == sorted((row.country, row.n, row.user) for row in ranked.collect())
    sums = ranked.groupBy("country").agg(F.count("*").alias("n"), F.sum("age").alias("age"))
    assert groups == {row["country"]: (row["n"], row["age"]) for row in sums.collect()}


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda s: s.withColumn("n", by_price()).to("x"),
            'stands where("n <= 10"), how many rows of each key are kept',
        ),
        (
            lambda s: s.withColumn("n", by_price()).where("n <= 10 or price > 2").to("x"),
            'stands where("n <= 10"), how many rows of each key are kept',
        ),
        (
            lambda s: s.withColumn("n", F.expr("rank() over (partition by auction order by price)")).to("x"),
            'stands where("n <= 10"), how many rows of each key are kept',
        ),
        (lambda s: s.withColumn("n", by_price()).where("n = 3"), "the first rows of each key are kept, at least 1"),
        (lambda s: s.withColumn("n", by_price()).where("n <= 5000"), "at most 1,000"),
        (lambda s: s.withColumn("n", by_price()).where("m <= 5"), "Did you mean one of the following? [`n`"),
        (
            lambda s: s.withColumn("n", F.dense_rank().over(Window.partitionBy("auction").orderBy("kafka.offset"))),
            "of window functions there are the aggregates that one row can be added to",
        ),
        (
            lambda s: s.withColumn("n", F.sum("price").over(Window.partitionBy("auction"))),
            "rows are ordered by their event time alone",
        ),
        (lambda s: s.where(F.row_number().over(Window.orderBy("price")) <= 3), "needs partitionBy"),
        (lambda s: s.where(F.row_number().over(Window.partitionBy("auction")) <= 3), "You need to add an ORDER BY"),
        (
            lambda s: s.where(F.row_number().over(Window.partitionBy("auction").orderBy("nothing")) <= 3),
            "name `nothing` cannot be resolved",
        ),
        (
            lambda s: s.withColumn("all", F.array("price")).where(
                F.row_number().over(Window.partitionBy("auction").orderBy("all")) <= 3
            ),
            "rows cannot be ordered by 'all', which is array<double>",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_where_it_is_written(spark, write, message):
    with pytest.raises(TopologyException, match="test_rankings.py:") as refused:
        write(bids(StreamsBuilder()))
    assert message in str(refused.value)


@pytest.mark.long
@pytest.mark.parametrize(
    "rank",
    [
        lambda: F.row_number().over(Window.partitionBy("AUCTION").orderBy("Price", "PRICE")),
        lambda: F.row_number().over(Window.partitionBy("auction").orderBy(F.col("price") * 2)),
        lambda: F.row_number().over(Window.partitionBy(F.abs("auction")).orderBy(F.round("price"), "price")),
    ],
    ids=["case", "order", "key"],
)
def test_names_in_any_case_and_expressions_are_what_spark_batch_takes_them_for(spark, rank):
    """A filter by the function itself, and by a column that takes the place of another one."""
    prices = [(1, 4.0), (1, 2.0), (2, 5.0), (1, 3.0), (2, 1.0), (1, 1.0)]
    rows = [(auction, f"{number}", price) for number, (auction, price) in enumerate(prices)]
    builder = StreamsBuilder()
    bids(builder).where(rank() <= 2).drop("at").to("function", value=Json())
    bids(builder).drop("at").withColumn("price", rank()).where("price <= 2").to("column", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("bids")
        for auction, bidder, price in rows:
            topic.pipe_input(bidder, {"auction": auction, "bidder": bidder, "price": price})
        found = [newest(driver.create_output_topic(name)) for name in ("function", "column")]
    frame = spark.createDataFrame(rows, "auction long, bidder string, price double").withColumn("id", F.col("bidder"))
    placed = frame.withColumn("row_number", rank()).where("row_number <= 2")
    replaced = frame.withColumn("price", rank()).where("price <= 2")
    for ours, theirs in zip(found, (placed, replaced), strict=True):
        assert sorted(ours, key=str) == sorted((row.asDict() for row in theirs.collect()), key=str)
        assert [set(row) for row in ours] == [set(theirs.columns)] * len(ours)


def test_what_else_must_hold_holds_of_the_first_rows_alone(spark):
    """As in Spark, where a row's place is that among all rows."""
    rows = [(number % 2, f"{number}", price) for number, price in enumerate([1.0, 3.0, 2.0, 5.0, 4.0, 2.5, 9.0])]
    condition = "price > 2 and n <= 2 and bidder <> '3'"
    builder = StreamsBuilder()
    bids(builder).withColumn("n", by_price()).where(condition).to("best", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("bids")
        for auction, bidder, price in rows:
            topic.pipe_input(bidder, {"auction": auction, "bidder": bidder, "price": price})
        found = [(row["bidder"], row["n"]) for row in newest(driver.create_output_topic("best"))]
    frame = spark.createDataFrame(rows, "auction long, bidder string, price double")
    wanted = frame.withColumn("n", by_price()).where(condition).select("bidder", "n").collect()
    assert sorted(found) == sorted(map(tuple, wanted))
    assert len(found) == 3


def test_the_store_of_the_best_rows_has_a_name(spark):
    builder = StreamsBuilder(spark)
    bids = builder.stream("bids", key=String("bidder"), value=Json("auction long, price double"))
    place = F.row_number().over(Window.partitionBy("auction").orderBy(F.desc("price")))
    bids.withColumn("place", place).where("place <= 2", name="best").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("bids")
        for bidder, price in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
            topic.pipe_input(bidder, {"auction": 7, "price": price})
        rows = sorted((row["auction"], row["place"], row["bidder"]) for row in driver.store("best"))
    assert rows == [(7, 1, "b"), (7, 2, "c")]
