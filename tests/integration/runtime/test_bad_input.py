"""What a user can get wrong with brokers, topics, state and records: an error that names it, and nothing hangs.

What pipelines cannot have is in tests/integration/testing/test_refused_steps.py and test_refused_columns.py.
"""

import pytest
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import (
    CorruptRecordException,
    IncompatibleTopologyException,
    SerializationException,
    StateStoreException,
    StreamsException,
    TimeoutException,
    UnknownTopicException,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def copying(source, sink):
    builder = StreamsBuilder()
    builder.stream(source).to(sink)
    return builder


def counting(source, sink):
    builder = StreamsBuilder()
    builder.stream(source, key=String("user"), value=Json("n int")).groupBy("user").count().to(sink)
    return builder


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 2), make_topic("out", 2)


@pytest.fixture
def fails_to_start(instance):
    """`fails_to_start(error, words, builder, config)`: start() raises, and the instance can be stopped afterwards."""

    def check(error, words, builder, config=None):
        streams = instance(builder, config)
        with pytest.raises(error, match=words):
            streams.start()
        assert not streams.isActive
        assert streams.stop(LONG)

    return check


@pytest.fixture
def fails_while_running(instance, wait_until):
    """`fails_while_running(error, words, builder, config)`: the instance goes to ERROR with the cause."""

    def check(error, words, streams):
        wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
        assert not streams.isActive
        with pytest.raises(error, match=words):
            streams.awaitTermination(LONG)
        assert isinstance(streams.exception(), error)

    return check


def test_nothing_listens_at_the_brokers_addresses(fails_to_start):
    config = {"bootstrap.servers": "127.0.0.1:1,localhost:2"}
    fails_to_start(TimeoutException, "bootstrap.servers=127.0.0.1:1,localhost:2 within 5 s", copying("a", "b"), config)


def test_a_pipeline_that_writes_nowhere_warns(fails_to_start, caplog):
    builder = StreamsBuilder()
    builder.stream("a", key=String("user"), value=Json("shop string")).groupBy("shop").count()
    config = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 500}
    fails_to_start(TimeoutException, "127.0.0.1:1", builder, config)
    assert [r.message for r in caplog.records if "writes to no topic" in r.message and '.to("topic")' in r.message]


def test_a_source_topic_that_does_not_exist(fails_to_start, topics):
    fails_to_start(
        UnknownTopicException, "'no-such-orders' does not exist; create it", copying("no-such-orders", topics[1])
    )


def test_a_sink_topic_that_does_not_exist(fails_to_start, topics):
    fails_to_start(
        UnknownTopicException,
        r"test_bad_input.py.*'no-such-counts' of to\(\) does not exist; create it",
        counting(topics[0], "no-such-counts"),
    )


def add_partition(kafka_admin, topic, total):
    from confluent_kafka.admin import NewPartitions

    kafka_admin.create_partitions([NewPartitions(topic, total)])[topic].result(LONG)


@pytest.mark.long
def test_a_source_topic_got_more_partitions_between_two_runs(
    fails_to_start, instance, topics, produce, kafka_admin, consumed, wait_until
):
    produce(topics[0], [("a", {"n": 1})])
    with instance(counting(*topics)) as streams:
        streams.start()
        wait_until(lambda: consumed(topics[1]), "no output")
    add_partition(kafka_admin, topics[0], 3)
    fails_to_start(StreamsException, "has 3 partitions now, not 2\\. Producers", counting(*topics))


def test_a_source_topic_gets_more_partitions_while_running(
    fails_while_running, instance, topics, produce, kafka_admin, consumed, wait_until
):
    produce(topics[0], [("a", {"n": 1})])
    streams = instance(counting(*topics), {"consumer.metadata.max.age.ms": 500})
    streams.start()
    wait_until(lambda: consumed(topics[1]), "no output")
    add_partition(kafka_admin, topics[0], 3)
    fails_while_running(StreamsException, r"has (3|more) partitions now, not 2\. Producers", streams)


