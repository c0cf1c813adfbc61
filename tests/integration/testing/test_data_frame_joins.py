"""A stream joined with a DataFrame, as PySpark joins a stream with a static one."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def clicks_of(builder):
    return builder.stream("clicks", key=String("user"), value=Json("page string, country string, n long"))


@pytest.fixture
def countries(spark):
    rows = [("NO", "Norway", 5), ("UK", "Britain", 67), ("UK", "England", 56)]
    return spark.createDataFrame(rows, "country string, name string, size int")


@pytest.mark.parametrize("how", ["inner", "left"])
def test_each_row_gets_what_the_frame_has_for_it(spark, countries, how):
    builder = StreamsBuilder()
    rich = clicks_of(builder).where("n > 0").join(countries.where("size > 1"), "country", how)
    rich.select("user", "page", "name").to("out", value=Json())
    # The message key is still in its column: no repartition topic.
    rich.groupBy("user").agg(F.sum("n").alias("n"), name="sums").to("sums")
    topology = builder.build()
    assert len(topology.subtopologies) == 1
    with TopologyTestDriver(topology, spark=spark, batch="all", partitions=2) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        for user, country, n in (("a", "NO", 1), ("b", "UK", 2), ("c", "XX", 4), ("d", None, 8), ("e", "NO", 0)):
            topic.pipe_input(user, {"page": f"p{n}", "country": country, "n": n})
        found = sorted((row["user"], row["page"], row.get("name")) for row in out.read_rows())
        matched = [("a", "p1", "Norway"), ("b", "p2", "Britain"), ("b", "p2", "England")]
        assert found == matched + ([("c", "p4", None), ("d", "p8", None)] if how == "left" else [])
        sums = {"a": 1, "b": 4} | ({"c": 4, "d": 8} if how == "left" else {})
        assert {row["user"]: row["n"] for row in driver.store("sums")} == sums


def test_what_the_frame_reads_is_read_anew_for_each_micro_batch(spark, tmp_path):
    """As far as its source goes: Spark has listed the files when the frame was made."""
    file = tmp_path / "rates.csv"
    file.write_text("NO,1\n")
    builder = StreamsBuilder()
    rates = (
        spark.read.schema("country string, rate long").csv(str(file)).groupBy("country").agg(F.max("rate").alias("r"))
    )
    clicks_of(builder).join(rates, "country").select("page", "r").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        topic.pipe_input("a", {"page": "x", "country": "NO"})
        assert [(row["page"], row["r"]) for row in out.read_rows()] == [("x", 1)]
        file.write_text("NO,7\n")
        topic.pipe_input("a", {"page": "y", "country": "NO"})
        assert [(row["page"], row["r"]) for row in out.read_rows()] == [("y", 7)]


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda s, f: s.join(f, F.expr("n = b")), "name `b` cannot be resolved"),
        (lambda s, f: s.join(f, "country", "sideways"), "Unsupported join type 'sideways'"),
        (lambda s, f: s.join(f, "country", within="1 hour"), "is for two streams; leave it out"),
        (lambda s, f: s.withColumn("Name", F.lit(1)).join(f, "country"), "two columns 'Name' and 'name'; give one"),
        (lambda s, f: s.drop("country").join(f, "nowhere"), "nowhere"),
        (
            lambda s, f: s.join(f.sparkSession.readStream.format("rate").load().withColumnRenamed("value", "n"), "n"),
            "is read by Spark itself; read it with format",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_line(spark, countries, join, message):
    def run():
        builder = StreamsBuilder()
        join(clicks_of(builder), countries).to("out", value=Json())
        TopologyTestDriver(builder.build(), spark=spark)

    with pytest.raises(TopologyException, match=message) as raised:
        run()
    assert "test_data_frame_joins.py:" in str(raised.value)


@pytest.mark.parametrize("how", ["right", "full"])
def test_other_joins_stay_refused(spark, countries, how):
    clicks = clicks_of(StreamsBuilder())
    with pytest.raises(
        TopologyException, match=r'test_data_frame_joins.py:\d+: .*rows come from the stream alone.*"left"\)'
    ):
        clicks.join(countries, "country", how)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_frame_that_turns_out_to_be_empty_lets_nothing_through_or_nulls(spark, how):
    """Spark would leave the stream's side out of an inner join then, and with it whoever reports."""
    empty = spark.range(3).selectExpr("cast(id as string) AS country", "id * 2 AS x").where("x % 4 = 1")
    builder = StreamsBuilder()
    joined = clicks_of(builder).join(empty, "country", how)
    joined.select("page", "x").to("out", value=Json())
    joined.groupBy("user").count(name="counts")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        for number in range(2):
            topic.pipe_input("a", {"page": f"p{number}", "country": "NO"})
        found = [] if how == "inner" else ["p0", "p1"]
        assert [row["page"] for row in out.read_rows()] == found
        assert [row["count"] for row in driver.store("counts")] == ([] if how == "inner" else [2])


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
@pytest.mark.parametrize("on", ["an expression", "a list of comparisons", "nothing that is equal", "nothing"])
def test_a_condition_as_spark_batch_has_it(spark, on, how):
    columns = "cc string, lo int, hi int, name string"
    rates = spark.createDataFrame([("NO", 0, 9, "old"), ("NO", 8, 99, "new"), ("DK", 0, 3, "old")], columns)
    condition = {
        "an expression": lambda: F.expr("c = cc and n between lo and hi"),
        "a list of comparisons": lambda: [F.col("c") == F.col("cc"), F.col("n") > rates.lo],
        "nothing that is equal": lambda: F.expr("n between lo and hi"),
        "nothing": lambda: None,
    }[on]()
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("k"), value=Json("c string, n int")).select("k", "c", "n")
    rows.join(rates, condition, how).select(F.to_json(F.struct("*")).alias("text")).to("out", value=Json())
    given = [(f"k{number}", c, n) for number, (c, n) in enumerate([("NO", 5), ("NO", 8), ("DK", 500), ("UK", 1)])]
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2, batch="all") as driver:
        driver.create_input_topic("in").pipe_rows([(k, {"c": c, "n": n}) for k, c, n in given])
        found = [row["text"] for row in driver.create_output_topic("out").read_rows()]
    batch = spark.createDataFrame(given, "k string, c string, n int").join(rates, condition, how)
    assert sorted(found) == sorted(row[0] for row in batch.select(F.to_json(F.struct("*"))).collect())


