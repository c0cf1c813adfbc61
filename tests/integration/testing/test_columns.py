"""What only Spark knows of columns: their types, names, stars and seeds."""

import pytest
from pyspark.sql import Window, functions as F

from sparkrelay import Integer, Json, Long, Raw, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def test_plain_formats_write_columns_of_their_own_type(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("n int"))
    texts = stream.select("n", F.col("n").cast("string").alias("text"), F.col("n").cast("bigint").alias("long"))
    texts.to("words", key=String("text"), value=Long("long"))
    texts.withColumn("bytes", F.encode("text", "UTF-8")).to("numbers", key=Integer("n"), value=Raw("bytes"))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input("7", {"n": 12})
        (word,) = driver.create_output_topic("words", key=Raw(), value=Raw()).read_records()
        (number,) = driver.create_output_topic("numbers", key=Raw(), value=Raw()).read_records()
    assert (word.key, word.value) == (b"12", (12).to_bytes(8, "big"))
    assert (number.key, number.value) == ((12).to_bytes(4, "big"), b"12")


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


def test_a_transform_may_keep_all_columns_as_they_are(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("n int, m int"))
    renamed = stream.transform(lambda rows: rows.select([F.col(name).alias(name.lower()) for name in rows.columns]))
    filled = stream.transform(lambda rows: rows.fillna(0))
    for sink, rows in (("renamed", renamed), ("filled", filled)):
        rows.selectExpr("n * m as product").to(sink, value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        driver.create_input_topic("in").pipe_rows([("a", {"n": None, "m": 2}), ("a", {"n": 1, "m": 3})])
        assert driver.create_output_topic("renamed").read_rows() == [{}, {"product": 3}]
        assert driver.create_output_topic("filled").read_rows() == [{"product": 0}, {"product": 3}]


def test_a_step_with_a_star_after_a_grouping_column_with_a_dot(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("x double"))
    counts = stream.groupBy("k", F.col("x") > 2.5).agg(F.count("*").alias("n"))
    counts.selectExpr("k", "n * 2 as twice").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input("a", {"x": 2.75})
        assert driver.create_output_topic("out").read_rows() == [{"k": "a", "twice": 2}]


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
    "but-one": lambda rows: rows.selectExpr("* except (n)", "n", "n * 2 as twice"),
    "list": lambda rows: rows.select(["*", F.expr("n * 2 as twice")]),
}


def test_a_star_is_the_visible_columns_of_a_stream_and_of_a_table(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("n bigint"))
    for kind, star in STARS.items():
        star(stream.select("k", "n")).to(f"stream-{kind}", value=Json())
        table = stream.groupBy("k").agg(F.sum("n").alias("n"), name=kind)
        star(table).to(f"table-{kind}", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input("a", {"n": 3})
        for sink in (f"{of}-{kind}" for of in ("stream", "table") for kind in STARS):
            assert driver.create_output_topic(sink).read_rows() == [{"k": "a", "n": 3, "twice": 6}], sink


def test_a_star_of_a_struct_beside_that_of_all_columns(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("s struct<x:int,y:int>"))
    stream.select("k", "s").select("*", "s.*").selectExpr("*", "s.x as z", "length(k) * 2 as l").to("out")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input("a", {"s": {"x": 1, "y": 2}})
        expected = {"k": "a", "s": {"x": 1, "y": 2}, "x": 1, "y": 2, "z": 1, "l": 2}
        assert driver.create_output_topic("out").read_rows() == [expected]


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.select("k", F.to_json(F.struct("*")).alias("h")),
        lambda s: s.selectExpr("k", "to_json(struct(*)) as h"),
        lambda s: s.withColumn("h", F.xxhash64("*")),
        lambda s: s.where("hash(*) % 2 = 0").withColumn("h", F.hash("*")),
        lambda s: s.transform(lambda rows: rows.withColumn("h", F.struct("*"))),
        lambda s: s.groupBy("k").agg(F.max(F.xxhash64("*")).alias("h")),
        lambda s: s.groupBy("k").count().withColumn("h", F.xxhash64("*")),
    ],
)
def test_a_star_inside_takes_in_no_hidden_columns(spark, step):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("k"), value=Json("n int")).select("k", "n")
    step(stream).select("k", F.col("h").cast("string").alias("h")).to("b", value=Json())
    rows = [(f"k{n}", n) for n in range(5)]
    wanted = step(spark.createDataFrame(rows, "k string, n int")).selectExpr("k", "cast(h as string) as h").collect()
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        driver.create_input_topic("a").pipe_rows([(k, {"n": n}) for k, n in rows])
        found = driver.create_output_topic("b").read_rows()
    assert sorted((row["k"], row["h"]) for row in found) == sorted(map(tuple, wanted))


