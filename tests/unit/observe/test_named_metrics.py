"""Kafka Streams' names of what an instance has counted."""

from sparkrelay.observe.counters import Counters
from sparkrelay.observe.named_metrics import named_metrics


def test_what_was_counted_has_kafka_streams_names(busy):
    metrics = named_metrics(busy)
    assert metrics["process-total"] == 99
    assert metrics["commit-total"] == 1
    assert metrics["commit-latency-avg"] == 20.0
    assert metrics["process-latency-avg"] == 1000 * (0.2 + 99.0) / 2
    assert metrics["restore-total"] == 1234
    assert (metrics["rebalance-total"], metrics["rebalance-latency-avg"]) == (1, 1500.0)
    assert metrics["records-lag"] >= metrics["records-lag-max"] > 0
    assert metrics["active-tasks"] > 0
    assert metrics["standby-tasks"] > 0


def test_late_rows_are_dropped_records_as_in_kafka_streams(snapshot):
    counters = Counters()
    counted = {"records": {}, "rows_written": 0, "reopened": 0, "failed": False}
    for late in ({"windows": 3, "joined": 1}, {"windows": 10}):
        counters.batch(at=0.0, seconds=0.1, commit_seconds=0.1, skipped={"orders": 100}, late=late, **counted)
    assert named_metrics(snapshot(counters=counters))["dropped-records-total"] == 214


def test_an_instance_that_has_done_nothing_has_no_averages(snapshot):
    metrics = dict(named_metrics(snapshot()))
    assert metrics.pop("alive-stream-threads") == 1
    assert set(metrics.values()) == {0}
