"""Which steps are planned anew for every micro-batch: run again, they would repeat what they found the first time."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String

pytestmark = pytest.mark.integration

NOW = ("current_timestamp()", "current_date()", "current_time()", "localtimestamp()", "now()", "unix_timestamp()")

SAME_TEXTS = ("cast('2026-01-01 18:00' as timestamp)", "to_date('2026-01-01')", "'today'", "cast('12' as int)")


@pytest.fixture
def wide(spark):
    """Rows of so many columns that Spark's text of a plan, or of a function's call, does not show the last."""
    schema = Json(", ".join(f"column{n} int" for n in range(30)))
    return StreamsBuilder().stream("wide", key=String("k"), value=schema)


def why(frame):
    return frame._rows.differs_each_time


@pytest.mark.parametrize("now", NOW)
def test_the_time_is_looked_up_anew(wide, now):
    for rows in (wide.selectExpr("*", now), wide.selectExpr(f"struct(*, {now})"), wide.where(f"{now} IS NOT NULL")):
        assert why(rows).endswith("depends on the time")


@pytest.mark.parametrize("drawn", ["rand()", "uuid()", "shuffle(array(1, 2))"])
def test_so_is_what_is_drawn(wide, drawn):
    for rows in (wide.selectExpr("*", drawn), wide.selectExpr(f"struct(*, {drawn})")):
        assert why(rows).endswith("is not deterministic")


@pytest.mark.parametrize(
    "now",
    [
        "cast('today' as date)",
        "cast(' Yesterday UTC' as timestamp)",
        "cast(concat('n', 'ow') as timestamp_ntz)",
        "to_date('tomorrow')",
        "to_timestamp('now')",
        "cast('18:00' as timestamp)",
        "date_add(date'2026-01-01', column1) = 'today'",
    ],
)
def test_so_is_a_text_that_is_read_as_a_time(wide, now):
    for rows in (wide.selectExpr("*", now), wide.selectExpr(f"struct(*, {now})"), wide.where(f"({now}) IS NOT NULL")):
        assert (why(rows) or "").endswith("depends on the time")
    assert why(wide.withColumn("now", F.lit("now").cast("timestamp"))).endswith("depends on the time")


@pytest.mark.parametrize(
    "same",
    ["current_user()", "current_database()", "current_timezone()", "column1 + 1", "date'2026-01-01'", *SAME_TEXTS],
)
def test_what_stays_as_it_is_stays(wide, same):
    assert why(wide.selectExpr("*", same)) is None
