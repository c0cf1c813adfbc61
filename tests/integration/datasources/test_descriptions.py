"""What changelogs say of themselves on a real broker: written in order, by several legs, and never cut away."""

import datetime as dt

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.datasources.tables import TableReader
from sparkrelay.errors import StateStoreException
from sparkrelay.runtime.thread import stream_thread

pytestmark = pytest.mark.integration

ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds):
    return (ZERO + dt.timedelta(seconds=seconds)).isoformat()


def test_two_legs_write_one_changelog(instance, make_topic, produce, consumed, wait_until, application_id, kafka):
    clicks, views, sink = make_topic("clicks"), make_topic("views"), make_topic("out")
    builder = StreamsBuilder()
    left = builder.stream(clicks, key=String("user"), value=Json("n long, at timestamp")).withWatermark(
        "at", "1 minute"
    )
    right = builder.stream(views, key=String("user"), value=Json("ad string, seen timestamp"))
    left.join(right.withWatermark("seen", "1 minute"), "user", within="10 seconds").to(sink)
    streams = instance(builder)
    for part in range(4):
        produce(clicks, [("ada", {"n": part, "at": at(part)})])
        produce(views, [("ada", {"ad": "x", "seen": at(part)})])
        if not part:
            # Both legs have input in the first batch, which describes the store.
            streams.start()
        pairs = (part + 1) ** 2
        wait_until(lambda n=pairs: len(list(consumed(sink))) == n, f"{streams.status}: {list(consumed(sink))}")
    assert streams.exception() is None
    with TableReader.open({"bootstrap.servers": kafka.bootstrap_servers}, application_id) as reader:
        ((_, found),) = reader.stores()
    assert found.why_not == "the rows of a join, of both streams"


def test_a_cut_leaves_what_the_changelog_says(
    instance, make_topic, produce, wait_until, application_id, kafka, monkeypatch
):
    monkeypatch.setattr(stream_thread, "_PURGE_SECONDS", 0.5)
    topic = make_topic("clicks")
    builder = StreamsBuilder()
    rows = builder.stream(topic, key=String("user"), value=Json("at timestamp")).withWatermark("at", "0 seconds")
    rows.groupBy("user", F.window("at", "1 minute")).agg(F.count("*").alias("count"), name="counts")
    changelog = TopicPartition(f"{application_id}-counts-changelog", 0)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "looks"})

    def log_start():
        return consumer.get_watermark_offsets(changelog, timeout=LONG)[0]

    def counts():
        with TableReader.open({"bootstrap.servers": kafka.bootstrap_servers}, application_id) as reader:
            found = [row for batch in reader.rows(reader.table("counts")) for row in batch.to_pylist()]
        return [((row["window"]["start"] - ZERO).total_seconds() / 60, row["count"]) for row in found]

    with instance(builder) as streams:
        streams.start()
        for minute in range(6):
            produce(topic, [("ada", {"at": at(60 * minute)})] * (minute + 1))
            expected = [(minute, minute + 1)]
            wait_until(lambda e=expected: _read(counts) == e, f"{streams.status}: {_read(counts)}")
        wait_until(lambda: log_start() > 0, "the changelog is not cut")
        assert counts() == [(5, 6)]
    assert counts() == [(5, 6)]
    consumer.close()


def _read(counts):
    try:
        return counts()
    except StateStoreException as error:
        return str(error)
