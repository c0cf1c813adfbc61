"""Joins of two streams as they are written: what they need, and the plan they make."""

import pytest

from sparkrelay import Json, String
from sparkrelay.errors import TopologyException


@pytest.fixture
def clicks(builder):
    return builder.stream("clicks", key=String("user"), value=Json("page string, at timestamp"))


@pytest.fixture
def views(builder):
    return builder.stream("views", key=String("user"), value=Json("ad string, seen timestamp"))


def timed(clicks, views):
    return clicks.withWatermark("at", "1 minute"), views.withWatermark("seen", "5 minutes")


def test_streams_of_one_key_meet_in_one_task(builder, clicks, views):
    left, right = timed(clicks, views)
    left.where("page > 'a'").join(right, "user", "left_outer", within="10 minutes").to("out")
    (subtopology,) = builder.build().subtopologies
    one, other = subtopology.legs
    assert [leg.id for leg in subtopology.legs] == ["store:clicks-join-views", "store:clicks-join-views#2"]
    assert [leg.source.topics for leg in subtopology.legs] == [("clicks",), ("views",)]
    assert [leg.join.side for leg in subtopology.legs] == ["left", "right"]
    assert (one.join.how, one.join.within, one.join.columns) == ("left", ("10 minutes", "10 minutes"), ("user",))
    assert (one.join.watermark, other.join.watermark) == (("at", "1 minute"), ("seen", "5 minutes"))
    assert subtopology.stores == subtopology.logged_stores == ("clicks-join-views",)


def test_streams_of_other_keys_go_through_topics(builder, clicks, views):
    left, right = timed(clicks, views)
    joined = left.join(right.withColumnRenamed("ad", "page"), "page", within="1 minute", name="pages")
    joined.groupBy("page").count().to("out")
    topology = builder.build()
    topics = [sorted(part.source_topics) for part in topology.subtopologies]
    assert topics == [["clicks"], ["views"], [], []]
    assert topology.internal_topics == {
        "clicks-by-page-repartition",
        "views-by-page-repartition",
        "pages-by-page-repartition",
        "pages-changelog",
        "pages-by-page-changelog",
    }
    order = [leg.id for leg in topology.upstream_first]
    assert order.index("store:pages") == order.index("store:pages#2") - 1


def test_a_stream_may_be_joined_with_itself(builder, clicks):
    left = clicks.withWatermark("at", "1 minute")
    left.join(left, "user", "left_semi", within="1 minute").to("out")
    (subtopology,) = builder.build().subtopologies
    assert [leg.join.side for leg in subtopology.legs] == ["left", "right"]


def test_the_description_names_both_sides(builder, clicks, views):
    left, right = timed(clicks, views)
    left.join(right, "user", within="10 minutes", name="both").to("out")
    text = builder.build().describe()
    assert "Processor: both-left (stores: [both])" in text
    assert "Processor: both-right (stores: [both])" in text
    assert "join(user, inner, within='10 minutes')" in text


def test_the_fingerprint_knows_joins(builder, clicks, views):
    prints = set()
    for within in ("1 minute", "2 minutes"):
        left, right = timed(clicks, views)
        left.join(right, "user", within=within, name=f"in {len(prints)}".replace(" ", "-")).to("out")
        prints.add(builder.build().fingerprint)
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda c, v: c.join(v, "user", within="1 minute"),
            r'put withWatermark\("time", "10 minutes"\) before it, on the',
        ),
        (lambda c, v: timed(c, v)[0].join(v, "user", within="1 minute"), "on the right stream too"),
        (lambda c, v: c.join(v, "user"), r'takes within=, such as within="10 minutes".*builder.table'),
        (lambda c, v: c.join(v, "user", within=5), "takes within=.*, not 5"),
        (
            lambda c, v: c.join(v, "user", within=("1 day",)),
            r"how much earlier and how much later .*, not \('1 day',\)",
        ),
        (lambda c, v: c.join(v, ["user", "User"], within="1 minute"), "names a column twice"),
        (lambda c, v: c.join(v, "user", "cross", within="1 minute"), "takes how= of inner, left, .*, not 'cross'"),
        (
            lambda c, v: c.join(v, lambda: 1, within="1 minute"),
            "takes on= as the name of a column that both sides have",
        ),
        (
            lambda c, v: c.join(v, "user", within="1 minute", refresh="1 day"),
            "refresh='1 day' of join.. is for a DataF",
        ),
        (lambda c, v: c.join(v.to_table(), "user", within="1 day"), "within='1 day' of join.. is for two streams"),
    ],
)
def test_what_has_no_end_is_refused_where_it_is_written(clicks, views, write, message):
    with pytest.raises(TopologyException, match=f"test_stream_joins.py:{write.__code__.co_firstlineno}: .*{message}"):
        write(clicks, views)


def test_several_ways_out_of_a_join_begin_at_a_topic_behind_it(builder, clicks, views):
    left, right = timed(clicks, views)
    joined = left.join(right, "user", within="10 minutes")
    joined.to("out")
    joined.where("ad = 'x'").to("other")
    legs = [leg for at in builder.build().subtopologies for leg in at.legs]
    topic = "clicks-join-views-by-user-shared-repartition"
    assert [(leg.source.topics, leg.store, leg.sink.topic) for leg in legs] == [
        (("clicks",), "clicks-join-views", topic),
        (("views",), "clicks-join-views", topic),
        ((topic,), None, "out"),
        ((topic,), None, "other"),
    ]
    # Their names are those that one way out of it would have.
    assert [leg.id for leg in legs[2:]] == ["sink:clicks-join-views-to-out", "sink:clicks-join-views-to-other"]


def test_one_way_out_of_a_join_has_no_topic_in_between(builder, clicks, views):
    left, right = timed(clicks, views)
    left.join(right, "user", within="10 minutes").where("ad = 'x'").to("out")
    assert {leg.sink.topic for at in builder.build().subtopologies for leg in at.legs} == {"out"}


def test_a_join_that_leads_nowhere_is_refused(builder, clicks, views):
    left, right = timed(clicks, views)
    left.join(right, "user", within="10 minutes")
    with pytest.raises(TopologyException, match=r"nothing uses the result of join\(user, inner, within='10 minutes'\)"):
        builder.build()


def test_behind_a_union_the_watermark_is_said_anew(clicks, views):
    left, right = timed(clicks, views)
    with pytest.raises(TopologyException, match=r"on the left stream too, .*; behind a union, .* it is said anew"):
        left.union(left.where("page > 'a'")).join(right, "user", within="10 minutes")
