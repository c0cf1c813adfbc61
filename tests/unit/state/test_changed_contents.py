"""A changed pipeline's error says what changed. The texts are those of ``runtime.compile.grouping.contents``."""

import pytest

from sparkrelay.state.changed_contents import changed_contents

STRUCT = "window struct<start:timestamp,end:timestamp>"


def text(window="window(at, 0:05:00)", *, null="", ends=", over with window", unlogged="", by="the message key"):
    return f"count(*) by user string, {STRUCT}{null} = {window}{ends}{unlogged}, spread by {by}"


@pytest.mark.parametrize(
    ("held", "wanted", "words"),
    [
        (
            text(),
            text("window(at, 0:10:00)"),
            "was made with 5-minute windows; the pipeline now has 10-minute windows",
        ),
        (
            text("window(at, 1 day, 0:00:00)"),
            text("window(at, 1:30:00)"),
            "was made with 1-day windows; the pipeline now has 90-minute windows",
        ),
        (
            text("window(at, 0:00:00.500000)"),
            text("window(at, 7 days, 0:00:00)"),
            "was made with 500-millisecond windows; the pipeline now has 7-day windows",
        ),
        (
            text("window(at, 0:10:00)"),
            text("window(at, 0:10:00 every 0:05:00 from 0:02:00)", null=" or null"),
            "was made with 10-minute windows; the pipeline now has 10-minute windows every 5 minutes from 2 minutes on",
        ),
        (
            "count(*) by user string, session_window struct<a> = session_window(at, '5 minutes') in UTC",
            "count(*) by user string, session_window struct<a> = session_window(at, '1 hour') in UTC",
            "was made with sessions that end after 5 minutes; the pipeline now has sessions that end after 1 hour",
        ),
        (
            text(ends=""),
            text(),
            "was made with windows that never end, without withWatermark(); the pipeline now has windows that end, by",
        ),
        (
            text(unlogged=", without changelog"),
            text(),
            "was made with no changelog, by logged=False; the pipeline now has a changelog",
        ),
        (
            text(),
            text(by="shop, n"),
            "has its rows partitioned by the message key; the pipeline now partitions them by shop, n",
        ),
        (
            "newest row of struct<a:int> by k string",
            "newest row of struct<a:int>, and of those in the 3600000 ms before by k string",
            "was made with no history; the pipeline now has a history",
        ),
        (
            "newest row of struct<a:int>, and of those in the 60000 ms before by k string",
            "newest row of struct<a:int>, and of those in the 7200000 ms before by k string",
            "was made with a history of 1 minute; the pipeline now has one of 2 hours",
        ),
        # Everything else, and two differences at once, is shown whole.
        ("sum(a) of int by k string", "max(a) of int by k string", "holds sum(a) of int by k string, but the"),
        (text(), text("window(other, 0:10:00)"), "holds count(*) by user string"),
        (text(), text("window(at, 0:10:00)", by="shop"), "holds count(*) by user string"),
        ("", "sum(a)", "holds , but the pipeline now wants sum(a)"),
    ],
)
def test_the_difference_is_named(held, wanted, words):
    assert changed_contents(held, wanted).startswith(words)
