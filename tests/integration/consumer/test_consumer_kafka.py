"""The consumer against a real broker: reading, committing, starting where it should, waking up, closing, faults."""

from __future__ import annotations

import contextlib
import threading

import pytest
from tests.waiting import AVOIDED, LONG, collect, wait_until, within

from sparkrelay.consumer import Consumer
from sparkrelay.errors import (
    BrokerResponseException,
    ConcurrentModificationError,
    ConfigException,
    DisconnectException,
    OffsetOutOfRangeException,
    TimeoutException,
    WakeupException,
)
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def test_subscribe_consume_commit_resume(make_consumer, make_topic, produce, read, group):
    topic = make_topic("consume", partitions=2)
    produce(topic, [{"value": str(i), "partition": i % 2} for i in range(100)])
    first = make_consumer(group_id=group, enable_auto_commit=False)
    first.subscribe([topic])
    rows = read(first, 100)
    assert sorted(int(row["value"]) for row in rows) == list(range(100))
    assert first.committed(first.assignment()) == {TopicPartition(topic, p): None for p in range(2)}
    first.commit()
    assert first.committed(first.assignment()) == {TopicPartition(topic, p): 50 for p in range(2)}
    assert first.group_metadata().generation >= 1
    first.close()

    produce(topic, [{"value": "new", "partition": 1}])
    second = make_consumer(group_id=group, enable_auto_commit=False)
    second.subscribe([topic])
    assert [row["value"] for row in read(second, 1)] == [b"new"]


def test_rows_have_the_columns_of_sparks_source(make_consumer, make_topic, produce, read):
    topic = make_topic("consume")
    produce(topic, [{"key": "k", "value": "v", "timestamp": 1_700_000_000_123, "headers": [("h", b"1"), ("h", None)]}])
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0)])
    (row,) = read(consumer, 1)
    assert row.pop("timestamp").timestamp() == 1_700_000_000.123
    assert row == {
        "key": b"k", "value": b"v", "topic": topic, "partition": 0, "offset": 0, "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }  # fmt: skip


def test_assign_seek_pause_resume(make_consumer, make_topic, produce, read):
    topic = make_topic("consume", partitions=2)
    produce(topic, [{"value": str(i), "partition": i % 2} for i in range(20)])
    one, two = (TopicPartition(topic, p) for p in range(2))
    consumer = make_consumer()
    consumer.assign([one, two])
    assert len(read(consumer, 20)) == 20
    assert consumer.position(one) == consumer.position(two) == 10
    consumer.seek(one, 7)
    assert [(row["partition"], row["offset"]) for row in read(consumer, 3)] == [(0, 7), (0, 8), (0, 9)]
    consumer.pause([one])
    consumer.seek_to_beginning([one, two])
    assert {row["partition"] for row in read(consumer, 10)} == {1}
    assert consumer.paused() == {one}
    consumer.resume([one])
    assert {row["partition"] for row in read(consumer, 10)} == {0}
    consumer.seek_to_end()
    assert consumer.position(one) == 10
    assert consumer.beginning_offsets([one]) == {one: 0}
    assert consumer.end_offsets([one, two]) == {one: 10, two: 10}
    assert consumer.partitions_for(topic) == (0, 1)


def test_limits_of_poll_are_kept_and_nothing_is_lost(make_consumer, make_topic, produce, read):
    topic = make_topic("consume", partitions=2)
    produce(topic, [{"value": b"x" * 100, "partition": i % 2} for i in range(500)])
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, p) for p in range(2)])

    def found(tables):
        return sum(table.num_rows for table in tables)

    few = collect(lambda: [consumer.poll(1, max_records=7)], lambda tables: found(tables) >= 250, "not 250 records")
    assert max(table.num_rows for table in few) == 7
    left = 500 - found(few)
    small = collect(lambda: [consumer.poll(1, max_bytes=1050)], lambda tables: found(tables) >= left, "not all records")
    assert max(table.num_rows for table in small) <= 10
    rows = [row for table in few + small for row in table.to_pylist()]
    for p in range(2):
        assert [r["offset"] for r in rows if r["partition"] == p] == list(range(250))


