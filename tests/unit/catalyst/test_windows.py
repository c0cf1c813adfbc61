# ruff: noqa: N803 - everybody writes F

import datetime as dt

import pytest

from sparkrelay.catalyst.tree import read_plan
from sparkrelay.catalyst.windows import time_window
from sparkrelay.catalyst.words import window_words, words

MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def rows(spark):
    return spark.sql(
        "SELECT timestamp'2026-01-01 00:00:00' AS time, timestamp_ntz'2026-01-01 00:00:00' AS local, 1 AS n"
    )


def made_by(frame):
    """Return how the last column is computed, in the node that makes it, in several ways in an Expand."""
    plan = read_plan(frame._jdf.queryExecution().analyzed())
    for node in plan.below():
        if node.kind == "Expand":
            for column, *ways in zip(node.output, *node.ways, strict=True):
                if time_window(ways) is not None:
                    assert column.name == "window"
                    return ways
        for one in node.expressions:
            if one.kind == "Alias" and time_window(one.children) is not None:
                return one.children
    return [one for node in plan.below() for one in node.expressions][:1]


def window_of(frame):
    return time_window(made_by(frame))


@pytest.mark.parametrize(
    ("arguments", "length", "slide", "offset"),
    [
        (("1 hour",), 60, 60, 0),
        (("10 minutes", "5 minutes"), 10, 5, 0),
        (("1 hour", "15 minutes"), 60, 15, 0),
        (("1 day", "1 day", "15 minutes"), 1440, 1440, 15),
        (("10 minutes", "5 minutes", "2 minutes"), 10, 5, 2),
        (("1 hour", "1 hour", "-15 minutes"), 60, 60, 45),
        (("7 days",), 7 * 1440, 7 * 1440, 0),
    ],
)
@pytest.mark.parametrize("column", ["time", "local"])
def test_length_slide_and_offset_are_those_that_were_written(rows, F, column, arguments, length, slide, offset):
    found = window_of(rows.groupBy(F.window(column, *arguments)).count())
    assert (found.length, found.slide, found.offset) == (length * MINUTE, slide * MINUTE, offset * MINUTE)
    assert (words(found.time), found.gap) == (column, None)


def test_a_slide_that_does_not_divide_the_length(rows, F):
    found = window_of(rows.groupBy(F.window("time", "10 minutes", "3 minutes")).count())
    assert (found.length, found.slide) == (10 * MINUTE, 3 * MINUTE)


def test_a_session_has_a_gap_and_no_length(rows, F):
    found = window_of(rows.groupBy(F.session_window("time", "5 minutes")).count())
    assert (found.length, found.slide) == (None, None)
    assert window_words(found) == "session_window(time, '5 minutes')"


def test_the_gap_of_a_session_may_be_the_row_s(rows, F):
    gap = F.when(F.col("n") > 1, "5 minutes").otherwise("1 hour")
    found = window_of(rows.groupBy(F.session_window("time", gap)).count())
    assert window_words(found) == "session_window(time, CASE WHEN n > 1 THEN '5 minutes' ELSE '1 hour' END)"


def test_a_window_may_be_selected(rows, F):
    assert window_of(rows.select(F.window("time", "1 hour"))).length == 60 * MINUTE


@pytest.mark.parametrize("text", ["time", "struct(time, time)", "named_struct('start', time, 'end', time)"])
def test_other_columns_are_no_windows(rows, text):
    plan = read_plan(rows.selectExpr(f"{text} AS made")._jdf.queryExecution().analyzed())
    assert time_window(plan.expressions) is None
    assert time_window([one for alias in plan.expressions for one in alias.children]) is None


def test_windows_are_said_with_what_differs_from_the_plain_ones(rows, F):
    def said(*arguments):
        return window_words(window_of(rows.groupBy(F.window("time", *arguments)).count()))

    assert said("1 hour") == "window(time, 1:00:00)"
    assert said("1 hour", "5 minutes") == "window(time, 1:00:00 every 0:05:00)"
    assert said("1 hour", "1 hour", "10 minutes") == "window(time, 1:00:00 from 0:10:00)"
