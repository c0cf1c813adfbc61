"""What only Spark knows of columns: their types, names, stars and seeds."""

import json

import pytest
from pyspark.sql import Window, functions as F

from sparkrelay import Integer, Json, Long, Raw, StreamsBuilder, String
from sparkrelay.errors import TopologyException

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def values_of(consumed, topic):
    return [json.loads(value) for _, _, _, value in consumed(topic)]


def test_plain_formats_write_columns_of_their_own_type(instance, make_topic, produce, consumed, wait_until):
    source, words, numbers = (make_topic(hint, 1) for hint in ("in", "words", "numbers"))
    produce(source, [("7", {"n": 12})])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("n int"))
    texts = stream.select("n", F.col("n").cast("string").alias("text"), F.col("n").cast("bigint").alias("long"))
    texts.to(words, key=String("text"), value=Long("long"))
    texts.withColumn("bytes", F.encode("text", "UTF-8")).to(numbers, key=Integer("n"), value=Raw("bytes"))
    streams = instance(builder)
    streams.start()
    wait_until(lambda: (consumed(words) and consumed(numbers)) or streams.exception(), "nothing came")
    assert streams.exception() is None
    ((_, _, *word),), ((_, _, *number),) = consumed(words), consumed(numbers)
    assert word == [b"12", (12).to_bytes(8, "big")]
    assert number == [(12).to_bytes(4, "big"), b"12"]


@pytest.mark.parametrize(
    ("formats", "words"),
    [
        ({"key": String("n")}, r"column 'n' \(int\) as key=String\(\"n\"\), which takes string; .*cast\(\"string\"\)"),
        (
            {"value": Long("n")},
            r"column 'n' \(int\) as value=Long\(\"n\"\), which takes bigint; .*value=Integer\(\"n\"\)",
        ),
        ({"value": Raw("n")}, r"column 'n' \(int\) as value=Raw\(\"n\"\), which takes binary"),
    ],
)
def test_a_column_of_another_type_than_its_format_is_refused(compiled, formats, words):
    builder = StreamsBuilder()
    builder.stream("a", key=String("k"), value=Json("n int")).to("b", **formats)
    with pytest.raises(TopologyException, match=rf"test_columns.py:\d+: to\('b'\) writes {words}"):
        compiled(builder)


UNHIDDEN = {
    "renamed": lambda rows: rows.select([F.col(name).alias(name.lower()) for name in rows.columns]),
    "filled": lambda rows: rows.fillna(0),
}


@pytest.mark.parametrize("what", sorted(UNHIDDEN))
def test_a_transform_may_leave_all_columns_as_they_are(what, instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    produce(source, [("a", {"n": None, "m": 2}), ("a", {"n": 1, "m": 3})])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("n int, m int"))
    stream.transform(UNHIDDEN[what]).selectExpr("n * m as product").to(sink, value=Json())
    streams = instance(builder)
    streams.start()
    wait_until(lambda: len(consumed(sink)) == 2 or streams.exception(), f"not all came: {streams.status}")
    assert values_of(consumed, sink) == [{"product": 0} if what == "filled" else {}, {"product": 3}]


def test_a_step_with_a_star_behind_a_grouping_column_with_a_dot(instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    produce(source, [("a", {"x": 2.75})])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("x double"))
    counts = stream.groupBy("k", F.col("x") > 2.5).agg(F.count("*").alias("n"))
    counts.selectExpr("k", "n * 2 as twice").to(sink, value=Json())
    streams = instance(builder)
    streams.start()
    wait_until(lambda: consumed(sink) or streams.exception(), f"nothing came: {streams.status}")
    assert values_of(consumed, sink) == [{"k": "a", "twice": 2}]


def test_a_repartition_key_of_a_type_that_cannot_be_is_refused_though_nobody_reads_it(compiled):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("k"), value=Json("n int, tags array<string>"))
    stream.repartition("tags").select("n").to("b", value=Json())
    with pytest.raises(
        TopologyException, match=r"column 'tags' \(array<string>\) cannot be the key of a repartition .*to_json\("
    ):
        compiled(builder)