def test_read_committed_hides_aborted_and_open_transactions(kafka, make_consumer, make_topic, produce, read):
    from confluent_kafka import Producer

    topic = make_topic("consume")
    partition = TopicPartition(topic, 0)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"tx-{topic}"})
    writer.init_transactions(LONG)
    for text, commit in (("a", True), ("b", False), ("c", True)):
        writer.begin_transaction()
        writer.produce(topic, value=text)
        writer.flush(LONG)
        writer.commit_transaction(LONG) if commit else writer.abort_transaction(LONG)
    writer.begin_transaction()
    writer.produce(topic, value="open")
    writer.flush(LONG)

    committed, dirty = make_consumer(isolation_level="read_committed"), make_consumer()
    for consumer in (committed, dirty):
        consumer.assign([partition])
    assert [r["value"] for r in read(dirty, 4)] == [b"a", b"b", b"c", b"open"]
    assert [r["value"] for r in read(committed, 2)] == [b"a", b"c"]
    assert committed.end_offsets([partition]) == {partition: 6}
    assert dirty.end_offsets([partition]) == {partition: 7}
    writer.commit_transaction(LONG)
    assert [r["value"] for r in read(committed, 1)] == [b"open"]


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_a_position_that_the_log_does_not_have(make_consumer, make_topic, produce, read, reset):
    topic = make_topic("consume")
    produce(topic, [("k", "v")] * 3)
    consumer = make_consumer(auto_offset_reset=reset)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 99)
    if reset == "none":
        with pytest.raises(OffsetOutOfRangeException, match=f"{topic}-0.*offset 99"):
            read(consumer, 1)
    elif reset == "earliest":
        assert read(consumer, 3)[0]["offset"] == 0
    else:
        at = TopicPartition(topic, 0)
        wait_until(lambda: consumer.position(at) == 3 or consumer.poll(0.1) is None, "it is not at the end")


def test_auto_commit_covers_what_poll_returned_and_no_more(make_consumer, make_topic, produce, read, group):
    topic = make_topic("consume")
    produce(topic, [{"value": str(i)} for i in range(100)])
    consumer = make_consumer(group_id=group, auto_commit_interval_ms=0)
    consumer.subscribe([topic])
    assert len(read(consumer, 1, max_records=30)) == 30
    consumer.close()
    other = make_consumer(group_id=group, enable_auto_commit=False)
    assert other.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 30}


def test_async_commits_are_done_in_order_before_commit_and_close_return(make_consumer, make_topic, produce, group):
    topic = make_topic("consume")
    partition = TopicPartition(topic, 0)
    consumer = make_consumer(group_id=group, enable_auto_commit=False)
    consumer.assign([partition])
    futures = [consumer.commit_async({partition: n}) for n in range(1, 20)]
    consumer.commit({partition: 20})
    assert all(future.done() and future.exception() is None for future in futures)
    assert consumer.committed([partition]) == {partition: 20}
    last = consumer.commit_async({partition: 21})
    consumer.close()
    assert last.done()
    assert last.exception() is None


def test_wakeup_ends_a_poll_and_loses_no_record(make_consumer, make_topic, produce, read, group):
    topic = make_topic("consume")
    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic])
    threading.Timer(0.3, consumer.wakeup).start()
    with pytest.raises(WakeupException):
        consumer.poll(LONG)
    produce(topic, [("k", str(i)) for i in range(50)])

    def woken_and_polled():
        consumer.wakeup()
        with pytest.raises(WakeupException):
            consumer.poll(1)
        return consumer.poll(1, max_records=3).to_pylist()

    seen = collect(woken_and_polled, lambda rows: len(rows) >= 50, "not all records")
    assert [row["offset"] for row in seen] == list(range(50))


def test_wakeup_of_a_consumer_that_does_not_fetch_is_no_error(make_consumer, make_topic, group):
    topic = make_topic("consume")
    consumer = make_consumer(group_id=group, fetching=False)
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.2) is not None and consumer.assignment(), "nothing was assigned")
    threading.Timer(0.3, consumer.wakeup).start()
    with within():
        assert consumer.poll(AVOIDED).num_rows == 0
    assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}


def test_two_threads_at_once_are_refused_by_name(make_consumer, make_topic):
    consumer = make_consumer()
    consumer.assign([TopicPartition(make_topic("consume"), 0)])
    refusals = []

    def poll():
        while not refusals:
            with contextlib.suppress(ConcurrentModificationError):  # either of the two may be the one refused
                consumer.poll(1)

    thread = threading.Thread(target=poll, name="poller")
    thread.start()
    while not refusals:
        try:
            consumer.paused()
        except ConcurrentModificationError as error:
            refusals.append(str(error))
    thread.join()
    assert "thread 'MainThread' called a consumer that thread 'poller' is using" in refusals[0]