def test_a_record_that_does_not_decode_ends_the_instance(fails_while_running, instance, topics, produce, consumed):
    """The proof on a real broker; tests/integration/testing/test_bad_records.py has the others."""
    produce(topics[0], [{"key": "a", "value": {"n": 1}, "partition": 0}, {"key": "a", "value": "{oh", "partition": 0}])
    streams = instance(counting(*topics))
    streams.start()
    fails_while_running(SerializationException, rf"{topics[0]}-0 at offset 1 .*log-and-continue", streams)
    assert not consumed(topics[1])
    # The same again: nothing of the refused batch was kept.
    again = instance(counting(*topics))
    again.start()
    fails_while_running(SerializationException, rf"{topics[0]}-0 at offset 1 ", again)


def test_a_record_batch_that_decompresses_to_too_much(fails_while_running, instance, topics, produce):
    produce(topics[0], [{"key": "a", "value": "x" * 100_000, "partition": 0}], compression_type="zstd")
    streams = instance(copying(*topics), {"max.decompressed.batch.bytes": 50_000, "max.batch.retries": 0})
    streams.start()
    words = rf"{topics[0]}-0: .* offset 0 .* zstd hold more than max.decompressed.batch.bytes=50000"
    fails_while_running(CorruptRecordException, words, streams)


@pytest.mark.parametrize(
    ("divided", "where"),
    [
        (lambda: F.udf(lambda n: 12 // n, "int")("n"), r"\S+test_bad_input.py:\d+, in <lambda>"),
        (lambda: F.expr("12 / n"), "in the expression '12 / n'"),
    ],
    ids=["python", "sql"],
)
def test_a_failing_step_is_tried_again_and_named_with_its_input(
    fails_while_running, instance, topics, produce, consumed, caplog, capfd, divided, where
):
    produce(topics[0], [{"key": key, "value": {"n": n}, "partition": 1} for key, n in [("a", 3), ("b", 0)]])
    builder = StreamsBuilder()
    numbers = builder.stream(topics[0], key=String("user"), value=Json("n int"))
    numbers.groupBy("user").agg(F.sum(divided()).alias("s")).to(topics[1])
    streams = instance(builder, {"max.batch.retries": 1})
    streams.start()
    failed = rf"failed in task 0_1 \(topic {topics[0]}, partition 1, offsets 0 to 1\): .* by zero.* \({where}\)"
    fails_while_running(StreamsException, failed, streams)
    assert "failed and runs again" in caplog.text
    assert not [record for record in caplog.records if record.levelno > 10 and "\n" in record.getMessage()]
    assert "Traceback" not in capfd.readouterr().err
    assert not consumed(topics[1])


def test_state_dir_cannot_be_written(fails_to_start, topics, tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    fails_to_start(StateStoreException, f"{file}", counting(*topics), {"state.dir": str(file)})
    fails_to_start(StateStoreException, "/proc/nowhere", counting(*topics), {"state.dir": "/proc/nowhere"})


@pytest.mark.long
def test_two_topologies_under_one_application_id(
    fails_while_running, instance, topics, produce, wait_for_table, tmp_path, make_topic, wait_until
):
    produce(topics[0], [("a", {"n": 1})])
    first = instance(counting(*topics), {"state.dir": str(tmp_path / "first")})
    first.start()
    wait_for_table(topics[1], {b"a": {"user": "a", "count": 1}}, first)

    other = StreamsBuilder()
    stream = other.stream(topics[0], key=String("user"), value=Json("n int"))
    stream.groupBy("user").count().to(topics[1])
    stream.groupBy("user").agg(F.sum("n").alias("s"), name="extra").to(make_topic("sums", 2))
    second = instance(other, {"state.dir": str(tmp_path / "second")})
    second.start()
    fails_while_running(IncompatibleTopologyException, "runs another topology.*extra", second)

    produce(topics[0], [("a", {"n": 1})])
    wait_for_table(topics[1], {b"a": {"user": "a", "count": 2}}, first)
    wait_until(lambda: first.state == "RUNNING", f"{first.status}, not RUNNING")


def test_an_instance_starts_only_once(instance, topics, wait_until):
    streams = instance(copying(*topics))
    streams.start()
    with pytest.raises(StreamsException, match=r"start\(\) needs a new instance; this one is"):
        streams.start()
    wait_until(lambda: streams.state == "RUNNING", f"{streams.status}, not RUNNING")
    assert streams.stop(LONG)
    with pytest.raises(StreamsException, match="NOT_RUNNING"):
        streams.start()
