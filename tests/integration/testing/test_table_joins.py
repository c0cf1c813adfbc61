"""Joins of two tables, and what goes on from them, on the test driver and beside Spark batch over the newest rows."""

import random

import pytest
from pyspark.sql import Window, functions as F
from tests.marks import first_of

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def table(builder, topic, columns, **more):
    return builder.table(topic, key=String("k"), value=Json(columns), **more)


def read(topic):
    return [
        (r.key, None if r.value is None else {n: v for n, v in r.value.items() if v is not None}, r.timestamp)
        for r in topic.read_records()
    ]


def newest(topic):
    """Return the rows that a table's topic holds in the end, without their keys."""
    return {key: value for key, value, _ in read(topic) if value is not None or key is not None}


def test_a_changed_side_changes_the_joined_row(spark):
    builder = StreamsBuilder()
    left, right = table(builder, "left", "l string, n long"), table(builder, "right", "r string")
    both = left.join(right, "k", "left")
    both.where("n > 1").select("k", "l", "r").to("large", value=Json())
    both.select("k", "l", "r").to("both", value=Json())
    left.to("copy", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("left", "right")}
        outs = [driver.create_output_topic(name, key=String()) for name in ("both", "large", "copy")]

        def put(topic, value, at):
            topics[topic].pipe_input("a", value, at)
            return [[(value, at) for _, value, at in read(out)] for out in outs]

        row = {"k": "a", "l": "x"}
        assert put("right", {"r": "y"}, 3) == [[], [], []]
        assert put("left", {"l": "x", "n": 1}, 1) == [[({**row, "r": "y"}, 3)], [], [({**row, "n": 1}, 1)]]
        assert put("left", {"l": "x", "n": 2}, 5)[:2] == [[({**row, "r": "y"}, 5)]] * 2
        driver.restart(from_changelog=True)
        assert put("right", {"r": "z"}, 4) == [[({**row, "r": "z"}, 5)]] * 2 + [[]]
        assert put("right", {"r": "z"}, 6) == [[], [], []], "an equal row is no change"
        assert put("right", None, 9) == [[(row, 9)]] * 2 + [[]]
        assert put("left", {"l": "x", "n": 0}, 7)[:2] == [[(row, 7)], [(None, 7)]], "it passes no more"
        assert put("left", None, 8) == [[(None, 8)], [], [(None, 8)]]
        assert put("right", {"r": "z"}, 10) == [[], [], []]


def test_both_sides_of_a_micro_batch_make_one_change(spark):
    builder = StreamsBuilder()
    left, right = table(builder, "left", "l string"), table(builder, "right", "r string")
    left.join(right, "k").to("both", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        ours, others = (driver.create_input_topic(name) for name in ("left", "right"))
        out = driver.create_output_topic("both", key=String())
        for at in (1, 2):
            ours.pipe_input("a", {"l": f"l{at}"}, at)
            others.pipe_input("a", {"r": f"r{at}"}, at + 5)
        assert read(out) == [("a", {"k": "a", "l": "l2", "r": "r2"}, 7)]
        ours.pipe_input("a", None, 8)
        ours.pipe_input("a", {"l": "l2"}, 9)
        others.pipe_input("a", {"r": "r2"}, 9)
        assert read(out) == [], "all is as it was"
        ours.pipe_input("b", {"l": "x"}, 8)
        others.pipe_input("b", {"r": "y"}, 8)
        ours.pipe_input("b", None, 9)
        assert read(out) == [], "nobody has seen it"


HOW = ("inner", "left", "right", "full")


def rows_of(seed, topics):
    draw = random.Random(seed)
    names = {"a": "x", "b": "y", "c": "z"}
    return [
        (topic, draw.choice("mnopq"), None if draw.random() < 0.3 else {names[topic]: draw.randrange(5)}, at)
        for at in range(90)
        for topic in [draw.choice(topics)]
    ]


def piped(driver, rows, cuts):
    """Pipe rows in, cut into micro-batches, with restarts and restores between."""
    inputs = {}
    for topic, key, value, at in rows:
        inputs.setdefault(topic, driver.create_input_topic(topic)).pipe_input(key, value, at)
        match cuts.randrange(16):
            case 0 | 1:
                driver.process()
            case 2:
                driver.restart()
            case 3:
                driver.restart(from_changelog=True)
            case _:
                pass


def frames(spark, rows, columns):
    """Return what each table holds in the end, as Spark sees it."""
    made = {}
    for topic, column in columns.items():
        data = [(key, None if value is None else value[column], at) for name, key, value, at in rows if name == topic]
        frame = spark.createDataFrame(data, f"k string, {column} long, at long")
        last = Window.partitionBy("k").orderBy(F.desc("at"))
        kept = frame.withColumn("place", F.row_number().over(last)).where(f"place = 1 and {column} is not null")
        made[topic] = kept.select("k", column)
    return made


def collected(frame):
    return {row["k"]: {n: v for n, v in row.asDict().items() if v is not None} for row in frame.collect()}


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_spark_batch_joins_the_newest_rows_alike(spark, seed):
    """Three tables, one of them filtered, joined in every way; and a grouping of what is joined."""
    draw = random.Random(f"ways {seed}")
    first, second = draw.choice(HOW), draw.choice(HOW)
    builder = StreamsBuilder()
    a, b, c = (table(builder, topic, f"{column} long") for topic, column in (("a", "x"), ("b", "y"), ("c", "z")))
    some = b.where("y > 0").withColumn("w", F.expr("10 / y"))
    both = a.join(some, "k", first)
    both.to("both", value=Json())
    three = both.join(c, "k", second)
    three.where("x > 1 or z > 2").to("three", value=Json())
    three.groupBy("x").agg(F.count("*").alias("n"), F.sum("z").alias("z")).to("groups", value=Json())
    rows = rows_of(seed, "abc")
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=1 + seed % 2) as driver:
        piped(driver, rows, random.Random(seed))
        driver.process()
        outs = {name: driver.create_output_topic(name, key=String()) for name in ("both", "three")}
        groups = newest(driver.create_output_topic("groups"))
        found = {name: newest(out) for name, out in outs.items()}
    tables = frames(spark, rows, {"a": "x", "b": "y", "c": "z"})
    batch = tables["a"].join(tables["b"].where("y > 0").withColumn("w", F.expr("10 / y")), "k", first)
    all_three = batch.join(tables["c"], "k", second)
    said = {name: {key: value for key, value in rows.items() if value is not None} for name, rows in found.items()}
    assert said["both"] == collected(batch), first
    assert said["three"] == collected(all_three.where("x > 1 or z > 2")), (first, second)
    grouped = all_three.where("x is not null").groupBy("x").agg(F.count("*").alias("n"), F.sum("z").alias("z"))
    wanted = {row["x"]: (row["n"], row["z"]) for row in grouped.collect()}
    assert {row["x"]: (row["n"], row.get("z")) for row in groups.values() if row is not None} == wanted


