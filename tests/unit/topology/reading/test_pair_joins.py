"""Joins of tables by any equal columns, as they are written down."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Long, String
from sparkrelay.errors import TopologyException


@pytest.fixture
def a(builder):
    return builder.table("ta", key=String("k"), value=Json("x int, v long"), name="a")


@pytest.fixture
def b(builder):
    return builder.table("tb", key=String("j"), value=Json("y int, w long"), name="b")


def joins(builder):
    return [leg.table_join for leg in builder.build().legs if leg.table_join is not None]


def test_both_sides_are_kept_by_what_is_equal_and_their_keys(builder, a, b):
    a.join(b, a["x"] == b["y"]).to("out")
    (join,) = joins(builder)
    assert (join.left, join.right, join.by, join.width) == ("a-left-by-x", "b-right-by-x", 1, 3)
    keys = {leg.store: leg.aggregation.keys for leg in builder.build().legs if leg.aggregation is not None}
    assert keys == {"a": ("k",), "a-left-by-x": ("x", "k"), "b": ("j",), "b-right-by-x": ("y", "j")}
    # Both must be there at once: their topics are read by one subtopology.
    assert {leg.subtopology for leg in builder.build().legs if leg.store in join.stores} == {2}


def test_what_is_equal_may_be_computed_and_of_other_types(builder, a, b):
    a.join(b, (a["x"] + 1 == b["w"]) & (a["k"] == b["j"])).to("out")
    (join,) = joins(builder)
    assert join.by == 2
    assert join.columns.names[:2] == ["by_1", "k_2"]


def test_a_key_that_was_left_out_goes_along(builder, a, b):
    left, right = a.select("x", "v"), b.select("y", "w")
    made = left.join(right, left["x"] == right["y"])
    assert made.columns == ["x", "v", "y", "w"]
    made.to("out")
    (join,) = joins(builder)
    assert {"k", "j"} <= {*join.columns.names}


def test_conditions_of_one_side_of_an_outer_join_say_what_has_a_partner(builder, a, b):
    a.join(b, (a["x"] == b["y"]) & (a["v"] > 3) & (b["w"] > 4), "left").to("out")
    (join,) = joins(builder)
    assert (join.by, join.how) == (2, "left")
    (sent,) = (leg for leg in builder.build().legs if leg.sink is not None and leg.sink.key == ("y", "by_2"))
    assert any(text.startswith("where w > ") for text in sent.texts)


def test_without_equal_columns_each_task_has_one_side_whole(builder, a, b):
    a.join(b, a["v"] > b["w"]).to("out")
    topology = builder.build()
    sinks = [leg.sink for leg in topology.legs if leg.sink and leg.sink.internal]
    assert {sink.key: sink.to_all for sink in sinks} == {("k",): False, ("by_1",): True}
    assert topology.describe().count("each row goes to every partition") == 1


def test_a_total_is_the_whole_side(builder, a, b):
    total = b.agg(F.max("w").alias("most"))
    total.join(a, total["most"] > a["v"]).to("out")
    sinks = [leg.sink for leg in builder.build().legs if leg.sink and leg.sink.internal]
    assert {sink.key: sink.to_all for sink in sinks} == {("all",): False, ("k",): False, ("by_1",): True}


def test_pairs_have_a_key_of_their_own(builder, a, b):
    pairs = a.join(b, a["x"] == b["y"])
    with pytest.raises(
        TopologyException, match=r"test_pair_joins.py:\d+: key= of to\('out'\) would mix rows of several tasks"
    ):
        pairs.to("out", key=Long("v"))
    pairs.to_stream().to("out", key=Long("v"))


def test_tables_of_any_kind_are_joined(builder, a, b):
    """Of windows, of values that lie apart, of joins, behind steps: each goes by a topic of its own."""
    lists = b.to_stream().groupBy("y").agg({"w": "collect_list"})
    both = a.join(b, a["x"] == b["y"]).select("v", "w")
    lists.join(both, lists["y"] == both["v"]).to("out")
    assert [join.by for join in joins(builder)] == [1, 1]
