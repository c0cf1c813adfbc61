"""Everything a user can get wrong: an error that names the thing, and nothing hangs."""

import base64
import secrets
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import (
    CorruptRecordException,
    IncompatibleTopologyException,
    SerializationException,
    StateStoreException,
    StreamsException,
    TimeoutException,
    TopologyException,
    UnknownTopicException,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

#: Spark's text of a plan, or of a function's call, ends after 25 columns.
WIDE = [f"amount + {n}" for n in range(30)]


def as_they_are(rows):
    return rows


def other(rows):
    """Return rows that are no stream's, to be joined by `amount`."""
    return rows.sparkSession.range(3).selectExpr("cast(id as int) as amount")


def copying(source, sink):
    builder = StreamsBuilder()
    builder.stream(source).to(sink)
    return builder


def counting(source, sink):
    builder = StreamsBuilder()
    builder.stream(source, key=String("user"), value=Json("n int")).groupBy("user").count().to(sink)
    return builder


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 2), make_topic("out", 2)


@pytest.fixture
def fails_to_start(instance):
    """`fails_to_start(error, words, builder, config)`: start() raises, and the instance can be stopped afterwards."""

    def check(error, words, builder, config=None):
        streams = instance(builder, config)
        with pytest.raises(error, match=words):
            streams.start()
        assert not streams.isActive
        assert streams.stop(10)

    return check


@pytest.fixture
def fails_while_running(instance, wait_until):
    """`fails_while_running(error, words, builder, config)`: the instance goes to ERROR with the cause."""

    def check(error, words, streams):
        wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
        assert not streams.isActive
        with pytest.raises(error, match=words):
            streams.awaitTermination(10)
        assert isinstance(streams.exception(), error)

    return check


def test_nothing_listens_at_the_brokers_addresses(fails_to_start):
    config = {"bootstrap.servers": "127.0.0.1:1,localhost:2"}
    fails_to_start(TimeoutException, "bootstrap.servers=127.0.0.1:1,localhost:2 within 5 s", copying("a", "b"), config)


def test_a_pipeline_that_writes_nowhere_warns(fails_to_start, caplog):
    builder = StreamsBuilder()
    builder.stream("a", key=String("user"), value=Json("shop string")).groupBy("shop").count()
    config = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 500}
    fails_to_start(TimeoutException, "127.0.0.1:1", builder, config)
    assert [r.message for r in caplog.records if "writes to no topic" in r.message and '.to("topic")' in r.message]


def test_a_source_topic_that_does_not_exist(fails_to_start, topics):
    fails_to_start(
        UnknownTopicException, "'no-such-orders' does not exist; create it", copying("no-such-orders", topics[1])
    )


def test_a_sink_topic_that_does_not_exist(fails_to_start, topics):
    fails_to_start(
        UnknownTopicException,
        r"test_bad_input.py.*'no-such-counts' of to\(\) does not exist; create it",
        counting(topics[0], "no-such-counts"),
    )


def add_partition(kafka_admin, topic, total):
    from confluent_kafka.admin import NewPartitions

    kafka_admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)


def test_a_source_topic_got_more_partitions_between_two_runs(
    fails_to_start, instance, topics, produce, kafka_admin, consumed, wait_until
):
    produce(topics[0], [("a", {"n": 1})])
    with instance(counting(*topics)) as streams:
        streams.start()
        wait_until(lambda: consumed(topics[1]), "no output")
    add_partition(kafka_admin, topics[0], 3)
    fails_to_start(StreamsException, "-changelog' has 2 partitions, but the pipeline now asks for 3", counting(*topics))


def test_a_source_topic_gets_more_partitions_while_running(
    fails_while_running, instance, topics, produce, kafka_admin, consumed, wait_until
):
    produce(topics[0], [("a", {"n": 1})])
    streams = instance(counting(*topics), {"consumer.metadata.max.age.ms": 500})
    streams.start()
    wait_until(lambda: consumed(topics[1]), "no output")
    add_partition(kafka_admin, topics[0], 3)
    fails_while_running(StreamsException, "has 2 partitions, but the pipeline now asks for 3", streams)


def test_a_wrong_column(compiled):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("amount int"))
    stream.where("amont > 1").to("b", value=Json())
    with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+.*amont"):
        compiled(builder)


def test_a_wrong_column_behind_a_grouping(compiled):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("amount int"))
    stream.groupBy("user").agg(F.sum("amount").alias("total")).withColumn("more", F.col("totl")).to("b")
    with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+.*totl"):
        compiled(builder)


