"""Tasks that move between hosts, each with a state of its own, on one log."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import IncompatibleTopologyException

pytestmark = pytest.mark.integration


def pipeline(*, returned=False):
    """Orders are summed. Returns are only copied: micro-batches of them alone leave no marker in any changelog."""
    builder = StreamsBuilder()
    builder.stream(["orders", "returns"]).to("audit")
    sums = F.sum("n").alias("n")
    orders = builder.stream("orders", key=String("user"), value=Json("n int"), name="orders")
    orders.groupBy("user").agg(sums, name="totals").to("totals", value=Json())
    if returned:
        returns = builder.stream("returns", key=String("user"), value=Json("n int"), name="returns")
        returns.groupBy("user").agg(sums, name="returned").to("returned", value=Json())
    return builder


@pytest.fixture
def run(application):
    """`run(state, ("orders", 1), ...)` has an instance with that state take records one by one; it returns all rows."""

    def work(state, *records, **options):
        with application.running(pipeline(**options), state=state) as driver:
            for topic, n in records:
                driver.create_input_topic(topic, key=String(), value=Json()).pipe_input("a", {"n": n})
            outputs = ("audit", "totals", *(["returned"] if options else []))
            return {name: driver.create_output_topic(name).read_rows() for name in outputs}

    return work


def test_a_copy_follows_a_successor_that_numbers_its_batches_lower(run):
    run("first", ("orders", 1), *[("returns", 1)] * 4)
    run("second", ("orders", 10), ("orders", 100))
    found = run("first", ("orders", 1000))
    assert found["totals"][-1] == {"user": "a", "n": 1111}
    assert len(found["audit"]) == 8


def test_a_store_that_is_added_later_begins_at_the_groups_offsets(run):
    run("first", ("orders", 1), ("returns", 1), ("returns", 10))
    run("second", ("returns", 100))
    found = run("second", ("returns", 1000), returned=True)
    assert len(found["audit"]) == 5
    assert found["returned"] == [{"user": "a", "n": 1000}]


def counting(*, logged):
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=Json("n int"))
    orders.groupBy("user").count(name="counts", logged=logged).to("counts", value=Json())
    return builder


def test_a_store_that_gets_a_changelog_is_refused(application):
    with application.running(counting(logged=False)) as driver:
        driver.create_input_topic("orders").pipe_input("a", {"n": 1})
        assert driver.create_output_topic("counts").read_rows() == [{"user": "a", "count": 1}]
    # An instance that took it over would know nothing of what was counted before.
    words = "was made with no changelog, by logged=False; the pipeline now has a changelog"
    with application.running(counting(logged=True)) as driver:
        orders = driver.create_input_topic("orders")
        with pytest.raises(IncompatibleTopologyException, match=words):
            orders.pipe_input("a", {"n": 1})
