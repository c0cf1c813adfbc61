"""Joins of two streams as they are written: what they need, and the plan they make."""

# ruff: noqa: N803 - everybody writes F

import pytest

from sparkrelay import Json, String
from sparkrelay.errors import TopologyException
from sparkrelay.topology.event_time import EventTime

MINUTE = 60_000_000


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
    assert (one.join.how, one.join.span_us, one.join.columns) == ("left", (10 * MINUTE, 10 * MINUTE), ("user",))
    assert (one.join.watermark, other.join.watermark) == (EventTime("at", 60_000), EventTime("seen", 300_000))
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
    assert text.count("join(user, inner, within=600000000 to 600000000 us)") == 2


def test_the_fingerprint_knows_joins(builder, clicks, views):
    prints = set()
    for within in ("1 minute", "2 minutes", ("1 minute", "2 minutes")):
        left, right = timed(clicks, views)
        left.join(right, "user", within=within, name=f"in-{len(prints)}").to("out")
        prints.add(builder.build().fingerprint)
    assert len(prints) == 3


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
            r'or within=\("0 seconds", "1 hour"\), not \(.1 day.,\)',
        ),
        (
            lambda c, v: c.join(v, "user", "cross", within="1 minute"),
            "takes inner, outer, semi and anti joins, not Cross",
        ),
        (lambda c, v: c.join(v, lambda: 1, within="1 minute"), "on should be Column or list of Column"),
        (lambda c, v: c.join(v, "page", within="1 minute"), "USING column `page` cannot be resolved on the right side"),
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
    with pytest.raises(TopologyException, match=r"nothing uses the result of join\(\.\.\.\)"):
        builder.build()


def test_behind_a_union_of_which_one_stream_has_no_watermark_it_is_said_anew(clicks, views):
    left, right = timed(clicks, views)
    with pytest.raises(TopologyException, match=r"on the left stream too, .*; behind a union, .* it is said anew"):
        left.union(clicks).join(right, "user", within="10 minutes")


def test_behind_a_union_of_two_with_a_watermark_there_is_one(builder, clicks, views):
    left, right = timed(clicks, views)
    left.union(left.where("page > 'a'")).join(right, "user", within="10 minutes").to("out")
    found = {leg.join.side: leg.join.watermark for leg in builder.build().legs if leg.join is not None}
    assert found == {"left": EventTime("at", 60_000), "right": EventTime("seen", 300_000)}


def test_a_condition_says_what_is_equal_and_how_far_apart_times_may_be(builder, clicks, F):
    views = builder.stream("views", key=String("viewer"), value=Json("page string, seen timestamp"))
    left, right = timed(clicks, views)
    condition = F.expr("user = viewer and seen >= at and seen <= at + interval 1 hour")
    left.join(right, condition, name="both").to("out")
    one, other = builder.build().legs
    assert (one.join.how, one.join.span_us) == ("inner", (0, 60 * MINUTE))
    assert (one.join.side, other.join.side) == ("left", "right")
    assert (one.source.topics, other.source.topics) == (("clicks",), ("views",)), "both are where they meet"


def test_other_terms_of_an_inner_join_are_a_filter_behind_it(builder, clicks, F):
    views = builder.stream("views", key=String("viewer"), value=Json("ad string, seen timestamp"))
    left, right = timed(clicks, views)
    times = F.expr("seen between at - interval 1 minute and at + interval 1 minute")
    left.join(right, [F.expr("user = viewer"), times, F.expr("ad > page")]).to("out")
    first, _ = builder.build().legs
    assert first.join.span_us == (MINUTE, MINUTE)
    assert any(step.startswith("where ad > page") for part in first.after for step in part.steps)


@pytest.mark.parametrize(
    "condition",
    ["user = viewer", "user = viewer and seen > at", "user = viewer and seen < at + interval 1 month and seen > at"],
)
def test_a_condition_without_both_bounds_is_refused(builder, clicks, F, condition):
    views = builder.stream("views", key=String("viewer"), value=Json("ad string, seen timestamp"))
    left, right = timed(clicks, views)
    with pytest.raises(TopologyException, match="a condition of the two event times with both bounds"):
        left.join(right, F.expr(condition))


def test_both_sides_may_have_columns_of_one_name(builder, clicks, F):
    views = builder.stream("views", key=String("user"), value=Json("page string, seen timestamp"))
    left, right = timed(clicks, views)
    joined = left.join(right, "user", within="1 minute")
    assert joined.columns.count("page") == 2
    joined.select("user", left.page, right.page.alias("other")).to("out")
    first, _ = builder.build().legs
    assert first.after[-1].names == ("user", "page", "other")
