"""What is asked of row-wise steps: which columns they read, pass on, make, and whether they drop rows."""

# ruff: noqa: N803 - everybody writes F

import pytest

from sparkrelay.catalyst.frames import leaf_number
from sparkrelay.records.formats import Json, String
from sparkrelay.topology.rows import Copy

KEYS = ["origin", "delay", "time", "carrier", "kafka"]


@pytest.fixture
def flights(builder):
    return builder.stream(
        "flights", key=String("carrier"), value=Json("origin string, delay double, time timestamp, tags array<string>")
    ).select("origin", "delay", "time", "carrier", "kafka", "tags")


@pytest.fixture
def lines(builder):
    return builder.stream("flights", key=String("carrier"), value=Json("origin string, delay double, time timestamp"))


def names(rows, places):
    return [rows.node.leaf.columns.names[place] for place in sorted(places)]


def number(rows, name):
    return next(column.number for column in rows.columns if column.name == name)


def read(frame, *wanted):
    rows = frame._rows
    return names(rows, rows.read(number(rows, name) for name in wanted))


def test_a_source_is_its_leaf(lines):
    rows = lines._rows
    assert (rows.is_leaf, rows.steps, rows.filters, rows.only_renames) == (True, (), False, True)
    assert [column.name for column in rows.columns] == KEYS
    assert tuple(column.number for column in rows.columns) == rows.numbers
    assert leaf_number(rows.leaf) == rows.node.leaf.number


def test_steps_come_in_the_order_of_the_program(lines, F):
    rows = lines.where("delay > 1").withColumn("late", F.col("delay") / 60).drop("time")._rows
    assert [node.kind for node, _ in rows.steps] == ["Filter", "Project", "Project"]
    assert [place for _, place in rows.steps] == [0, 0, 0]
    assert not rows.is_leaf
    assert rows.filters
    assert [one.method for one in rows.written] == ["where", "withColumn", "drop"]


def test_columns_that_are_read_are_those_of_what_is_asked_for_and_of_filters(lines, F):
    assert read(lines, "origin") == ["origin"]
    assert read(lines.where("delay > 1"), "origin") == ["origin", "delay"]
    assert read(lines.withColumn("late", F.col("delay") / 60), "late") == ["delay"]
    assert read(lines.withColumn("late", F.col("delay") / 60), "origin") == ["origin"]
    assert read(lines.withColumn("a", F.upper("origin")).where("a > 'x'"), "carrier") == ["origin", "carrier"]
    assert read(lines.withColumnRenamed("origin", "o").select("o", "time"), "o") == ["origin"]
    assert read(lines.select("kafka.offset"), "offset") == ["kafka"]
    assert read(lines, *KEYS) == KEYS


def test_what_makes_several_rows_of_one_is_read_whatever_is_asked_for(flights, F):
    made = flights.select("carrier", F.explode("tags").alias("tag"))
    assert read(made, "carrier") == ["tags", "carrier"]
    windows = flights.withColumn("w", F.window("time", "10 minutes", "5 minutes"))
    assert "time" in read(windows, "carrier")


def test_a_step_that_several_columns_need_is_followed_to_the_leaf_once_for_each(lines, F):
    made = lines.withColumn("a", F.concat("origin", "carrier")).withColumn("b", F.upper("a"))
    assert read(made, "b") == ["origin", "carrier"]
    rows = made._rows
    assert names(rows, rows.depends_on(number(rows, "b"))) == ["origin", "carrier"]
    assert rows.depends_on(number(rows, "time")) == {2}


def test_a_column_of_no_other_depends_on_none(lines, F):
    rows = lines.withColumn("one", F.lit(1)).withColumn("drawn", F.rand())._rows
    assert rows.depends_on(number(rows, "one")) == frozenset()
    assert rows.depends_on(number(rows, "drawn")) == frozenset()
    assert rows.read([number(rows, "one")]) == frozenset()


def test_copies_are_found_through_renames_aliases_and_fields(lines, F):
    rows = (
        lines.withColumnRenamed("origin", "o")
        .select("o", F.col("o").alias("p"), F.upper("o").alias("q"), F.col("kafka.offset").alias("offset"), "kafka")
        ._rows
    )
    assert rows.copies() == {0: Copy(0), 1: Copy(0), 3: Copy(4, (4,)), 4: Copy(4)}
    assert rows.copy(number(rows, "q")) is None


def test_a_name_in_another_case_is_the_same_column(lines):
    rows = lines.select("Carrier", "DELAY")._rows
    assert [column.name for column in rows.columns] == ["Carrier", "DELAY"]
    assert rows.copies() == {0: Copy(3), 1: Copy(1)}


def test_a_column_under_the_name_of_another_is_that_other(lines, F):
    swapped = lines.withColumns({"origin": F.col("carrier"), "carrier": F.col("origin")})
    assert swapped._rows.copies() == {0: Copy(3), 1: Copy(1), 2: Copy(2), 3: Copy(0), 4: Copy(4)}


def test_a_window_of_several_ways_is_no_copy(flights, F):
    rows = flights.withColumn("w", F.window("time", "10 minutes", "5 minutes"))._rows
    (renamed,) = rows.made[number(rows, "w")]
    assert len(rows.made[renamed.number]) == 2
    assert rows.copy(number(rows, "w")) is None


