"""Steps that give other rows when the same row comes again are refused where that would be seen."""

# ruff: noqa: N803 - everybody writes F

import pytest

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String


@pytest.fixture
def table(builder):
    return builder.table("people", key=String("person"), value=Json("age int, towns array<string>"))


def test_what_is_drawn_before_a_stream_forks_would_be_drawn_twice(builder, flights, F):
    drawn = flights.withColumn("drawn", F.rand())
    drawn.where("drawn < 0.1").to("sample")
    drawn.where("drawn >= 0.1").to("rest")
    with pytest.raises(TopologyException, match=r"test_repeated_rows.py:\d+: .*rand\(\).* repartition"):
        builder.build()


def test_a_topic_between_keeps_what_was_drawn(builder, flights, F):
    drawn = flights.withColumn("drawn", F.rand()).repartition("carrier")
    drawn.where("drawn < 0.1").to("sample")
    drawn.where("drawn >= 0.1").to("rest")
    assert len(builder.build().legs) == 3


def test_each_way_may_draw_for_itself(builder, flights, F):
    flights.withColumn("drawn", F.rand()).to("one")
    flights.withColumn("drawn", F.rand()).to("two")
    assert len(builder.build().legs) == 2


def test_a_stream_that_is_put_together_with_itself_forks(builder, flights, F):
    drawn = flights.withColumn("drawn", F.rand())
    drawn.where("drawn < 0.1").unionByName(drawn.where("drawn > 0.9")).to("ends")
    with pytest.raises(TopologyException, match=r"rand\(\)"):
        builder.build()


def test_what_is_drawn_of_a_table_could_not_be_taken_back(builder, table, F):
    def write():
        table.withColumn("drawn", F.rand()).groupBy("age").agg(F.sum("drawn").alias("sum")).to("out")
        builder.build()

    with pytest.raises(TopologyException, match=r"rand\(\)"):
        write()


@pytest.mark.parametrize(
    "write",
    [
        lambda t, F: t.select("person", F.explode("towns").alias("town")),
        lambda t, F: t.select("person", F.posexplode_outer("towns")),
        lambda t, F: t.unpivot("person", ["age"], "name", "value"),
        lambda t, F: t.withColumn("window", F.window(F.col("age").cast("timestamp"), "10 minutes", "5 minutes")),
    ],
)
def test_of_a_table_only_filters_drop_rows_and_nothing_repeats_them(builder, table, F, write):
    """What it once let through would stay in the sink when the group changes."""

    def built():
        write(table, F).to("out")
        builder.build()

    with pytest.raises(TopologyException, match=r"test_repeated_rows.py:\d+: .* to_stream\(\)"):
        built()


def test_behind_to_stream_they_may(builder, table, F):
    table.to_stream().select("person", F.explode("towns").alias("town")).to("out")
    assert len(builder.build().legs) == 1
