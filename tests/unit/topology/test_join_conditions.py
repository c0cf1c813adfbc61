"""Conditions of joins of streams, as text: what is equal, how far apart times may be, and what remains."""

import pytest

from sparkrelay import Json, String
from sparkrelay.errors import TopologyException
from sparkrelay.topology.conditions import Comparison, terms_of


@pytest.fixture
def streams(builder):
    shown = builder.stream("shown", key=String("ad"), value=Json("page string, at timestamp, tags struct<a:int,b:int>"))
    clicked = builder.stream("clicked", key=String("clicked_ad"), value=Json("user string, seen timestamp"))
    return shown.withWatermark("at", "1 minute"), clicked.withWatermark("seen", "5 minutes")


def join_of(builder):
    legs = [leg for part in builder.build().subtopologies for leg in part.legs]
    return next(leg for leg in legs if leg.join is not None and leg.join.is_left)


@pytest.mark.parametrize(
    ("time", "within"),
    [
        ("seen >= at and seen <= at + interval 1 hour", ("0 seconds", "1 hour")),
        ("seen between at and at + interval 1 hour", ("0 seconds", "1 hour")),
        ("(at <= seen) AND ((at + INTERVAL '90' MINUTES) >= seen)", ("0 seconds", "90 minutes")),
        (
            "seen between at - interval 5 minutes 30 seconds and at + interval '1 day 1 hour'",
            ("330 seconds", "25 hours"),
        ),
        (
            "seen > at - interval 1 second and seen < at + interval 1 millisecond",
            ("999999 microseconds", "999 microseconds"),
        ),
        (
            "seen - interval 10 minutes <= at and at - interval 1 week < seen",
            ("604799999999 microseconds", "10 minutes"),
        ),
        ("at = seen", ("0 seconds", "0 seconds")),
        ("SEEN >= At and seen <= at + interval 1 hour", ("0 seconds", "1 hour")),
        ("seen between at + interval -5 minutes and at - interval '-1 hour'", ("5 minutes", "1 hour")),
        ("seen >= at and seen >= at - interval 1 day and seen <= at + interval 1 day", ("0 seconds", "1 day")),
    ],
)
def test_the_range_of_time_is_read_from_the_condition(builder, streams, time, within):
    shown, clicked = streams
    shown.join(clicked, f"clicked_ad = ad and {time}", "left").to("out")
    leg = join_of(builder)
    assert leg.join.within == within
    assert leg.join.columns == ("ad = clicked_ad",)
    assert [step.text for step in leg.after] == ['drop("ad = clicked_ad")']


def test_keyed_streams_need_no_topic_in_between(builder, streams):
    shown, clicked = streams
    shown.join(clicked, "ad = clicked_ad", within="1 minute").to("out")
    (subtopology,) = builder.build().subtopologies
    assert [leg.source.topics for leg in subtopology.legs] == [("shown",), ("clicked",)]


def test_others_go_through_topics(builder, streams):
    shown, clicked = streams
    shown.join(clicked, ["page = user", "seen between at and at + interval 1 day"]).to("out")
    assert len(builder.build().subtopologies) == 3


def test_names_and_conditions_may_stand_in_one_list(builder, streams):
    shown, clicked = streams
    clicked = clicked.withColumnRenamed("clicked_ad", "ad")
    shown.join(clicked, ["ad", "seen between at and at + interval 1 day"]).to("out")
    leg = join_of(builder)
    assert (leg.join.columns, leg.join.within, leg.after) == (("ad",), ("0 seconds", "1 day"), ())


def test_what_remains_is_a_where_behind_an_inner_join(builder, streams):
    shown, clicked = streams
    shown.join(
        clicked,
        "ad = clicked_ad and length(page) > length(user) and (page = 'a' or user = 'b') "
        "and seen between at + interval 1 minute and at + interval 2 minutes and not page = user",
    ).to("out")
    leg = join_of(builder)
    assert leg.join.within == ("0 seconds", "2 minutes")
    assert [step.args for step in leg.after] == [
        ("length(page) > length(user)",),
        ("page = 'a' or user = 'b'",),
        ("not page = user",),
        ("`seen` >= `at` + interval 60000000 microseconds",),
        ("ad = clicked_ad",),
    ]


@pytest.mark.parametrize(
    ("on", "how", "message"),
    [
        ("ad = clicked_ad", "inner", "takes within="),
        ("ad = clicked_ad and seen >= at", "inner", 'both ends of the range.*add "and seen <= at [+] interval 1 hour"'),
        ("ad = clicked_ad and seen < at", "inner", 'add "and seen >= at - interval 1 hour"'),
        ("seen between at and at + interval 1 hour", "inner", "needs a column of each that are equal"),
        ("ad = clicked_ad or seen between at and at + interval 1 hour", "inner", "takes within=|needs a column"),
        ("ad = clicked_ad and seen > at and seen < at", "inner", "no two times are within the range"),
        ("ad = clicked_ad and page > user and at = seen", "left", "\"page > user\" in join.*how='left'"),
        (
            "ad = clicked_ad and seen between at + interval 1 day and at + interval 2 days",
            "full",
            "at least 1 day after at",
        ),
        (
            "ad = clicked_ad and seen >= at and seen <= at + interval 1 month",
            "inner",
            "add \"and seen <= at .*Not read as a range of 'at' and 'seen': \"seen <= at [+] interval 1 month\"",
        ),
        ("ad = clicked_ad and seen - at < interval 1 hour", "inner", 'takes within=.*Not read .*"seen - at < interval'),
        ("ad = clicked_ad and seen > at and seen <= at + interval 1 hour", "left", "has equal times in it too"),
        ("ad = clicked_ad and at = seen and seen > date'today'", "inner", "date'today' is the time at which"),
        ("what = ever and at = seen", "inner", "which stream has which is not known"),
        ("ad = page and at = seen", "inner", "which stream has which is not known|both streams have"),
    ],
)
def test_what_cannot_be_is_refused(streams, on, how, message):
    shown, clicked = streams
    with pytest.raises(TopologyException, match=f"test_join_conditions.py:.*({message})"):
        shown.join(clicked, on, how)


def test_a_range_is_given_once(streams):
    shown, clicked = streams
    with pytest.raises(TopologyException, match="has a range of time already"):
        shown.join(clicked, "ad = clicked_ad and at = seen", within="1 day")


@pytest.mark.parametrize(
    "text",
    [
        "a = 'b'", "a = 1", "a <=> b", "a != b", "not a = b", "a = b or c = d", "f(a) = b", "a = b -- and c = d",
        "case when a = b and c = d then e end = f", "a = null", "a = b + interval 1 month", "a + b = c", "a.b.c",
        "a between b and c + 1", "x -> y = z", "a = b + interval 99999999999999 days", "", "and", "a =", "= b",
        "(a = b", "a = b)", "a in (b, c)", "a = b * interval 1 day", "a = b = c", "between and",
    ],
)  # fmt: skip
def test_other_conditions_stay_as_they_are_written(text):
    assert not any(isinstance(term, Comparison) for term in terms_of(text))


def test_names_in_another_case_are_whose_they_are(builder, streams):
    shown, clicked = streams
    shown.join(clicked, "AD = Clicked_Ad and at = seen").to("out")
    assert join_of(builder).join.columns == ("AD = Clicked_Ad",)


def test_quoted_names_and_fields_are_read():
    (term,) = terms_of("(`a b`.c = `d``e`)")
    assert (term.left.path, term.operator, term.right.path) == (("a b", "c"), "=", ("d`e",))
