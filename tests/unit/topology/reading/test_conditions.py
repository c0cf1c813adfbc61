"""Conditions of joins of streams: what is equal, how far apart times may be, and what remains."""

# ruff: noqa: N803 - everybody writes F

import pytest
from pyspark.sql.classic.dataframe import DataFrame

from sparkrelay import Json, String
from sparkrelay.catalyst.frames import analyzed
from sparkrelay.catalyst.tree import read_plan
from sparkrelay.errors import TopologyException
from sparkrelay.topology.reading.conditions import Both, take_range, terms_of

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND


@pytest.fixture
def streams(builder):
    shown = builder.stream("shown", key=String("ad"), value=Json("page string, at timestamp, tags struct<a:int,b:int>"))
    clicked = builder.stream("clicked", key=String("clicked_ad"), value=Json("user string, seen timestamp"))
    return shown.withWatermark("at", "1 minute"), clicked.withWatermark("seen", "5 minutes")


@pytest.fixture
def read(streams, F):
    """`read(condition)` gives the terms of a condition, and the numbers of the event times."""
    shown, clicked = streams

    def read(text):
        joined = DataFrame.join(shown, clicked, F.expr(text))
        (join,) = (node for node in read_plan(analyzed(joined)).below() if node.kind == "Join")
        condition = Both(join.by_field["condition"][0], join.java.condition().get())
        numbers = [
            next(column.number for column in frame._rows.columns if column.name == name)
            for frame, name in ((shown, "at"), (clicked, "seen"))
        ]
        return terms_of(condition, shown._rows, clicked._rows), tuple(numbers)

    return read


def in_words(terms, streams):
    def said(one):
        rows = next(
            frame._rows for frame in streams if {*one.read.references()} <= {c.number for c in frame._rows.columns}
        )
        return rows.of_expression(one.read)

    return [(said(left), said(right)) for left, right in terms.pairs]


@pytest.mark.parametrize(
    ("text", "pairs", "rest"),
    [
        ("ad = clicked_ad", [("ad", "clicked_ad")], 0),
        ("clicked_ad = ad", [("ad", "clicked_ad")], 0),
        ("AD = Clicked_Ad", [("ad", "clicked_ad")], 0),
        ("ad = clicked_ad and page = user", [("ad", "clicked_ad"), ("page", "user")], 0),
        ("(ad = clicked_ad and (page = user))", [("ad", "clicked_ad"), ("page", "user")], 0),
        ("upper(ad) = lower(clicked_ad)", [("upper(ad)", "lower(clicked_ad)")], 0),
        ("tags.a = length(user)", [("tags.a", "length(user)")], 0),
        ("ad = clicked_ad or page = user", [], 1),
        ("not ad = clicked_ad", [], 1),
        ("ad <=> clicked_ad", [], 1),
        ("ad = page and clicked_ad = user", [], 2),
        ("ad = 'x'", [], 1),
        ("concat(ad, clicked_ad) = page", [], 1),
        ("ad = clicked_ad and page > user and length(page) > 3", [("ad", "clicked_ad")], 2),
        ("true", [], 0),
    ],
)
def test_what_is_equal_of_both_sides_makes_pairs(read, streams, text, pairs, rest):
    terms, _ = read(text)
    assert in_words(terms, streams) == pairs
    assert len(terms.rest) == rest


def test_without_a_condition_there_is_nothing(streams):
    shown, clicked = streams
    terms = terms_of(None, shown._rows, clicked._rows)
    assert (terms.pairs, terms.rest) == ([], [])


RANGES = [
    ("seen >= at and seen <= at", 0, 0),
    ("at <= seen and at >= seen", 0, 0),
    ("seen >= at and seen <= at + interval 1 hour", 0, HOUR),
    ("seen between at and at + interval 1 hour", 0, HOUR),
    ("(at <= seen) AND ((at + INTERVAL '90' MINUTES) >= seen)", 0, 90 * MINUTE),
    ("seen between at - interval 5 minutes 30 seconds and at + interval '1 day 1 hour'", 330 * SECOND, 25 * HOUR),
    ("seen > at - interval 1 second and seen < at + interval 1 millisecond", SECOND - 1, 999),
    ("seen - interval 10 minutes <= at and at - interval 1 week < seen", 7 * DAY - 1, 10 * MINUTE),
    ("at = seen", 0, 0),
    ("SEEN >= At and seen <= at + interval 1 hour", 0, HOUR),
    ("seen between at + interval -5 minutes and at - interval '-1 hour'", 5 * MINUTE, HOUR),
    ("seen >= at and seen >= at - interval 1 day and seen <= at + interval 1 day", 0, DAY),
    ("seen + interval 1 hour >= at and seen <= at + interval 1 day + interval 1 hour", HOUR, 25 * HOUR),
    ("seen >= at and seen <= at + make_interval(0, 0, 0, 1)", 0, DAY),
]