def test_steps_that_a_stream_cannot_do(compiled):
    stream = StreamsBuilder().stream("a", value=Json("amount int"))
    with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+.*orderBy.*no order"):
        stream.orderBy("amount")
    builder = StreamsBuilder()
    builder.stream("a", value=Json("amount int")).groupBy("amount").agg(F.histogram_numeric("amount", F.lit(3))).to("b")
    with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+.*histogram_numeric"):
        compiled(builder)


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.transform(lambda rows: rows.where("total > 1")),
        lambda s: s.withColumn("one", F.explode(F.array("user"))),
        lambda s: s.selectExpr("*", "stack(2, total, 1L)"),
        lambda s: s.withColumn("hour", F.window(F.timestamp_seconds("total"), "1 hour")),
    ],
)
def test_steps_that_may_drop_rows_of_a_table(compiled, step):
    def topology(way):
        builder = StreamsBuilder()
        stream = builder.stream("a", key=String("user"), value=Json("amount int"))
        way(stream.groupBy("user").agg(F.sum("amount").alias("total"))).to("b")
        return builder

    with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+.*may drop rows or repeat them.*to_stream\(\)"):
        compiled(topology(step))
    compiled(topology(lambda table: step(table.withColumn("more", F.lit(1)).to_stream())))


@pytest.mark.parametrize(
    "condition", ["last > current_timestamp() - interval 1 hour", "rand() < 0.5", "last > (select current_timestamp())"]
)
def test_filters_of_a_table_that_mean_something_else_each_time(compiled, condition):
    def topology(way):
        builder = StreamsBuilder()
        stream = builder.stream("a", key=String("user"), value=Json("at timestamp"))
        way(stream.groupBy("user").agg(F.max("at").alias("last"))).to("b", value=Json())
        return builder

    with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+.*(taken back|a subquery).*to_stream|join\("):
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
        with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+.*depends on the time.*taken back"):
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
        with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+.*depends on the time.*taken back"):
            compiled(topology(way))
    # It goes out once, and is never taken back.
    compiled(topology(lambda table: table))
    compiled(topology(lambda table: table.to_stream().where("fresh")))


def test_a_join_in_a_function_of_a_table(compiled):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("amount int"))
    table = stream.groupBy("user").agg(F.max("amount").alias("amount"))
    table.transform(lambda rows: rows.join(F.broadcast(other(rows)), "amount")).to("b", value=Json())
    with pytest.raises(TopologyException, match=r"may drop rows or repeat them \(Join\)"):
        compiled(builder)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda s: s.withColumn("r", F.expr("row_number() over (partition by user order by amount)")), "Window"),
        (lambda s: s.transform(lambda rows: rows.distinct()), "Deduplicate"),
        (lambda s: s.transform(lambda rows: rows.orderBy("amount")), "Sort"),
        (lambda s: s.transform(lambda rows: rows.limit(3)), "GlobalLimit"),
        (lambda s: s.transform(lambda rows: rows.union(rows)), "Union"),
        (lambda s: s.withColumn("id", F.monotonically_increasing_id()), r"monotonically_increasing_id\(\)"),
        (lambda s: s.where("amount > 1").withColumn("p", F.spark_partition_id()), r"spark_partition_id\(\)"),
        (lambda s: s.withColumn("file", F.input_file_name()), r"input_file_name\(\)"),
        (
            lambda s: s.transform(lambda d: d.groupBy("user").applyInPandas(lambda rows: rows, d.schema)),
            "FlatMapGroupsInPandas",
        ),
        (lambda s: s.transform(lambda d: d.join(other(d).hint("merge"), "amount")), "Join"),
        (lambda s: s.transform(lambda d: d.join(F.broadcast(d.groupBy("amount").count()), "amount")), "Join"),
        (lambda s: s.transform(lambda d: d.hint("rebalance")), "RebalancePartitions"),
        (lambda s: s.where("amount in (select id from range(3))"), "a subquery.*join.*"),
        (lambda s: s.withColumn("most", F.expr("(select max(id) from range(3))")), "a subquery.*join.*"),
        (lambda s: s.selectExpr("*", *WIDE, "monotonically_increasing_id()"), r"monotonically_increasing_id\(\)"),
        (lambda s: s.selectExpr(f"array({', '.join(WIDE)}, spark_partition_id())"), r"spark_partition_id\(\)"),
    ],
)
def test_steps_that_look_beyond_a_row(step, reason, compiled):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("amount int"))
    step(stream.withColumn("twice", F.col("amount") * 2)).to("b", value=Json())
    with pytest.raises(TopologyException, match=rf"test_bad_input.py:\d+: .* is not row-wise \({reason}\)"):
        compiled(builder)


