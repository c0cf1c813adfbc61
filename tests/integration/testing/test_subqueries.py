"""Subqueries over streams and tables, each held against Spark batch over the same rows."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Long, StreamsBuilder
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

#: Topic -> its rows at the end: `t` loses a row, and `u` gains one after it was looked for.
CHANGES = [
    ("u", 1, 5),
    ("t", 1, 1),
    ("t", 2, 5),
    ("u", 2, 5),
    ("t", 3, 9),
    ("t", 4, None),
    ("u", 1, None),
    ("t", 2, None),
    ("u", 3, 9),
    ("u", 5, 3),
    ("t", 1, 4),
    ("t", 5, 3),
]
TABLES = [
    "SELECT * FROM t WHERE k IN (SELECT k FROM u)",
    "SELECT * FROM t WHERE k NOT IN (SELECT k FROM u)",
    "SELECT * FROM t WHERE n IN (SELECT k FROM u)",
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.n >= t.n)",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.k = t.k AND u.n = 9)",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "SELECT * FROM t WHERE n > 3 AND NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.n)",
    "SELECT * FROM t WHERE k IN (SELECT k FROM u) OR n > 3",
    "SELECT k, if(EXISTS (SELECT 1 FROM u WHERE u.k = t.k), n, -n) AS n FROM t",
    "SELECT k, (SELECT n FROM u WHERE u.k = t.k) AS n FROM t",
    "WITH few AS (SELECT * FROM u WHERE n < 9) SELECT * FROM t WHERE k IN (SELECT k FROM few)",
]


def views(spark, table):
    last = {key: n for name, key, n in CHANGES if name == table}
    rows = [(key, n) for key, n in last.items() if n is not None]
    spark.createDataFrame(rows, "k long, n long").createOrReplaceTempView(table)


def piped(driver, changes):
    topics = {}
    for name, key, n in changes:
        topic = topics.get(name) or driver.create_input_topic(name)
        topics[name] = topic
        topic.pipe_input(key, None if n is None else {"n": n})


@pytest.mark.parametrize("query", TABLES)
def test_a_subquery_of_a_table(spark, query):
    builder = StreamsBuilder(spark)
    for name in "tu":
        builder.table(name, key=Long("k"), value=Json("n long"), name=name)
        views(spark, name)
    builder.sql(query).to("out", key=Long("k"), value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        for first in range(0, len(CHANGES), 4):
            piped(driver, CHANGES[first : first + 4])
            driver.process()
            driver.restart(from_changelog=True)
        found = {}
        for record in driver.create_output_topic("out").read_records():
            found[record.key] = record.value
    assert {key: row.get("n") for key, row in found.items() if row is not None} == {
        row.k: row.n for row in spark.sql(query).collect()
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT * FROM s WHERE k IN (SELECT k FROM t)", [1, 2]),
        ("SELECT * FROM s WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.k = s.k)", [3, 0]),
        ("SELECT * FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.k = s.k AND t.n > s.n)", [2]),
        ("SELECT * FROM s WHERE n > 3 OR k IN (SELECT k FROM t)", [1, 2, 0]),
        ("SELECT (SELECT n FROM t WHERE t.k = s.k) AS k FROM s", [1, 5, 0, 0]),
        ("SELECT * FROM s WHERE k IN (SELECT k FROM given)", [3]),
        ("SELECT * FROM s WHERE k NOT IN (SELECT k FROM given)", [1, 2]),
        ("SELECT * FROM s WHERE n > (SELECT min(k) FROM given)", [0]),
    ],
)
def test_a_subquery_of_a_stream(spark, query, found):
    """Of a table: as it is when the row comes; a deletion, or a row that comes later, changes nothing."""
    spark.createDataFrame([(3,), (7,)], "k long").createOrReplaceTempView("given")
    builder = StreamsBuilder(spark)
    builder.stream("s", key=Long("k"), value=Json("n long"), name="s")
    if " t " in query or " t)" in query:
        builder.table("t", key=Long("k"), value=Json("n long"), name="t")
    builder.sql(query).selectExpr("coalesce(k, 0) AS k").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        stream = driver.create_input_topic("s")
        if " t " in query or " t)" in query:
            piped(driver, [("t", 1, 1), ("t", 2, 5)])
        for key, n in ((1, 1), (2, 2), (3, 3), (None, 4)):
            stream.pipe_input(key, {"n": n})
        assert [row["k"] for row in driver.create_output_topic("out").read_rows()] == found


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT *, (SELECT max(n) FROM s) AS m FROM s", "Streaming query is not allowed in subquery|made of 's'"),
        ("SELECT * FROM t WHERE n > (SELECT n FROM t)", "or a total of all rows of a table; write others as joins"),
        ("SELECT * FROM s WHERE k NOT IN (SELECT k FROM t)", "write NOT EXISTS"),
        (
            "SELECT * FROM t WHERE k IN (SELECT k FROM s)",
            "Streaming query is not allowed in subquery expressions.*LEFT SEMI JOIN",
        ),
    ],
)
def test_subqueries_that_are_refused(spark, query, message):
    builder = StreamsBuilder(spark)
    builder.stream("s", key=Long("k"), value=Json("n long"), name="s")
    builder.table("t", key=Long("k"), value=Json("n long"), name="t")
    with pytest.raises(TopologyException, match=message) as caught:
        builder.sql(query)
    assert "test_subqueries.py" in str(caught.value)


def test_a_subquery_that_is_written_with_columns(spark):
    builder = StreamsBuilder(spark)
    stream = builder.stream("s", key=Long("k"), value=Json("n long")).alias("s")
    table = builder.table("t", key=Long("k"), value=Json("n long")).alias("t")
    known = table.where(F.col("t.k") == F.col("s.k").outer()).exists()
    # Behind another subquery, too.
    stream.where("n > (SELECT 1)").where(known).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        piped(driver, [("t", 2, 5)])
        for key in (1, 2):
            driver.create_input_topic("s").pipe_input(key, {"n": 7})
        assert [row["k"] for row in driver.create_output_topic("out").read_rows()] == [2]
