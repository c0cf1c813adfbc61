"""Micro-batches that pass through one resident Spark job: real Spark, real Kafka, and both ways in turn."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.runtime.batch import residency

from .conftest import wait_for_every_job

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def counted(source, sink):
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("user"), value=Json("amount double, at timestamp"))
    (
        rows.where("amount <> 7")
        .withColumn("share", F.expr("100 / amount"))
        .groupBy("user", F.window("at", "1 hour"))
        .agg(F.count("*").alias("n"), F.sum("share").alias("shares"))
        .withColumn("at_least", F.expr("100 / n"))
        .select("user", F.date_format("window.start", "HH").alias("hour"), "n", "shares", "at_least")
        .to(sink, key=String("user"), value=Json())
    )
    return builder


def spread(number):
    """One record; those with an amount of 7 are dropped, and no other one is divisible by zero."""
    value = {"amount": float(number % 7 + 1), "at": f"2024-05-01 0{number % 3}:30:00"}
    return f"u{number % 5}", value


def expected(spark, rows):
    batch = spark.createDataFrame([(k, v["amount"], v["at"]) for k, v in rows], "user string, amount double, at string")
    grouped = (
        batch.where("amount <> 7")
        .groupBy("user", F.date_format(F.to_timestamp("at"), "HH").alias("hour"))
        .agg(F.count("*").alias("n"), F.sum(F.expr("100 / amount")).alias("shares"))
        .withColumn("at_least", F.expr("100 / n"))
    )
    return {(r["user"], r["hour"]): (r["n"], round(r["shares"], 6), round(r["at_least"], 6)) for r in grouped.collect()}


@pytest.fixture
def latest(consumed):
    def read(topic):
        rows = {}
        for _, _, _, value in consumed(topic):
            row = json.loads(value)
            rows[row["user"], row["hour"]] = row["n"], round(row["shares"], 6), round(row["at_least"], 6)
        return rows

    return read


def ways(streams):
    return [report["sparkrelay"]["resident"] for report in streams.recentProgress if report["numInputRows"]]


@pytest.fixture
def trickle(produce, wait_until):
    """`trickle(topic, rows, streams)` writes rows one by one, each once the one before is in."""

    def write(topic, rows, streams):
        for key, value in rows:
            before = len(ways(streams))
            produce(topic, [(key, value)])
            wait_until(lambda before=before: len(ways(streams)) > before or streams.exception(), "no batch came")
            assert streams.exception() is None

    return write


def test_both_ways_in_turn_give_what_spark_gives(
    spark, instance, make_topic, produce, latest, trickle, wait_until, monkeypatch
):
    monkeypatch.setattr(residency, "_SMALL", 5)
    monkeypatch.setattr(residency, "_BACKLOG", 20)
    source, sink = make_topic("in", 2), make_topic("out", 2)
    rows = [spread(number) for number in range(160)]
    first, second = expected(spark, rows[:100]), expected(spark, rows)
    streams = instance(counted(source, sink))
    streams.start()
    trickle(source, rows[:8], streams)
    assert ways(streams)[-1], "small micro-batches pass through a resident job"
    produce(source, rows[8:100])
    wait_until(lambda: latest(sink) == first or streams.exception(), "not Spark's answer")
    wait_until(lambda: not all(ways(streams)[8:] or [True]), "a backlog gets a job of its own")
    trickle(source, rows[100:108], streams)
    assert ways(streams)[-1], "and so it goes on"
    produce(source, rows[108:])
    wait_until(lambda: latest(sink) == second or streams.exception(), "not Spark's answer")
    assert streams.exception() is None


@pytest.mark.long
def test_arrays_and_maps_pass_through_it(instance, make_topic, trickle, consumed, wait_until):
    """Also in columns that are never null, for which a marker has some value."""
    source, sink = make_topic("in", 2), make_topic("out", 2)
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("user"), value=Json("tags array<string>, more map<string, array<int>>"))
    made = rows.withColumn("first", F.expr("tags[0]")).withColumn("made", F.expr("array(map('n', struct(size(tags))))"))
    made.repartition("first").to_table(name="newest").to(sink, value=Json())
    values = [{"tags": [f"t{number}", None], "more": {"x": [number, None], "y": None}} for number in range(8)]
    streams = instance(builder)
    streams.start()
    trickle(source, [("u", value) for value in values], streams)
    wait_until(lambda: len(consumed(sink)) == 8 or streams.exception(), "not all came")
    assert ways(streams)[-1], "small micro-batches pass through a resident job"
    found = sorted((json.loads(value) for *_, value in consumed(sink)), key=lambda row: row["first"])
    made = {"made": [{"n": {"col1": 2}}], "user": "u"}
    assert found == [{**value, **made, "first": value["tags"][0]} for value in values]


def test_a_worker_that_dies_in_it_loses_nothing(spark, instance, make_topic, produce, latest, trickle, wait_until):
    source, sink = make_topic("in", 2), make_topic("out", 2)
    rows = [spread(number) for number in range(60)]
    wanted = {start: expected(spark, rows[: start + 20]) for start in range(0, 60, 20)}
    streams = instance(counted(source, sink))
    streams.start()
    for start, answer in wanted.items():
        trickle(source, rows[start : start + 10], streams)
        assert ways(streams)[-1]
        workers = python_workers()
        assert workers
        for pid in workers:
            # One whose neighbour in the chain was killed may end before its turn.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        produce(source, rows[start + 10 : start + 20])
        wait_until(
            lambda answer=answer: latest(sink) == answer or streams.exception(),
            "not Spark's answer",
        )
    assert streams.exception() is None


DAEMON = b"-m\0sparkrelay.runtime.worker.daemon\0"


def python_workers():
    """This session's Python workers, which its daemon has forked."""
    found, waiting = [], [(os.getpid(), b"")]
    while waiting:
        pid, above = waiting.pop()
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            children = [kids.read_text().split() for kids in Path(f"/proc/{pid}/task").glob("*/children")]
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The JVM names the daemon's module in its settings, and starts the daemon; the daemon is to live.
        if DAEMON in command and DAEMON in above:
            found.append(pid)
        waiting += [(int(child), command) for some in children for child in some]
    return found


