"""Topics that each row names."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.errors import StreamsException, TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def test_each_row_goes_to_its_topic(spark):
    builder = StreamsBuilder(spark)
    orders = builder.stream("orders", key=Long("id"), value=Json("country string, n long"))
    by_country = F.concat(F.lit("orders-"), F.lower("country"))
    orders.where("n > 0").to(by_country, topics=["orders-at", "orders-no"], key="id", value=Json(without_key=True))
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        rows = [(1, {"country": "AT", "n": 1}), (2, {"country": "NO", "n": 2}), (3, {"country": "XX", "n": 0})]
        driver.create_input_topic("orders").pipe_rows([*rows, (4, {"country": "at", "n": 4})])
        found = {topic: driver.create_output_topic(topic).read_records() for topic in ("orders-at", "orders-no")}
        assert [(one.key, one.value["n"]) for one in found["orders-at"]] == [(1, 1), (4, 4)]
        assert [(one.key, one.value["n"]) for one in found["orders-no"]] == [(2, 2)]


def test_a_table_s_row_leaves_the_topic_that_it_is_not_in_any_more(spark):
    builder = StreamsBuilder(spark)
    users = builder.table("users", key=String("user"), value=Json("tier string"))
    users.to(F.col("tier"), topics=["gold", "blue"])
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("users").pipe_rows([("ada", {"tier": "blue"}), ("ada", {"tier": "gold"})])
        found = {topic: driver.create_output_topic(topic).read_records() for topic in ("gold", "blue")}
        assert [(one.key, one.value) for one in found["blue"]] == [
            (b"ada", {"user": "ada", "tier": "blue"}),
            (b"ada", None),
        ]
        assert [(one.key, one.value) for one in found["gold"]] == [(b"ada", {"user": "ada", "tier": "gold"})]


@pytest.mark.parametrize(("country", "named"), [("se", "se"), (None, "null")])
def test_a_row_without_a_topic_is_not_lost(spark, country, named):
    builder = StreamsBuilder(spark)
    orders = builder.stream("orders", key=Long("id"), value=Json("country string"))
    orders.to(F.col("country"), topics=["at", "no"])
    with TopologyTestDriver(builder.build(), spark=spark) as driver:  # noqa: SIM117 - it must be closed
        with pytest.raises(StreamsException, match=f"a row is for topic {named}, and topics= has at, no"):
            driver.create_input_topic("orders").pipe_input(1, {"country": country})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((F.col, None), r'takes topics=\["a", "b"\], all topics that it may name, not None'),
        ((F.col, "at"), "not 'at'"),
        ((F.col, []), r"not \[\]"),
        ((F.col, ["at", "at"]), "has 'at' twice"),
        ((F.col, ["at", "no no"]), "'no no' cannot be a topic"),
        ((str, ["at"]), r"topics= of to\('country'\) is for a topic by row"),
    ],
)
def test_topics_that_are_refused(spark, arguments, words):
    column, topics = arguments
    orders = StreamsBuilder(spark).stream("orders", key=Long("id"), value=Json("country string"))
    with pytest.raises(TopologyException, match=f"test_topic_by_row.py:.*{words}"):
        orders.to(column("country"), topics=topics)