def test_steps_that_look_beyond_a_row_behind_an_aggregation(compiled):
    builder = StreamsBuilder()
    counts = builder.stream("a", key=String("user"), value=Json("amount int")).groupBy("user").count()
    counts.transform(lambda rows: rows.dropDuplicates(["count"])).to("b", value=Json())
    with pytest.raises(TopologyException, match=r"transform.* is not row-wise \(Deduplicate\)"):
        compiled(builder)


def test_values_that_are_drawn_in_front_of_a_fork(compiled):
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
        with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+: .*several ways out.*repartition\("):
            compiled(topology(draw))
        compiled(topology(draw, lambda stream: stream.repartition("user")))
    # All legs of a job have one time.
    compiled(topology(lambda s: s.withColumn("r", F.current_timestamp().cast("string"))))


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
        with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+: .*late_to=.* is not deterministic"):
            compiled(topology(draw))
        compiled(topology(draw, lambda stream: stream.repartition("user")))
    compiled(topology(lambda s: s.selectExpr("*", "uuid() as id")))


def test_rows_from_rows_are_fine(instance, topics, produce, wait_for_table):
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], key=String("user"), value=Json("amounts array<int>"))
    exploded = stream.select("user", F.explode("amounts").alias("amount"))
    exploded.groupBy("user").agg(F.sum("amount").alias("total")).to(topics[1], value=Json())
    produce(topics[0], [("u", {"amounts": [1, 2, 3]})])
    streams = instance(builder)
    streams.start()
    wait_for_table(topics[1], {b"u": {"user": "u", "total": 6}}, streams)


def test_sessions_need_a_watermark(compiled):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("t timestamp"))
    stream.groupBy("user", F.session_window("t", "1 hour")).count().to("b", value=Json())
    with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+: .* without a watermark every session"):
        compiled(builder)


@pytest.mark.parametrize(
    ("keys", "made"),
    [
        (lambda: [F.window("created", "1 hour")], lambda s: s),
        (lambda: ["user", F.window("created", "1 hour", "30 minutes")], lambda s: s),
        (lambda: [F.expr("window(created, '1 hour')").alias("w")], lambda s: s),
        (lambda: ["user", "w"], lambda s: s.withColumn("w", F.window("created", "1 hour"))),
        (lambda: ["page", "w"], lambda s: s.withColumn("w", F.window(F.col("created").cast("timestamp"), "1 hour"))),
        (lambda: ["page", "w"], lambda s: s.withColumn("w", F.window("kafka.timestamp", "1 hour"))),
    ],
)
def test_windows_of_another_time_than_the_watermarks(compiled, keys, made):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("page string, created timestamp, received timestamp"))
    made(stream).withWatermark("received", "1 minute").groupBy(*keys()).count().to("b", value=Json())
    with pytest.raises(TopologyException, match=r"test_bad_input.py:\d+: .*'received': windows end by their own time"):
        compiled(builder)


@pytest.mark.parametrize(
    ("time", "window", "made"),
    [
        ("created", lambda: F.expr("window(created, '1 hour')"), lambda s: s),
        ("created", lambda: F.window(F.col("created") + F.expr("interval 1 hour"), "1 hour"), lambda s: s),
        ("at", lambda: F.window("created", "1 hour"), lambda s: s.withColumn("at", F.col("created").cast("date"))),
        (
            "at",
            lambda: "w",
            lambda s: s.withColumn("w", F.window("created", "1 hour")).withColumnRenamed("created", "at"),
        ),
    ],
)
def test_windows_of_what_the_watermark_is_made_of(compiled, time, window, made):
    builder = StreamsBuilder()
    stream = made(builder.stream("a", key=String("user"), value=Json("page string, created timestamp")))
    stream.withWatermark(time, "1 minute").groupBy("page", window()).count().to("b", value=Json())
    compiled(builder)


def test_a_key_column_that_would_hide_a_field(compiled):
    builder = StreamsBuilder()
    builder.stream("a", key=String("user"), value=Json("user int, amount int")).where("amount > 1").to(
        "b", value=Json()
    )
    with pytest.raises(TopologyException, match=r"'user' is both the message key \(string\) and a field .* \(int\)"):
        compiled(builder)


