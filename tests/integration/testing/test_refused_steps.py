"""Steps that a pipeline cannot have: refused where they are written."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

#: Spark's text of a plan, or of a function's call, ends after 25 columns.
WIDE = [f"amount + {n}" for n in range(30)]

ORDERS = [("u", {"amount": 1}), ("u", {"amount": 2}), ("v", {"amount": 5})]


def other(rows):
    """Return rows that are no stream's, to be joined by `amount`."""
    return rows.sparkSession.range(3).selectExpr("cast(id as int) as amount")


def records(spark, builder, given):
    """Return the keys and values that a pipeline writes."""
    with TopologyTestDriver(builder.build(), spark=spark, partitions=1) as driver:
        for key, value in given:
            driver.create_input_topic("a").pipe_input(key, value)
        return [(record.key, record.value) for record in driver.create_output_topic("b").read_records()]


def test_a_wrong_column(spark):
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json("amount int"))
    with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+.*amont.*`amount`"):
        stream.where("amont > 1")


def test_a_wrong_column_after_a_grouping(spark):
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json("amount int"))
    totals = stream.groupBy("user").agg(F.sum("amount").alias("total"))
    with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+.*totl.*`total`"):
        totals.withColumn("more", F.col("totl"))


def test_steps_that_a_stream_cannot_do(spark):
    stream = StreamsBuilder().stream("a", value=Json("amount int"))
    with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+.*orderBy.*no order"):
        stream.orderBy("amount")
    with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+.*histogram_numeric.*use one of count, "):
        stream.groupBy("amount").agg(F.histogram_numeric("amount", F.lit(3)))


@pytest.mark.parametrize(
    ("step", "rows"),
    [
        (
            lambda s: s.transform(lambda rows: rows.where("total > 1 and total < 4")),
            [("u", {"user": "u", "total": 3}), ("u", None)],
        ),
        (
            lambda s: s.withColumn("hour", F.window(F.expr("timestamp_seconds(nullif(total, 3))"), "1 hour")["end"]),
            [
                ("u", {"user": "u", "total": 1, "hour": "1970-01-01T01:00:00.000Z"}),
                ("u", None),
                ("u", {"user": "u", "total": 6, "hour": "1970-01-01T01:00:00.000Z"}),
            ],
        ),
    ],
    ids=["transform", "window"],
)
def test_steps_that_drop_rows_of_a_table_delete_them(spark, step, rows):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("amount int"))
    step(stream.groupBy("user").agg(F.sum("amount").alias("total"))).to("b", key="user", value=Json())
    assert records(spark, builder, [("u", {"amount": n}) for n in (1, 2, 3)]) == rows


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.withColumn("one", F.explode(F.array("user"))),
        lambda s: s.selectExpr("*", "stack(2, total, 1L)"),
        lambda s: s.withColumn("hour", F.window(F.timestamp_seconds("total"), "1 hour", "30 minutes")),
    ],
)
def test_steps_that_may_drop_rows_of_a_table(compiled, step):
    def topology(way):
        builder = StreamsBuilder()
        stream = builder.stream("a", key=String("user"), value=Json("amount int"))
        way(stream.groupBy("user").agg(F.sum("amount").alias("total"))).to("b")
        return builder

    with pytest.raises(
        TopologyException, match=r"test_refused_steps.py:\d+.*may drop rows or repeat them.*to_stream\(\)"
    ):
        compiled(topology(step))
    compiled(topology(lambda table: step(table.withColumn("more", F.lit(1)).to_stream())))


@pytest.mark.parametrize(
    "condition",
    [
        "last > current_timestamp() - interval 1 hour",
        "rand() < 0.5",
        "last > (select current_timestamp())",
        "user in (select cast(id as string) from range(2))",
    ],
)
def test_filters_of_a_table_that_mean_something_else_each_time(compiled, condition):
    def topology(way):
        builder = StreamsBuilder()
        stream = builder.stream("a", key=String("user"), value=Json("at timestamp"))
        way(stream.groupBy("user").agg(F.max("at").alias("last"))).to("b", value=Json())
        return builder

    with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+.*taken back.*to_stream"):
        compiled(topology(lambda table: table.where(condition)))
    if "select" not in condition:
        compiled(topology(lambda table: table.to_stream().where(condition)))
    # It goes out once, and is never taken back.
    compiled(topology(lambda table: table.withColumn("now", F.current_timestamp())))


