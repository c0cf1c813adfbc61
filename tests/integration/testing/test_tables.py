"""Tables of newest rows, and streams that look into them, on the test driver."""

import datetime as dt
import random

import pytest
from pyspark.sql import functions as F
from tests.marks import first_of

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

USER = Json("name string, country string")
CLICK = Json("page string, n long")


def two(builder):
    users = builder.table("users", key=String("user"), value=USER)
    return users, builder.stream("clicks", key=String("user"), value=CLICK)


def pipes(driver):
    return driver.create_input_topic("users"), driver.create_input_topic("clicks")


def found(topic):
    return [(record.key, record.value, record.timestamp) for record in topic.read_records()]


def without_nulls(rows):
    return [(key, {k: v for k, v in value.items() if v is not None}, at) for key, value, at in rows]


def test_a_table_is_the_newest_row_of_each_key(spark):
    builder = StreamsBuilder()
    builder.table("users", key=String("user"), value=USER, name="people").select("user", "name").to("names")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, names = driver.create_input_topic("users"), driver.create_output_topic("names", key=String())
        topic.pipe_input("ada", {"name": "Ada", "country": "UK"}, 1)
        topic.pipe_input("ada", {"name": "Ada L.", "country": "UK"}, 5)
        topic.pipe_input("ada", {"name": "Ada L.", "country": "UK"}, 7)
        topic.pipe_input(None, {"name": "nobody", "country": "UK"}, 8)
        topic.pipe_input("bob", {"name": "Bob"}, 3)
        topic.pipe_input("bob", None, 9)
        topic.pipe_input("cid", None, 9)
        assert found(names) == [
            ("ada", {"user": "ada", "name": "Ada"}, 1),
            ("ada", {"user": "ada", "name": "Ada L."}, 5),
            ("bob", {"user": "bob", "name": "Bob"}, 3),
            ("bob", None, 9),
        ]
        assert driver.store("people") == [{"user": "ada", "name": "Ada L.", "country": "UK"}]
        driver.restart(from_changelog=True)
        assert driver.store("people") == [{"user": "ada", "name": "Ada L.", "country": "UK"}]
        topic.pipe_input("ada", None, 10)
        assert driver.store("people") == []
        assert found(names) == [("ada", None, 10)]