STARS = {
    "name": lambda rows: rows.select("*", (F.col("n") * 2).alias("twice")),
    "column": lambda rows: rows.select(F.col("*"), (F.col("n") * 2).alias("twice")),
    "text": lambda rows: rows.selectExpr("*", "n * 2 as twice"),
    "spaces": lambda rows: rows.selectExpr(" * ", "n * 2 as twice"),
    "last": lambda rows: rows.select((F.col("n") * 2).alias("twice"), "*"),
    "expression": lambda rows: rows.select(F.expr("*"), F.expr("n * 2 as twice")),
    "but one": lambda rows: rows.selectExpr("* except (n)", "n", "n * 2 as twice"),
    "list": lambda rows: rows.select(["*", F.expr("n * 2 as twice")]),
}


@pytest.mark.parametrize("behind", [False, True], ids=["stream", "table"])
def test_a_star_is_the_visible_columns(behind, instance, make_topic, produce, consumed, wait_until):
    source, sinks = make_topic("in", 1), {kind: make_topic("out", 1) for kind in STARS}
    produce(source, [("a", {"n": 3})])
    builder = StreamsBuilder()
    for kind, star in STARS.items():
        stream = builder.stream(source, key=String("k"), value=Json("n bigint"), name=kind.replace(" ", "-"))
        rows = stream.groupBy("k").agg(F.sum("n").alias("n")) if behind else stream.select("k", "n")
        star(rows).to(sinks[kind], value=Json())
    streams = instance(builder)
    streams.start()
    wait_until(lambda: all(consumed(sink) for sink in sinks.values()) or streams.exception(), "nothing came")
    assert streams.exception() is None
    for kind, sink in sinks.items():
        assert values_of(consumed, sink) == [{"k": "a", "n": 3, "twice": 6}], kind


def test_a_star_of_a_struct_beside_that_of_all_columns(instance, make_topic, produce, consumed, wait_until):
    topics = make_topic("in", 1), make_topic("out", 1)
    produce(topics[0], [("a", {"s": {"x": 1, "y": 2}})])
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], key=String("k"), value=Json("s struct<x:int,y:int>"))
    stream.select("k", "s").select("*", "s.*").selectExpr("*", "s.x as z", "length(k) * 2 as l").to(topics[1])
    streams = instance(builder)
    streams.start()
    wait_until(lambda: consumed(topics[1]) or streams.exception(), "nothing came")
    assert values_of(consumed, topics[1]) == [{"k": "a", "s": {"x": 1, "y": 2}, "x": 1, "y": 2, "z": 1, "l": 2}]


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.select(F.to_json(F.struct("*")).alias("value")),
        lambda s: s.selectExpr("k", "to_json(struct(*)) as value"),
        lambda s: s.withColumn("h", F.xxhash64("*")),
        lambda s: s.where("hash(*) > 0"),
        lambda s: s.transform(lambda rows: rows.withColumn("h", F.struct("*"))),
        lambda s: s.groupBy("k").agg(F.max(F.xxhash64("*")).alias("h")),
        lambda s: s.groupBy("k").count().withColumn("h", F.xxhash64("*")),
    ],
)
def test_a_star_that_would_take_in_hidden_columns_is_refused(compiled, step):
    builder = StreamsBuilder()
    step(builder.stream("a", key=String("k"), value=Json("n int"))).to("b", value=Json())
    with pytest.raises(TopologyException, match=r"test_columns.py:\d+: .* takes in columns that are not yours"):
        compiled(builder)


def test_two_columns_of_one_name_are_refused(compiled):
    builder = StreamsBuilder()
    builder.stream("a", key=String("k"), value=Json("n int")).select("*", "n").to("b", value=Json())
    with pytest.raises(TopologyException, match=r"to\('b'\) writes two columns 'n'"):
        compiled(builder)


def test_random_values_of_sql_are_new_in_every_batch(instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    produce(source, [("a", {"n": n}) for n in range(4)])
    draws = {
        "uuid": F.expr("uuid()"),
        "rand": F.expr("rand()") * 2,
        "randn": F.expr("randn()"),
        "shuffle": F.expr("shuffle(sequence(1, 20))"),
        "randstr": F.expr("randstr(12)"),
    }
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("n int"))
    # Made anew with the plan, so it may be drawn by a function as well.
    drawn = stream.select("n", *(column.alias(name) for name, column in draws.items()))
    drawn.transform(lambda rows: rows.withColumn("inside", F.rand())).to(sink, value=Json())
    streams = instance(builder, {"max.batch.records": 1})
    streams.start()
    wait_until(lambda: len(consumed(sink)) >= 4 or streams.exception(), "rows are missing")
    assert streams.exception() is None
    rows = values_of(consumed, sink)
    assert [row["n"] for row in rows] == [0, 1, 2, 3]
    for name in [*draws, "inside"]:
        assert len({str(row[name]) for row in rows}) == 4, name


