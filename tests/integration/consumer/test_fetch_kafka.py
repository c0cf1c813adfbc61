"""Fetching from a real broker: sessions, sizes, remade topics, changes of leader, cut logs, damaged files, lag."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest
from tests.waiting import LONG, collect

from sparkrelay.client.fetch_session import FetchSession
from sparkrelay.consumer import Consumer, TopicPartition
from sparkrelay.consumer.fetch.fetching import FetchManager
from sparkrelay.devkafka import DevKafka
from sparkrelay.errors import (
    CorruptRecordException,
    KafkaException,
    LogTruncationException,
    UnknownTopicException,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def troubled(monkeypatch):
    """Partitions for which a broker had no data but an error: a busy machine's broker is away for moments."""
    seen = set()
    real = FetchManager._repeat

    def repeat(self, node_id, partition, asked, answer, now):
        if answer.error_code:
            seen.add(partition)
        return real(self, node_id, partition, asked, answer, now)

    monkeypatch.setattr(FetchManager, "_repeat", repeat)
    return seen


@pytest.fixture
def changes(monkeypatch):
    """What fetch requests said to brokers."""
    seen = []
    real = FetchSession.change

    def change(self, wanted):
        seen.append(real(self, wanted))
        return seen[-1]

    monkeypatch.setattr(FetchSession, "change", change)
    return seen


def values(rows):
    return [row["value"] for row in rows]


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_lives_on_while_data_waits_and_nothing_comes_twice(
    make_consumer, make_topic, produce, changes, troubled, read
):
    """KAFKA-17182."""
    topic = make_topic("session", partitions=6)
    rows = [{"value": f"{p}:{i}", "partition": p} for p in range(6) for i in range(3000)]
    produce(topic, rows, batch_size=2000, enable_idempotence=True)
    consumer = make_consumer(max_partition_fetch_bytes=4000, fetch_max_bytes=20_000)
    consumer.assign([TopicPartition(topic, p) for p in range(6)])
    seen = {p: [] for p in range(6)}
    for row in read(consumer, 18_000, max_records=170):
        seen[row["partition"]].append((row["offset"], row["value"]))
    assert seen == {p: [(i, f"{p}:{i}".encode()) for i in range(3000)] for p in range(6)}
    changes = changes.copy()  # the network thread goes on
    assert [change.epoch for change in changes] == list(range(len(changes)))
    assert {partition for change in changes for partition in change.forgotten} <= troubled
    # Each part of a log was asked for once: offsets only grow.
    offsets = {}
    for change in changes:
        for partition, asked in change.asked.items():
            assert asked.offset >= offsets.get(partition, 0)
            offsets[partition] = asked.offset


def test_an_idle_consumer_says_nothing(make_consumer, make_topic, wait_until, changes):
    topic = make_topic("idle", partitions=20)
    consumer = make_consumer(fetch_max_wait_ms=20)
    consumer.assign([TopicPartition(topic, p) for p in range(20)])

    def silent():
        consumer.poll(0.05)
        return len(changes) > 12 and not any(change.asked or change.forgotten for change in changes[-10:])

    wait_until(silent, "it goes on naming its partitions")


def test_data_of_paused_partitions_is_kept_and_not_fetched_again(make_consumer, make_topic, produce, read, changes):
    topic = make_topic("pause", partitions=2)
    produce(topic, [{"value": f"{p}:{i}", "partition": p} for p in range(2) for i in range(100)])
    partitions = [TopicPartition(topic, p) for p in range(2)]
    consumer = make_consumer()
    consumer.assign(partitions)
    first = read(consumer, 1, max_records=1)[0]["partition"]
    other = partitions[1 - first]
    consumer.pause([other])
    assert {row["partition"] for row in read(consumer, 99)} == {first}
    for _ in range(5):
        assert consumer.poll(0.05).num_rows == 0
    consumer.resume([other])
    assert len(read(consumer, 100)) == 100
    asked = [change.asked[other].offset for change in changes if other in change.asked]
    assert sorted(set(asked)) in ([0, 100], [0])