def test_a_callback_may_hand_the_consumer_to_another_thread(make_consumer, make_topic, group):
    topic = make_topic("consume")
    partition = TopicPartition(topic, 0)
    consumer = make_consumer(group_id=group, enable_auto_commit=False)
    done = []

    def revoked(consumer, partitions):
        key = consumer.access_key()

        def commit():
            with consumer.access(key):
                consumer.commit(dict.fromkeys(partitions, 5))
                done.append(consumer.committed(partitions))

        worker = threading.Thread(target=commit)
        worker.start()
        worker.join(LONG)

    consumer.subscribe([topic], on_revoked=revoked)
    wait_until(lambda: consumer.poll(0.2) is not None and consumer.assignment(), "nothing was assigned")
    consumer.unsubscribe()
    assert done == [{partition: 5}]
    assert consumer.assignment() == consumer.subscription() == frozenset()


def test_an_error_in_a_callback_comes_out_of_poll_and_the_group_goes_on(
    make_consumer, make_topic, produce, read, group
):
    topic = make_topic("consume")
    produce(topic, [("k", "v")])
    consumer = make_consumer(group_id=group)

    calls = []

    def assigned(consumer, partitions):
        calls.append(partitions)
        if len(calls) == 1:
            raise ZeroDivisionError("in a callback")

    consumer.subscribe([topic], on_assigned=assigned)
    with pytest.raises(ZeroDivisionError, match="in a callback"):
        read(consumer, 1)
    assert len(read(consumer, 1)) == 1


def test_a_member_that_does_not_poll_leaves_and_comes_back(make_consumer, make_topic, wait_until, group):
    topic, events = make_topic("consume"), []
    consumer = make_consumer(group_id=group, max_poll_interval_ms=1500, session_timeout_ms=6000, fetching=False)
    consumer.subscribe(
        [topic],
        on_assigned=lambda _, p: events.append(("assigned", len(p))),
        on_lost=lambda _, p: events.append(("lost", len(p))),
    )
    wait_until(lambda: consumer.poll(0.2) is not None and consumer.assignment(), "nothing was assigned")
    core = consumer._network.core
    wait_until(lambda: core.awaits_poll, "the member did not leave")
    with pytest.raises(Exception, match="not in group"):
        consumer.commit({TopicPartition(topic, 0): 1})
    wait_until(lambda: consumer.poll(0.2) is not None and len(events) == 3, "the member did not come back")
    assert events == [("assigned", 1), ("lost", 1), ("assigned", 1)]


def test_who_expects_a_rebalance_need_not_wait_for_the_next_heartbeat(make_consumer, make_topic, wait_until, group):
    """Its heartbeats are minutes apart: without being quick it would not know within the test's time."""
    topic = make_topic("expect", partitions=2)
    staying = make_consumer(
        group_id=group,
        heartbeat_interval_ms=590_000,
        session_timeout_ms=600_000,
        partition_assignment_strategy="range",  # cooperative members are quick after each rebalance
    )
    staying.subscribe([topic])
    wait_until(lambda: staying.poll(0.1) is not None and len(staying.assignment()) == 2, "nothing assigned")
    coming = make_consumer(group_id=group, partition_assignment_strategy="range")
    coming.subscribe([topic])

    def shared():
        staying.expect_rebalance()
        for consumer in (staying, coming):
            consumer.poll(0.05)
        return [len(consumer.assignment()) for consumer in (staying, coming)] == [1, 1]

    wait_until(shared, "the member that stays was not notified")


def test_what_joining_again_does_not_change_is_raised_each_time(make_consumer, make_topic, group):
    consumer = make_consumer(group_id=group, session_timeout_ms=100, heartbeat_interval_ms=30)
    consumer.subscribe([make_topic("consume")])
    for _ in range(2):
        with pytest.raises(BrokerResponseException, match="INVALID_SESSION_TIMEOUT"):
            consumer.poll(LONG)
    consumer.unsubscribe()


def test_members_without_a_common_assignor_get_an_error(make_consumer, make_topic, group):
    topic = make_topic("consume")
    first = make_consumer(group_id=group, partition_assignment_strategy="range")
    first.subscribe([topic])
    wait_until(lambda: first.poll(0.2) is not None and first.assignment(), "nothing was assigned")
    second = make_consumer(group_id=group, partition_assignment_strategy="cooperative-sticky")
    second.subscribe([topic])
    with pytest.raises(BrokerResponseException, match="INCONSISTENT_GROUP_PROTOCOL.*23"):
        second.poll(LONG)