def test_a_row_meets_the_table_as_it_is_then(spark):
    builder = StreamsBuilder()
    users, clicks = two(builder)
    clicks.join(users, "user", "left").to("left", value=Json())
    clicks.where("n > 0").join(users, "user").select("page", "name").to("inner", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        table, stream = pipes(driver)
        left, inner = (driver.create_output_topic(name, key=String()) for name in ("left", "inner"))
        stream.pipe_input("ada", {"page": "a", "n": 1}, 1)
        table.pipe_input("ada", {"name": "Ada"}, 2)
        assert left.read_rows() == [{"user": "ada", "page": "a", "n": 1}], "a table's row alone makes none"
        stream.pipe_input("ada", {"page": "b", "n": 1}, 3)
        stream.pipe_input("ada", {"page": "c", "n": 0}, 4)
        stream.pipe_input("bob", {"page": "d", "n": 2}, 5)
        stream.pipe_input(None, {"page": "e", "n": 2}, 6)
        stream.pipe_input("ada", None, 6)
        table.pipe_input("ada", None, 7)
        stream.pipe_input("ada", {"page": "f", "n": 2}, 8)
        assert without_nulls(found(left)) == [
            ("ada", {"user": "ada", "page": "b", "n": 1, "name": "Ada"}, 3),
            ("ada", {"user": "ada", "page": "c", "n": 0, "name": "Ada"}, 4),
            ("bob", {"user": "bob", "page": "d", "n": 2}, 5),
            (None, {"page": "e", "n": 2}, 6),
            ("ada", {"user": "ada", "page": "f", "n": 2}, 8),
        ]
        assert found(inner) == [("ada", {"page": "b", "name": "Ada"}, 3)]


def test_in_one_micro_batch_both_sides_are_taken_by_their_times(spark):
    builder = StreamsBuilder()
    users, clicks = two(builder)
    clicks.join(users, "user", "left").select("page", "name").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        table, stream = pipes(driver)
        out = driver.create_output_topic("out", key=String())
        table.pipe_input("ada", {"name": "first"}, 5)
        driver.process()
        for at, name in ((20, "second"), (40, "third")):
            table.pipe_input("ada", {"name": name}, at)
        table.pipe_input("bob", {"name": "Bob"}, 30)
        table.pipe_input("bob", None, 50)
        # A row that comes late is taken when its turn comes: after the one in front of it.
        for page, user, at in (
            *(("a", "ada", 10), ("b", "ada", 20), ("c", "ada", 39), ("d", "ada", 12), ("e", "ada", 41)),
            *(("f", "bob", 29), ("g", "bob", 50), ("h", "eve", 60)),
        ):
            stream.pipe_input(user, {"page": page, "n": 1}, at)
        names = {row["page"]: row.get("name") for row in out.read_rows()}
        assert names == {
            "a": "first",
            **dict.fromkeys("bcd", "second"),
            "e": "third",
            "f": "Bob",
            **dict.fromkeys("gh"),
        }, "f comes behind e, at 41"


def rows_of(seed):
    chosen = random.Random(seed)
    rows, at = [], 0
    for _ in range(120):
        at += chosen.choice((1, 1, 2, 30))
        user = f"user-{chosen.randrange(6)}"
        if chosen.random() < 0.4:
            value = None if chosen.random() < 0.3 else {"name": f"name-{at}", "country": chosen.choice("xyz")}
            rows.append(("users", user, value, at))
        else:
            rows.append(("clicks", user, {"page": f"page-{at}", "n": chosen.randrange(9)}, at))
    return rows


def joined(rows):
    table, pages, totals = {}, [], {}
    for topic, user, value, _ in rows:
        if topic == "users":
            table[user] = value
            continue
        row = table.get(user)
        if row is not None:
            pages.append((user, value["page"], row["name"]))
            n, total = totals.get(row["country"], (0, 0))
            totals[row["country"]] = n + 1, total + value["n"]
    return table, pages, totals


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_cuts_restarts_and_restores_make_no_difference(spark, seed):
    """A lookup to a topic, and one whose rows are grouped by what was found."""
    builder = StreamsBuilder()
    users, clicks = two(builder)
    rich = clicks.join(users, "user")
    rich.select("user", "page", "name").to("pages", value=Json())
    totals = F.count("*").alias("n"), F.sum("n").alias("total")
    rich.groupBy("country").agg(*totals, name="totals").to("totals")
    rows, cuts = rows_of(seed), random.Random(seed)
    table, pages, sums = joined(rows)
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=1 + seed) as driver:
        inputs = dict(zip(("users", "clicks"), pipes(driver), strict=True))
        out = driver.create_output_topic("pages")
        seen = []
        for topic, user, value, at in rows:
            inputs[topic].pipe_input(user, value, at)
            match cuts.randrange(24):
                case 0 | 1:
                    driver.process()
                case 2:
                    driver.restart()
                case 3:
                    driver.restart(from_changelog=True)
                case 4:
                    seen += out.read_rows()
        seen += out.read_rows()
        assert sorted((row["user"], row["page"], row["name"]) for row in seen) == sorted(pages)
        assert {row["user"]: row for row in driver.store("users-table")} == {
            user: {"user": user, **value} for user, value in table.items() if value is not None
        }
        assert {row["country"]: (row["n"], row["total"]) for row in driver.store("totals")} == sums


def test_a_stream_with_another_key_goes_to_where_the_table_is(spark):
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=USER)
    clicks = builder.stream("clicks", value=Json("user string, page string"))
    clicks.join(users, "user", "left").select("user", "page", "name").to("out", key="user")
    with TopologyTestDriver(builder.build(), spark=spark, partitions=3) as driver:
        table, stream = pipes(driver)
        out = driver.create_output_topic("out")
        for number in range(9):
            table.pipe_input(f"u{number}", {"name": f"n{number}"}, number)
        for number in range(11):
            stream.pipe_input(None, {"user": f"u{number}", "page": "p"}, 100 + number)
        stream.pipe_input(None, {"page": "q"}, 200)
        names = {row.get("user"): row.get("name") for row in out.read_rows()}
        assert names == {f"u{n}": f"n{n}" if n < 9 else None for n in range(11)} | {None: None}