def test_the_session_is_ended_when_the_consumer_is_closed(kafka, make_consumer, make_topic, wait_until, monkeypatch):
    from sparkrelay.client.kafka_client import KafkaClient

    sent = []
    real = KafkaClient.send
    monkeypatch.setattr(
        KafkaClient, "send", lambda self, request, **more: sent.append(request) or real(self, request, **more)
    )
    topic = make_topic("last")
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0)])

    def fetches():
        return [request for request in sent if request.name == "FetchRequest"]

    def in_session():
        consumer.poll(0.1)
        return any(fetch.session_epoch > 0 for fetch in fetches())

    wait_until(in_session, "there is no session that could be ended")
    consumer.close()
    last = fetches()[-1]
    assert (last.session_epoch, len(last.topics)) == (-1, 0)
    assert last.session_id != 0


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["fetch_max_bytes", "max_partition_fetch_bytes"])
def test_a_record_larger_than_a_fetch_is_read_first_or_not(make_consumer, make_topic, produce, read, setting):
    topic = make_topic("large")
    small, large = b"small", b"x" * 400_000
    produce(topic, [{"value": large}], batch_size=1)
    produce(topic, [{"value": small}], batch_size=1)
    produce(topic, [{"value": large + b"2"}, {"value": small}], batch_size=1)
    consumer = make_consumer(**{setting: 1000})
    consumer.assign([TopicPartition(topic, 0)])
    assert values(read(consumer, 4)) == [large, small, large + b"2", small]


def test_one_partition_with_large_records_does_not_starve_others(make_consumer, make_topic, produce, read):
    topic = make_topic("large", partitions=3)
    produce(topic, [{"value": bytes([p]) * 50_000, "partition": p} for p in range(3) for _ in range(5)], batch_size=1)
    consumer = make_consumer(fetch_max_bytes=10_000)
    consumer.assign([TopicPartition(topic, p) for p in range(3)])
    assert sorted(row["partition"] for row in read(consumer, 15)) == sorted([0, 1, 2] * 5)


# -- topics that are made again ----------------------------------------------------------------------------------------


def test_a_remade_topic_fails_loudly_until_a_seek(
    make_consumer, make_topic, produce, read, make_again, wait_until, group
):
    """franz-go #1426: also if the new topic has more records than our position."""
    topic = make_topic("remade")
    partition = TopicPartition(topic, 0)
    produce(topic, [{"value": f"old {i}"} for i in range(5)], enable_idempotence=True)
    consumer = make_consumer(group_id=group, auto_commit_interval_ms=100)
    consumer.assign([partition])
    read(consumer, 5)
    make_again(topic)
    produce(topic, [{"value": f"new {i}"} for i in range(20)], enable_idempotence=True)

    def raised():
        try:
            assert consumer.poll(0.2).to_pylist() == []
        except UnknownTopicException as error:
            return "deleted and created again" in str(error)
        except KafkaException:
            return False
        return False

    wait_until(raised, "nobody noticed")
    for _ in range(3):
        with pytest.raises(UnknownTopicException, match=r"position 5 of .*seek"):
            consumer.poll(0.1)
    consumer.seek_to_beginning([partition])
    assert values(read(consumer, 20)) == [f"new {i}".encode() for i in range(20)]
    consumer.commit()
    assert consumer.committed([partition]) == {partition: 20}


# -- epochs ------------------------------------------------------------------------------------------------------------


def test_commits_carry_the_leader_epoch(kafka, make_consumer, make_topic, produce, read, group):
    import confluent_kafka

    topic = make_topic("epoch")
    produce(topic, [("k", "v")])
    consumer = make_consumer(group_id=group, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    read(consumer, 1)
    consumer.commit()
    other = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        (committed,) = other.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=LONG)
    finally:
        other.close()
    assert (committed.offset, committed.leader_epoch) == (1, 0)


@contextmanager
def broker_with(count):
    """A broker of the test's own, with a topic "t" of so many records "0", "1", ..., each in a batch."""
    from confluent_kafka.admin import AdminClient, NewTopic

    with DevKafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])["t"].result(LONG)
        write(broker, range(count))
        yield broker


def write(broker, numbers):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1, "linger.ms": 0})
    for number in numbers:
        producer.produce("t", str(number))
        assert producer.flush(LONG) == 0


@contextmanager
def consuming(broker, **config):
    settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest", "retry.backoff.ms": 50}
    with Consumer(settings | {key.replace("_", "."): value for key, value in config.items()}) as consumer:
        consumer.assign([T])
        yield consumer


T = TopicPartition("t", 0)


def read_all(consumer, count):
    def poll():
        try:
            return [int(value) for value in values(consumer.poll(0.5).to_pylist())]
        except LogTruncationException:
            raise
        except KafkaException as error:
            assert error.retriable, error  # noqa: PT017 - the broker is away
            return ()

    return collect(poll, lambda seen: len(seen) >= count, f"not {count} records")


def log_file(broker):
    return next(broker.data_dir.glob("**/t-0/00000000000000000000.log"))


