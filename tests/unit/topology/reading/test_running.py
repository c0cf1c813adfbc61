"""Running aggregates, as they are written down."""

import pytest
from pyspark.sql import Window, functions as F

from sparkrelay import Json, String
from sparkrelay.errors import TopologyException
from sparkrelay.operators.running.step import Frame

GROUPED = "(SELECT account, count(*) AS n FROM payments GROUP BY account)"


@pytest.fixture
def payments(builder):
    rows = builder.stream("payments", key=String("id"), value=Json("account string, amount long, at timestamp"))
    rows.withWatermark("at", "10 seconds").createOrReplaceTempView("payments")
    return rows


def step(builder):
    (found,) = [leg.emitting for leg in builder.build().legs if leg.emitting is not None]
    return found


def over(frame, function="sum(amount)"):
    return f"SELECT id, {function} OVER (PARTITION BY account ORDER BY {frame}) AS r FROM payments"


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        ("at ROWS UNBOUNDED PRECEDING", Frame(None, 0)),
        ("at ROWS BETWEEN 9 PRECEDING AND 1 PRECEDING", Frame(-9, -1)),
        ("at ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING", Frame(0, 2)),
        ("at", Frame(reach_us=-1)),
        ("at RANGE BETWEEN INTERVAL 2 SECONDS PRECEDING AND CURRENT ROW", Frame(reach_us=2_000_000)),
        ("CAST(at AS long) RANGE BETWEEN 3 PRECEDING AND CURRENT ROW", Frame(reach_us=3_000_000)),
        ("unix_micros(at) RANGE BETWEEN 5 PRECEDING AND CURRENT ROW", Frame(reach_us=5)),
    ],
)
def test_frames_are_of_rows_or_of_times(builder, payments, frame, wanted):
    builder.sql(over(frame)).to("out")
    found = step(builder)
    assert [call.frame for call in found.calls] == [wanted]
    assert (found.columns, found.watermark.delay_ms, found.ahead) == (("account",), 10_000, max(0, wanted.end))


LEAD = "SELECT *, lead(amount) OVER (PARTITION BY account ORDER BY at) AS n FROM payments"
LAG = "SELECT *, lag(amount) OVER (PARTITION BY account ORDER BY at) AS n FROM payments"


def steps(builder):
    return [leg.emitting for leg in builder.build().legs if leg.emitting is not None]


@pytest.mark.parametrize(
    ("first", "over", "waits"),
    [
        (LEAD, "account ORDER BY at ROWS UNBOUNDED PRECEDING", False),
        (LEAD, "id, account ORDER BY at ROWS UNBOUNDED PRECEDING", False),
        (LAG, "account ORDER BY at ROWS UNBOUNDED PRECEDING", False),
        (LAG, "account ORDER BY at", True),
        (LAG, "id ORDER BY at ROWS UNBOUNDED PRECEDING", True),
    ],
)
def test_rows_that_come_in_order_do_not_wait_again(builder, payments, first, over, waits):
    builder.sql(f"SELECT id, sum(n) OVER (PARTITION BY {over}) AS r FROM ({first})").to("out")
    one, other = steps(builder)
    assert (one.watermark is None, other.watermark is None, other.time) == (False, not waits, "at")


@pytest.mark.parametrize("over", ["account ORDER BY at", "id ORDER BY at ROWS UNBOUNDED PRECEDING"])
def test_rows_that_waited_for_successors_have_no_watermark(builder, payments, over):
    with pytest.raises(TopologyException, match="its rows come from lead.*withWatermark"):
        builder.sql(f"SELECT id, sum(n) OVER (PARTITION BY {over}) AS r FROM ({LEAD})")


@pytest.mark.parametrize("over", ["account ORDER BY at", "id ORDER BY at ROWS UNBOUNDED PRECEDING"])
def test_how_late_they_are_can_be_said(builder, payments, over):
    late = builder.sql(LEAD).withWatermark("at", "1 hour")
    builder.sql(f"SELECT id, sum(n) OVER (PARTITION BY {over}) AS r FROM {{late}}", late=late).to("out")
    assert [one.watermark.delay_ms for one in steps(builder)] == [10_000, 3_600_000]


def test_windows_behind_them_do_not_end_by_the_watermark_before(builder, payments):
    builder.sql(LEAD).groupBy(F.window("at", "1 minute")).count().outputMode("append").to("out")
    with pytest.raises(TopologyException, match="withWatermark"):
        builder.build()


def test_functions_of_one_window_are_one_step(builder, payments):
    builder.sql(
        "SELECT lag(amount, 2) OVER w AS a, lead(amount) OVER w AS b, row_number() OVER w AS c FROM payments "
        "WINDOW w AS (PARTITION BY account ORDER BY at)"
    ).to("out")
    assert [(call.name, call.frame.start, call.frame.end) for call in step(builder).calls] == [
        ("a", -2, -2),
        ("b", 1, 1),
        ("c", None, 0),
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (over("amount"), "rows are ordered by their event time alone"),
        (over("at DESC"), "rows are ordered by their event time alone"),
        (over("at, id"), "rows are ordered by their event time alone"),
        (over("at ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"), "a frame of rows ends at the current row"),
        (over("at ROWS BETWEEN 2000 PRECEDING AND CURRENT ROW"), "a frame of rows ends at the current row"),
        (over("at RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING"), "a frame of rows ends at the current row"),
        (over("at", "ntile(4)"), "of window functions there are"),
        (over("at", "collect_list(amount)"), "of window functions there are"),
        (
            "SELECT sum(amount) OVER (ORDER BY at) AS r FROM payments",
            r"the window needs partitionBy\(...\) for the key",
        ),
        (f"SELECT sum(n) OVER (PARTITION BY n ORDER BY n) AS r FROM {GROUPED}", "running aggregates are of a stream's"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(builder, payments, query, message):
    with pytest.raises(TopologyException, match=rf"test_running.py:\d+: .*{message}"):
        builder.sql(query).to("out")


def test_a_time_without_a_watermark_is_warned_of(builder, caplog):
    orders = builder.stream("times", key=String("user"), value=Json("n long, at timestamp"))
    orders.withColumn("before", F.lag("n").over(Window.partitionBy("user").orderBy("at"))).to("out")
    assert "without withWatermark() rows are taken in the order of their arrival, not of at" in caplog.text