def test_a_stream_that_is_written_first_may_look_into_a_table_made_behind_a_topic(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("id"), value=Json("user string, n int, other string"))
    users = builder.stream("users", key=String("id"), value=Json("user string, name string")).drop("id")
    clicks.join(users.repartition("user").to_table(), "user").select("n", "name").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        table, stream = pipes(driver)
        table.pipe_input("1", {"user": "ada", "name": "Ada"})
        stream.pipe_input("2", {"user": "ada", "n": 7})
        assert driver.create_output_topic("out").read_rows() == [{"n": 7, "name": "Ada"}]


@pytest.mark.long
def test_a_lookup_and_a_grouping_by_the_same_key_are_one_task(spark):
    builder = StreamsBuilder()
    users, clicks = two(builder)
    clicks.join(users, "user").groupBy("user", "country").count(name="counts").to("counts")
    topology = builder.build()
    assert len(topology.subtopologies) == 1
    assert topology.internal_topics == {"users-table-changelog", "counts-changelog"}
    rows = rows_of(7)
    expected = {}
    table = {}
    for topic, user, value, _ in rows:
        if topic == "users":
            table[user] = value
        elif table.get(user) is not None:
            group = user, table[user]["country"]
            expected[group] = expected.get(group, 0) + 1
    for batch in ("record", "all"):
        with TopologyTestDriver(topology, spark=spark, batch=batch) as driver:
            inputs = dict(zip(("users", "clicks"), pipes(driver), strict=True))
            for topic, user, value, at in rows:
                inputs[topic].pipe_input(user, value, at)
            counts = {(row["user"], row["country"]): row["count"] for row in driver.store("counts")}
            assert counts == expected, batch


def test_a_table_that_is_behind_is_read_first(spark):
    """As on a first start: its rows are older than all that look for them."""
    builder = StreamsBuilder()
    users, clicks = two(builder)
    clicks.join(users, "user", "left").select("page", "name").to("out", value=Json())
    config = {"max.batch.records": 10}
    with TopologyTestDriver(builder.build(), config, spark=spark, batch="all") as driver:
        table, stream = pipes(driver)
        for number in range(40):
            table.pipe_input(f"u{number}", {"name": f"n{number}"}, number)
        for number in range(20, 40):
            stream.pipe_input(f"u{number}", {"page": f"p{number}", "n": 1}, 1000 + number)
        rows = driver.create_output_topic("out").read_rows()
        assert [(row["page"], row["name"]) for row in rows] == [(f"p{n}", f"n{n}") for n in range(20, 40)]


@pytest.mark.long
def test_large_rows_that_many_find_do_not_fill_one_array(spark, monkeypatch):
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=Json("profile string"))
    clicks = builder.stream("clicks", key=String("user"), value=CLICK)
    clicks.join(users, "user", "left").selectExpr("n", "length(profile) AS size").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        table, stream = pipes(driver)
        table.pipe_input("ada", {"profile": "x" * 400_000}, 1)
        for number in range(6_000):
            stream.pipe_input("ada" if number % 7 else "bob", {"page": "", "n": number}, 2)
        rows = driver.create_output_topic("out").read_rows()
        assert [(row["n"], row.get("size")) for row in rows] == [
            (number, 400_000 if number % 7 else None) for number in range(6_000)
        ]


@pytest.mark.parametrize("batch", ["record", "all"])
def test_a_filtered_table_that_is_written_by_another_key_leaves_none_behind(spark, batch):
    builder = StreamsBuilder()
    users = builder.table("users", key=Long("id"), value=USER)
    users.where("country = 'NO'").select("name", "id").to("out", key="name")
    with TopologyTestDriver(builder.build(), spark=spark, batch=batch) as driver:
        table, out = driver.create_input_topic("users"), driver.create_output_topic("out", key=String())
        for name, country in (("A", "NO"), ("B", "NO"), ("C", "UK")):
            table.pipe_input(1, {"name": name, "country": country})
        table.pipe_input(2, {"name": "D", "country": "NO"})
        left = {record.key: record.value for record in out.read_records()}
        assert {name: row for name, row in left.items() if row is not None} == {"D": {"name": "D", "id": 2}}


def test_a_filter_in_front_of_a_table_lets_deletions_through(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("user"), value=CLICK)
    clicks.where("n > 0").filter(F.col("page") != "x").withColumn("all", F.struct("page", "n")).to_table(name="last")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("clicks")
        topic.pipe_input("ada", {"page": "a", "n": 1})
        topic.pipe_input("bob", {"page": "b", "n": 1})
        topic.pipe_input("bob", {"page": "c", "n": 0})
        topic.pipe_input("ada", None)
        (row,) = driver.store("last")
        assert (row["user"], row["page"], row["all"]) == ("bob", "b", {"page": "b", "n": 1})