def test_aggregates_of_a_table_that_mean_something_else_each_time(compiled):
    def users(builder):
        return builder.table("users", key=String("user"), value=Json("country string, until timestamp"))

    now = F.current_timestamp()
    for way in (
        lambda table: table.groupBy("country").agg(F.count_if(F.col("until") > now)),
        lambda table: table.groupBy("country").agg(F.expr("count(*) filter (where until > current_timestamp())")),
        lambda table: table.groupBy("country", (F.col("until") > now).alias("valid")).count(),
    ):
        builder = StreamsBuilder()
        way(users(builder)).to("b", value=Json())
        with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+.*depends on the time.*taken back"):
            compiled(builder)
        # Each change by itself goes in once.
        builder = StreamsBuilder()
        way(users(builder).to_stream()).to("b", value=Json())
        compiled(builder)


@pytest.mark.parametrize("ways_out", [1, 2])
def test_what_is_computed_of_aggregates_and_means_something_else_each_time(compiled, ways_out):
    def topology(way):
        builder = StreamsBuilder()
        stream = builder.stream("a", key=String("user"), value=Json("at timestamp, n int"))
        fresh = F.max("at") > F.current_timestamp() - F.expr("interval 1 hour")
        table = stream.groupBy("user").agg(F.count("*").alias("n"), fresh.alias("fresh"))
        for number in range(1, ways_out):
            table.to(f"all-{number}", value=Json())
        way(table).to("b", value=Json())
        return builder

    for way in (lambda table: table.where("fresh"), lambda table: table.groupBy("fresh").count()):
        with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+.*depends on the time.*taken back"):
            compiled(topology(way))
    # It goes out once, and is never taken back.
    compiled(topology(lambda table: table))
    compiled(topology(lambda table: table.to_stream().where("fresh")))


def test_a_join_in_a_function_of_a_table(spark):
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json("amount int"))
    table = stream.groupBy("user").agg(F.max("amount").alias("amount"))
    with pytest.raises(
        TopologyException, match=r"test_refused_steps.py:\d+: join\(\) of a table takes a table.*to_stream\(\) first"
    ):
        table.transform(lambda rows: rows.join(F.broadcast(other(rows)), "amount"))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda s: s.transform(lambda rows: rows.orderBy("amount")), r"orderBy\(\): an endless stream has no order"),
        (lambda s: s.transform(lambda rows: rows.limit(3)), r"limit\(\): a stream has no end to count from.*where\("),
        (
            lambda s: s.transform(lambda d: d.groupBy("user").applyInPandas(lambda rows: rows, d.schema)),
            r"applyInPandas\(\): use transformWithState",
        ),
        (
            lambda s: s.transform(lambda d: d.join(F.broadcast(d.groupBy("amount").count()), "amount")),
            r"the table of test_refused_steps.py:\d+ is made of 'a', as the stream is",
        ),
        (lambda s: s.hint("rebalance"), r"hint\(\): RebalancePartitions is not row-wise"),
        (lambda s: s.hint("repartition", 3), r'hint\(\): use repartition\("column"\)'),
        (
            lambda s: s.withColumn("n", F.expr("ntile(3) over (partition by user order by kafka.offset)")),
            r"of window functions there are the aggregates",
        ),
        (lambda s: s.withColumn("id", F.monotonically_increasing_id()), r"monotonically_increasing_id\(\)"),
        (lambda s: s.where("amount > 1").withColumn("p", F.spark_partition_id()), r"spark_partition_id\(\)"),
        (lambda s: s.withColumn("file", F.input_file_name()), r"input_file_name\(\)"),
        (lambda s: s.selectExpr("*", *WIDE, "monotonically_increasing_id()"), r"monotonically_increasing_id\(\)"),
        (lambda s: s.selectExpr(f"array({', '.join(WIDE)}, spark_partition_id())"), r"spark_partition_id\(\)"),
    ],
)
def test_steps_that_look_beyond_a_row(step, reason, spark):
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json("amount int"))
    twice = stream.withColumn("twice", F.col("amount") * 2)
    with pytest.raises(TopologyException, match=rf"test_refused_steps.py:\d+: .*{reason}"):
        step(twice)


def test_a_place_that_nothing_limits(compiled):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("amount int"))
    placed = stream.withColumn("r", F.expr("row_number() over (partition by user order by amount)"))
    with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+: behind 'r', .*where\(\"r <= 10\"\)"):
        placed.to("b", value=Json())


