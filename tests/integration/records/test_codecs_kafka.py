"""Record batches against a real broker: Java reads what we compress, we read what others compress."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from tests.waiting import LONG

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer
from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.records.batches.codecs import CODEC_NAMES
from sparkrelay.records.batches.decode import HEADERS_TYPE
from sparkrelay.records.batches.encode import encode
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration

ROWS = 400
KEYS = pa.array([None if row % 9 == 0 else b"key-%d" % row for row in range(ROWS)], pa.binary())
# Some compress well, some not at all, one spans several blocks of every codec.
VALUES = pa.array(
    [None if row % 7 == 0 else b"%d" % row * (row if row != 200 else 60_000) for row in range(ROWS)], pa.binary()
)
HEADERS = pa.array(
    [[{"key": "h", "value": b"%d" % row}, {"key": "none", "value": None}] if row % 2 else None for row in range(ROWS)],
    HEADERS_TYPE,
)


@pytest.fixture
def send(kafka):
    client = KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers))
    client.bootstrap(30)

    def write(topic, codec):
        producer = Producer(client)
        for batch in encode(KEYS, VALUES, timestamps=1_357_016_400_000, headers=HEADERS, compression=codec):
            producer.send(TopicPartition(topic, 0), batch.data, transactional_id=None)
        return producer.flush(LONG)

    yield write
    client.close()


def fetched(kafka, topic):
    with BoundedFetcher({"bootstrap.servers": kafka.bootstrap_servers}) as fetcher:
        parts = [batch for _, batch in fetcher.fetch({TopicPartition(topic, 0): (0, ROWS)})]
    return pa.Table.from_batches(parts).combine_chunks()


@pytest.mark.parametrize("rewritten", ["producer", "gzip"])
@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_java_reads_what_we_write(kafka, make_topic, send, codec, rewritten):
    # With another codec on the topic the broker unpacks every record and packs it again: a full reading by Java.
    topic = make_topic("codecs", config={"compression.type": rewritten})
    send(topic, codec)
    got = fetched(kafka, topic)
    assert got.column("key").combine_chunks().equals(KEYS)
    assert got.column("value").combine_chunks().equals(VALUES)
    assert got.column("headers").to_pylist() == HEADERS.to_pylist()


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_librdkafka_reads_what_we_write(kafka, make_topic, send, codec):
    topic = make_topic("codecs")
    send(topic, codec)
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        messages = []
        while len(messages) < ROWS:
            messages += consumer.consume(ROWS - len(messages), timeout=LONG)
    finally:
        consumer.close()
    assert [message.error() for message in messages if message.error()] == []
    assert [message.key() for message in messages] == KEYS.to_pylist()
    assert [message.value() for message in messages] == VALUES.to_pylist()
    assert messages[1].headers() == [("h", b"1"), ("none", None)]


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_we_read_what_librdkafka_writes(kafka, make_topic, produce, codec):
    topic = make_topic("codecs")
    rows = [{"key": k, "value": v} for k, v in zip(KEYS.to_pylist(), VALUES.to_pylist(), strict=True)]
    produce(topic, rows, compression_type=codec)
    got = fetched(kafka, topic)
    assert got.column("key").combine_chunks().equals(KEYS)
    assert got.column("value").combine_chunks().equals(VALUES)


def test_we_read_the_snappy_of_java(kafka, make_topic, send):
    topic = make_topic("codecs", config={"compression.type": "snappy"})
    send(topic, "none")
    assert fetched(kafka, topic).column("value").combine_chunks().equals(VALUES)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_we_read_other_codecs_of_java(kafka, make_topic, send, codec):
    topic = make_topic("codecs", config={"compression.type": codec})
    send(topic, "none")
    assert fetched(kafka, topic).column("value").combine_chunks().equals(VALUES)