def test_filters_in_front_of_a_repartition_let_deletions_through_too(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("user"), value=CLICK)
    clicks.where("n > 0").repartition("user").where("page != 'x'").to_table(name="last")
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        topic = driver.create_input_topic("clicks")
        for user, page in (("ada", "a"), ("bob", "b"), ("cid", "x")):
            topic.pipe_input(user, {"page": page, "n": 1})
        topic.pipe_input("bob", {"page": "c", "n": 0})
        topic.pipe_input("ada", None)
        assert [(row["user"], row["page"]) for row in driver.store("last")] == [("bob", "b")]


@pytest.mark.long
@pytest.mark.parametrize("column", ["page", "user"])
@pytest.mark.parametrize("repartitioned", [True, False])
def test_a_join_with_a_data_frame_lets_deletions_through(spark, column, repartitioned):
    names = [("a", "A"), ("b", "B"), ("ada", "Ada"), ("bob", "Bob")]
    frame = spark.createDataFrame(names, f"{column} string, name string")
    builder = StreamsBuilder()
    found = builder.stream("clicks", key=String("user"), value=CLICK).join(frame, column)
    (found.repartition("user") if repartitioned else found).to_table(name="last")
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        topic = driver.create_input_topic("clicks")
        for user, page in (("ada", "a"), ("bob", "b")):
            topic.pipe_input(user, {"page": page, "n": 1})
        topic.pipe_input("cid", {"page": "c", "n": 1})
        topic.pipe_input("ada", None)
        topic.pipe_input("cid", None)
        (row,) = driver.store("last")
        assert (row["user"], row["page"]) == ("bob", "b")
        assert row["name"] == ("B" if column == "page" else "Bob")


@pytest.mark.parametrize("refresh", [None, "1 hour"])
def test_a_deletion_has_no_key_that_stands_in_for_a_null_also_behind_a_join(spark, refresh):
    frame = spark.createDataFrame([("a", "A")], "page string, name string")
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("user"), value=CLICK).withColumn("n", F.coalesce("n", F.lit(0)))
    clicks.join(frame, "page", "left", refresh=refresh).repartition("n").to_table(name="last")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("clicks")
        topic.pipe_input("ada", {"page": "a"})
        topic.pipe_input("bob", None)
        assert [(row["n"], row["user"], row["name"]) for row in driver.store("last")] == [(0, "ada", "A")]


@pytest.mark.parametrize(
    "made",
    [
        lambda s: s.withColumn("item", F.explode(F.split("page", ","))),
        lambda s: s.withColumn("item", F.explode(F.split("page", ","))).repartition("user"),
    ],
)
def test_steps_that_would_lose_deletions_are_refused(spark, made):
    builder = StreamsBuilder()

    def build():
        made(builder.stream("clicks", key=String("user"), value=CLICK)).to_table()
        return builder.build()

    with pytest.raises(TopologyException, match=r"test_tables.py:\d+: .* may drop rows.*without a value.*to_table\(\)"):
        TopologyTestDriver(build(), spark=spark)


@pytest.mark.parametrize(
    "made",
    [
        lambda s: s.withColumn("w", F.window(F.timestamp_seconds("n"), "1 hour")),
        lambda s: s.transform(lambda rows: rows.where("n > 0")).repartition("user"),
        lambda s: s.withColumn("item", F.explode_outer(F.split("page", ","))),
    ],
    ids=["window", "transform", "outer"],
)
def test_steps_that_let_deletions_through(spark, made):
    builder = StreamsBuilder()
    made(builder.stream("clicks", key=String("user"), value=CLICK)).to_table(name="last")
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        topic = driver.create_input_topic("clicks")
        for user in ("ada", "bob"):
            topic.pipe_input(user, {"page": "a", "n": 1})
        topic.pipe_input("ada", None)
        assert [row["user"] for row in driver.store("last")] == ["bob"]


def test_by_another_key_such_steps_lose_none(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("user"), value=CLICK)
    clicks.withColumn("item", F.explode(F.split("page", ","))).repartition("item").to_table(name="last")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("clicks")
        topic.pipe_input("ada", {"page": "a,b", "n": 1})
        topic.pipe_input("ada", None)
        assert sorted(row["item"] for row in driver.store("last")) == ["a", "b"]


