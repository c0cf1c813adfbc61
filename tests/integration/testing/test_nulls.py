"""``dropna`` and ``fillna``, beside Spark batch over the same rows; what is left out of a table is deleted."""

import random

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

SCHEMA = "a int, b double, c string, d boolean, `e.f` float"
VALUES = {
    "a": (1, 2, None),
    "b": (0.5, float("nan"), None),
    "c": ("x", "", None),
    "d": (True, False, None),
    "e.f": (2.5, float("nan"), None),
}
STEPS = {
    # Spark's own knows no dots where it takes all columns.
    "any": lambda rows, _: rows.withColumnRenamed("e.f", "e").dropna().withColumnRenamed("e", "e.f"),
    "all": lambda rows, names: rows.dropna("all", subset=names),
    "thresh": lambda rows, names: rows.dropna(thresh=3, subset=names),
    "none needed": lambda rows, names: rows.dropna(thresh=0, subset=names),
    "one": lambda rows, _: rows.dropna(subset="b"),
    "dotted": lambda rows, _: rows.dropna(subset=["`e.f`", "c"]),
    "number": lambda rows, names: rows.fillna(7, names),
    "everywhere": lambda rows, _: rows.fillna(7.9),
    "text": lambda rows, _: rows.fillna("none"),
    "boolean": lambda rows, _: rows.fillna(True),
    "of one": lambda rows, _: rows.fillna(3, subset="b"),
    "of each": lambda rows, _: rows.fillna({"a": 0, "c": "none"}),
}


def made(count):
    chosen = random.Random(3)
    return [{name: chosen.choice(of) for name, of in VALUES.items()} for _ in range(count)]


@pytest.mark.parametrize("what", sorted(STEPS))
def test_rows_are_those_of_spark_batch(spark, what):
    rows, names = made(60), [f"`{name}`" for name in VALUES]
    builder = StreamsBuilder()
    stream = builder.stream("in", value=Json(SCHEMA))
    STEPS[what](stream, names).select(*names).to("out", value=Json())
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)
    # JSON has no NaN: both are written, and read, as Spark does it.
    wanted = [row[0] for row in STEPS[what](frame, names).select(F.to_json(F.struct(*names))).collect()]
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("in")
        for row in rows:
            topic.pipe_input(None, row)
        text = driver.create_output_topic("out", value=String())
        assert text.read_rows() == wanted


def test_a_group_whose_value_becomes_null_is_deleted(spark):
    builder = StreamsBuilder()
    newest = builder.stream("in", key=String("k"), value=Json("x int")).groupBy("k").agg(F.last("x").alias("last"))
    newest.dropna().to("out", value=Json())
    newest.fillna(0).select("k", F.col("last").alias("filled")).to("filled", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("in")
        out, filled = driver.create_output_topic("out"), driver.create_output_topic("filled")
        for x in (None, 3, None):
            topic.pipe_input("a", {"x": x})
        assert [record.value for record in out.read_records()] == [{"k": "a", "last": 3}, None]
        assert [row["filled"] for row in filled.read_rows()] == [0, 3, 0]


def test_a_row_with_a_null_is_gone_from_a_table_that_is_looked_into(spark):
    builder = StreamsBuilder()
    prices = builder.table("prices", key=String("item"), value=Json("price double")).dropna(subset=["price"])
    orders = builder.stream("orders", key=String("item"), value=Json("n int"))
    orders.join(prices, "item", "left").select("n", "price").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("prices", "orders")}
        for price in (2.5, None, float("nan"), 4.5):
            topics["prices"].pipe_input("tea", {"price": price})
            topics["orders"].pipe_input("tea", {"n": 1})
        rows = driver.create_output_topic("out").read_rows()
        assert [row.get("price") for row in rows] == [2.5, None, None, 4.5]


