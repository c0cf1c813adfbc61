"""Whole pipelines on a real Kafka and a real Spark, against plain Python."""

import json
from collections import defaultdict
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from sparkrelay import Integer, Json, StreamsBuilder, String

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


def test_a_tombstone_is_one_also_where_no_step_looks_at_values(instance, make_topic, produce, consumed, wait_for_table):
    source, counts, copies = make_topic("in", 1), make_topic("counts", 1), make_topic("copies", 1)
    produce(source, [("a", "1"), ("a", None), ("b", None), ("a", "2"), ("end", "x")])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"))
    stream.groupBy("k").count().to(counts, key=String("k"), value=Json())
    stream.select("k").to(copies, value=Json())
    streams = instance(builder)
    streams.start()
    wait_for_table(counts, {b"a": {"k": "a", "count": 2}, b"end": {"k": "end", "count": 1}}, streams)
    passed = [(message.key(), message.value() is None) for message in consumed(copies, full=True)]
    assert passed == [(b"a", False), (b"a", True), (b"b", True), (b"a", False), (b"end", False)]


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


def test_aggregates_with_windows_beside_a_repartition(instance, make_topic, produce, wait_for_table, consumed):
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
    for group, amounts in by_window.items():
        row = found[group]
        assert (row["n"], row["total"]) == (len(amounts), sum(amounts)), group
        assert row["mean"] == pytest.approx(2 * sum(amounts) / len(amounts))
        assert (row["least"], row["most"]) == (min(amounts), max(amounts))


def test_python_and_pandas_functions(instance, make_topic, produce, wait_for_table):
    import pandas as pd

    source, sink = make_topic("words", 2), make_topic("counts", 2)
    produce(source, [(f"k{i}", {"word": f"Word{i % 3}", "n": i}) for i in range(30)])

    @F.udf("string")
    def lowered(word):
        return word.lower()

    @F.pandas_udf("bigint")
    def doubled(n: pd.Series) -> pd.Series:
        return n * 2

    builder = StreamsBuilder()
    words = builder.stream(source, key=String("k"), value=Json("word string, n bigint"))
    grouped = words.withColumn("word", lowered("word")).groupBy("word")
    counts = grouped.agg(F.sum(doubled("n")).alias("s"), F.count("*").alias("c"))
    counts.withColumn("half", doubled("s") / 4).to(sink)
    streams = instance(builder)
    streams.start()
    expected = {}
    for w in range(3):
        total = sum(2 * i for i in range(30) if i % 3 == w)
        expected[f"word{w}".encode()] = {"word": f"word{w}", "s": total, "c": 10, "half": total / 2}
    wait_for_table(sink, expected, streams)


def test_two_stores_in_one_task_and_two_legs_into_one_topic(instance, make_topic, produce, wait_for_table, consumed):
    source, counts, sums, both = (make_topic(hint, 2) for hint in ("orders", "counts", "sums", "both"))
    rows = orders(200)
    produce(source, order_rows(rows))
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string, amount int"))
    stream.groupBy("user", name="first").count().to(counts)
    stream.where("amount > 0").groupBy("user", name="second").agg(F.sum("amount").alias("total")).to(sums)
    stream.where("amount > 5").select("user", "amount", F.lit("big").alias("why")).to(both, value=Json())
    stream.where("amount < 0").select("user", "amount", F.lit("back").alias("why")).to(both, value=Json())
    streams = instance(builder, {"max.batch.records": 30})
    streams.start()
    users = {row["user"] for row in rows}
    wait_for_table(
        counts,
        {u.encode(): {"user": u, "count": sum(row["user"] == u for row in rows)} for u in users},
        streams,
    )
    wait_for_table(
        sums,
        {
            u.encode(): {"user": u, "total": sum(r["amount"] for r in rows if r["user"] == u and r["amount"] > 0)}
            for u in users
        },
        streams,
    )
    found = sorted((key.decode(), *json.loads(value).values()) for _, _, key, value in consumed(both))
    expected = [(r["user"], r["user"], r["amount"], "big") for r in rows if r["amount"] > 5]
    expected += [(r["user"], r["user"], r["amount"], "back") for r in rows if r["amount"] < 0]
    assert found == sorted(expected)
    progress = streams.lastProgress
    assert progress["numInputRows"] > 0
    assert json.loads(json.dumps(progress)) == progress


def test_keys_of_other_types_and_an_explicit_repartition(instance, make_topic, produce, wait_for_table, consumed):
    source, sink = make_topic("numbers", 2), make_topic("sums", 2)
    produce(source, [{"key": (i % 4).to_bytes(4, "big"), "value": {"n": i}} for i in range(40)])
    builder = StreamsBuilder()
    numbers = builder.stream(source, key=Integer("id"), value=Json("n bigint"))
    even = numbers.withColumn("even", F.col("n") % 2 == 0).withColumn("parity", F.when(F.col("even"), 0).otherwise(1))
    even.select("parity", "n").repartition("parity", partitions=3).groupBy("parity").agg(F.sum("n").alias("s")).to(sink)
    streams = instance(builder)
    streams.start()
    wait_for_table(
        sink,
        {
            (0).to_bytes(4, "big"): {"parity": 0, "s": sum(range(0, 40, 2))},
            (1).to_bytes(4, "big"): {"parity": 1, "s": sum(range(1, 40, 2))},
        },
        streams,
    )


