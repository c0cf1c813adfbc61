"""Aggregates that cannot be kept are refused when a pipeline is built."""

import pytest

from sparkrelay import Json, String
from sparkrelay.errors import TopologyException


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT town, any_value(age) AS m FROM people GROUP BY town",
            r"py:\d+: any_value\(people.age\) is not supported for the rows of a",
        ),
        (
            "SELECT town, max_by(a, a) AS m FROM (SELECT town, age + 1 AS a FROM people) GROUP BY town",
            r"py:\d+: max_by\(a, a\) is not",
        ),
        ("SELECT town, first(age) + 1 AS m FROM people GROUP BY ROLLUP (town, age)", r"py:\d+: first.*to_stream"),
    ],
)
def test_of_a_table_those_that_a_row_cannot_be_taken_out_of(builder, query, message):
    builder.table("people", key=String("person"), value=Json("town string, age int"))
    builder.sql(query).to("out")
    with pytest.raises(TopologyException, match=rf"test_aggregate_checks.{message}"):
        builder.build()


@pytest.mark.parametrize("aggregate", ["count(DISTINCT age)", "collect_list(age)"])
def test_of_sessions_those_that_do_not_merge(builder, aggregate):
    people = builder.stream("people", key=String("person"), value=Json("at timestamp, age int"))
    people.withWatermark("at", "1 minute").createOrReplaceTempView("people")
    gaps = "GROUP BY person, session_window(at, '5 minutes')"
    builder.sql(f"SELECT person, {aggregate} AS a FROM people {gaps}").to("out")
    with pytest.raises(
        TopologyException, match=r"test_aggregate_checks.py:\d+: .*is not supported for session windows"
    ):
        builder.build()