@pytest.mark.long
def test_a_python_function_keeps_a_leg_out_of_it_and_the_log_says_why(
    instance, make_topic, table, trickle, wait_until, caplog
):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    builder = StreamsBuilder()
    loud = F.udf(lambda text: text.upper(), "string")
    builder.stream(source, key=String("k"), value=String("v")).withColumn("v", loud("v")).to(
        sink, key=String("k"), value=String("v")
    )
    streams = instance(builder)
    leg = f"sink:{source}-to-{sink}"
    reason = "<lambda>() is a Python function"
    assert f"   {leg}: a Spark job each, because {reason}" in streams.describe().splitlines()
    streams.start()
    with caplog.at_level("INFO", logger="sparkrelay"):
        trickle(source, [("a", f"x{number}") for number in range(5)], streams)
    assert not any(ways(streams))
    assert f"leg {leg}: {reason}" in caplog.text


@pytest.mark.long
def test_a_dataframe_that_is_collected_keeps_no_leg_out_of_it(
    spark, instance, make_topic, table, trickle, tmp_path, wait_until
):
    """The job begins anew with the new rows, in the first micro-batch that finds the old ones too old."""
    source, sink = make_topic("in", 2), make_topic("out", 2)
    file = tmp_path / "rates.csv"
    file.write_text("NO,1\n")
    builder = StreamsBuilder()
    rates = spark.read.schema("country string, rate long").csv(str(file))
    rows = builder.stream(source, key=String("k"), value=Json("country string"))
    rows.join(rates, "country", "left", refresh="2 seconds").select("k", "rate").to(sink, key="k")
    streams = instance(builder, {"num.stream.threads": 2})
    leg = f"sink:{source}-to-{sink}"
    stays = f"   {leg}: pass through one resident Spark job, if 1 slots are free"
    assert stays in streams.describe().splitlines()
    streams.start()
    trickle(source, [(f"a{number}", {"country": "NO"}) for number in range(12)], streams)
    assert any(ways(streams))
    file.write_text("NO,12345\nSE,2\n")
    written = itertools.count()

    def refreshed():
        number = next(written)
        trickle(source, [(f"b{number}", {"country": "SE"})], streams)
        return {"k": f"b{number}", "rate": 2} in table(sink).values()

    wait_until(refreshed, "the new rows were not collected")
    before = next(written)
    trickle(source, [(f"c{before}-{number}", {"country": "NO"}) for number in range(8)], streams)
    assert any(ways(streams)[-8:]), "and so it goes on"
    found = table(sink)
    assert {row["rate"] for key, row in found.items() if key.startswith(b"a")} == {1}
    assert found[f"c{before}-7".encode()] == {"k": f"c{before}-7", "rate": 12345}
    assert streams.exception() is None


@pytest.mark.long
def test_an_error_of_the_users_names_what_it_always_names(
    spark, instance, make_topic, produce, trickle, wait_until, fails_with
):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("k"), value=Json("n int"))
    rows.withColumn("q", F.expr("12 div n")).to(sink, key=String("k"), value=Json())
    streams = instance(builder, {"max.batch.retries": 1})
    streams.start()
    trickle(source, [("a", {"n": number}) for number in range(1, 6)], streams)
    assert ways(streams)[-1]
    produce(source, [("a", {"n": 0})])
    fails_with(streams, Exception, r"DIVIDE_BY_ZERO|[Dd]ivision by zero")
    assert "offsets 5 to 5" in str(streams.exception())


def test_a_stop_ends_it(instance, make_topic, trickle, spark):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    builder = StreamsBuilder()
    builder.stream(source, key=String("k"), value=String("v")).to(sink, key=String("k"), value=String("v"))
    streams = instance(builder)
    streams.start()
    trickle(source, [("a", "x")] * 5, streams)
    tracker = spark.sparkContext.statusTracker()
    assert ways(streams)[-1]
    wait_for_every_job(spark)
    assert tracker.getActiveJobsIds()
    assert streams.stop(LONG)
    wait_for_every_job(spark)
    assert not tracker.getActiveJobsIds()


@pytest.mark.long
def test_on_an_executor_it_reaches_the_driver_over_tcp(kafka, make_topic, table, spark_home, tmp_path):
    source, sink = make_topic("in", 2), make_topic("out", 2)
    config = {
        "application.id": f"resident-{os.getpid()}",
        "bootstrap.servers": kafka.bootstrap_servers,
        "state.dir": str(tmp_path / "state"),
        "poll.ms": 20,
    }
    root = Path(__file__).parents[3]
    log = tmp_path / "log"
    with log.open("wb") as errors:
        child = subprocess.run(
            [
                *(sys.executable, "-m", "tests.integration.runtime.resident_child"),
                json.dumps({"source": source, "sink": sink, "config": config, "rows": 12}),
            ],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={
                **os.environ,
                "SPARK_HOME": str(spark_home),
                "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
            },
            check=False,
            timeout=540,
        )
    assert child.returncode == 0, "\n".join(log.read_text(errors="replace").splitlines()[-60:])
    assert json.loads(child.stdout)[-5:] == [True] * 5
    assert table(sink) == {
        f"u{user}".encode(): {"n": 4, "total": 18 + 4 * user, "mean": (18 + 4 * user) / 4, "user": f"u{user}"}
        | {"name": f"name {user}"}
        for user in range(3)
    }