def test_a_leg_that_lets_nothing_through_holds_nobody_up(instance, make_topic, produce, wait_for_table, consumed):
    """Spark runs no partition of such a leg, so nobody reports; the batches are committed all the same."""
    source, counts, off, none = (make_topic(hint, 2) for hint in ("orders", "counts", "off", "none"))
    rows = orders(60)
    produce(source, order_rows(rows))
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string, amount int"))
    stream.groupBy("user", name="users").count().to(counts)
    # What they read is still named, though nothing of it is read.
    dark = stream.where(F.lit(False)).where("amount > 1")
    dark.groupBy("user", name="spent").agg(F.sum(F.col("amount") * 2).alias("spent")).to(none)
    dark.groupBy("shop", name="shops").agg(F.sum("amount").alias("sold")).to(none)
    stream.where(F.lit(False)).to(off, value=Json())
    streams = instance(builder, {"max.batch.records": 20})
    streams.start()
    users = {row["user"] for row in rows}
    expected = {u.encode(): {"user": u, "count": sum(r["user"] == u for r in rows)} for u in users}
    wait_for_table(counts, expected, streams)
    assert consumed(off) == consumed(none) == []


@pytest.mark.parametrize("after", [False, True])
def test_a_store_moves_on_while_its_leg_lets_nothing_through(
    instance, make_topic, produce, wait_for_table, consumed, wait_until, after
):
    """Its position is the task's: one that stood still would have the other legs' records read and written again."""
    source, counts, big = (make_topic(hint) for hint in ("orders", "counts", "big"))

    def run(on, *, before, count):
        builder = StreamsBuilder()
        stream = builder.stream(source, key=String("user"), value=Json("amount int"))
        counted = stream if after else stream.where(on)
        table = counted.groupBy("user", name="users").count()
        (table.to_stream().where(on) if after else table).to(counts)
        stream.where("amount > 0").select("user", "amount").to(big, value=Json())
        streams = instance(builder)
        streams.start()
        produce(source, [("a", {"amount": n}) for n in range(before + 1, before + count + 1)])
        wait_until(
            lambda: len(consumed(big)) >= before + count or streams.exception(),
            "records are missing",
        )
        assert streams.exception() is None
        assert streams.stop(120)

    run(F.lit(True), before=0, count=3)
    run(F.lit(False), before=3, count=4)
    # Depends on the time: built anew for every batch.
    run(F.expr("current_timestamp() < timestamp'2000-01-01'"), before=7, count=1)
    run(F.lit(True), before=8, count=2)
    amounts = [json.loads(value)["amount"] for _, _, _, value in consumed(big)]
    assert amounts == list(range(1, 11))
    # What came while it was off is counted only where the rows were held back behind the count.
    wait_for_table(counts, {b"a": {"user": "a", "count": 10 if after else 5}})


@pytest.mark.parametrize("keys", [("user", "price"), ("price",)], ids=["in place", "through a repartition"])
def test_zeros_and_nans_are_grouped_as_spark_groups_them(spark, instance, make_topic, produce, table, wait_until, keys):
    source, sink = make_topic("prices", 3), make_topic("counts", 3)
    rows = [(f"u{n % 3}", text) for n, text in enumerate(["0.0", "-0.0", "1.5", "nan", "-nan", "-1.5", "-0.0"] * 6)]
    produce(
        source,
        [{"key": user, "value": f'{{"text": "{text}", "price": {text}}}'.replace("nan}", "0}")} for user, text in rows],
    )

    def with_nans(stream):
        nan = F.lit(float("nan"))
        price = F.when(F.col("text") == "nan", nan).when(F.col("text") == "-nan", -nan).otherwise(F.col("price"))
        return stream.withColumn("price", price).groupBy(*keys)

    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("text string, price double"))
    counts = with_nans(stream).agg(F.count("*").alias("n"))
    counts.select(*keys[:-1], F.col("price").cast("string").alias("price"), "n").to(sink)
    streams = instance(builder, {"max.batch.records": 5})
    streams.start()

    batch = spark.createDataFrame(
        [(user, text, float(text)) for user, text in rows], "user string, text string, price double"
    )
    counted = with_nans(batch).agg(F.count("*").alias("n")).withColumn("price", F.col("price").cast("string"))
    expected = sorted(tuple(row.asDict().values()) for row in counted.collect())
    assert not any("-0.0" in row for row in expected), "Spark makes one group of both zeros"
    wait_until(
        lambda: sorted(tuple(row.values()) for row in table(sink).values()) == expected or streams.exception(),
        "the table is another one than Spark's own",
    )
    assert streams.exception() is None


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

    assert started().stop(120)
    produce(source, [("a", "new"), ("b", "new"), ("c", "new")])
    streams = started()
    wait_until(lambda: len(consumed(sink)) >= 3 or streams.exception(), "records are missing")
    assert sorted((key, value) for _, _, key, value in consumed(sink)) == [(k, b"new") for k in (b"a", b"b", b"c")]