def test_a_tombstone_of_the_stream_moves_time_too(spark):
    """As in Kafka Streams, which takes the record behind it right after it, however early that one is."""
    builder = StreamsBuilder()
    users, clicks = two(builder)
    clicks.join(users, "user", "left").select("page", "name").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        table, stream = pipes(driver)
        table.pipe_input("ada", {"name": "Ada"}, 60)
        stream.pipe_input("ada", None, 100)
        stream.pipe_input("ada", {"page": "a", "n": 1}, 50)
        assert driver.create_output_topic("out").read_rows() == [{"page": "a", "name": "Ada"}]


@pytest.mark.parametrize("batch", ["record", "all"])
def test_several_ways_lead_out_of_a_table(spark, batch):
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=USER)
    users.select("user", "name").to("names")
    users.where("country = 'NO'").to("norwegians")
    users.to_stream().groupBy("country").count(name="changes").to("changes")
    orders = builder.stream("orders", key=String("user"), value=Json("amount long"))
    totals = orders.groupBy("user").agg(F.sum("amount").alias("total"))
    totals.to("totals")
    totals.where("total > 10").to("large")
    with TopologyTestDriver(builder.build(), spark=spark, batch=batch, partitions=2) as driver:
        table, stream = driver.create_input_topic("users"), driver.create_input_topic("orders")
        outs = {
            name: driver.create_output_topic(name, key=String())
            for name in ("names", "norwegians", "changes", "totals", "large")
        }
        for at, (user, country) in enumerate(
            (("ada", "NO"), ("bob", "UK"), ("ada", "UK"), ("bob", None), ("cid", "NO"))
        ):
            table.pipe_input(user, None if country is None else {"name": user.upper(), "country": country}, at)
            if at % 2:
                driver.process()
        for at, amount in enumerate((6, 7, -9, 20)):
            stream.pipe_input("ada", {"amount": amount}, at)
            driver.process()
        seen = {name: [(record.key, record.value) for record in out.read_records()] for name, out in outs.items()}
        assert dict(seen["names"]) == {
            "ada": {"user": "ada", "name": "ADA"},
            "bob": None,
            "cid": {"user": "cid", "name": "CID"},
        }
        assert {key: value is None for key, value in seen["norwegians"]} == {"ada": True, "cid": False}
        assert {key: value["count"] for key, value in seen["changes"]} == {"NO": 2, "UK": 2}
        assert [value["total"] for _, value in seen["totals"]] == [6, 13, 4, 24]
        assert [value and value["total"] for _, value in seen["large"]] == [13, None, 24]
        driver.restart(from_changelog=True)
        stream.pipe_input("ada", {"amount": -20}, 9)
        assert [(record.key, record.value) for record in outs["large"].read_records()] == [("ada", None)]


