import re
from pathlib import Path

from bench.nexmark.drains import PEERS, medians_of, ratios_of, shares_of_work, variant_of
from bench.nexmark.queries import QUERIES
from bench.systems import RELAY, STREAMS, STREAMS_EXACTLY_ONCE, STRUCTURED
from bench.tables import tables

MACHINE = {"cores": 2, "cpu": "some", "memory_gb": 25.0, "load_average": 0.1}
MACHINE |= dict.fromkeys(("sparkrelay", "spark", "spark_kafka_connector", "kafka", "python", "java", "pyarrow"), "1.0")


def line(query, system, rate=None, *, exact=True, **more):
    rates = {} if rate is None else {"warm_rps": rate, "rss_mb": 1234.0}
    return {"bench": "nexmark", "query": query, "variant": system.name, "runs": 1, "exact": exact, **rates, **more}


def test_peers_have_queries_that_there_are():
    assert all(names <= QUERIES.keys() for names in PEERS.values())
    source = (Path(__file__).parents[3] / "bench" / "kafka_streams" / "NexmarkQueries.java").read_text()
    assert PEERS[STREAMS] == set(re.findall(r'case "(q\d+)"', source))


def test_a_micro_batch_has_a_third_of_the_records_shared_among_partitions():
    assert variant_of(RELAY, 1000).batch_records == 336
    assert variant_of(STRUCTURED, 10_000_000).batch_records == 1_000_000
    assert variant_of(STREAMS, 1000) == STREAMS_EXACTLY_ONCE


def test_records_count_as_their_work_is_done():
    """Who reads all events in a first batch has what comes of them still before it."""
    batches = [{"rows": 100, "read": 100}, {"rows": 0, "read": 0}, {"rows": 0, "read": 300}]
    assert [batch["rows"] for batch in shares_of_work(batches, 100)] == [25, 75]
    assert [batch["rows"] for batch in shares_of_work([{"rows": 60}, {"rows": 40}], 100)] == [60, 40]


def test_ratios_are_those_of_warm_rates():
    peers = {STRUCTURED.name: {"warm_rps": 50}, STREAMS.name: None}
    assert ratios_of({"warm_rps": 100}, peers) == {"to_structured": 2.0, "to_streams": None}
    assert ratios_of({"exact": False}, peers) == {"to_structured": None, "to_streams": None}
    failed = {STRUCTURED.name: {"exact": False}, STREAMS.name: {"warm_rps": 400}}
    assert ratios_of({"warm_rps": 100}, failed) == {"to_structured": None, "to_streams": 0.25}


def test_of_several_runs_the_median_rate_and_the_most_memory_count():
    runs = [{"exact": True, "warm_rps": rate, "rss_mb": memory} for rate, memory in ((1, 5), (3, 9), (2, 7))]
    assert medians_of(runs) == {"exact": True, "warm_rps": 2, "rss_mb": 9}
    failed = medians_of([*runs, {"exact": False, "failed": "why"}])
    assert failed == {"exact": False, "warm_rps": 2, "rss_mb": 9, "failed": "why"}


def test_the_table_has_a_row_for_each_query_and_geometric_means():
    shown = tables(
        MACHINE,
        [
            line("q3", RELAY, 80_000, to_structured=4.0, to_streams=2.0),
            line("q3", STRUCTURED, 20_000),
            line("q3", STREAMS, 40_000),
            line("q4", RELAY, 30_000, to_structured=None, to_streams=8.0),
            line("q4", STREAMS, 3750, exact=False),
            line("q6", RELAY, exact=False),
        ],
    )
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in shown.splitlines() if row.startswith("│")]
    assert rows == [
        ["q3", "80.0", "1,234", "20.0", "4.0", "1,234", "40.0", "2.0", "1,234", "yes"],
        ["q4", "30.0", "1,234", "", "", "", "3.8", "8.0", "1,234", "no: Kafka Streams"],
        ["q6", "failed", "", "", "", "", "", "", "", "no: SparkRelay"],
        ["geometric mean", "", "", "", "4.0", "", "", "4.0", "", ""],
    ]