def test_our_own_columns_are_not_suggested(compiled):
    builder = StreamsBuilder()
    builder.stream("a", key=String("user"), value=Json("amount int")).select("key_").to("b", value=Json())
    with pytest.raises(TopologyException) as caught:
        compiled(builder)
    assert "__sparkrelay" not in str(caught.value)
    assert "`user`" in str(caught.value)


def test_a_record_that_does_not_decode_ends_the_instance(fails_while_running, instance, topics, produce, consumed):
    produce(topics[0], [{"key": "a", "value": {"n": 1}, "partition": 0}, {"key": "a", "value": "{oh", "partition": 0}])
    streams = instance(counting(*topics))
    streams.start()
    fails_while_running(SerializationException, rf"{topics[0]}-0 at offset 1 .*log-and-continue", streams)
    assert not consumed(topics[1])
    # The same again: nothing of the refused batch was kept.
    again = instance(counting(*topics))
    again.start()
    fails_while_running(SerializationException, rf"{topics[0]}-0 at offset 1 ", again)


def test_a_record_that_does_not_decode_is_skipped(instance, topics, produce, wait_for_table):
    deep = f'{{"n": 5, "note": {"[" * 600}{"]" * 600}}}'
    bad = [{"key": "a", "value": value} for value in ("{oh", {"n": "two"}, deep)]
    produce(topics[0], [("a", {"n": 1}), *bad, ("a", {"n": 3})])
    builder = StreamsBuilder()
    numbers = builder.stream(topics[0], key=String("user"), value=Json("n int, note string"))
    counts = F.count("*").alias("count"), F.sum("n").alias("sum"), F.count("note").alias("notes")
    numbers.groupBy("user").agg(*counts).to(topics[1])
    streams = instance(builder, {"deserialization.exception.handler": "log-and-continue"})
    streams.start()
    wait_for_table(topics[1], {b"a": {"user": "a", "count": 2, "sum": 4, "notes": 0}}, streams)


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("text int", lambda: F.col("text")),
        ("text string", lambda: F.udf(int, "int")("text")),
        ("text string", lambda: F.expr("CAST(text AS int)")),
    ],
    ids=["json", "udf", "cast"],
)
def test_what_a_record_says_is_never_run(fails_while_running, instance, topics, produce, consumed, schema, column):
    # Short, for messages cut long values: a pickle that makes a directory where it is read.
    made = Path(tempfile.gettempdir(), secrets.token_hex(4))
    pickled = base64.b64encode(f"(cos\nmkdir\n(S'{made}'\ntRNt.".encode()).decode()
    marks = [f"[sparkrelay-error:{pickled}]", f"[sparkrelay-failure:{pickled.rstrip('=')}:{'0' * 64}]"]
    produce(topics[0], [("a", {"text": "".join(marks)})])
    builder = StreamsBuilder()
    texts = builder.stream(topics[0], key=String("user"), value=Json(schema))
    texts.groupBy("user").agg(F.max(column()).alias("most")).to(topics[1])
    streams = instance(builder, {"max.batch.retries": 1})
    streams.start()
    fails_while_running((StreamsException, SerializationException), r"sparkrelay-error:", streams)
    assert not made.exists()
    assert not consumed(topics[1])


def test_a_record_batch_that_decompresses_to_too_much(fails_while_running, instance, topics, produce):
    produce(topics[0], [{"key": "a", "value": "x" * 100_000, "partition": 0}], compression_type="zstd")
    streams = instance(copying(*topics), {"max.decompressed.batch.bytes": 50_000, "max.batch.retries": 0})
    streams.start()
    words = rf"{topics[0]}-0: .* offset 0 .* zstd hold more than max.decompressed.batch.bytes=50000"
    fails_while_running(CorruptRecordException, words, streams)