def test_kafkas_own_columns_are_in_a_star_inside(spark):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("k"), value=Json("n int"))
    assert stream.columns == ["n", "k", "kafka"]
    stream.select("k", F.struct("*").alias("all")).to("b", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("a").pipe_input("x", {"n": 1})
        (row,) = driver.create_output_topic("b").read_rows()
    assert list(row["all"]) == ["n", "k", "kafka"]
    assert row["all"]["kafka"]["offset"] == 0


def test_two_columns_of_one_name_are_refused(compiled):
    builder = StreamsBuilder()
    builder.stream("a", key=String("k"), value=Json("n int")).select("*", "n").to("b", value=Json())
    with pytest.raises(TopologyException, match=r"to\('b'\) writes two columns 'n'"):
        compiled(builder)


def test_random_values_of_sql_are_new_in_every_batch(spark):
    draws = {
        "uuid": F.expr("uuid()"),
        "rand": F.expr("rand()") * 2,
        "randn": F.expr("randn()"),
        "shuffle": F.expr("shuffle(sequence(1, 20))"),
        "randstr": F.expr("randstr(12)"),
    }
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("n int"))
    # The plan is built anew for each batch, so a transform's function may draw as well.
    drawn = stream.select("n", *(column.alias(name) for name, column in draws.items()))
    drawn.transform(lambda rows: rows.withColumn("inside", F.rand())).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_rows(("a", {"n": n}) for n in range(4))
        rows = driver.create_output_topic("out").read_rows()
    assert [row["n"] for row in rows] == [0, 1, 2, 3]
    for name in [*draws, "inside"]:
        assert len({str(row[name]) for row in rows}) == 4, name


DRAWS = {
    "rand": F.rand,
    "randn": F.randn,
    "uuid": F.uuid,
    "shuffle": lambda: F.shuffle(F.sequence(F.lit(1), F.lit(20))),
    "randstr": lambda: F.randstr(F.lit(12)),
    "uniform": lambda: F.uniform(F.lit(1), F.lit(1_000_000_000)),
    "when": lambda: F.when(F.rand() < 2, F.rand()).otherwise(F.lit(0.0)),
}


