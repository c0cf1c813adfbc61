"""Lists, sets and estimates as users ask for them: what is refused, what is warned of, and what of sessions."""

import logging
import random

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def rows_of(builder):
    return builder.stream("in", key=String("user"), value=Json("n long, s string, at timestamp"))


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        ("collect_list(n) RESPECT NULLS", "lists skip nulls"),
        ("collect_set(n) RESPECT NULLS", "sets skip nulls"),
        ("listagg(s) WITHIN GROUP (ORDER BY n)", "texts can only be ordered by themselves"),
        ("approx_count_distinct(n, 0.001)", "rsd=0.001 .*use at least 0.0086, or count_distinct"),
        ("percentile(DISTINCT n, 0.5, 2)", "a frequency cannot be combined with DISTINCT"),
        ("collect_set(array(n))", "cannot|bytes do not say which are equal"),
        ("median(at - at)", "is a percentile of interval.*cast the argument"),
        ("mode(collate(s, 'UTF8_LCASE'))", "bytes do not say which are equal"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(spark, aggregate, message):
    builder = StreamsBuilder()
    grouped = rows_of(builder).groupBy("user")

    def build():
        grouped.agg(F.expr(aggregate).alias("x")).to("out")
        return builder.build()

    with pytest.raises(TopologyException, match=f"test_collected_values.py:\\d+: .*({message})"):
        TopologyTestDriver(build(), spark=spark)


@pytest.mark.parametrize("final", [False, True], ids=["update", "append"])
def test_a_list_of_an_updating_table_is_warned_of(spark, caplog, final):
    builder = StreamsBuilder()
    rows = rows_of(builder).withWatermark("at", "1 hour").groupBy(F.window("at", "1 hour"), "user")
    table = rows.agg(F.collect_list("n").alias("all_n"), F.collect_set("n").alias("set"), name="kept")
    (table.outputMode("append") if final else table).to("out")
    with caplog.at_level(logging.WARNING), TopologyTestDriver(builder.build(), spark=spark):
        said = [record.getMessage() for record in caplog.records if "whole list" in record.getMessage()]
    assert len(said) == (not final)
    assert all("collect_list(n)" in text and "test_collected_values.py" in text and "append" in text for text in said)


@pytest.mark.long
def test_numbers_of_distinct_values_are_about_right_in_groups_and_sessions(spark):
    draw = random.Random(3)
    estimates = [
        F.approx_count_distinct("n").alias("about"),
        F.approx_count_distinct("n", 0.02).alias("closer"),
        F.expr("approx_count_distinct(s) FILTER (WHERE n > 10)").alias("texts"),
        F.count("*").alias("rows"),
    ]
    builder = StreamsBuilder()
    rows = rows_of(builder)
    rows.groupBy("user").agg(*estimates, name="kept").to("out")
    sessions = rows.withWatermark("at", "1 day").groupBy("user", F.session_window("at", "5 minutes"))
    sessions.agg(*estimates, name="sessions").to("sessions")
    seen = {}
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("in")
        for batch in range(4):
            for _ in range(300):
                user, n = draw.choice("ab"), draw.randrange(1000)
                # Minutes in two hours of which one lies between: sessions grow together batch by batch.
                minute = draw.choice([draw.randrange(0, 30), draw.randrange(45, 59)])
                row = {"n": n, "s": draw.choice("xyz"), "at": f"2026-01-01T10:{minute:02}:00Z"}
                topic.pipe_input(user, row)
                for key in ((user,), (user, minute >= 45)):
                    seen.setdefault(key, []).append(row)
            driver.process()
            driver.restart(from_changelog=batch % 2 == 0)
        kept = {(row["user"],): row for row in driver.store("kept")}
        kept |= {(row["user"], row["session_window"]["start"].minute >= 45): row for row in driver.store("sessions")}
    assert kept.keys() == seen.keys()
    for key, row in kept.items():
        count = len({one["n"] for one in seen[key]})
        assert row["rows"] == len(seen[key])
        assert abs(row["about"] - count) <= 0.2 * count
        assert abs(row["closer"] - count) <= 0.08 * count
        assert row["texts"] == 3
