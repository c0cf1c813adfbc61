"""Tasks with a topic that only a stateless leg reads: batches of it alone leave no marker in any changelog."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def topics(make_topic):
    return {hint: make_topic(hint, 1) for hint in ("orders", "returns", "audit", "totals", "returned")}


def pipeline(topics, *, returned=False):
    builder = StreamsBuilder()
    builder.stream([topics["orders"], topics["returns"]]).to(topics["audit"])
    sums = F.sum("n").alias("n")
    orders = builder.stream(topics["orders"], key=String("user"), value=Json("n int"), name="orders")
    orders.groupBy("user").agg(sums, name="totals").to(topics["totals"], value=Json())
    if returned:
        returns = builder.stream(topics["returns"], key=String("user"), value=Json("n int"), name="returns")
        returns.groupBy("user").agg(sums, name="returned").to(topics["returned"], value=Json())
    return builder


@pytest.fixture
def run(instance, topics, tmp_path, produce, consumed, wait_until):
    """`run(state, ("orders", 1), ...)` has an instance with that state take records one by one, and stops it."""

    def work(state, *records, **options):
        with instance(pipeline(topics, **options), {"state.dir": str(tmp_path / state)}) as streams:
            streams.start()
            for topic, n in records:
                before = len(consumed(topics["audit"]))
                produce(topics[topic], [("a", {"n": n})])
                wait_until(lambda before=before: len(consumed(topics["audit"])) > before, f"no audit: {streams.status}")

    return work


def test_a_copy_follows_a_successor_that_numbers_its_batches_lower(run, topics, table, consumed):
    run("first", ("orders", 1), *[("returns", 1)] * 4)
    run("second", ("orders", 10), ("orders", 100))
    run("first", ("orders", 1000))
    assert table(topics["totals"]) == {b"a": {"user": "a", "n": 1111}}
    assert len(consumed(topics["audit"])) == 8


def test_a_store_that_is_added_on_it_begins_at_the_groups_offsets(run, topics, table, consumed):
    run("first", ("orders", 1), ("returns", 1), ("returns", 10))
    run("second", ("returns", 100))
    run("second", ("returns", 1000), returned=True)
    assert len(consumed(topics["audit"])) == 5
    assert table(topics["returned"]) == {b"a": {"user": "a", "n": 1000}}
