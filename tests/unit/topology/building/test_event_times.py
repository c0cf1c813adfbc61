from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder
from sparkrelay.topology.building.event_times import TIMESTAMP, shipped_event_times


def stream(builder=None):
    builder = builder or StreamsBuilder()
    rows = builder.stream(
        "in", key=String("user"), value=Json("at timestamp, sent timestamp, place string, way string")
    )
    return builder, rows.withWatermark("at", "1 minute")


def shipped(builder):
    return sorted(shipped_event_times(builder.build().legs).values())


def test_the_column_of_the_watermark_is_shipped():
    builder, rows = stream()
    rows.groupBy("place").count(name="counts").to("counts")
    assert shipped(builder) == ["at"]


def test_through_every_topic_between():
    builder, rows = stream()
    rows.repartition("way").groupBy("place").count(name="counts").to("counts")
    assert shipped(builder) == ["at", "at"]


def test_without_a_watermark_behind_it_nothing_is():
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("user"), value=Json("place string"))
    rows.groupBy("place").count(name="counts").to("counts")
    assert shipped(builder) == []


def test_a_column_that_is_made_behind_the_topic_is_not():
    builder, rows = stream()
    later = rows.repartition("way").selectExpr("place", "at + interval 1 hour as at")
    later.withWatermark("at", "1 minute").groupBy("place").count(name="counts").to("counts")
    assert len(shipped(builder)) == 1, "only the grouping's own topic"


def test_two_that_go_by_different_columns_are_not():
    builder, rows = stream()
    spread = rows.repartition("place")
    spread.groupBy("place").count(name="counts").to("counts")
    spread.withWatermark("sent", "1 minute").groupBy("place").count(name="others").to("others")
    assert shipped(builder) == []


def rates(builder, history="1 hour"):
    return builder.table("rates", key=String("place"), value=Json("rate int"), history=history)


def test_who_looks_into_a_table_with_a_history_goes_by_the_times_as_of_which_it_does():
    builder, rows = stream()
    rows.join(rates(builder), "place").to("out")
    assert shipped(builder) == ["at"]
    builder, rows = stream()
    rows.join(rates(builder), "place", grace="1 minute").to("out")
    assert shipped(builder) == ["at"]
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("user"), value=Json("place string"))
    rows.repartition("user").join(rates(builder), "place").to("out")
    assert shipped(builder) == [TIMESTAMP, TIMESTAMP]
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("user"), value=Json("place string"))
    rows.join(rates(builder, history=None), "place").to("out")
    assert shipped(builder) == []


def test_a_watermark_behind_such_a_look_comes_first():
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("user"), value=Json("place string, sent timestamp"))
    looked = rows.join(rates(builder), "place").withWatermark("sent", "1 minute")
    looked.groupBy("place").count(name="counts").to("counts")
    assert shipped(builder) == ["sent"]
