"""When all that was there is processed."""

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.runtime.instance.until_now import Round, rounds
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def test_a_round_ends_with_the_last_target():
    one = Round({A: 0, B: 0}, {A: 5, B: 3})
    assert not one.note({})
    assert not one.note({A: 5, B: 2})
    assert one.left == {B: 3}
    assert one.note({A: 5, B: 7})


def test_what_has_no_records_needs_no_offset():
    assert Round({A: 5, B: 0}, {A: 5, B: 0}).note({})


def test_rounds_follow_the_repartition_topics(spark):
    builder = StreamsBuilder(spark)
    orders = builder.stream("orders", key=String("id"), value=Json("user string, city string"))
    users = orders.groupBy("user").count()
    users.groupBy("count").count().to("counts")
    orders.groupBy("city").count().to("cities")
    places = builder.global_table("places", key=String("city"), value=Json("name string"))
    builder.stream("visits", key=String("id"), value=Json("city string")).join(places, "city").to("named")
    found = rounds(builder.build(), TopicNames("app"))
    assert found == [
        ["orders", "visits"],
        ["app-orders-by-city-repartition", "app-orders-by-user-repartition"],
        ["app-orders-by-user-by-count-repartition"],
    ]


def test_topics_that_the_pipeline_writes_and_reads_have_a_round_more(spark):
    builder = StreamsBuilder(spark)
    builder.stream("a", key=String("id"), value=Json("n long")).where("n > 0").to("b", value=Json())
    builder.stream("b", key=String("id"), value=Json("n long")).groupBy("n").count().to("c")
    assert rounds(builder.build(), TopicNames("app")) == [["a", "b"], ["b"], ["app-b-by-n-repartition"]]