def test_a_deletion_passes_in_front_of_a_table(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("x int")).dropna(subset=["x"])
    stream.to_table(name="kept").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", {"x": 1})
        topic.pipe_input("b", {"x": 2})
        topic.pipe_input("a", None)
        assert driver.store("kept") == [{"k": "b", "x": 2}]


def test_hundreds_of_columns(spark):
    builder = StreamsBuilder()
    wide = builder.stream("in", key=String("k"), value=Json(", ".join(f"c{number} int" for number in range(400))))
    wide.dropna(thresh=3).select("k", "c0").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", {"c0": 1})
        topic.pipe_input("b", {"c0": 1, "c399": 2})
        assert driver.create_output_topic("out").read_rows() == [{"k": "b", "c0": 1}]


def test_a_record_without_headers_is_no_record_with_a_null(spark):
    builder = StreamsBuilder()
    builder.stream("in").dropna().to("out")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input(b"a", b"x")
        topic.pipe_input(None, b"y")
        assert [record.value for record in driver.create_output_topic("out").read_records()] == [b"x"]


@pytest.mark.parametrize("value", [0, "none"])
def test_a_table_whose_nulls_are_filled_is_looked_into(spark, value):
    builder = StreamsBuilder()
    filled = builder.table("t", key=String("k"), value=Json("v int, w string")).fillna(value)
    builder.stream("in", key=String("k"), value=Json("p int")).join(filled, "k", "left").to("out", value=Json())
    builder.stream("in", key=String("k"), value=Json("p int")).fillna(0).to_table(name="kept").to("kept", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("t").pipe_input("a", {})
        driver.create_input_topic("in").pipe_input("a", {})
        (row,) = driver.create_output_topic("out").read_rows()
        assert row == {"k": "a", **({"v": 0} if value == 0 else {"w": "none"})}
        assert driver.store("kept") == [{"k": "a", "p": 0}]


KEYS = {
    "filled": lambda rows: rows.fillna({"v": "x"}),
    "computed": lambda rows: rows.withColumn("v", F.coalesce("v", F.lit("x"))),
    "constant": lambda rows: rows.withColumn("v", F.lit("x")),
}


@pytest.mark.parametrize("how", sorted(KEYS))
def test_a_deletion_is_not_somebody_elses_where_the_new_key_is_made_up(spark, how):
    builder = StreamsBuilder()
    rows = KEYS[how](builder.stream("in", key=String("k"), value=Json("v string, p int")))
    rows.repartition("v").to_table(name="kept").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("b", {"p": 2})
        topic.pipe_input("a", None)
        assert driver.store("kept") == [{"v": "x", "k": "b", "p": 2}]


@pytest.mark.long
def test_a_deletion_finds_the_key_that_is_made_of_its_own(spark):
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("k"), value=Json("p int")).withColumn("v", F.upper("k"))
    rows.repartition("v").to_table(name="kept").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", {"p": 1})
        topic.pipe_input("b", {"p": 2})
        topic.pipe_input("a", None)
        assert driver.store("kept") == [{"v": "B", "k": "b", "p": 2}]


def _taken_from_nothing(frame):
    return frame.sparkSession._jvm.java.util.ArrayDeque().pop()


STRANGE = {
    "of the JVM": (lambda rows: rows.transform(_taken_from_nothing), "java.util.NoSuchElementException"),
    "of Python": (lambda rows: rows.fillna(10**400), "int too large to convert to float"),
}


@pytest.mark.parametrize("whose", sorted(STRANGE))
def test_an_error_that_spark_did_not_foresee_is_said_with_the_line(spark, whose):
    step, said = STRANGE[whose]
    stream = StreamsBuilder().stream("in", value=Json("x int"))
    with pytest.raises(TopologyException, match=rf"test_nulls\.py:\d+: {said}"):
        step(stream)