def test_a_stream_becomes_a_table(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", value=Json("user string, page string, at timestamp"))
    last = clicks.repartition("user").to_table(name="last")
    last.withColumn("page", F.upper("page")).to("last")
    other = builder.stream("other", key=String("user"), value=Json("n int"))
    other.join(last, "user", "left").to("other-out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        stream, side = driver.create_input_topic("clicks"), driver.create_input_topic("other")
        pages, out = driver.create_output_topic("last", key=String()), driver.create_output_topic("other-out")
        stream.pipe_input(None, {"user": "ada", "page": "a", "at": "2024-05-01T10:00:00Z"}, 1)
        stream.pipe_input(None, {"user": "ada", "page": "b", "at": "2024-05-01T11:00:00Z"}, 2)
        side.pipe_input("ada", {"n": 1}, 3)
        assert [(row["user"], row["page"]) for row in pages.read_rows()] == [("ada", "A"), ("ada", "B")]
        (row,) = out.read_rows()
        assert (row["user"], row["n"], row["page"]) == ("ada", 1, "b")
        (stored,) = driver.store("last")
        assert stored["at"] == dt.datetime(2024, 5, 1, 11, tzinfo=dt.UTC)


def test_a_filter_of_a_table_deletes_what_passes_no_more(spark):
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=Json("amount long"))
    totals = orders.groupBy("user").agg(F.sum("amount").alias("total"))
    (
        totals.withColumn("double", F.expr("total * 2"))
        .where("total > 10")
        .select("user", "double")
        .filter("double < 100")
        .to("totals")
    )
    users = builder.table("users", key=String("user"), value=USER)
    users.where("country = 'NO'").select("name", "user").to("norwegians", key="name")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        stream, out = driver.create_input_topic("orders"), driver.create_output_topic("totals", key=String())
        for amount, at in ((5, 1), (7, 2), (1, 3), (-8, 4), (-1, 5), (40, 6), (20, 7)):
            stream.pipe_input("ada", {"amount": amount}, at)
        assert found(out) == [
            ("ada", {"user": "ada", "double": 24}, 2),
            ("ada", {"user": "ada", "double": 26}, 3),
            ("ada", None, 4),
            ("ada", {"user": "ada", "double": 88}, 6),
            ("ada", None, 7),
        ]
        table, names = driver.create_input_topic("users"), driver.create_output_topic("norwegians", key=String())
        for value in ({"name": "Ada", "country": "NO"}, {"name": "Ada", "country": "UK"}, None):
            table.pipe_input("ada", value)
        for value in ({"name": "Bob", "country": "NO"}, None, None):
            table.pipe_input("bob", value)
        assert [(key, value is None) for key, value, _ in found(names)] == [
            *(("Ada", False), ("Ada", True), ("Bob", False), ("Bob", True)),
        ]


@pytest.mark.parametrize("batch", ["record", "all"])
def test_the_changes_of_a_filtered_table_are_a_stream(spark, batch):
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=Json("amount long"))
    totals = orders.groupBy("user").agg(F.sum("amount").alias("total")).where("total > 10")
    totals.to_stream().withColumn("user", F.upper("user")).groupBy("user").agg(F.max("total").alias("top")).to("tops")
    with TopologyTestDriver(builder.build(), spark=spark, batch=batch, partitions=2) as driver:
        stream, out = driver.create_input_topic("orders"), driver.create_output_topic("tops")
        for number in range(60):
            stream.pipe_input(f"u{number % 6}", {"amount": 1 + number % 6}, number)
        tops = {row["user"]: row["top"] for row in out.read_rows()}
        assert tops == {f"U{user}": 10 * (1 + user) for user in range(1, 6)}


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda b, u, c: c.withColumn("user", F.col("n")).join(u, "user").to("out"),
            "'user' is string, .* column bigint; cast the stream's",
        ),
        (
            lambda b, u, c: c.withColumn("name", F.lit("x")).join(u, "user").to("out"),
            r"to\('out'\) writes two columns 'name'; give one of them another name",
        ),
        (lambda b, u, c: c.drop("user").join(u, "user").to("out"), "column `user` cannot be resolved on the left side"),
        (
            lambda b, u, c: (
                b.stream("s", key=String("k"), value=Json("n int"))
                .withColumn("l", F.expr("array(interval '1' day)"))
                .to_table()
                .to("out"),
                c.to("copy", value=Json()),
            ),
            "'l'.*array<interval day>.* cannot be kept in a table: a row cannot have a column of type duration",
        ),
        (
            lambda b, u, c: (
                b.stream("s", value=Json("k struct<a: struct<b: int>>, n int")).repartition("k").to_table(),
                c.to("copy", value=Json()),
            ),
            "'k'.*struct",
        ),
        (
            lambda b, u, c: (
                b.table("twice", key=String("k"), value=Json("name string, NAME string")).to("out"),
                c.to("copy", value=Json()),
            ),
            "two columns of the table have the name 'NAME'; rename or drop one",
        ),
    ],
    ids=["type", "clash", "dropped", "list", "nested key", "case"],
)
def test_what_does_not_fit_is_refused_with_the_line(spark, write, message):
    builder = StreamsBuilder()
    users, clicks = two(builder)

    def build():
        write(builder, users, clicks)
        return builder.build()

    with pytest.raises(TopologyException, match=rf"test_tables.py:\d+: .*{message}"):
        TopologyTestDriver(build(), spark=spark)