def test_random_values_of_columns_are_new_in_every_batch(spark):
    """Also with a seed, which makes the same values each time in Spark alone."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("n int"))
    drawn = stream.select("n", *(draw().alias(name) for name, draw in DRAWS.items()), F.rand(42).alias("seeded"))
    drawn.to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_rows(("a", {"n": n}) for n in range(4))
        rows = driver.create_output_topic("out").read_rows()
    assert [row["n"] for row in rows] == [0, 1, 2, 3]
    for name in [*DRAWS, "seeded"]:
        assert len({str(row[name]) for row in rows}) == 4, name


def test_the_time_of_day_is_that_of_the_batch(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"))
    stream.select("k", F.current_time().cast("string").alias("at")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_rows([("a", b"x"), ("a", b"x")])
        first, second = driver.create_output_topic("out").read_rows()
        assert first["at"] != second["at"]


def test_grouping_columns_without_an_alias_have_the_names_that_spark_gives_them(spark):
    def grouped(stream):
        whole, day = F.col("s.d").cast("int"), F.window("t", "1 day")
        return stream.groupBy("k", whole, day, F.col("s.d") > 2, F.upper("k")).agg(F.count("*").alias("n"))

    builder = StreamsBuilder()
    value = "s struct<d:double>, t timestamp"
    grouped(builder.stream("in", key=String("k"), value=Json(value))).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        rows = (("a", {"s": {"d": d}, "t": "2020-01-01T00:00:00Z"}) for d in (1.2, 1.9, 2.5))
        driver.create_input_topic("in").pipe_rows(rows)
        found = sorted(driver.create_output_topic("out").read_rows(), key=lambda row: row["n"])
    assert list(found[0]) == grouped(spark.createDataFrame([], f"k string, {value}")).columns
    assert [tuple(row.values())[1::2] for row in found] == [(2, True, 1), (1, False, 2)]


def test_a_key_that_nothing_after_the_repartition_reads(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json("shop string, n int"))
    stream.repartition("shop").select("n").to("passed", value=Json())
    totals = stream.groupBy("user").agg(F.max("n").alias("n"), F.max("shop").alias("shop")).to_stream()
    totals.repartition("shop").select("n").to("counted", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input("a", {"shop": "s1", "n": 5})
        for sink in ("passed", "counted"):
            (record,) = driver.create_output_topic(sink).read_records()
            assert (record.key, record.value) == (b"s1", {"n": 5})


def test_what_is_selected_and_not_read_after_the_repartition(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json("shop string, n int"))
    shops = stream.select("user", "shop", F.col("n").alias("n.`n")).repartition("shop")
    shops.select("`n.``n`").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input("a", {"shop": "s1", "n": 5})
        assert driver.create_output_topic("out").read_rows() == [{"n.`n": 5}]


def test_a_key_of_a_repartition_that_does_not_exist(spark):
    stream = StreamsBuilder().stream("a", key=String("k"), value=Json("n int"))
    with pytest.raises(TopologyException, match=r"test_columns.py:\d+: .*name `m` cannot be resolved.*`k`, `n`"):
        stream.repartition("m")


@pytest.mark.parametrize(
    ("step", "like"),
    [
        (lambda rows: rows.groupBy("SHOP").count(), None),
        (lambda rows: rows.groupBy("USER", "shop").count().withColumnRenamed("USER", "user"), None),
        (lambda rows: rows.dropDuplicates(["user", "SHOP"]), None),
        (lambda rows: rows.repartition("SHOP"), lambda rows: rows),
        (
            lambda rows: rows.withColumn(
                "place", F.row_number().over(Window.partitionBy("USER").orderBy(F.desc("SHOP"), "N"))
            ).where("PLACE <= 2"),
            None,
        ),
    ],
    ids=["group", "groups", "duplicates", "repartition", "rank"],
)
def test_a_name_in_another_case_makes_the_same_key(spark, step, like):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("shop string, n int"))
    step(stream).select("*").to("b", value=Json())
    rows = [(f"u{n % 2}", f"s{n % 3}", n) for n in range(12)]
    frame = spark.createDataFrame(rows, "user string, shop string, n int").select("shop", "n", "user")
    wanted = (like or step)(frame)
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2, batch="all") as driver:
        driver.create_input_topic("a").pipe_rows([(user, {"shop": shop, "n": n}) for user, shop, n in rows])
        found = driver.create_output_topic("b").read_rows()
    assert sorted(str(row) for row in found) == sorted(str(row.asDict()) for row in wanted.collect())


def test_groups_and_extremes_by_a_collation_are_refused_until_it_is_taken_off(compiled):
    caseless, plain = F.collate("s", "UTF8_LCASE"), F.collate(F.lower("s"), "UTF8_BINARY")

    def grouped(key, value):
        builder = StreamsBuilder()
        stream = builder.stream("a", key=String("k"), value=Json("s string")).withColumn("s", caseless)
        stream.groupBy(key.alias("g")).agg(F.max(value).alias("m")).to("b", value=Json())
        return builder

    with pytest.raises(TopologyException, match=r"test_columns.py:\d+: grouping column 'g'.*UTF8_LCASE.*UTF8_BINARY"):
        grouped(F.col("s"), plain)
    extreme = grouped(plain, F.col("s"))
    with pytest.raises(TopologyException, match=r"test_columns.py:\d+: m is a max of.*UTF8_LCASE.*UTF8_BINARY"):
        compiled(extreme)
    compiled(grouped(plain, plain))


def test_counts_of_literals_and_of_values_of_any_type(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("d decimal(10,2), s struct<x int>, l array<int>"))
    none = {"none": F.lit(None), "still none": F.lit(None).cast("int")}
    counts = [F.count(column).alias(name) for name, column in none.items()]
    counts += [F.count(name).alias(name) for name in ("d", "s", "l")]
    stream.groupBy("k").agg(F.count(F.lit(1)).alias("all"), *counts).to("out", key=String("k"), value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        rows = [("a", {"d": 1.5, "s": {}, "l": []}), ("a", {"d": 2, "l": [1]})]
        driver.create_input_topic("in").pipe_rows(rows)
        newest = driver.create_output_topic("out").read_records()[-1]
    assert newest.key == "a"
    assert newest.value == {"k": "a", "all": 2, "none": 0, "still none": 0, "d": 2, "s": 1, "l": 2}