def test_misuse_is_named(make_consumer, make_topic):
    consumer = make_consumer()
    with pytest.raises(ConfigException, match="needs a group"):
        consumer.subscribe(["t"])
    with pytest.raises(ConfigException, match=r"call subscribe\(\) or assign\(\)"):
        consumer.poll(1)
    with pytest.raises(ConfigException, match="t-0 is not assigned"):
        consumer.seek(TopicPartition("t", 0), 1)
    consumer.close()
    consumer.close()
    with pytest.raises(DisconnectException, match="closed"):
        consumer.poll(1)


def test_close_leaves_at_once_and_without_a_broker_it_does_not_hang(make_consumer, group):
    consumer = make_consumer(bootstrap_servers="localhost:1", group_id=group)
    consumer.subscribe(["t"])
    assert consumer.poll(0.5).num_rows == 0
    with pytest.raises(TimeoutException, match="localhost:1"):
        consumer.end_offsets([TopicPartition("t", 0)], timeout=0.5)
    with within():
        consumer.close(AVOIDED)


def test_closing_in_little_time_leaves_the_group_all_the_same(make_consumer, make_topic, wait_until, group):
    """KAFKA-16985, KAFKA-17518: only leaving can free the partitions before this session ends."""
    topic = make_topic("consume")
    first = make_consumer(group_id=group, session_timeout_ms=600_000, fetching=False)
    first.subscribe([topic])
    wait_until(lambda: first.poll(0.2) is not None and first.assignment(), "nothing was assigned")
    first.close(1)
    second = make_consumer(group_id=group, fetching=False)
    second.subscribe([topic])
    wait_until(lambda: second.poll(0.2) is not None and second.assignment(), "the partition was not freed")


def test_position_honours_its_timeout_and_wakeup(make_consumer):
    """KAFKA-16427, KAFKA-16659."""
    partition = TopicPartition("t", 0)
    consumer = make_consumer(bootstrap_servers="localhost:1")
    consumer.assign([partition])
    with pytest.raises(TimeoutException, match="position of t-0"):
        consumer.position(partition, timeout=0.3)
    consumer.wakeup()
    with pytest.raises(WakeupException):
        consumer.position(partition, timeout=LONG)


def test_a_group_that_cannot_be_left_does_not_keep_unsubscribe(make_consumer, group):
    """KAFKA-17581: errors that came before do not break it either."""
    consumer = make_consumer(bootstrap_servers="localhost:1", group_id=group)
    consumer.subscribe(["t"])
    consumer.poll(0.1)
    consumer.unsubscribe()
    assert consumer.subscription() == frozenset()
    with pytest.raises(ConfigException, match="without topics"):
        consumer.poll(0)


def test_no_thread_is_left_behind(make_consumer, make_topic, group):
    consumer = make_consumer(group_id=group, client_id="thread-check")
    assert any("thread-check" in t.name for t in threading.enumerate())
    consumer.subscribe([make_topic("consume")])
    consumer.poll(1)
    consumer.close(0)
    wait_until(lambda: not any("thread-check" in t.name for t in threading.enumerate()), "a thread is left")


def test_a_dead_network_thread_is_said_and_nothing_hangs(make_consumer, make_topic, group):
    consumer = make_consumer(group_id=group)
    consumer.subscribe([make_topic("consume")])

    class Boom:
        def poll(self, now):
            raise RuntimeError("boom")

    consumer._network.core.managers = (Boom(),)
    with pytest.raises(DisconnectException, match=r"network thread died: RuntimeError\('boom'\)"):
        consumer.poll(LONG)
    with pytest.raises(DisconnectException, match="boom"):
        consumer.end_offsets([TopicPartition("t", 0)])


@pytest.mark.long
def test_a_broker_that_goes_and_returns(group, wait_until):
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    from sparkrelay.devkafka import DevKafka

    with DevKafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(LONG)
        settings = {
            "bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 300, "enable.auto.commit": False,
        }  # fmt: skip
        writer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        with Consumer(settings) as consumer:
            consumer.subscribe(["t"])
            writer.produce("t", value="before")
            writer.flush(LONG)
            rows = []

            def got(count):
                rows.extend(consumer.poll(0.2).to_pylist())
                return len(rows) >= count

            wait_until(lambda: got(1), "the first record")
            consumer.commit()
            broker.kill()
            for _ in range(5):
                assert consumer.poll(0.2).num_rows == 0
            broker.start()
            writer.produce("t", value="after")
            writer.flush(LONG)
            wait_until(lambda: got(2), "the record after the restart")
            consumer.commit(timeout=LONG)
            partition = TopicPartition("t", 0)
            assert consumer.committed([partition], timeout=LONG) == {partition: 2}
        assert [row["value"] for row in rows] == [b"before", b"after"]