@pytest.mark.parametrize("step", [lambda rows: rows.dropna(subset=["gone"]), lambda rows: rows.fillna(0, "gone")])
def test_a_column_that_is_missing_is_named_with_the_line(spark, step):
    stream = StreamsBuilder().stream("in", value=Json("x int"))
    with pytest.raises(TopologyException, match=r"test_nulls\.py:\d+: .*`gone`"):
        step(stream)


NEVER_NULL = StructType([StructField("id", LongType(), nullable=False), StructField("name", StringType())])


@pytest.mark.parametrize(
    "steps",
    [
        lambda rows: rows.withColumn("flag", F.lit(1)).repartition("name").dropna().select("name"),
        lambda rows: rows.withColumn("flag", F.lit(1)).repartition("name").where("flag is not null").select("name"),
        lambda rows: rows.withColumn("flag", F.lit("x")).dropDuplicates(["k"]).dropna().select("name"),
        lambda rows: (
            rows.withColumn("of", F.struct(F.lit(1).alias("n"))).repartition("k").where("of.n = of.n").select("name")
        ),
        lambda rows: (
            rows.groupBy("name").count().to_stream().repartition("name").where("count is not null").select("name")
        ),
    ],
)
def test_a_column_that_is_never_null_leaves_no_row_out_though_nothing_reads_it(spark, steps):
    builder = StreamsBuilder()
    steps(builder.stream("in", key=String("k"), value=Json(NEVER_NULL))).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input("k", {"id": 1, "name": "x"})
        assert driver.create_output_topic("out").read_rows() == [{"name": "x"}]


def test_a_field_may_be_null_whatever_the_schema_says_of_it_as_in_from_json(spark):
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("k"), value=Json(NEVER_NULL))
    rows.select("name", "id", F.col("id").isNull().alias("none")).to("out", value=Json())
    rows.dropna().select("name").to("whole", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        for value in ({"id": 1, "name": "x"}, {"name": "y"}):
            driver.create_input_topic("in").pipe_input("k", value)
        assert driver.create_output_topic("out").read_rows() == [
            {"name": "x", "id": 1, "none": False},
            {"name": "y", "none": True},
        ]
        assert driver.create_output_topic("whole").read_rows() == [{"name": "x"}]


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda rows: rows.to("out", value=Json()), r"to\('out'\) writes two columns 'a' and 'A'; .*alias\(\)"),
        (lambda rows: rows.fillna(0), "AMBIGUOUS_REFERENCE.*give one of them another name"),
        (lambda rows: rows.foreach(print), "two columns .*'A'"),
        (lambda rows: rows.to_table(), "two columns .*'A'; rename or drop one"),
        (
            lambda rows: rows.groupBy("k").agg((F.sum("a_b") / 2).alias("K")).to("out", value=Json()),
            "two columns 'k' and 'K'",
        ),
    ],
)
def test_two_columns_that_differ_in_case_only_are_refused_with_the_line(spark, end, message):
    builder = StreamsBuilder()

    def write():
        end(builder.stream("in", key=String("k"), value=Json("a int, A int, a_b int")))
        TopologyTestDriver(builder.build(), spark=spark)

    with pytest.raises(TopologyException, match=rf"test_nulls.py:\d+: .*{message}"):
        write()


@pytest.mark.parametrize("key", [lambda: "s.a", lambda: F.upper("a").alias("a")])
def test_a_grouping_column_with_the_name_of_another_one(spark, key):
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("k"), value=Json("a string, s struct<a:string>"))
    rows.groupBy(key()).count().to("out", value=Json())
    given = [("x", "y"), ("y", "y"), ("x", "z")]
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        for a, s_a in given:
            driver.create_input_topic("in").pipe_input("k", {"a": a, "s": {"a": s_a}})
        newest = {record.key: record.value for record in driver.create_output_topic("out").read_records()}
    frame = spark.createDataFrame([(a, (s_a,)) for a, s_a in given], "a string, s struct<a:string>")
    wanted = {row.a.encode(): row.asDict() for row in frame.groupBy(key()).count().collect()}
    assert newest == wanted
