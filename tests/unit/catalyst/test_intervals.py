import pytest
from pyspark.errors import PySparkException

from sparkrelay.catalyst.intervals import interval_us, literal_us

HOUR = 3_600_000_000


@pytest.fixture(autouse=True)
def _session(spark):
    pass


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1 hour", HOUR),
        ("interval 90 minutes", 90 * HOUR // 60),
        ("1 day 2 hours", 26 * HOUR),
        ("10 microseconds", 10),
        ("0 seconds", 0),
        ("1 month", 31 * 24 * HOUR),
    ],
)
def test_an_interval_in_spark_s_syntax_has_a_length(text, us):
    assert interval_us(text) == us


@pytest.mark.parametrize("text", ["soon", "1 s", ""])
def test_other_texts_are_spark_s_to_refuse(text):
    with pytest.raises(PySparkException):
        interval_us(text)


def test_less_than_no_time_is_refused():
    with pytest.raises(ValueError, match="'-1 hour' is less than no time; give it without a minus"):
        interval_us("-1 hour")


@pytest.mark.parametrize(
    ("text", "us"),
    [("interval 1 hour", HOUR), ("make_interval(0, 0, 0, 1, 2)", 26 * HOUR), ("make_interval(0, 1)", None)],
)
def test_a_literal_has_a_length_unless_months_are_in_it(spark, text, us):
    value = spark.range(1).selectExpr(text)._jdf.queryExecution().analyzed().projectList().apply(0).child()
    assert literal_us(value.eval(None)) == us