@pytest.mark.parametrize(
    "key",
    [lambda s: s.withColumn("user", F.col("n").cast("int")), lambda s: s.withColumn("user", F.col("page"))],
    ids=["number", "text"],
)
def test_a_key_of_another_type_is_looked_up_as_spark_compares_it(spark, key):
    """Its rows go to the tasks of the keys that they are compared with."""
    builder = StreamsBuilder()
    users = builder.table("users", key=Long("user"), value=USER)
    clicks = key(builder.stream("clicks", key=String("u"), value=CLICK))
    clicks.join(users, "user").select("n", "name").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=3) as driver:
        users, clicks = pipes(driver)
        for number in range(6):
            users.pipe_input(number, {"name": f"user {number}"})
        for number in range(9):
            clicks.pipe_input("u", {"page": f"{number}", "n": number})
        rows = driver.create_output_topic("out").read_rows()
    assert sorted((row["n"], row["name"]) for row in rows) == [(number, f"user {number}") for number in range(6)]


def test_both_sides_of_a_lookup_may_have_a_column_of_one_name(spark):
    builder = StreamsBuilder()
    users, clicks = two(builder)
    named = clicks.withColumn("name", F.upper("page"))
    both = named.join(users, "user", "left")
    both.select("user", named["name"].alias("page"), users.name).to("out", value=Json())
    both.drop(users.name).select("user", "name").to("pages", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        users, clicks = pipes(driver)
        users.pipe_input("ada", {"name": "Ada", "country": "UK"})
        for user in ("ada", "bob"):
            clicks.pipe_input(user, {"page": "p", "n": 1})
        assert driver.create_output_topic("out").read_rows() == [
            {"user": "ada", "page": "P", "name": "Ada"},
            {"user": "bob", "page": "P"},
        ]
        assert [row["name"] for row in driver.create_output_topic("pages").read_rows()] == ["P", "P"]


def test_only_what_is_read_behind_a_lookup_goes_through_it(spark):
    """Kafka's own columns above all: Spark takes time that is quadratic in its rows to send headers that are null."""
    builder = StreamsBuilder()
    users, clicks = two(builder)
    clicks.where("n > 1").join(users, "user").select("page", F.upper("name").alias("name")).to("out", value=Json())
    topology = builder.build()
    with TopologyTestDriver(topology, spark=spark) as driver:
        (plan,) = [leg.reports for leg in driver._plans._plans.values() if leg.leg.lookups]
        stages = plan._jdf.queryExecution().executedPlan().toString()
        table, stream = pipes(driver)
        table.pipe_input("ada", {"name": "Ada", "country": "UK"})
        stream.pipe_input("ada", {"page": "a", "n": 2})
        assert driver.create_output_topic("out").read_rows() == [{"page": "a", "name": "ADA"}]
    _, looked_up, _ = [line for line in stages.splitlines() if "MapInArrow" in line]
    assert "page" in looked_up
    assert "name" in looked_up
    for unread in ("kafka", "country", " n#"):
        assert unread not in looked_up, looked_up


def test_a_copy_of_the_key_is_the_key_of_what_a_filter_deletes(spark):
    builder = StreamsBuilder()
    users, clicks = two(builder)
    british = users.withColumn("who", F.col("user")).where("country = 'UK'").select("who", "name")
    clicks.withColumnRenamed("user", "who").join(british, "who", "left").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        users, clicks = pipes(driver)
        for at, country in enumerate(("UK", "FR")):
            users.pipe_input("ada", {"name": "Ada", "country": country}, 2 * at)
            clicks.pipe_input("ada", {"page": "p", "n": at}, 2 * at + 1)
        rows = driver.create_output_topic("out").read_rows()
        assert [(row["n"], row.get("name")) for row in rows] == [(0, "Ada"), (1, None)]


def test_what_is_computed_behind_a_filter_may_be_looked_up(spark):
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("k"), value=Json("rate long, known boolean"))
    # A multiplication has the sign that stands for all columns elsewhere.
    cents = rates.where("known").selectExpr("k", "rate * 100 AS cents")
    builder.stream("in", key=String("k"), value=Json("n long")).join(cents, "k", "left").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("rates").pipe_input("a", {"rate": 2, "known": True})
        driver.create_input_topic("in").pipe_input("a", {"n": 1})
        driver.create_input_topic("rates").pipe_input("a", {"rate": 3, "known": False})
        driver.create_input_topic("in").pipe_input("a", {"n": 2})
        rows = driver.create_output_topic("out").read_rows()
        assert rows == [{"n": 1, "k": "a", "cents": 200}, {"n": 2, "k": "a"}]
