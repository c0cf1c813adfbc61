"""A user's steps over real rows: what passes filters although they would not let it through."""

# ruff: noqa: N803 - everybody writes F

import pytest

from sparkrelay import Json, String
from sparkrelay.hidden_columns import KEY, MARKER, TOMBSTONE
from sparkrelay.runtime.compile.rebase import Passing, Rebase

NAMES = ["k", "n", "s"]


@pytest.fixture
def stream(builder):
    return builder.stream("in", key=String("k"), value=Json("n int, s string")).drop("kafka").select(*NAMES)


@pytest.fixture
def base(spark):
    """Real rows, under other names, with hidden columns: one that deletes, and one that ends a micro-batch."""
    rows = [
        *(("a", 1, "one", b"a", False, None), ("b", 2, "two", b"b", False, None)),
        *(("c", None, None, b"c", True, None), (None, None, None, None, None, b"end")),
    ]
    schema = f"c0 string, c1 int, c2 string, {KEY} binary, {TOMBSTONE} boolean, {MARKER} binary"
    return spark.createDataFrame(rows, schema)


def rebased(stream, base, *hidden, marked=False, **more):
    """Return the rows behind the steps of a stream, without their hidden columns but for those that are named."""
    rows = stream._rows
    given = {name: dict(zip(NAMES, base.columns, strict=False)).get(name) for name in rows.node.leaf.columns.names}
    real = base if marked else base.where(f"{MARKER} IS NULL")
    every = (*hidden, *((MARKER,) if marked else ()))
    frame = Rebase(rows, real, given, every, **more).frame(dict(enumerate(stream.columns)))
    assert frame.columns == [*stream.columns, *every]
    return [tuple(row) for row in frame.collect()]


def test_names_and_numbers_stay_as_they_were_analysed(stream, base, F):
    made = stream.where("n > 1").withColumn("more", F.col("n") + 1).withColumnRenamed("s", "text")
    assert rebased(made, base) == [("b", 2, "two", 3)]


def test_hidden_columns_go_on_whatever_is_selected(stream, base):
    assert rebased(stream.where("n > 1").select("s"), base, KEY) == [("two", b"b")]


def test_of_a_row_that_becomes_several_each_has_them(stream, base, F):
    made = stream.where("n is not null").select("k", F.explode(F.split("s", "")).alias("letter"))
    assert {row[2] for row in rebased(made, base, KEY)} == {b"a", b"b"}
    windows = stream.where("n = 1").select(F.window(F.timestamp_seconds("n"), "10 minutes", "5 minutes").alias("w"))
    assert [row[1] for row in rebased(windows, base, KEY)] == [b"a", b"a"]


def test_a_column_that_nobody_gives_is_null(stream, base):
    rows = stream.where("n is null").select("k", "n", "s")._rows
    given = dict.fromkeys(rows.node.leaf.columns.names) | {"k": "c0"}
    frame = Rebase(rows, base, given, ()).frame({0: "k", 1: "n"})
    assert {tuple(row) for row in frame.collect()} == {("a", None), ("b", None), ("c", None), (None, None)}


def test_conditions_of_the_rows_below_come_first(stream, base):
    passing = rebased(stream.select("k"), base, conditions=(((("c1"), False), (TOMBSTONE, True)),))
    assert passing == [("a",), ("b",), ("c",)]
    assert rebased(stream.select("k"), base, conditions=((("c1", False),),)) == [("a",), ("b",)]


def test_the_row_that_marks_the_end_passes_everything_and_nothing_is_computed_of_it(stream, base, F):
    fails = F.raise_error(F.lit("computed")).cast("int")
    made = stream.where("n > 1").withColumn("checked", F.when(F.col("k").isNull(), fails).otherwise(F.col("n")))
    assert rebased(made, base, marked=True) == [("b", 2, "two", 2, None), (None, None, None, None, b"end")]


def test_it_passes_conditions_too(stream, base):
    found = rebased(stream.select("k"), base, marked=True, conditions=((("c1", False),),))
    assert found == [("a", None), ("b", None), (None, b"end")]


@pytest.mark.parametrize(
    ("condition", "others"),
    [("n > 1", {"b"}), ("n is not null", {"a", "b"}), ("false", set()), ("n > 1 and s is not null", {"b"})],
)
def test_no_filter_keeps_a_deletion_from_a_table_of_newest_rows(stream, base, condition, others):
    rows = rebased(stream.where(condition), base, TOMBSTONE, passing=Passing(tombstones=True))
    assert {row[0] for row in rows if not row[3]} == others
    assert [row for row in rows if row[3]] == [("c", None, None, True)]


def test_elsewhere_a_deletion_is_filtered_as_any_row(stream, base):
    assert rebased(stream.where("n > 1"), base, TOMBSTONE) == [("b", 2, "two", False)]


def test_what_does_not_pass_deletes_in_a_table_of_the_rows_behind_the_steps(stream, base):
    made = stream.where("n > 1")
    key = (made._rows.node.leaf.columns.names.index("k"),)
    rows = rebased(made, base, KEY, TOMBSTONE, passing=Passing(deletes=key))
    assert rows == [("a", None, None, b"a", True), ("b", 2, "two", b"b", False), ("c", None, None, b"c", True)]


def test_what_does_not_pass_one_of_several_filters_deletes_and_a_null_is_no_pass(stream, base):
    made = stream.where("n > 0").where("s <> 'two'").where("length(s) > n")
    key = (made._rows.node.leaf.columns.names.index("k"),)
    rows = rebased(made, base, TOMBSTONE, passing=Passing(deletes=key))
    assert rows == [("a", 1, "one", False), ("b", None, None, True), ("c", None, None, True)]


def test_a_deletion_is_found_by_its_key_whatever_that_is_called(stream, base, F):
    made = stream.where("n > 1").withColumnRenamed("k", "id").withColumn("more", F.col("n") + 1)
    key = (made._rows.node.leaf.columns.names.index("k"),)
    rows = rebased(made, base, TOMBSTONE, passing=Passing(deletes=key))
    assert rows[0] == ("a", None, None, None, True)
    assert rows[1] == ("b", 2, "two", 3, False)


def test_what_draws_is_drawn_anew_each_time(stream, base, F):
    made = stream.where("n = 1").select(F.rand(1).alias("drawn"))
    assert rebased(made, base) != rebased(made, base)


@pytest.mark.parametrize(("how", "rows"), [("inner", [("b", 2, "two", 7)]), ("left", None)])
def test_a_join_with_a_dataframe(stream, base, spark, how, rows):
    static = spark.createDataFrame([(2, 7)], "n int, z int")
    found = rebased(stream.join(static, "n", how).select(*NAMES, "z"), base)
    assert (
        found == rows
        if rows
        else sorted(map(str, found))
        == sorted(map(str, [("a", 1, "one", None), ("b", 2, "two", 7), ("c", None, None, None)]))
    )


def test_a_deletion_passes_an_inner_join_with_a_dataframe_in_front_of_a_table(stream, base, spark):
    static = spark.createDataFrame([(2, 7)], "n int, z int")
    made = stream.join(static, "n").select(*NAMES, "z")
    found = rebased(made, base, TOMBSTONE, passing=Passing(tombstones=True))
    assert found == [("b", 2, "two", 7, False), ("c", None, None, None, True)]