def cut(broker, keep):
    """Take the last records off the log of a stopped broker, as a lost disk cache would."""
    path = log_file(broker)
    data, at = path.read_bytes(), 0
    for _ in range(keep):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    path.write_bytes(data[:at])
    for other in path.parent.iterdir():
        if other.suffix in {".index", ".timeindex", ".snapshot", ".txnindex"}:
            other.unlink()


@pytest.mark.long
def test_a_restarted_leader_is_asked_and_reading_goes_on():
    with broker_with(10) as broker, consuming(broker) as consumer:
        assert read_all(consumer, 10) == list(range(10))
        before = consumer._session.subscription.get(T).checked_epoch
        broker.restart()
        write(broker, range(10, 20))
        assert read_all(consumer, 10) == list(range(10, 20))
        assert consumer._session.subscription.get(T).checked_epoch > before


@pytest.mark.long
@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_log_that_was_cut_is_noticed_although_it_has_grown_again(reset):
    """The new log is longer than our position: without KIP-320 records 6 to 9 of the new log would be skipped."""
    with broker_with(10) as broker, consuming(broker, auto_offset_reset=reset) as consumer:
        consumer.seek(T, 0)
        assert read_all(consumer, 10) == list(range(10))
        consumer.pause([T])  # the new leader has grown before we look
        broker.kill()
        cut(broker, keep=6)
        broker.start()
        write(broker, range(100, 110))
        consumer.resume([T])
        if reset == "none":
            with pytest.raises(LogTruncationException, match=r"t-0.*position 10.*seek\(\) to 6") as caught:
                read_all(consumer, 1)
            assert (caught.value.partition, caught.value.position, caught.value.divergent_offset) == (T, 10, 6)
            consumer.seek(T, caught.value.divergent_offset)
        assert read_all(consumer, 10) == list(range(100, 110))


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_damaged_batch_on_disk_is_named_and_a_seek_goes_past_it():
    with broker_with(10) as broker:
        broker.stop()
        path = log_file(broker)
        data, at = bytearray(path.read_bytes()), 0
        for _ in range(4):
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        data[at + 66] ^= 0xFF
        path.write_bytes(data)
        broker.start()
        with consuming(broker) as consumer:
            assert read_all(consumer, 4) == [0, 1, 2, 3]
            for _ in range(2):
                with pytest.raises(CorruptRecordException, match="t-0: the record batch at offset 4 is damaged"):
                    read_all(consumer, 1)
                assert consumer.position(T) == 4
            consumer.seek(T, 5)
            assert read_all(consumer, 5) == [5, 6, 7, 8, 9]


# -- where to start, how far behind ------------------------------------------------------------------------------------


def test_start_so_long_ago(make_consumer, make_topic, produce, read):
    """KIP-1106; a partition without a record so young is read from its end."""
    topic = make_topic("ago", partitions=2)
    now = int(time.time() * 1000)
    ages = [7_200_000, 5_400_000, 1_800_000, 60_000]
    produce(topic, [{"value": str(age), "timestamp": now - age, "partition": 0} for age in ages])
    produce(topic, [{"value": "old", "timestamp": now - 7_200_000, "partition": 1}])
    consumer = make_consumer(auto_offset_reset="by_duration:PT1H")
    partitions = [TopicPartition(topic, p) for p in range(2)]
    consumer.assign(partitions)
    assert values(read(consumer, 2)) == [b"1800000", b"60000"]
    assert [consumer.position(p) for p in partitions] == [4, 1]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_lag(kafka, make_consumer, make_topic, produce, read, wait_until, isolation):
    from confluent_kafka import Producer

    topic = make_topic("lag")
    partition = TopicPartition(topic, 0)
    produce(topic, [("k", str(i)) for i in range(10)])
    open_one = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topic}-{isolation}"})
    open_one.init_transactions(LONG)
    open_one.begin_transaction()
    open_one.produce(topic, b"open")
    open_one.flush(LONG)
    consumer = make_consumer(isolation_level=isolation)
    consumer.assign([partition])
    consumer.pause([partition])
    consumer.seek(partition, 2)
    end = 10 if isolation == "read_committed" else 11
    assert consumer.lag(partition) in {None, end - 2}  # who does not know the end yet asks for it
    wait_until(lambda: consumer.lag(partition) == end - 2, "the end was not found")
    consumer.resume([partition])
    read(consumer, 3, max_records=3)
    assert consumer.lag(partition) == end - 5
    read(consumer, end - 5)
    assert consumer.lag(partition) == 0
    open_one.abort_transaction(LONG)