def test_tables_of_groups_are_joined(spark):
    """One goes through a repartition topic, the other is where its key says."""
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("user"), value=Json("page string, n long"))
    pages = builder.table("pages", key=String("page"), value=Json("title string"))
    counted = clicks.groupBy("page").agg(F.count("*").alias("clicks"), F.sum("n").alias("n"))
    counted.join(pages, "page").to("out", value=Json())
    pages.join(counted, "page", "left").where("clicks is null").to("unseen", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        click, page = (driver.create_input_topic(name) for name in ("clicks", "pages"))
        out, unseen = (driver.create_output_topic(name, key=String()) for name in ("out", "unseen"))
        page.pipe_input("q", {"title": "Q"}, 0)
        assert read(unseen) == [("q", {"page": "q", "title": "Q"}, 0)], "none, which is not 0"
        click.pipe_input("ada", {"page": "p", "n": 3}, 1)
        click.pipe_input("ada", {"page": "q", "n": 3}, 1)
        assert read(unseen) == [("q", None, 1)]
        assert [key for key, *_ in read(out)] == ["q"]
        page.pipe_input("p", {"title": "P"}, 2)
        click.pipe_input("bob", {"page": "p", "n": 4}, 3)
        page.pipe_input("p", None, 4)
        p = {"page": "p", "title": "P"}
        assert read(out) == [("p", {**p, "clicks": 1, "n": 3}, 2), ("p", {**p, "clicks": 2, "n": 7}, 3), ("p", None, 4)]


def test_a_joined_table_may_be_keyed_elsewhere_and_kept(spark):
    """Its changes as a stream, by another column, are a table again."""
    builder = StreamsBuilder()
    left, right = table(builder, "left", "l string"), table(builder, "right", "r string")
    changes = left.join(right, "k").to_stream().repartition("r")
    changes.select("r", "k").to_table(name="by-r").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        for topic, value in (("left", {"l": "x"}), ("right", {"r": "y"})):
            driver.create_input_topic(topic).pipe_input("a", value, 1)
        assert read(driver.create_output_topic("out", key=String())) == [("y", {"r": "y", "k": "a"}, 1)]
        assert driver.store("by-r") == [{"r": "y", "k": "a"}]


@pytest.mark.parametrize(
    ("right", "message"),
    [
        (
            lambda b: table(b, "right", "L string"),
            r"to\('out'\) writes two columns 'l' and 'L'; .*alias\(\), or drop\(\)",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(spark, right, message):
    builder = StreamsBuilder()
    left, other = table(builder, "left", "l string"), right(builder)

    def build():
        left.join(other, "k").to("out", value=Json())
        return builder.build()

    with pytest.raises(TopologyException, match=rf"test_table_joins.py:\d+: {message}"):
        TopologyTestDriver(build(), spark=spark)


def test_a_step_of_a_joined_side_keeps_every_row(spark):
    builder = StreamsBuilder()
    left, right = table(builder, "left", "l string"), table(builder, "right", "r array<string>")

    def build():
        left.join(right.select("k", F.explode("r").alias("r")), "k").to("out", value=Json())
        return builder.build()

    with pytest.raises(TopologyException, match=r"test_table_joins.py:\d+: .*of a table may drop rows or repeat them"):
        TopologyTestDriver(build(), spark=spark)


def test_both_tables_may_have_a_column_of_one_name(spark):
    builder = StreamsBuilder()
    left, right = table(builder, "left", "v string").alias("x"), table(builder, "right", "v string").alias("y")
    both = left.join(right, "K", "full")
    both.select("k", left.v, right["v"].alias("w")).where("x.v is not null or w > 'b'").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        for topic, value in (("left", "a"), ("right", "b"), ("right", "c"), ("left", "d")):
            driver.create_input_topic(topic).pipe_input("k1", {"v": value})
        driver.create_input_topic("right").pipe_input("k2", {"v": "e"})
        driver.create_input_topic("left").pipe_input("k1", None)
        found = [(key, value) for key, value, _ in read(driver.create_output_topic("out", key=String()))]
    assert found == [
        ("k1", {"k": "k1", "v": "a"}),
        ("k1", {"k": "k1", "v": "a", "w": "b"}),
        ("k1", {"k": "k1", "v": "a", "w": "c"}),
        ("k1", {"k": "k1", "v": "d", "w": "c"}),
        ("k2", {"k": "k2", "w": "e"}),
        ("k1", {"k": "k1", "w": "c"}),
    ]


USERS, CLICKS = "name string, age long", "page string"


def test_a_table_behind_steps_has_no_columns_of_kafkas(spark):
    users = StreamsBuilder().table("users", key=String("user"), value=Json(USERS))
    with pytest.raises(TopologyException, match=r"test_table_joins.py:\d+: .*`kafka`.*cannot be resolved.*`age`"):
        users.selectExpr("user", "kafka.offset AS age")


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_looks_into_a_table_behind_its_steps(spark, how):
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=Json(USERS))
    adults = users.where("age >= 18").withColumn("share", F.expr("100 / (age - 17)")).select("user", "share")
    clicks = builder.stream("clicks", key=String("user"), value=Json(CLICKS))
    clicks.join(adults, "user", how).to("out", value=Json())
    users.select("user", "age").to("ages", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        user, click = (driver.create_input_topic(name) for name in ("users", "clicks"))
        out = driver.create_output_topic("out", key=String())

        def clicked(page, at):
            click.pipe_input("ada", {"page": page}, at)
            return [value.get("share", "none") for _, value, _ in read(out)]

        none = [] if how == "inner" else ["none"]
        assert clicked("a", 1) == none
        user.pipe_input("ada", {"name": "Ada", "age": 17}, 2)
        assert clicked("b", 3) == none, "and 100 / 0 was never computed"
        user.pipe_input("ada", {"name": "Ada", "age": 18}, 4)
        assert clicked("c", 5) == [100.0]
        user.pipe_input("ada", {"name": "Ada", "age": 19}, 6)
        driver.restart(from_changelog=True)
        assert clicked("d", 7) == [50.0]
        assert [row["share"] for row in driver.store("users-table-where-withColumn-select")] == [50.0]
        user.pipe_input("ada", {"name": "Ada", "age": None}, 8)
        assert clicked("e", 9) == none, "it passes no more"
        assert driver.store("users-table-where-withColumn-select") == []


def test_each_version_of_a_row_is_known_behind_the_steps(spark):
    """Within one micro-batch rows meet the table as it is at their times."""
    builder = StreamsBuilder()
    users = (
        builder.table("users", key=String("user"), value=Json(USERS)).where("age > 1").withColumnRenamed("user", "u")
    )
    builder.stream("clicks", key=String("u"), value=Json(CLICKS)).join(users, "u", "left").to("out", value=Json())
    topology = builder.build()
    assert [leg.store for leg in topology.legs] == ["users-table-where-withColumnRenamed", None]
    with TopologyTestDriver(topology, spark=spark, batch="all") as driver:
        user, click = (driver.create_input_topic(name) for name in ("users", "clicks"))
        for at, age in ((10, 5), (20, 1), (30, 6), (40, None)):
            user.pipe_input("ada", {"name": f"at {at}", "age": age}, at)
        for at in (9, 15, 25, 35, 45):
            click.pipe_input("ada", {"page": str(at)}, at)
        found = {value["page"]: value.get("name") for _, value, _ in read(driver.create_output_topic("out"))}
        assert found == {"9": None, "15": "at 10", "25": None, "35": "at 30", "45": None}