@pytest.mark.parametrize(
    "draw",
    [
        F.rand,
        F.randn,
        F.uuid,
        lambda: F.shuffle(F.split("k", "")),
        lambda: F.randstr(F.lit(3)),
        lambda: F.uniform(F.lit(1), F.lit(5)),
        lambda: F.when(F.rand() < 0.5, "x").otherwise("y"),
    ],
)
def test_random_values_of_columns_are_refused(spark, draw):
    stream = StreamsBuilder().stream("a", key=String("k"))
    with pytest.raises(TopologyException, match=r"would give the same values in every micro-batch"):
        stream.withColumn("r", draw())
    stream.withColumn("r", F.rand(42) + F.lit(10_000_000_000))


def test_the_time_of_day_is_that_of_the_batch(instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"))
    stream.select("k", F.current_time().cast("string").alias("at")).to(sink, value=Json())
    streams = instance(builder)
    streams.start()
    for count in (1, 2):
        produce(source, [("a", "x")])
        wait_until(lambda count=count: len(consumed(sink)) >= count or streams.exception(), "a row is missing")
        assert streams.exception() is None
    assert len({row["at"] for row in values_of(consumed, sink)}) == 2


def test_grouping_columns_without_an_alias_have_the_names_that_spark_gives_them(
    spark, instance, make_topic, produce, consumed, wait_until
):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    produce(source, [("a", {"s": {"d": d}, "t": "2020-01-01T00:00:00Z"}) for d in (1.2, 1.9, 2.5)])

    def grouped(stream):
        whole, day = F.col("s.d").cast("int"), F.window("t", "1 day")
        return stream.groupBy("k", whole, day, F.col("s.d") > 2, F.upper("k")).agg(F.count("*").alias("n"))

    builder = StreamsBuilder()
    value = "s struct<d:double>, t timestamp"
    grouped(builder.stream(source, key=String("k"), value=Json(value))).to(sink, value=Json())
    streams = instance(builder)
    streams.start()
    wait_until(lambda: len(consumed(sink)) >= 2 or streams.exception(), "nothing came")
    assert streams.exception() is None
    found = sorted(values_of(consumed, sink), key=lambda row: row["n"])
    assert list(found[0]) == grouped(spark.createDataFrame([], f"k string, {value}")).columns
    assert [tuple(row.values())[1::2] for row in found] == [(2, True, 1), (1, False, 2)]


def test_a_key_that_nothing_behind_the_repartition_reads(instance, make_topic, produce, consumed, wait_until):
    source, passed, counted = (make_topic(hint, 1) for hint in ("in", "passed", "counted"))
    produce(source, [("a", {"shop": "s1", "n": 5})])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string, n int"))
    stream.repartition("shop").select("n").to(passed, value=Json())
    totals = stream.groupBy("user").agg(F.max("n").alias("n"), F.max("shop").alias("shop")).to_stream()
    totals.repartition("shop").select("n").to(counted, value=Json())
    streams = instance(builder)
    streams.start()
    wait_until(lambda: (consumed(passed) and consumed(counted)) or streams.exception(), "nothing came")
    assert streams.exception() is None
    for sink in (passed, counted):
        assert [(key, json.loads(value)) for _, _, key, value in consumed(sink)] == [(b"s1", {"n": 5})]


def test_what_is_selected_and_not_read_behind_the_repartition(instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    produce(source, [("a", {"shop": "s1", "n": 5})])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string, n int"))
    shops = stream.select("user", "shop", F.col("n").alias("n.`n")).repartition("shop")
    shops.select("`n.``n`").to(sink, value=Json())
    streams = instance(builder)
    streams.start()
    wait_until(lambda: consumed(sink) or streams.exception(), "nothing came")
    assert values_of(consumed, sink) == [{"n.`n": 5}]


def test_a_key_of_a_repartition_that_is_not_there(compiled):
    builder = StreamsBuilder()
    builder.stream("a", key=String("k"), value=Json("n int")).repartition("m").select("n").to("b", value=Json())
    with pytest.raises(TopologyException, match=r"repartition.*writes column 'm', but the columns are n, k"):
        compiled(builder)


@pytest.mark.parametrize(
    "step",
    [
        lambda rows: rows.groupBy("SHOP").count(),
        lambda rows: rows.groupBy("USER", "shop").count().withColumnRenamed("USER", "user"),
        lambda rows: rows.dropDuplicates(["user", "SHOP"]),
        lambda rows: rows.repartition("SHOP"),
        lambda rows: rows.withColumn(
            "place", F.row_number().over(Window.partitionBy("user").orderBy(F.desc("SHOP")))
        ).where("place <= 3"),
    ],
)
def test_a_name_in_another_case_that_makes_a_key_is_refused_with_the_one_there_is(compiled, step):
    builder = StreamsBuilder()
    step(builder.stream("a", key=String("user"), value=Json("shop string, n int"))).to("b", value=Json())
    with pytest.raises(TopologyException, match="upper and lower case count here: write '(shop|user)'"):
        compiled(builder)


def test_groups_and_extremes_by_a_collation_are_refused_until_it_is_taken_off(compiled):
    caseless, plain = F.collate("s", "UTF8_LCASE"), F.collate(F.lower("s"), "UTF8_BINARY")

    def grouped(key, value):
        builder = StreamsBuilder()
        stream = builder.stream("a", key=String("k"), value=Json("s string")).withColumn("s", caseless)
        stream.groupBy(key.alias("g")).agg(F.max(value).alias("m")).to("b", value=Json())
        return builder

    for key, value, words in ((F.col("s"), plain, "grouping column 'g'"), (plain, F.col("s"), "m is a max of")):
        with pytest.raises(TopologyException, match=rf"{words}.*UTF8_LCASE.*UTF8_BINARY"):
            compiled(grouped(key, value))
    compiled(grouped(plain, plain))


def test_counts_of_literals_and_of_values_of_any_type(instance, make_topic, produce, wait_for_table):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    produce(source, [("a", {"d": 1.5, "s": {}, "l": []}), ("a", {"d": 2, "l": [1]})])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("d decimal(10,2), s struct<x int>, l array<int>"))
    none = {"none": F.lit(None), "still none": F.lit(None).cast("int")}
    counts = [F.count(column).alias(name) for name, column in none.items()]
    counts += [F.count(name).alias(name) for name in ("d", "s", "l")]
    stream.groupBy("k").agg(F.count(F.lit(1)).alias("all"), *counts).to(sink, key=String("k"), value=Json())
    streams = instance(builder)
    streams.start()
    expected = {"k": "a", "all": 2, "none": 0, "still none": 0, "d": 2, "s": 1, "l": 2}
    wait_for_table(sink, {b"a": expected}, streams)


def test_columns_that_only_unused_results_are_made_of(instance, make_topic, produce, consumed, wait_for_table):
    source, counts, passed, moved = (make_topic(hint, 1) for hint in ("in", "counts", "passed", "moved"))
    produce(source, [("a", {"n": 5, "s": "x", "time": "2024-03-01T12:00:00Z"})])
    builder = StreamsBuilder()
    schema = "n int, s string, time timestamp, rest array<struct<x int>>"
    stream = builder.stream(source, key=String("k"), value=Json(schema))
    more = stream.withColumn("day", F.to_date("time")).selectExpr("*", "upper(s) as s2", "size(rest) as r")
    more = more.transform(lambda rows: rows.withColumn("l", F.length("s")))
    more.groupBy("k").agg(F.sum("n").alias("n")).to(counts, key=String("k"), value=Json())
    more.select("n").to(passed, value=Json())
    more.repartition("n").select("n", "l").select("n").to(moved, value=Json())
    streams = instance(builder)
    streams.start()
    wait_for_table(counts, {b"a": {"k": "a", "n": 5}}, streams)
    assert values_of(consumed, passed) == [{"n": 5}]
    wait_for_table(moved, {(5).to_bytes(4, "big"): {"n": 5}}, streams)
