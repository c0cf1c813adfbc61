"""Backlogs of wide records: a micro-batch takes no more of them than its bytes allow."""

import json
import logging
import re

import pytest
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String

from .conftest import active
from .user_counts import counting, counts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

WIDE = {"n": 1, "more": "x" * 20_000}
LEAST = {"max.batch.bytes": 1 << 20}
#: One record may be larger than all that a micro-batch may take.
LARGE = json.dumps({"n": 1, "more": "x" * 950_000})
NARROWED = r"max.batch.bytes allows [\d,]+ in a Spark partition: the next batches take"
WIDER = "n int, more string"


@pytest.fixture
def log(caplog):
    """What is logged of batches that are too large."""
    caplog.set_level(logging.INFO, "sparkrelay.runtime.batch.batch_limit")
    return caplog


@pytest.mark.parametrize("count", [200, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_backlog_of_wide_records(instance, make_topic, produce, wait_for_table, log, count):
    """The larger one has a Spark job of its own."""
    source, sink = make_topic("in", 2), make_topic("out", 1)
    produce(source, [(f"u{n % 5}", WIDE) for n in range(count)])
    produce(source, [("wide", LARGE)])
    streams = instance(counting(source, sink), LEAST)
    streams.start()
    wait_for_table(sink, counts(**{f"u{n}": count // 5 for n in range(5)}, wide=1), streams)
    assert streams.exception() is None
    assert re.search(NARROWED, log.text)
    assert sum(batch["numInputRows"] > 0 for batch in streams.recentProgress) > 5


@pytest.mark.long
def test_records_that_are_passed_on_whole(instance, make_topic, produce, wait_for_table, log):
    """Also through a topic between, whose records have a bound of their own."""
    source, sink = make_topic("in", 2), make_topic("out", 1)
    produce(source, [(f"u{n}", WIDE) for n in range(200)])
    produce(source, [("wide", LARGE)])
    builder = StreamsBuilder()
    records = builder.stream(source, key=String("user"), value=Json(WIDER))
    records.repartition("user").select("user", "more").to(sink, key="user", value=Json())
    streams = instance(builder, LEAST)
    streams.start()
    expected = {user.encode(): {"user": user, "more": WIDE["more"]} for user in (f"u{n}" for n in range(200))}
    wait_for_table(sink, {**expected, b"wide": {"user": "wide", "more": "x" * 950_000}}, streams)
    assert re.search(NARROWED, log.text)


@pytest.mark.long
def test_the_watermark_of_a_batch_that_was_cut_goes_no_further_than_its_rows(
    instance, make_topic, produce, wait_for_table, log
):
    """Both tasks have written rows of all times, and the cut leaves most rows of the second one for later."""
    source, sink = make_topic("in", 2), make_topic("out", 1)
    produce(source, [(f"u{n % 10}", {"n": n}) for n in range(2_000)])
    builder = StreamsBuilder()
    records = builder.stream(source, key=String("user"), value=Json("n int"))
    wide = records.selectExpr(
        "CAST(n DIV 100 AS STRING) AS span", "timestamp_seconds(n) AS at", "repeat('x', 2000) AS x"
    )
    spans = wide.withWatermark("at", "1 second").groupBy("span", F.window("at", "100 seconds"))
    counts = spans.agg(F.count("*").alias("count"), F.max("x").alias("x"))
    counts.selectExpr("span", "count").to(sink, key="span", value=Json())
    streams = instance(builder, LEAST)
    streams.start()
    wait_for_table(sink, {f"{n}".encode(): {"span": f"{n}", "count": 100} for n in range(20)}, streams)
    assert re.search(NARROWED, log.text)


@pytest.mark.long
def test_what_foreach_batch_gets_is_bounded_and_the_same_in_every_try(instance, make_topic, produce, wait_until, log):
    """The function fails with each batch once, and gets the same rows again."""
    source = make_topic("in", 2)
    produce(source, [(f"u{n}", {**WIDE, "n": n}) for n in range(200)])
    produce(source, [("wide", json.dumps({"n": 200, "more": "x" * 950_000}))])
    got, done = {}, {}

    def take(frame, id_):
        rows = [(row.n, len(row.more)) for row in frame.collect()]
        batch = id_.task, int(id_)
        if got.setdefault(batch, rows) is rows:
            raise OSError("once")
        done[batch] = rows

    builder = StreamsBuilder()
    builder.stream(source, key=String("user"), value=Json(WIDER)).foreachBatch(take)
    streams = instance(builder, LEAST)
    streams.start()
    wait_until(lambda: streams.exception() or sum(map(len, done.values())) >= 201, "not all rows came", 400)
    assert streams.exception() is None
    assert done == got
    assert sorted(row for rows in done.values() for row in rows) == [*((n, 20_000) for n in range(200)), (200, 950_000)]
    sizes = [sum(size for _, size in rows) for rows in done.values()]
    assert all(size <= 1 << 20 for size in sizes)
    assert re.search(NARROWED, log.text)


@pytest.mark.long
def test_a_global_table_of_wide_rows(instance, make_topic, produce, wait_for_table, log):
    table, source, sink = make_topic("table", 2), make_topic("in", 1), make_topic("out", 1)
    produce(table, [(f"u{n}", WIDE) for n in range(200)])
    produce(table, [("wide", LARGE)])
    produce(source, [("a", {"of": "u7"}), ("b", {"of": "wide"}), ("c", {"of": "nobody"})])
    builder = StreamsBuilder()
    rows = builder.global_table(table, key=String("of"), value=Json(WIDER), name="rows")
    joined = builder.stream(source, key=String("id"), value=Json("of string")).join(rows, "of")
    joined.selectExpr("id", "length(more) length").to(sink, key="id", value=Json())
    streams = instance(builder, LEAST)
    streams.start()
    expected = {b"a": {"id": "a", "length": 20_000}, b"b": {"id": "b", "length": 950_000}}
    wait_for_table(sink, expected, streams)
    assert re.search(NARROWED, log.text)


@pytest.mark.long
def test_a_store_of_wide_rows_is_restored_and_followed(
    instance, make_topic, produce, wait_for_table, wait_until, tmp_path
):
    """By a standby, and by the next owner of the tasks, whose disk is empty."""
    source, sink = make_topic("in", 2), make_topic("out", 1)
    builder = StreamsBuilder()
    records = builder.stream(source, key=String("user"), value=Json(WIDER)).groupBy("user")
    newest = records.agg(F.max("more").alias("more"), F.count("*").alias("count"), name="wide")
    newest.selectExpr("user", "length(more) length", "count").to(sink, key="user", value=Json())
    produce(source, [(f"u{n}", WIDE) for n in range(200)])
    produce(source, [("wide", LARGE)])
    expected = {f"u{n}".encode(): {"user": f"u{n}", "length": 20_000, "count": 1} for n in range(200)}
    expected[b"wide"] = {"user": "wide", "length": 950_000, "count": 1}
    settings = {**LEAST, "num.standby.replicas": 1}
    one = instance(builder, {**settings, "state.dir": str(tmp_path / "one")})
    one.start()
    wait_for_table(sink, expected, one)
    other = instance(builder, {**settings, "state.dir": str(tmp_path / "other")})
    other.start()
    wait_until(lambda: len(active(one)) == len(active(other)) == 1, "no task moved")
    # Each has one task and the copy of the other's.
    assert one.stop(LONG)
    produce(source, [("u7", {"n": 1}), ("wide", {"n": 1})])
    expected[b"u7"] |= {"count": 2}
    expected[b"wide"] |= {"count": 2}
    wait_for_table(sink, expected, other)