@pytest.mark.parametrize(
    ("divided", "where"),
    [
        (lambda: F.udf(lambda n: 12 // n, "int")("n"), r"\S+test_bad_input.py:\d+, in <lambda>"),
        (lambda: F.expr("12 / n"), "in the expression '12 / n'"),
    ],
    ids=["python", "sql"],
)
def test_a_failing_step_is_tried_again_and_named_with_its_input(
    fails_while_running, instance, topics, produce, consumed, caplog, capfd, divided, where
):
    produce(topics[0], [{"key": key, "value": {"n": n}, "partition": 1} for key, n in [("a", 3), ("b", 0)]])
    builder = StreamsBuilder()
    numbers = builder.stream(topics[0], key=String("user"), value=Json("n int"))
    numbers.groupBy("user").agg(F.sum(divided()).alias("s")).to(topics[1])
    streams = instance(builder, {"max.batch.retries": 1})
    streams.start()
    failed = rf"failed in task 0_1 \(topic {topics[0]}, partition 1, offsets 0 to 1\): .* by zero.* \({where}\)"
    fails_while_running(StreamsException, failed, streams)
    assert "failed and runs again" in caplog.text
    assert not [record for record in caplog.records if record.levelno > 10 and "\n" in record.getMessage()]
    assert "Traceback" not in capfd.readouterr().err
    assert not consumed(topics[1])


def test_state_dir_cannot_be_written(fails_to_start, topics, tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    fails_to_start(StateStoreException, f"{file}", counting(*topics), {"state.dir": str(file)})
    fails_to_start(StateStoreException, "/proc/nowhere", counting(*topics), {"state.dir": "/proc/nowhere"})


def test_two_topologies_under_one_application_id(
    fails_while_running, instance, topics, produce, wait_for_table, tmp_path, make_topic, wait_until
):
    produce(topics[0], [("a", {"n": 1})])
    first = instance(counting(*topics), {"state.dir": str(tmp_path / "first")})
    first.start()
    wait_for_table(topics[1], {b"a": {"user": "a", "count": 1}}, first)

    other = StreamsBuilder()
    stream = other.stream(topics[0], key=String("user"), value=Json("n int"))
    stream.groupBy("user").count().to(topics[1])
    stream.groupBy("user").agg(F.sum("n").alias("s"), name="extra").to(make_topic("sums", 2))
    second = instance(other, {"state.dir": str(tmp_path / "second")})
    second.start()
    fails_while_running(IncompatibleTopologyException, "runs another topology.*extra", second)

    produce(topics[0], [("a", {"n": 1})])
    wait_for_table(topics[1], {b"a": {"user": "a", "count": 2}}, first)
    wait_until(lambda: first.state == "RUNNING", f"{first.status}, not RUNNING")


def test_an_instance_starts_only_once(instance, topics, wait_until):
    streams = instance(copying(*topics))
    streams.start()
    with pytest.raises(StreamsException, match=r"start\(\) needs a new instance; this one is"):
        streams.start()
    wait_until(lambda: streams.state == "RUNNING", f"{streams.status}, not RUNNING")
    assert streams.stop(30)
    with pytest.raises(StreamsException, match="NOT_RUNNING"):
        streams.start()


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("tags", r"'tags' \(array<string>\).*F.to_json\(\"tags\"\).alias\(\"tags\"\)"),
        ("props", r"'props' \(map<string,int>\).*F.to_json\(F.array_sort\(F.map_entries\(\"props\"\)\)\)"),
        ("place", r"'place' \(struct<city:struct<name:string>>\).*to_json.*, or by fields of it"),
        ("bare", r"'bare' \(struct<>\)"),
        ("interval 1 day", r"'made' \(interval day\).*cast\(\"string\"\)"),
        ("null", r"'made' \(void\).*cast\(\"string\"\)"),
    ],
)
@pytest.mark.parametrize("beside", [True, False], ids=["beside the key", "behind a repartition"])
def test_columns_that_no_key_can_be_made_of(compiled, column, words, beside):
    schema = "tags array<string>, props map<string, int>, place struct<city struct<name string>>, bare struct<>"
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json(schema))
    if not beside:
        stream = stream.withColumn("user", F.upper("user"))
    if " " in column or column == "null":
        stream, column = stream.withColumn("made", F.expr(column)), "made"
    stream.groupBy("user", column).count().to("b", value=Json())
    with pytest.raises(TopologyException, match=rf"test_bad_input.py:\d+: .*{words}"):
        compiled(builder)


@pytest.mark.parametrize("kind", ["int", "double", "decimal(10, 2)", "string", "array<timestamp>"])
def test_event_times_of_other_types(compiled, kind):
    builder = StreamsBuilder()
    builder.stream("a", value=Json(f"at {kind}, n int"), timestamp="at").to("b")
    words = r"test_bad_input.py:\d+: .*timestamp='at'.* bigint of milliseconds .*Json\(\"at timestamp\"\)"
    with pytest.raises(TopologyException, match=words):
        compiled(builder)