@pytest.mark.parametrize(
    ("step", "rows"),
    [
        (
            lambda s: s.transform(lambda rows: rows.union(rows)),
            [("u", {"amount": 1}), ("u", {"amount": 1}), ("u", {"amount": 2}), ("u", {"amount": 2})]
            + [("v", {"amount": 5})] * 2,
        ),
        (
            lambda s: s.select("user", "amount").transform(lambda rows: rows.distinct()),
            [("u", {"amount": 1}), ("u", {"amount": 2}), ("v", {"amount": 5})],
        ),
        (
            lambda s: s.transform(lambda d: d.join(other(d).hint("merge"), "amount")),
            [("u", {"amount": 1}), ("u", {"amount": 2})],
        ),
        (lambda s: s.where("amount in (select id from range(3))"), [("u", {"amount": 1}), ("u", {"amount": 2})]),
        (
            lambda s: s.where("not exists (select 1 from range(3) as r where r.id = amount)"),
            [("v", {"amount": 5})],
        ),
        (
            lambda s: s.withColumn("most", F.expr("(select max(id) from range(3))")),
            [
                ("u", {"amount": 1, "most": 2}),
                ("u", {"amount": 2, "most": 2}),
                ("v", {"amount": 5, "most": 2}),
            ],
        ),
    ],
    ids=["union", "distinct", "join", "in", "exists", "scalar"],
)
def test_steps_that_look_at_more_than_a_row(step, rows, spark):
    builder = StreamsBuilder()
    step(builder.stream("a", key=String("user"), value=Json("amount int"))).to("b", key="user", value=Json())
    written = [
        (key, {name: value[name] for name in value if name != "user"}) for key, value in records(spark, builder, ORDERS)
    ]
    assert written == rows


def test_steps_that_look_beyond_a_row_after_an_aggregation(spark):
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json("amount int"))
    counts = stream.groupBy("user").count()
    with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+: .*is for streams: .*to_stream\(\)"):
        counts.transform(lambda rows: rows.dropDuplicates(["count"]))


def test_steps_that_make_several_rows_of_one_are_fine(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json("amounts array<int>"))
    exploded = stream.select("user", F.explode("amounts").alias("amount"))
    exploded.groupBy("user").agg(F.sum("amount").alias("total")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        driver.create_input_topic("in").pipe_input("u", {"amounts": [1, 2, 3]})
        assert driver.create_output_topic("out").read_rows() == [{"user": "u", "total": 6}]


def test_values_that_are_drawn_before_a_fork(compiled):
    def topology(draw, between=lambda stream: stream):
        builder = StreamsBuilder()
        stream = builder.stream("a", key=String("user"), value=Json("amount int"))
        drawn = between(draw(stream.where("amount > 1")))
        drawn.where("r < '0.1'").to("sample", value=Json())
        drawn.where("r >= '0.1'").to("rest", value=Json())
        return builder

    ways = [
        lambda s: s.withColumn("r", F.expr("cast(rand() as string)")),
        lambda s: s.selectExpr("*", "uuid() as r"),
        lambda s: s.withColumn("r", F.udf(str, "string").asNondeterministic()("amount")),
        lambda s: s.groupBy("user").count().to_stream().withColumn("r", F.expr("uuid()")),
    ]
    for draw in ways:
        with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+: .*several ways out.*repartition\("):
            compiled(topology(draw))
        compiled(topology(draw, lambda stream: stream.repartition("user")))
    # All legs of a job have one time.
    compiled(topology(lambda s: s.withColumn("r", F.current_timestamp().cast("string"))))


@pytest.mark.long
def test_late_rows_whose_window_is_drawn(compiled):
    """A row would be in one window where it counts and in another one where it is late: in both, or in none."""

    def topology(draw, between=lambda stream: stream):
        builder = StreamsBuilder()
        stream = between(draw(builder.stream("a", key=String("user"), value=Json("t timestamp"))))
        timed = stream.withWatermark("t", "1 minute")
        timed.groupBy("user", F.window("t", "1 hour")).agg(F.count("*").alias("n"), late_to="late").to(
            "b", value=Json()
        )
        return builder

    ways = [
        lambda s: s.where("rand() < 0.5"),
        lambda s: s.withColumn("t", F.expr("timestamp_seconds(unix_seconds(t) + rand() * 10)")),
    ]
    for draw in ways:
        with pytest.raises(TopologyException, match=r"test_refused_steps.py:\d+: .*late_to=.* is not deterministic"):
            compiled(topology(draw))
        compiled(topology(draw, lambda stream: stream.repartition("user")))
    compiled(topology(lambda s: s.selectExpr("*", "uuid() as id")))
