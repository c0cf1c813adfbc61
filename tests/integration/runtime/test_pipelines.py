"""Whole pipelines on a real broker, against plain Python."""

import json
from collections import defaultdict
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000 // (10 * MINUTE_MS) * (10 * MINUTE_MS)


def orders(count):
    return [
        {"user": f"u{i % 7}", "shop": f"s{i % 5}", "amount": i % 13 - 3, "at": START_MS + i * 20_000}
        for i in range(count)
    ]


def order_rows(rows):
    return [
        {
            "key": row["user"],
            "value": {"shop": row["shop"], "amount": row["amount"]},
            "timestamp": row["at"],
        }
        for row in rows
    ]


def window_of(ms):
    start = ms // (10 * MINUTE_MS) * (10 * MINUTE_MS)
    return start, start + 10 * MINUTE_MS


def test_rows_pass_with_keys_headers_timestamps_and_tombstones(instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 2), make_topic("out", 2)
    rows = [
        {"key": "a", "value": "1", "timestamp": START_MS + 1, "headers": [("trace", b"\x00\x01"), ("empty", None)]},
        {"key": "b", "value": None, "timestamp": START_MS + 2},
        {"key": None, "value": "no key", "timestamp": START_MS + 3, "partition": 1},
        {"key": "a", "value": "", "timestamp": START_MS + 4, "headers": [("trace", b"2"), ("trace", b"3")]},
        {"key": "dropped", "value": "x", "timestamp": START_MS + 5},
    ]
    produce(source, rows)
    builder = StreamsBuilder()
    builder.stream(source).where("key is null or key != cast('dropped' as binary)").to(sink)
    streams = instance(builder)
    streams.start()
    wait_until(lambda: len(consumed(sink)) >= 4, f"not all rows passed: {streams.status}")
    found = sorted((m.timestamp()[1], m.key(), m.value(), m.headers() or []) for m in consumed(sink, full=True))
    expected = sorted(
        (
            row["timestamp"],
            row["key"].encode() if row["key"] is not None else None,
            row["value"].encode() if row["value"] is not None else None,
            row.get("headers", []),
        )
        for row in rows[:4]
    )
    assert found == expected
    by_key = {m.key(): m.partition() for m in consumed(source, full=True) if m.key() in {b"a", b"b"}}
    assert all(m.partition() == by_key[m.key()] for m in consumed(sink, full=True) if m.key() in by_key)


@pytest.mark.long
def test_legs_that_write_one_topic_lose_nothing_of_each_other(instance, make_topic, produce, consumed, wait_until):
    """They take turns under one producer id; beside the second of three, another leg is at its second topic."""
    source, alerts, metrics = (make_topic(hint, 1) for hint in ("in", "alerts", "metrics"))
    builder = StreamsBuilder()
    stream = builder.stream(source, value=Json("n int"))
    for number in range(3):
        stream.select("n", F.lit(number).alias("alert")).to(alerts, value=Json())
        if number < 2:
            stream.select("n", F.lit(number).alias("metric")).to(metrics, value=Json())
    streams = instance(builder)
    streams.start()
    for n in range(3):
        produce(source, [{"value": {"n": n}}])
        wait_until(lambda n=n: len(consumed(metrics)) >= 2 * (n + 1), f"batch {n} is not in: {streams.status}")
    rows = [json.loads(message.value()) for message in consumed(alerts, full=True)]
    assert sorted((row["n"], row["alert"]) for row in rows) == [(n, alert) for n in range(3) for alert in range(3)]


@pytest.mark.long
def test_aggregates_with_windows_beside_a_repartition(instance, make_topic, produce, wait_for_table, consumed):
    """The proof of aggregates on a real broker; tests/integration/testing/test_pipelines.py has other pipelines."""
    source, windows, shops = make_topic("orders", 3), make_topic("windows", 2), make_topic("shops", 3)
    rows = orders(300)
    produce(source, order_rows(rows))
    # Neither a record without a value nor one without its grouping key belongs to any group.
    produce(source, [{"key": "u1", "value": None}, {"key": None, "value": {"shop": "s1", "amount": 5}}])
    produce(source, [{"key": "u1", "value": {"shop": None, "amount": 100}, "timestamp": rows[0]["at"]}])

    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string, amount int"))
    stream.withColumn("at", F.col("kafka.timestamp")).groupBy("user", F.window("at", "10 minutes")).agg(
        F.count("*").alias("n"),
        F.sum("amount").alias("total"),
        F.avg(F.col("amount") * 2).alias("mean"),
        F.min("amount").alias("least"),
        F.max("amount").alias("most"),
    ).select("user", F.col("window.start").alias("start"), "n", "total", "mean", "least", "most").to(
        windows, key=String("user")
    )
    stream.groupBy("shop").agg(F.count("*").alias("n"), F.max("amount").alias("most")).to(shops)
    streams = instance(builder, {"max.batch.records": 40})
    streams.start()

    by_shop = defaultdict(list)
    by_window = defaultdict(list)
    for row in rows:
        by_shop[row["shop"]].append(row["amount"])
        by_window[row["user"], window_of(row["at"])[0]].append(row["amount"])
    by_window["u1", window_of(rows[0]["at"])[0]].append(100)
    by_shop["s1"].append(5)
    expected = {s.encode(): {"shop": s, "n": len(a), "most": max(a)} for s, a in by_shop.items()}
    wait_for_table(shops, expected, streams)

    found = {}
    for _, _, _, value in consumed(windows):
        row = json.loads(value)
        start = datetime.fromisoformat(row["start"]).astimezone(UTC)
        found[row["user"], int(start.timestamp() * 1000)] = row
    assert found.keys() == by_window.keys()
    progress = streams.recentProgress
    assert sum(batch["numInputRows"] for batch in progress) >= len(rows)
    assert json.loads(json.dumps(progress)) == progress
    assert streams.lastProgress.keys() == progress[-1].keys()
    for group, amounts in by_window.items():
        row = found[group]
        assert (row["n"], row["total"]) == (len(amounts), sum(amounts)), group
        assert row["mean"] == pytest.approx(2 * sum(amounts) / len(amounts))
        assert (row["least"], row["most"]) == (min(amounts), max(amounts))


def test_what_comes_before_the_first_batch_is_not_lost_with_latest(instance, make_topic, produce, consumed, wait_until):
    """Where a task first started is where every later owner goes on, though no batch has committed it to the group."""
    source, sink = make_topic("orders", 2), make_topic("out", 2)
    produce(source, [("a", "old"), ("b", "old")])

    def started():
        builder = StreamsBuilder()
        builder.stream(source).to(sink)
        streams = instance(builder, {"auto.offset.reset": "latest"})
        streams.start()
        wait_until(lambda: streams.state == "RUNNING" or streams.exception(), "it does not run")
        assert streams.exception() is None
        return streams

    assert started().stop(LONG)
    produce(source, [("a", "new"), ("b", "new"), ("c", "new")])
    streams = started()
    wait_until(lambda: len(consumed(sink)) >= 3 or streams.exception(), "records are missing")
    assert sorted((key, value) for _, _, key, value in consumed(sink)) == [(k, b"new") for k in (b"a", b"b", b"c")]