@pytest.mark.parametrize(
    ("write", "only"),
    [
        (lambda s, F: s.select("carrier", "origin"), True),
        (lambda s, F: s.withColumnRenamed("carrier", "c").drop("time"), True),
        (lambda s, F: s.alias("x").select("x.*"), True),
        (lambda s, F: s.withColumn("copy", F.col("carrier")), True),
        (lambda s, F: s.where("delay > 1"), False),
        (lambda s, F: s.withColumn("a", F.lit(1)), False),
        (lambda s, F: s.select("kafka.offset"), False),
        (lambda s, F: s.withWatermark("time", "1 minute"), False),
    ],
)
def test_only_renames(lines, F, write, only):
    assert write(lines, F)._rows.only_renames is only


@pytest.mark.parametrize(
    ("write", "only"),
    [
        (lambda s, F: s.select("carrier"), True),
        (lambda s, F: s.where("carrier is not null"), True),
        (lambda s, F: s.withColumnRenamed("carrier", "c").where(F.col("c").isNotNull()), True),
        (lambda s, F: s.where("delay is not null"), False),
        (lambda s, F: s.where("carrier is null"), False),
        (lambda s, F: s.where("kafka.offset is not null"), False),
        (lambda s, F: s.where("carrier = 'x'"), False),
        (lambda s, F: s.where("upper(carrier) is not null"), False),
        (lambda s, F: s.select("carrier", F.explode(F.array("origin"))), False),
    ],
)
def test_only_picks(lines, F, write, only):
    assert write(lines, F)._rows.only_picks({"carrier"}) is only


def test_a_computed_column_says_which_columns_it_is_read_from(lines, F):
    rows = lines.withColumn("at", F.unix_millis("time")).withColumn("o", F.upper(F.col("kafka.topic")))._rows
    assert rows.reads_of(number(rows, "at")) == (2,)
    assert rows.reads_of(number(rows, "time")) == ()
    behind = lines.withColumn("later", F.expr("time + interval 1 hour")).withColumn("at", F.unix_millis("later"))._rows
    assert behind.reads_of(number(behind, "at")) == (), "it reads what is computed itself"


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda s, F: s.where("delay > 1"), None),
        (lambda s, F: s.withColumn("r", F.rand()), "rand()"),
        (lambda s, F: s.withColumn("r", F.rand(3)), "rand()"),
        (lambda s, F: s.where(F.rand() > 0.5), "rand() > double '0.5'"),
        (lambda s, F: s.withColumn("r", F.expr("uuid()")), "uuid()"),
        (lambda s, F: s.withColumn("r", F.shuffle(F.array("origin"))), "shuffle(array(origin))"),
        (lambda s, F: s.withColumn("u", F.udf(len)("origin")), None),
        (lambda s, F: s.withColumn("u", F.udf(len).asNondeterministic()("origin")), "len(origin)"),
    ],
)
def test_what_draws(lines, F, write, what):
    assert write(lines, F)._rows.draws == what


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda s, F: s.where("delay > 1"), None),
        (lambda s, F: s.withColumn("r", F.rand()), "rand() is not deterministic"),
        (lambda s, F: s.where("time > current_timestamp()"), "time > current_timestamp() depends on the time"),
        (lambda s, F: s.where("time > cast('yesterday' as timestamp)"), "depends on the time"),
        (lambda s, F: s.where("time > 'now'"), "depends on the time"),
        (lambda s, F: s.where("origin > 'now'"), None),
        (lambda s, F: s.where("time > timestamp'2026-01-01'"), None),
        (lambda s, F: s.where("date(time) = current_date()"), "depends on the time"),
    ],
)
def test_what_is_another_each_time(lines, F, write, why):
    found = write(lines, F)._rows.differs_each_time
    assert found == why if why is None else why in found


def test_a_join_with_a_dataframe_is_another_each_time(lines, spark):
    rows = lines.join(spark.sql("SELECT 'x' AS origin, 1 AS n"), "origin")._rows
    assert rows.differs_each_time == "the plan holds a join with a DataFrame"
    assert [node.kind for node, _ in rows.steps if node.kind == "Join"] == ["Join"]
    assert read(lines.join(spark.sql("SELECT 'x' AS origin, 1 AS n"), "origin"), "delay") == ["origin", "delay"]


def test_words_of_a_column_lead_back_to_the_topic(lines, F):
    made = (
        lines.withColumnRenamed("origin", "o").withColumn("a", F.upper("o")).withColumn("b", F.concat("a", "carrier"))
    )
    rows = made._rows
    assert rows.words(number(rows, "b")) == "concat(upper(origin), carrier)"
    assert rows.words(number(rows, "o")) == "origin"


def test_words_lead_back_through_topics_and_stores(lines, F):
    made = lines.withColumn("a", F.upper("origin")).repartition("a").withColumn("b", F.lower("a"))
    rows = made._rows
    assert rows.words(number(rows, "b")) == "lower(upper(origin))"
    counts = made.groupBy("b").count()._rows
    assert counts.words(number(counts, "b")) == "lower(upper(origin))"
    assert counts.words(number(counts, "count")) == "count"


def test_words_keep_brackets_where_they_mean_something(lines, F):
    rows = lines.withColumn("sum", F.col("delay") + 1.0).withColumn("half", F.col("sum") / 2.0)._rows
    assert rows.words(number(rows, "half")) == "((delay + double '1.0') / double '2.0')"


def test_words_of_a_window_are_those_of_the_user(lines, F):
    rows = lines.withColumn("w", F.window("time", "1 hour"))._rows
    assert rows.words(number(rows, "w")) == "window(time, 1:00:00)"


def test_each_way_on_keeps_what_was_written_before_it(lines):
    before = lines.where("delay > 1")
    one, other = before.drop("time"), before.select("carrier")
    assert [call.method for call in one._rows.written] == ["where", "drop"]
    assert [call.method for call in other._rows.written] == ["where", "select"]
    assert one._rows.node is other._rows.node is lines._rows.node