@pytest.mark.parametrize(("text", "earlier", "later"), RANGES)
def test_the_range_of_time_is_read_from_the_condition(read, streams, text, earlier, later):
    terms, times = read(f"clicked_ad = ad and {text} and page > user")
    assert take_range(terms, streams[0]._rows, streams[1]._rows, times) == (earlier, later)
    assert len(terms.rest) == 1, "what is taken remains no condition"


def test_of_between_one_bound_may_be_of_the_event_times(read, streams):
    text = "clicked_ad = ad and seen between at and timestamp_seconds(tags.a) and seen <= at + interval 1 day"
    terms, times = read(text)
    assert take_range(terms, streams[0]._rows, streams[1]._rows, times) == (0, DAY)
    assert [one.read.kind for one in terms.rest] == ["LessThanOrEqual"]


@pytest.mark.parametrize(
    "text",
    [
        "seen >= at",
        "seen < at",
        "seen - at < interval 1 hour",
        "seen >= at or seen <= at",
        "seen >= at and seen <= at + interval 1 month",
        "seen >= at and seen <= timestamp'2026-01-01'",
        "seen >= at and date(seen) <= date(at)",
        "seen >= at and seen <= at + tags.a * interval 1 second",
    ],
)
def test_without_both_bounds_there_is_no_range_and_all_remains(read, streams, text):
    terms, times = read(f"clicked_ad = ad and {text}")
    before = [*terms.rest]
    assert take_range(terms, streams[0]._rows, streams[1]._rows, times) is None
    assert terms.rest == before


def test_a_copy_of_an_event_time_is_one(builder, streams, F):
    shown, clicked = streams
    shown.withColumn("when", F.col("at")).join(clicked, F.expr("ad = clicked_ad and seen >= when and seen <= when")).to(
        "out"
    )
    first, _ = builder.build().legs
    assert first.join.span_us == (0, 0)


def test_other_times_are_no_event_times(builder, F):
    shown = builder.stream("shown", key=String("ad"), value=Json("at timestamp, sent timestamp"))
    clicked = builder.stream("clicked", key=String("clicked_ad"), value=Json("seen timestamp"))
    condition = F.expr("ad = clicked_ad and seen >= sent and seen <= sent")
    with pytest.raises(TopologyException, match="takes within="):
        shown.withWatermark("at", "1 minute").join(clicked.withWatermark("seen", "1 minute"), condition)


def test_keyed_streams_need_no_topic_in_between(builder, streams, F):
    shown, clicked = streams
    shown.join(clicked, F.expr("ad = clicked_ad"), within="1 minute").to("out")
    (subtopology,) = builder.build().subtopologies
    assert [leg.source.topics for leg in subtopology.legs] == [("shown",), ("clicked",)]


def test_others_go_through_topics(builder, streams, F):
    shown, clicked = streams
    shown.join(clicked, F.expr("page = user"), within="1 day").to("out")
    assert len(builder.build().subtopologies) == 3


def test_what_remains_is_a_where_behind_an_inner_join(builder, streams, F):
    shown, clicked = streams
    condition = "ad = clicked_ad and length(page) > length(user) and (page = 'a' or user = 'b') and not page = user"
    shown.join(clicked, F.expr(condition), within="1 minute").to("out")
    first, _ = builder.build().legs
    found = [text for part in first.after for text in part.steps if text.startswith("where ")]
    for part in ("length(page) > length(user)", "(page = 'a') OR (user = 'b')", "NOT (page = user)"):
        assert any(part in text for text in found)


@pytest.mark.parametrize("how", ["left", "right", "full", "left_semi", "left_anti"])
def test_of_another_join_nothing_may_remain(streams, F, how):
    shown, clicked = streams
    with pytest.raises(TopologyException, match="neither that columns are equal nor a range .* an inner join alone"):
        shown.join(clicked, F.expr("ad = clicked_ad and page > user"), how, within="1 minute")


@pytest.mark.parametrize(
    ("text", "how", "message"),
    [
        ("seen >= at and seen <= at", "inner", "equal"),
        ("ad = clicked_ad and seen > at and seen < at", "inner", "its range of time is empty"),
        ("what = ever and at = seen", "inner", "with name `what` cannot be resolved"),
        ("ad = clicked_ad and (", "inner", "Syntax error"),
    ],
)
def test_what_cannot_be_is_refused(streams, F, text, how, message):
    shown, clicked = streams
    with pytest.raises(TopologyException, match=f"test_conditions.py:.*{message}"):
        shown.join(clicked, F.expr(text), how)


def test_a_range_is_given_once(streams, F):
    shown, clicked = streams
    condition = F.expr("ad = clicked_ad and seen >= at and seen <= at")
    with pytest.raises(TopologyException, match="within="):
        shown.join(clicked, condition, "left", within="1 day")
