"""Topics as DataFrames, with the options of Spark's Kafka source."""

import datetime as dt
import json
import os

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from tests.waiting import LONG

pytestmark = pytest.mark.integration

SPARKS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)


@pytest.fixture
def topics(session, kafka):
    """`topics(subscribe, schema=None, **options)` reads some."""

    def read(subscribe, schema=None, **options):
        reader = session.read.format("sparkrelay").option("subscribe", subscribe).options(**options)
        reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        return (reader.schema(schema) if schema else reader).load()

    return read


def test_a_topic_is_read_as_sparks_source_reads_it(kafka, make_topic, produce, topics):
    topic, other = make_topic("events", partitions=2), make_topic("others")
    at = dt.datetime(2024, 5, 1, 12, 0, 0, 7000, tzinfo=dt.UTC)
    millis = round(at.timestamp() * 1000)
    headers = [("a", b"1"), ("b", None), ("a", b"\xff")]
    produce(
        topic,
        [
            {"key": f"k{n}", "value": f"v{n}", "partition": n % 2, "timestamp": millis + n, "headers": headers}
            for n in range(10)
        ],
    )
    produce(topic, [{"key": None, "value": None, "partition": 1, "timestamp": millis}])
    produce(other, [{"key": "x", "value": "y", "timestamp": millis}])
    frame = topics(f"{topic}, {other}")
    assert frame.schema.simpleString() == SPARKS
    rows = sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))
    assert [(row.partition, row.offset) for row in rows] == [(0, n) for n in range(5)] + [(1, n) for n in range(6)] + [
        (0, 0)
    ]
    assert (bytes(rows[3].key), bytes(rows[3].value), rows[3].topic) == (b"k6", b"v6", topic)
    assert rows[3].timestamp.astimezone(dt.UTC) == at + dt.timedelta(milliseconds=6)
    assert {row.timestampType for row in rows} == {0}
    assert (rows[10].key, rows[10].value) == (None, None)
    with_headers = topics(topic, includeHeaders="true").orderBy("partition", "offset").first()
    assert [(header.key, header.value and bytes(header.value)) for header in with_headers.headers] == headers
    ranged = topics(
        topic,
        startingOffsets=json.dumps({topic: {"0": 1, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 3, "1": 1}}),
    )
    assert sorted(map(tuple, ranged.select("partition", "offset").collect())) == [(0, 1), (0, 2), (1, 0)]
    some = topics(topic, schema="offset long, topic string")
    assert some.agg(F.sum("offset"), F.first("topic")).first() == (25, topic)
    assert topics(topic, schema="topic string, partition int").count() == 11


def test_what_was_aborted_is_not_there(kafka, make_topic, produce, topics):
    topic = make_topic("events")
    produce(topic, [("a", "1")])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(LONG)
    producer.begin_transaction()
    producer.produce(topic, b"2")
    producer.abort_transaction(LONG)
    producer.begin_transaction()
    producer.produce(topic, b"3")
    producer.commit_transaction(LONG)
    assert [bytes(row.value) for row in topics(topic).orderBy("offset").collect()] == [b"1", b"3"]
    producer.begin_transaction()
    producer.produce(topic, b"4")
    producer.flush(LONG)
    assert topics(topic).count() == 2
    producer.abort_transaction(LONG)


@pytest.mark.long
def test_what_cannot_be_is_refused(session, kafka, make_topic, topics):
    topic = make_topic("events")
    assert topics(topic).count() == 0
    with pytest.raises(PySparkException, match=r"needs option\(\"subscribe\""):
        session.read.format("sparkrelay").option("kafka.bootstrap.servers", kafka.bootstrap_servers).load()
    with pytest.raises(PySparkException, match=r"kafka.bootstrap.servers is missing"):
        session.read.format("sparkrelay").option("subscribe", topic).load()
    with pytest.raises(PySparkException, match="no option 'startingoffset'; did you mean 'startingOffsets'"):
        topics(topic, startingOffset="earliest")
    with pytest.raises(PySparkException, match="would be empty"):
        topics(topic, startingOffsets="latest").collect()
    with pytest.raises(PySparkException, match="'nowhere' does not exist"):
        topics("nowhere").collect()
    with pytest.raises(
        PySparkException, match="unknown setting fetch.min.byte='1' of the consumer; did you mean 'fetch.min.bytes'"
    ):
        topics(topic, **{"kafka.fetch.min.byte": "1"})


@pytest.mark.parametrize(("source", "option"), [("sparkrelay", "subscribe"), ("sparkrelay-state", "storeName")])
def test_an_error_begins_with_its_message(source, option, session):
    with pytest.raises(PySparkException) as refused:
        session.read.format(source).load("nope")
    first, *_ = str(refused.value).splitlines()
    assert first.endswith(f'{source} has no path: instead of load("nope") write option("{option}", "nope").load()')
    assert "Traceback" not in str(refused.value)
    # The next error of another source, in a worker of its own, has its stack.
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
