"""Steps of ours that follow one another are one Python stage: their rows do not go through the JVM."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def stages(driver):
    """Return how many stages of Python each leg has, by the topic or store that it ends with; both ways the same."""
    counts = {}
    for plan in driver._plans._plans.values():
        resident = driver._plans._compiler.build_resident(plan)
        for one in (plan, resident):
            text = one.reports._jdf.queryExecution().executedPlan().toString()
            leg = one.leg
            name = leg.sink.topic if leg.sink is not None else leg.store
            counts.setdefault(name, set()).add(text.count("MapInArrow"))
    return counts


@pytest.fixture(autouse=True)
def both_ways(caplog):
    """Resident jobs begin, or each would be waited for in vain, and micro-batches be Spark jobs of their own."""
    yield
    assert "jobs of their own" not in caplog.text


def users_and_clicks(builder):
    users = builder.table("users", key=String("user"), value=Json("name string, country string"), name="users")
    clicks = builder.stream("clicks", key=String("user"), value=Json("page string, n long"))
    return users, clicks


def pipe(driver):
    driver.create_input_topic("users").pipe_input("ada", {"name": "Ada", "country": "UK"})
    clicks = driver.create_input_topic("clicks")
    for n, page in enumerate(["a", "b", "a"]):
        clicks.pipe_input("ada", {"page": page, "n": n})


def test_a_lookup_of_which_columns_are_taken(spark):
    builder = StreamsBuilder()
    users, clicks = users_and_clicks(builder)
    joined = clicks.join(users, "user")
    joined.select("country", F.col("page").alias("seen.on"), "n").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        assert stages(driver) == {"users": {1}, "out": {1}}
        pipe(driver)
        assert driver.create_output_topic("out").read_rows() == [
            {"country": "UK", "seen.on": page, "n": n} for n, page in enumerate(["a", "b", "a"])
        ]


def test_behind_a_repartition_topic(spark):
    builder = StreamsBuilder()
    _, clicks = users_and_clicks(builder)
    counts = clicks.groupBy("page").agg(F.count("*").alias("times"), F.sum("n").alias("total"), name="pages")
    counts.to_stream().select("page", "total").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        assert stages(driver) == {"users": {1}, "pages-repartition": {1}, "out": {1}}
        pipe(driver)
        assert driver.create_output_topic("out").read_rows() == [
            {"page": "a", "total": 0}, {"page": "b", "total": 1}, {"page": "a", "total": 2},
        ]  # fmt: skip


def test_what_catalyst_does_stays_with_catalyst(spark):
    builder = StreamsBuilder()
    users, clicks = users_and_clicks(builder)
    clicks.where("n < 2").join(users, "user").select(F.upper("name").alias("name"), "n").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        assert stages(driver) == {"users": {1}, "out": {3}}
        pipe(driver)
        assert driver.create_output_topic("out").read_rows() == [{"name": "ADA", "n": 0}, {"name": "ADA", "n": 1}]


def test_a_column_that_is_always_null(spark):
    builder = StreamsBuilder()
    _, clicks = users_and_clicks(builder)
    clicks.select("page", F.lit(None).cast("string").alias("nothing")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        assert stages(driver)["out"] == {1}
        pipe(driver)
        assert driver.create_output_topic("out").read_rows() == [{"page": page} for page in ["a", "b", "a"]]


def test_one_column_under_two_names(spark):
    builder = StreamsBuilder()
    _, clicks = users_and_clicks(builder)
    clicks.select("page", F.col("page").alias("again")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        assert stages(driver)["out"] == {1}
        pipe(driver)
        assert driver.create_output_topic("out").read_rows()[0] == {"page": "a", "again": "a"}
