"""Which columns a plan reads, whatever time it is."""

import pytest

from sparkrelay.runtime.compile.read_columns import wanted_columns

pytestmark = pytest.mark.integration


@pytest.fixture
def source(spark):
    return spark.createDataFrame([(1, 2, 3, "x")], "a int, b int, c int, d string")


def test_what_nothing_reads_is_left_out(source):
    assert wanted_columns(source.withColumn("e", source.c + 1).where("b > 1").select("a"), source) == {"a", "b"}
    assert wanted_columns(source.where("false").select("a"), source) == {"a", "b", "c", "d"}, "Spark has cut it off"


def test_an_hour_at_which_a_column_is_not_read_does_not_count(source):
    # One of both is always true, and Spark leaves the other condition out.
    for hours in ("< 12", ">= 12"):
        rows = source.where(f"hour(current_timestamp()) {hours} or b > 5").select("a")
        assert wanted_columns(rows, source) == {"a", "b"}
    for hours in ("< 0", ">= 0"):
        assert wanted_columns(source.where(f"hour(current_timestamp()) {hours}").select("a"), source) == {"a"}


def test_what_is_made_in_between_is_followed(source):
    rows = source.selectExpr("a", "c + 1 as e", "d", "hour(now()) < 25 as open")
    assert wanted_columns(rows.where("open or e > 5").select("a"), source) == {"a", "c"}
    assert wanted_columns(rows.selectExpr("explode(array(a, e)) as one", "open"), source) == {"a", "c"}


def test_a_text_that_is_read_as_a_time_counts_too(source):
    rows = source.where("cast('today' as date) > date'2020-01-01' or d = 'x'").select("a")
    assert wanted_columns(rows, source) == {"a", "d"}