def test_both_sides_may_have_a_column_of_one_name(spark, countries):
    builder = StreamsBuilder()
    clicks = clicks_of(builder).withColumn("name", F.lit("x")).alias("c")
    both = clicks.transform(lambda rows: rows.join(countries.alias("f"), "COUNTRY", "left"))
    both.select("country", "f.name", clicks["name"].alias("own")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("clicks").pipe_input("ada", {"country": "NO"})
        (row,) = driver.create_output_topic("out").read_rows()
    (name,) = [row.name for row in countries.where("country = 'NO'").collect()]
    assert row == {"country": "NO", "name": name, "own": "x"}


EXISTS = {
    "exists": "SELECT id FROM s WHERE EXISTS (SELECT 1 FROM {frame} f WHERE f.code = s.k)",
    "not exists": "SELECT id FROM s WHERE NOT EXISTS (SELECT 1 FROM {frame} f WHERE f.code = s.k)",
    "in": "SELECT id FROM s WHERE k IN (SELECT code FROM {frame}) OR id % 7 = 0",
    "column": "SELECT id, EXISTS (SELECT 1 FROM {frame} f WHERE f.code = s.k) AS there FROM s",
    "value": "SELECT id, (SELECT max(code) FROM {frame} f WHERE f.code = s.k) AS code FROM s",
}


@pytest.mark.long
@pytest.mark.parametrize("codes", ["ab", ""], ids=["rows", "no rows"])
def test_subqueries_of_a_frame_leave_rows_where_they_are(spark, codes):
    """In their order, and in the job that reads them: an empty side stops no task."""
    # Of an unknown size: Spark would shuffle both sides.
    frame = spark.createDataFrame(spark.sparkContext.parallelize([(code,) for code in codes], 2), "code string")
    builder = StreamsBuilder(spark)
    builder.stream("s", key=String("key"), value=Json("k string, id long"))
    for name, text in EXISTS.items():
        builder.sql(text, frame=frame).to(name.replace(" ", "-"), value=Json())
    rows = [(str(n % 3), {"k": "abcd"[n % 4], "id": n}) for n in range(60)]
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2, batch="all") as driver:
        topic = driver.create_input_topic("s")
        for first in range(0, 60, 20):
            topic.pipe_rows(rows[first : first + 20])
            driver.process()
        found = {name: driver.create_output_topic(name.replace(" ", "-")).read_records() for name in EXISTS}
    spark.createDataFrame([value for _, value in rows], "k string, id long").createOrReplaceTempView("s")
    for name, text in EXISTS.items():
        batch = spark.sql(text, frame=frame).orderBy("id").collect()
        wanted = [{column: value for column, value in row.asDict().items() if value is not None} for row in batch]
        assert sorted((record.value for record in found[name]), key=lambda row: row["id"]) == wanted, name
        for partition in (0, 1):
            ids = [record.value["id"] for record in found[name] if record.partition == partition]
            assert ids == sorted(ids), name
