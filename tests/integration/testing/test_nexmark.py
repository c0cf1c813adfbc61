"""Nexmark's queries on the test driver, beside Spark SQL over the same events: `python -m bench.nexmark --check`."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

# bench is not part of the package, and importlib mode adds no folders.
sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.nexmark.check import check
from bench.nexmark.events import generated, parsed
from bench.nexmark.queries import QUERIES
from bench.nexmark.query import query
from tests.marks import first_of, marked

from sparkrelay.errors import TopologyException
from sparkrelay.records.partition import murmur2_partitions

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def events():
    """2,000 events of ours, of a hundred seconds, as they are read from a file."""
    return list(parsed(json.dumps(event) for event in generated(2000, seed=7, events_per_second=20)))


@pytest.fixture(scope="module")
def few(events):
    """Few of them: of ten seconds, so that some windows end."""
    return events[:400]


@pytest.mark.long
def test_every_answer_of_data_frames_is_sqls(spark, few):
    verdicts = list(check(spark, few, QUERIES.values(), seed=3, together=True))
    assert {one.query: one.text for one in verdicts if not one.exact} == {}
    assert {one.query for one in verdicts} == QUERIES.keys()


@pytest.mark.long
def test_every_answer_of_sql_text_is_sqls(spark, few):
    verdicts = list(check(spark, few, QUERIES.values(), seed=4, sql=True, together=True))
    assert {one.query: one.text for one in verdicts if not one.exact} == {}
    assert {one.query for one in verdicts if one.rows} >= QUERIES.keys() - {"q2"}


#: A calculation, final windows joined with rows, groups, the first row of each group of joined rows, and of those.
@pytest.mark.parametrize("name", first_of(["q7", "q14", "q17", "q9", "q6"]))
def test_an_answer_is_sqls(spark, events, name):
    (verdict,) = check(spark, events, [QUERIES[name]], seed=len(name))
    assert (verdict.text, verdict.rows >= 10) == ("exact", True)


@pytest.mark.parametrize("name", marked(QUERIES, {"q3"}))
def test_an_answer_of_sql_text_is_sqls(spark, events, name):
    (verdict,) = check(spark, events, [QUERIES[name]], seed=len(name), sql=True)
    assert (verdict.text, verdict.rows > 0) == ("exact", True)


@pytest.mark.long
def test_a_partition_without_bids_has_none_of_its_hot_items_left_out(spark):
    """One auction has all bids for half a minute, then one of the other partition, as with Beam's generator."""
    ids = range(1000, 1100)
    partitions = murmur2_partitions(pa.array([id_.to_bytes(8, "big") for id_ in ids]), 2)
    hot = [ids[int((partitions == number).argmax())] for number in range(2)]
    bids = (
        {"type": "bid", "at": at, "auction": hot[at // 30_000 % 2], "bidder": 1, "price": 1, "dateTime": at}
        for at in range(0, 120_000, 100)
    )
    (verdict,) = check(spark, list(parsed(map(json.dumps, bids))), [QUERIES["q5"]], seed=1)
    assert (verdict.text, verdict.rows) == ("exact", 64)


def test_a_wrong_answer_and_a_pipeline_that_cannot_be_are_shown(spark, events):
    @query(truth="SELECT auction, price + if(auction = 1000, 1, 0) AS price FROM bid WHERE auction < 1002")
    def wrong(sources):
        """Cents more."""
        return sources.bids().where("auction < 1002").select("auction", "price")

    @query(truth="SELECT 1")
    def impossible(sources):
        """Sort an endless stream."""
        raise TopologyException("there is no\n  end")

    found, none = check(spark, events, [wrong, impossible])
    assert found.text.startswith("differs: [auction=1000, price=")
    assert not found.exact
    assert none.text == "cannot be written yet: there is no end"
