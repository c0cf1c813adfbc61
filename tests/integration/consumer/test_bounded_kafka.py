"""Ranges read from a real broker: exactly what they say, whatever lies in them."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from tests.waiting import AVOIDED, LONG, within

from sparkrelay.client.admin import Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.consumer import Consumer
from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.devkafka.topics import create_topic, delete_topic
from sparkrelay.errors import (
    ConfigException,
    CorruptRecordException,
    OffsetOutOfRangeException,
    TimeoutException,
    UnknownTopicException,
)
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def fetcher(kafka):
    with BoundedFetcher({"bootstrap.servers": kafka.bootstrap_servers, "default.api.timeout.ms": 15_000}) as fetcher:
        yield fetcher


def read(fetcher, ranges, **options):
    rows = {}
    for partition, batch in fetcher.fetch(ranges, **options):
        rows.setdefault(partition, []).extend(
            zip(*(batch.column(n).to_pylist() for n in ("offset", "value")), strict=True)
        )
    return rows


def test_a_range_is_read_exactly(fetcher, make_topic, produce):
    topic = make_topic("bounded", partitions=3)
    produce(topic, [{"value": f"{p}:{i}", "partition": p} for p in range(3) for i in range(1000)])
    ranges = {TopicPartition(topic, p): (p * 10, 700 + p) for p in range(3)}

    rows = read(fetcher, ranges)

    for partition, (start, stop) in ranges.items():
        assert rows[partition] == [(i, f"{partition.partition}:{i}".encode()) for i in range(start, stop)]


def test_ranges_larger_than_a_response_are_read_in_order(kafka, make_topic, produce):
    topic = make_topic("bounded", partitions=2)
    produce(topic, [{"value": b"x" * 500, "partition": i % 2} for i in range(4000)], batch_size=20_000)
    small = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "max.partition.fetch.bytes": 60_000,
        "fetch.max.bytes": 90_000,
    }
    with BoundedFetcher(small) as fetcher:
        rows = read(fetcher, {TopicPartition(topic, p): (0, 2000) for p in range(2)}, max_batch_rows=33)
    for p in range(2):
        assert [offset for offset, _ in rows[TopicPartition(topic, p)]] == list(range(2000))


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_fetch_takes_no_more_at_a_time_than_it_may(fetcher, make_topic, produce, compression):
    topic = make_topic("bounded-bytes", partitions=2)
    records = [{"value": f"{i}".ljust(10_000), "partition": i % 2} for i in range(1_600)]
    # One record may be larger than all of it.
    records += [{"value": "x" * 900_000, "partition": 0}]
    produce(topic, records, compression_type=compression, batch_size=50_000)
    ranges = {TopicPartition(topic, 0): (0, 801), TopicPartition(topic, 1): (0, 800)}

    sizes = [batch.nbytes for _, batch in fetcher.fetch(ranges, max_bytes=2_000_000)]
    rows = read(fetcher, ranges, max_bytes=2_000_000)

    assert sorted(sizes)[-2] < 600_000
    assert max(sizes) > 900_000
    assert {partition: len(found) for partition, found in rows.items()} == {p: stop for p, (_, stop) in ranges.items()}
    assert rows[TopicPartition(topic, 0)][800] == (800, b"x" * 900_000)
    assert max(batch.nbytes for _, batch in fetcher.fetch(ranges)) > 2_000_000


def test_what_decompresses_to_a_lot_is_read_whole_or_refused(kafka, make_topic, produce):
    topic = make_topic("bounded-large")
    for number in range(5):
        produce(topic, [{"value": f"{number}:{i}" * 500, "partition": 0} for i in range(3)], compression_type="zstd")
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "max.decompressed.batch.bytes": 5000}
    with BoundedFetcher(settings) as fetcher:
        rows = read(fetcher, {TopicPartition(topic, 0): (0, 15)})
    values = [f"{number}:{i}".encode() * 500 for number in range(5) for i in range(3)]
    assert rows[TopicPartition(topic, 0)] == list(enumerate(values))

    settings["max.decompressed.batch.bytes"] = 1400
    words = rf"{topic}-0: the record batch at offset 0 .* zstd hold more than max.decompressed.batch.bytes=1400\b"
    with BoundedFetcher(settings) as fetcher, pytest.raises(CorruptRecordException, match=words):
        read(fetcher, {TopicPartition(topic, 0): (0, 15)})
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        with pytest.raises(CorruptRecordException, match=words):
            consumer.poll(LONG)


def test_a_batch_larger_than_the_limits_is_read(kafka, make_topic, produce):
    topic = make_topic("bounded")
    produce(topic, [{"value": b"x" * 500_000}, {"value": b"y"}])
    with BoundedFetcher(
        {"bootstrap.servers": kafka.bootstrap_servers, "max.partition.fetch.bytes": 1000, "fetch.max.bytes": 1000}
    ) as fetcher:
        rows = read(fetcher, {TopicPartition(topic, 0): (0, 2)})
    assert [len(value) for _, value in rows[TopicPartition(topic, 0)]] == [500_000, 1]


def test_offsets_of_another_topic_of_that_name_are_refused(kafka, fetcher, make_topic, produce):
    topic = make_topic("bounded")
    produce(topic, [{"value": "a"}])
    at = {TopicPartition(topic, 0): (0, 1)}
    with KafkaClient(ClientConfig.from_dict({"bootstrap.servers": kafka.bootstrap_servers})) as client:
        client.bootstrap(LONG)
        own = Admin(client).topic_ids([topic])[topic]
    for id_, right in [(own, True), (str(uuid.uuid4()), False)]:
        refused = contextlib.nullcontext() if right else pytest.raises(UnknownTopicException, match="created again")
        with refused:
            assert sum(batch.num_rows for _, batch in fetcher.fetch(at, topic_ids={topic: id_})) == 1


def test_a_topic_that_is_created_again_while_it_is_read_is_noticed(kafka, make_topic, produce):
    topic = make_topic("bounded")
    produce(topic, [{"value": "a"}])
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "default.api.timeout.ms": AVOIDED * 1000}
    with BoundedFetcher(settings) as fetcher:
        rows = fetcher.fetch({TopicPartition(topic, 0): (0, 2)})
        assert next(rows)[1].num_rows == 1
        delete_topic(kafka.bootstrap_servers, topic)
        create_topic(kafka.bootstrap_servers, topic)
        with within(), pytest.raises(UnknownTopicException, match="deleted and created again, so"):
            next(rows)


def test_the_same_fetcher_serves_many_batches_and_an_abandoned_one(fetcher, make_topic, produce):
    topic = make_topic("bounded")
    produce(topic, [{"value": str(i)} for i in range(5000)], batch_size=2000)
    partition = TopicPartition(topic, 0)
    for start in range(0, 5000, 1000):
        next(iter(fetcher.fetch({partition: (0, 5000)}, max_batch_rows=10)))
        rows = read(fetcher, {partition: (start, start + 1000)})
        assert [offset for offset, _ in rows[partition]] == list(range(start, start + 1000))


def abort_transaction(kafka, topic, count):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"abort-{topic}"})
    producer.init_transactions(LONG)
    producer.begin_transaction()
    for i in range(count):
        producer.produce(topic, value=f"aborted {i}", partition=0)
    producer.flush(LONG)
    producer.abort_transaction(LONG)


@pytest.fixture
def decided(kafka_admin, wait_until):
    """`decided(topic, end)` waits for the last marker: the end of a transaction is answered before it is written."""
    from confluent_kafka import IsolationLevel, TopicPartition as Theirs
    from confluent_kafka.admin import OffsetSpec

    def wait(topic, end):
        at = {Theirs(topic, 0): OffsetSpec.latest()}

        def written():
            (stable,) = kafka_admin.list_offsets(at, isolation_level=IsolationLevel.READ_COMMITTED).values()
            return stable.result(LONG).offset == end

        wait_until(written, f"{topic} does not end at {end}")

    return wait


def test_aborted_records_and_markers_are_left_out_also_at_the_end(kafka, fetcher, make_topic, produce, decided):
    topic = make_topic("bounded")
    partition = TopicPartition(topic, 0)
    produce(topic, [{"value": "a"}, {"value": "b"}], transactional_id=f"t-{topic}")  # 0 1, marker 2
    decided(topic, 3)
    abort_transaction(kafka, topic, 3)  # 3 4 5, marker 6
    decided(topic, 7)
    produce(topic, [{"value": "c"}])  # 7
    abort_transaction(kafka, topic, 2)  # 8 9, marker 10

    assert read(fetcher, {partition: (0, 11)})[partition] == [(0, b"a"), (1, b"b"), (7, b"c")]
    assert read(fetcher, {partition: (1, 5)})[partition] == [(1, b"b")]
    assert read(fetcher, {partition: (2, 7)}) == {}
    assert read(fetcher, {partition: (8, 11)}) == {}
    assert read(fetcher, {partition: (10, 11)}) == {}


def test_read_uncommitted_shows_aborted_records(kafka, make_topic):
    topic = make_topic("bounded")
    abort_transaction(kafka, topic, 2)
    config = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_uncommitted"}
    with BoundedFetcher(config) as fetcher:
        rows = read(fetcher, {TopicPartition(topic, 0): (0, 3)})
    assert rows[TopicPartition(topic, 0)] == [(0, b"aborted 0"), (1, b"aborted 1")]


def test_columns_are_chosen(fetcher, make_topic, produce):
    topic = make_topic("bounded")
    produce(topic, [{"key": "k", "value": "v", "headers": [("h", b"1")]}])
    ((_, batch),) = fetcher.fetch({TopicPartition(topic, 0): (0, 1)}, columns={"key", "headers"})
    assert batch.to_pylist() == [{"key": b"k", "headers": [{"key": "h", "value": b"1"}]}]


def test_nothing_asked_nothing_read(fetcher, make_topic):
    assert read(fetcher, {}) == {}
    assert read(fetcher, {TopicPartition(make_topic("bounded"), 0): (5, 5)}) == {}


def test_deleted_records_are_an_error_that_names_the_range(kafka, fetcher, kafka_admin, make_topic, produce):
    from confluent_kafka import TopicPartition as Theirs

    topic = make_topic("bounded")
    produce(topic, [{"value": str(i)} for i in range(10)])
    for future in kafka_admin.delete_records([Theirs(topic, 0, 5)]).values():
        future.result(LONG)
    with pytest.raises(OffsetOutOfRangeException, match=rf"{topic}-0 at offset 0 for the range \[0, 10\)"):
        read(fetcher, {TopicPartition(topic, 0): (0, 10)})
    # The fetcher stays usable.
    assert len(read(fetcher, {TopicPartition(topic, 0): (5, 10)})[TopicPartition(topic, 0)]) == 5


@pytest.mark.long
def test_a_range_beyond_the_end_is_a_timeout(kafka, make_topic, produce):
    topic = make_topic("bounded")
    produce(topic, [{"value": "only"}])
    with (
        BoundedFetcher({"bootstrap.servers": kafka.bootstrap_servers, "default.api.timeout.ms": 5000}) as fetcher,
        pytest.raises(TimeoutException, match=r"nothing came at offset 1 \(wanted up to 3\)"),
    ):
        read(fetcher, {TopicPartition(topic, 0): (0, 3)})


@pytest.mark.long
def test_a_missing_topic_is_named(kafka):
    with (
        BoundedFetcher({"bootstrap.servers": kafka.bootstrap_servers, "default.api.timeout.ms": 5000}) as fetcher,
        pytest.raises(UnknownTopicException, match="no-such-topic"),
    ):
        read(fetcher, {TopicPartition("no-such-topic", 0): (0, 3)})


def test_an_unreachable_broker_is_a_timeout_that_says_why():
    with (
        BoundedFetcher({"bootstrap.servers": "localhost:1", "default.api.timeout.ms": 300}) as fetcher,
        pytest.raises(TimeoutException, match="localhost:1"),
    ):
        read(fetcher, {TopicPartition("t", 0): (0, 3)})


def test_a_gap_that_compaction_left_at_the_end_is_no_wait(
    kafka, kafka_admin, make_topic, produce, wait_until, consumed
):
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "100",
        "max.compaction.lag.ms": "100",
    }
    topic = make_topic("bounded", config=config)
    for i in range(20):
        produce(topic, [{"key": "same", "value": str(i)}])
    produce(topic, [{"key": "other", "value": "last"}])

    def compacted():
        produce(topic, [{"key": "tick", "value": "x"}])
        return len([row for row in consumed(topic) if row[2] == b"same"]) == 1

    wait_until(compacted, "compaction did not run")
    partition = TopicPartition(topic, 0)
    with BoundedFetcher({"bootstrap.servers": kafka.bootstrap_servers}) as fetcher:
        assert read(fetcher, {partition: (0, 15)}) == {}
        assert read(fetcher, {partition: (0, 20)})[partition] == [(19, b"19")]


def test_where_logs_begin_and_end(fetcher, make_topic, produce):
    topic = make_topic("bounded", partitions=2)
    produce(topic, [{"value": "x", "partition": 1}] * 7)
    empty, full = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert fetcher.log_start(full) == 0
    assert fetcher.log_ends([empty, full]) == {empty: 0, full: 7}


def test_unknown_settings_are_refused(kafka):
    with pytest.raises(ConfigException, match=r"fetch\.max\.bites.*fetch\.max\.bytes"):
        BoundedFetcher({"bootstrap.servers": kafka.bootstrap_servers, "fetch.max.bites": 1})
