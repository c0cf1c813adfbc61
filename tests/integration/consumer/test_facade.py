"""What the application sees of the consumer, on a real broker; Kafka's own bugs of that kind are named by number."""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from tests.waiting import LONG, collect, wait_until, within

import sparkrelay.consumer.api.session
from sparkrelay.consumer import Consumer, OffsetAndMetadata
from sparkrelay.consumer.base.events import Commit, ErrorRaised, Polled
from sparkrelay.errors import (
    AccessKeyError,
    CommitFailedException,
    ConcurrentModificationError,
    ConfigException,
    DisconnectException,
    OffsetOutOfRangeException,
    RecordDeserializationException,
    WakeupException,
)
from sparkrelay.records.formats import Json
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def join(consumer, topic, **callbacks):
    consumer.subscribe([topic], **callbacks)
    wait_until(consumer.assignment, "nothing was assigned", between=lambda: consumer.poll(0.2, max_records=1))


@pytest.fixture
def on_alarm():
    """`on_alarm(seconds, handler)` has a real signal run a handler in the main thread."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(seconds, handler):
        signal.signal(signal.SIGALRM, lambda *_: handler())
        signal.setitimer(signal.ITIMER_REAL, seconds)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# -- polling and wakeups ---------------------------------------------------------------------------------------------


def test_kafka_15555_wakeups_at_random_lose_no_record(make_consumer, make_topic, produce):
    topic, rng, woken = make_topic("facade", partitions=2), random.Random(3), 0
    produce(topic, [{"value": str(i), "partition": i % 2} for i in range(1000)])
    consumer = make_consumer(max_partition_fetch_bytes=2000)
    consumer.assign([TopicPartition(topic, p) for p in range(2)])
    stop = threading.Event()

    def wake():
        while not stop.wait(rng.random() / 200):
            consumer.wakeup()

    def poll():
        nonlocal woken
        try:
            return consumer.records(0.2, max_records=11)
        except WakeupException:
            woken += 1
            return ()

    thread = threading.Thread(target=wake)
    thread.start()
    try:
        seen = collect(poll, lambda rows: len(rows) >= 1000 and woken >= 20, "not all records, or too few wakeups")
    finally:
        stop.set()
        thread.join()
    assert sorted(int(record.value) for record in seen) == list(range(1000))


def test_kafka_19259_a_waiting_poll_sees_data_that_comes_after_empty_answers(
    make_consumer, make_topic, produce, wait_until, polls_of
):
    topic = make_topic("facade")
    consumer = make_consumer(fetch_max_wait_ms=20)
    consumer.assign([TopicPartition(topic, 0)])
    polls = polls_of(consumer)
    wait_until(lambda: consumer.metrics()["fetch-total"] > 10, "no empty answers came while a poll waits")
    produce(topic, [("k", "v")])
    assert polls.get(timeout=LONG)["value"].to_pylist() == [b"v"]


def test_a_seek_resolves_what_was_missing_before_it(make_consumer, make_topic, produce, read, wait_until):
    """The network thread looks for positions at once; that it finds none is no error if the application knows one."""
    topic = make_topic("facade")
    produce(topic, [("k", str(i)) for i in range(5)])
    consumer = make_consumer(auto_offset_reset="none")
    consumer.assign([TopicPartition(topic, 0)])
    wait_until(lambda: consumer._session.mailbox._events, "no error was raised")
    consumer.seek(TopicPartition(topic, 0), 3)
    assert [row["offset"] for row in read(consumer, 2)] == [3, 4]
    consumer.assign([])
    consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(OffsetOutOfRangeException, match=f"no committed offset for {topic}-0"):
        consumer.poll(LONG)


def test_kafka_18376_at_most_one_poll_event_is_under_way(make_consumer, make_topic, wait_until):
    consumer = make_consumer()
    consumer.assign([TopicPartition(make_topic("facade"), 0)])
    core, inside, go, received = consumer._network.core, threading.Event(), threading.Event(), []
    process = core.process

    def slow_process(event, now):
        if isinstance(event, Polled):
            received.append(event)
            inside.set()
            go.wait(LONG)
        process(event, now)

    core.process = slow_process
    consumer.poll(0)
    consumer._network.wake()
    assert inside.wait(LONG)
    for _ in range(100):
        consumer.poll(0)
    go.set()
    consumer.end_offsets(consumer.assignment())
    # The one that was under way, and one for the hundred behind it.
    assert len(received) == 2
    assert received[1].time == consumer._network.polled_at


def test_a_signal_handler_may_wake_a_poll(make_consumer, make_topic, on_alarm):
    consumer = make_consumer()
    consumer.assign([TopicPartition(make_topic("facade"), 0)])
    for seconds in (0.001, 0.05, 0.2):
        on_alarm(seconds, consumer.wakeup)
        with pytest.raises(WakeupException):
            consumer.poll(LONG)


def test_an_interrupt_in_poll_leaves_the_consumer_usable_by_any_thread(make_consumer, make_topic, produce, on_alarm):
    topic = make_topic("facade")
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0)])

    def interrupt():
        raise KeyboardInterrupt

    for seconds in (0.02, 0.1, 0.3):
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal may come before the poll
            on_alarm(seconds, interrupt)
            consumer.poll(LONG)
    produce(topic, [("k", "v")])
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(consumer.poll, 60).result(LONG).num_rows == 1


def test_an_interrupt_while_records_are_decoded_takes_none(
    make_consumer, make_topic, produce, read, monkeypatch, group
):
    """Ctrl-C, then close(), which commits: what poll never returned must not count as read (KAFKA-18641)."""
    topic = make_topic("facade", partitions=2)
    produce(topic, [{"value": str(i), "partition": i % 2} for i in range(20)])
    both = [TopicPartition(topic, p) for p in range(2)]
    consumer = make_consumer(group_id=group, enable_auto_commit=True)
    consumer.subscribe([topic])
    collect = consumer._session._buffer.collect

    def interrupted(*limits):
        table = collect(*limits)
        if table.num_rows:
            raise KeyboardInterrupt
        return table

    with monkeypatch.context() as patch:
        patch.setattr(consumer._session._buffer, "collect", interrupted)
        with pytest.raises(KeyboardInterrupt):
            read(consumer, 1)
    assert [consumer.position(p) for p in both] == [0, 0]
    rows = read(consumer, 20)
    assert sorted(int(row["value"]) for row in rows) == list(range(20))


def test_a_signal_handler_may_close_the_consumer(make_consumer, make_topic, on_alarm):
    consumer = make_consumer()
    consumer.assign([TopicPartition(make_topic("facade"), 0)])
    on_alarm(0.2, lambda: consumer.close(5))
    with pytest.raises(DisconnectException, match="closed"):
        consumer.poll(LONG)
    with pytest.raises(DisconnectException, match="closed"):
        consumer.poll(1)


# -- rebalances ------------------------------------------------------------------------------------------------------


def test_kafka_20332_no_records_of_partitions_that_are_being_revoked(make_consumer, make_topic, produce, group):
    topic = make_topic("facade")
    produce(topic, [("k", "v")] * 100)
    consumer, polled = make_consumer(group_id=group, enable_auto_commit=False), []

    def revoked(consumer, partitions):
        polled.append(consumer.poll(0.5).num_rows)
        polled.append(consumer.position(partitions[0]))

    join(consumer, topic, on_revoked=revoked)
    consumer.poll(LONG, max_records=10)
    position = consumer.position(TopicPartition(topic, 0))
    consumer.unsubscribe()
    assert polled == [0, position]


def test_kafka_16933_the_group_is_left_although_a_callback_fails(make_consumer, make_topic, wait_until, group):
    topic = make_topic("facade")
    first = make_consumer(group_id=group, session_timeout_ms=600_000)

    def revoked(consumer, partitions):
        raise ValueError("in revoked")

    join(first, topic, on_revoked=revoked)
    with pytest.raises(ValueError, match="in revoked"):
        first.unsubscribe()
    assert first.assignment() == first.subscription() == frozenset()
    second = make_consumer(group_id=group)
    second.subscribe([topic])
    wait_until(lambda: second.poll(0.2) is not None and second.assignment(), "the partition was not freed")


@pytest.mark.parametrize("how", ["close(0)", "interrupted", "close(0) after commits"])
def test_kafka_16985_17518_the_group_is_left_though_nobody_waits(make_consumer, make_topic, wait_until, group, how):
    """Only leaving can free the partition before this session ends."""
    topic = make_topic("facade")
    partition = TopicPartition(topic, 0)
    first = make_consumer(group_id=group, session_timeout_ms=600_000, enable_auto_commit=how == "interrupted")

    def revoked(consumer, partitions):
        if how == "interrupted":
            raise KeyboardInterrupt

    join(first, topic, on_revoked=revoked)
    if how == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            first.close()
    else:
        for offset in range(20 if "commits" in how else 0):
            first.commit_async({partition: offset})
        first.close(0)
    second = make_consumer(group_id=group)
    second.subscribe([topic])
    wait_until(lambda: second.poll(0.2) is not None and second.assignment(), "the partition was not freed")


def test_dekaf_3387_a_commit_that_is_not_answered_leaves_time_to_leave(
    make_consumer, make_topic, produce, wait_until, group
):
    topic = make_topic("facade")
    produce(topic, [("k", "v")])
    first = make_consumer(group_id=group, session_timeout_ms=600_000, enable_auto_commit=True)
    join(first, topic)
    core = first._network.core
    process = core.process
    core.process = lambda event, now: None if isinstance(event, Commit) else process(event, now)
    started = time.monotonic()
    first.close(4)
    assert time.monotonic() - started > 1.5  # the commit was waited for
    second = make_consumer(group_id=group)
    second.subscribe([topic])
    wait_until(lambda: second.poll(0.2) is not None and second.assignment(), "the partition was not freed")


def test_kafka_17581_17648_errors_of_what_was_given_up_are_forgotten(make_consumer, make_topic, group):
    topic = make_topic("facade")
    consumer = make_consumer(group_id=group)
    join(consumer, topic)
    consumer._session.mailbox.put(ErrorRaised(ValueError("stale")))
    consumer.unsubscribe()
    join(consumer, topic)
    consumer.poll(0.2)


def test_unsubscribing_in_a_callback_is_final(make_consumer, make_topic, group):
    topic = make_topic("facade", partitions=2)
    consumer, story = make_consumer(group_id=group), []

    def assigned(consumer, partitions):
        story.append("assigned")
        consumer.unsubscribe()

    consumer.subscribe([topic], on_assigned=assigned, on_revoked=lambda *_: story.append("revoked"))
    wait_until(lambda: consumer.poll(0.2) is not None and story, "nothing was assigned")
    assert story == ["assigned", "revoked"]
    assert consumer.assignment() == consumer.subscription() == frozenset()
    join(consumer, topic)


@pytest.mark.parametrize("nothing", ["subscribe", "assign"])
def test_subscribing_or_assigning_nothing_is_unsubscribing(make_consumer, make_topic, group, nothing):
    topic, story = make_topic("facade"), []
    consumer = make_consumer(group_id=group)
    join(consumer, topic, on_revoked=lambda *_: story.append("revoked"))
    getattr(consumer, nothing)([])
    assert story == ["revoked"]
    assert consumer.subscription() == consumer.assignment() == frozenset()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("form", ["re", "^", "several"])
def test_patterns(make_consumer, make_topic, wait_until, group, protocol, form):
    tag = f"pattern-{protocol}-{form.replace('^', 'hat')}"
    one, two, other = make_topic(f"{tag}-one"), make_topic(f"{tag}-two"), make_topic("other")
    wanted, expected = {
        "re": (re.compile(f"{tag}-.*"), {one, two}),
        "^": (f"^{tag}-o", {one}),
        "several": ([f"^{tag}-", other], {one, two, other}),
    }[form]
    consumer = make_consumer(group_id=group, group_protocol=protocol)
    consumer.subscribe(wanted)
    wait_until(lambda: consumer.poll(0.2) is not None and consumer.assignment(), "nothing was assigned")
    assert {partition.topic for partition in consumer.assignment()} == expected
    consumer.unsubscribe()
    with pytest.raises(ConfigException, match="regular expression"):
        consumer.subscribe(["^("])


def test_coroutine_callbacks_are_refused_at_once(make_consumer, group):
    async def callback(consumer, partitions): ...

    consumer = make_consumer(group_id=group)
    with pytest.raises(ConfigException, match=r"callback.*coroutine function.*AsyncConsumer"):
        consumer.subscribe(["t"], on_revoked=callback)


def test_a_callback_lends_the_consumer_to_a_thread(make_consumer, make_topic, produce, group):
    topic = make_topic("facade")
    partition = TopicPartition(topic, 0)
    produce(topic, [("k", "v")] * 10)
    consumer, refused = make_consumer(group_id=group, enable_auto_commit=False), []

    with ThreadPoolExecutor(1, thread_name_prefix="worker") as pool:

        def revoked(consumer, partitions):
            def flush(key):
                try:
                    consumer.commit()
                except ConcurrentModificationError as error:
                    refused.append(str(error))
                with consumer.access(key):
                    consumer.commit({partition: consumer.position(partition) + 100})

            pool.submit(flush, consumer.access_key()).result(LONG)

        join(consumer, topic, on_revoked=revoked)
        consumer.seek(partition, 10)
        consumer.unsubscribe()
    assert "thread 'worker_0' called a consumer that thread 'MainThread' is using" in refused[0]
    assert consumer.committed([partition]) == {partition: 110}


def test_a_callback_that_leaves_a_thread_behind_loses_no_record(make_consumer, make_topic, produce, read, group):
    topic = make_topic("facade")
    produce(topic, [("k", str(i)) for i in range(10)])
    consumer, inside, go = make_consumer(group_id=group), threading.Event(), threading.Event()
    threads = []

    def assigned(consumer, partitions):
        def other(key):
            with consumer.access(key):
                held = consumer._access.acquire()
                inside.set()
                go.wait(LONG)
                consumer._access.release(held)

        threads.append(threading.Thread(target=other, args=[consumer.access_key()], name="late"))
        threads[0].start()
        assert inside.wait(LONG)

    consumer.subscribe([topic], on_assigned=assigned)
    with pytest.raises(AccessKeyError, match="thread 'late' was still using"):
        read(consumer, 1)
    with pytest.raises(ConcurrentModificationError, match="'late'"):
        consumer.poll(1)
    go.set()
    threads[0].join(LONG)
    assert [row["offset"] for row in read(consumer, 10)] == list(range(10))


def test_wakeup_and_close_during_a_callback(make_consumer, make_topic, group):
    topic = make_topic("facade")
    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic], on_assigned=lambda consumer, _: consumer.wakeup())
    with pytest.raises(WakeupException):
        consumer.poll(LONG)
    consumer.unsubscribe()
    consumer.subscribe([topic], on_assigned=lambda consumer, _: consumer.close())
    with pytest.raises(DisconnectException, match="closed"):
        consumer.poll(LONG)


# -- commits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "close", "poll"])
def test_kafka_16103_callbacks_of_commits_run_in_order_on_the_polling_thread(make_consumer, make_topic, group, end):
    partition = TopicPartition(make_topic("facade"), 0)
    consumer, received = make_consumer(group_id=group, enable_auto_commit=False), []
    consumer.assign([partition])

    def callback(offsets, error):
        received.append((offsets[partition], error, threading.current_thread()))
        consumer.assignment()  # it may call the consumer

    for offset in range(1, 6):
        consumer.commit_async({partition: offset}, callback)
    if end == "commit":
        consumer.commit({partition: 9})
    elif end == "close":
        consumer.close()
    else:
        wait_until(lambda: consumer.poll(0.2) is not None and len(received) >= 5, "not all callbacks have run")
    assert received == [(offset, None, threading.main_thread()) for offset in range(1, 6)]


def test_the_error_of_a_commit_goes_to_its_callback_and_one_of_the_callback_comes_out_of_poll(
    make_consumer, make_topic, group
):
    partition = TopicPartition(make_topic("facade"), 0)
    consumer, received = make_consumer(group_id=group, enable_auto_commit=False), []
    consumer.subscribe([partition.topic])  # not joined yet

    def failing(offsets, error):
        received.append(error)
        raise ValueError("in the callback")

    consumer.commit_async({partition: 1}, failing)
    consumer.commit_async({partition: 2}, lambda _, error: received.append(error))
    with pytest.raises(ValueError, match="in the callback"):
        consumer.poll(LONG)
    wait_until(lambda: consumer.poll(0.2) is not None and len(received) >= 2, "not both callbacks have run")
    assert [type(error) for error in received] == [CommitFailedException] * 2


def test_commits_with_text_and_epoch(make_consumer, make_topic, group):
    topic = make_topic("facade", partitions=2)
    one, two = (TopicPartition(topic, p) for p in range(2))
    consumer = make_consumer(group_id=group)
    consumer.commit({one: OffsetAndMetadata(5, "by me", 0), two: 6})
    assert consumer.committed([one, two]) == {one: 5, two: 6}
    found = consumer.committed([one, two], with_metadata=True)
    assert found == {one: OffsetAndMetadata(5, "by me", 0), two: OffsetAndMetadata(6)}
    for bad in (-1, "5", OffsetAndMetadata(-2), True):
        with pytest.raises(ConfigException, match=f"{topic}-0"):
            consumer.commit({one: bad})
    assert consumer.committed([TopicPartition("nowhere", 3)]) == {TopicPartition("nowhere", 3): None}


def test_assigning_something_else_commits_first(make_consumer, make_topic, produce, read, wait_until, group):
    topic = make_topic("facade", partitions=2)
    one, two = (TopicPartition(topic, p) for p in range(2))
    produce(topic, [{"value": "v", "partition": 0}] * 7)
    consumer = make_consumer(group_id=group, auto_commit_interval_ms=1_000_000)
    consumer.assign([one])
    read(consumer, 7)
    consumer.assign([two])
    wait_until(lambda: consumer.committed([one]) == {one: 7}, "not committed")


# -- asking ----------------------------------------------------------------------------------------------------------


def test_topics_and_offsets_for_times(make_consumer, make_topic, produce):
    topic = make_topic("facade")
    partition = TopicPartition(topic, 0)
    produce(topic, [{"value": "v", "timestamp": 1000 * i} for i in range(1, 6)])
    consumer = make_consumer()
    assert topic in consumer.topics()
    assert not any(name.startswith("__") for name in consumer.topics())
    assert consumer.offsets_for_times({partition: 2001}) == {partition: 2}
    assert consumer.offsets_for_times({partition: 9000}) == {partition: None}
    assert consumer.offsets_for_times({}) == {}
    with pytest.raises(ConfigException, match="timestamp -1"):
        consumer.offsets_for_times({partition: -1})


def test_default_api_timeout_bounds_every_call_that_waits(make_consumer, group):
    partition = TopicPartition("t", 0)
    consumer = make_consumer(bootstrap_servers="localhost:1", group_id=group, default_api_timeout_ms=200)
    consumer.assign([partition])
    for call in (
        lambda: consumer.commit({partition: 1}),
        lambda: consumer.committed([partition]),
        lambda: consumer.position(partition),
        lambda: consumer.end_offsets([partition]),
        lambda: consumer.beginning_offsets([partition]),
        lambda: consumer.offsets_for_times({partition: 1}),
        lambda: consumer.partitions_for("t"),
        consumer.topics,
    ):
        # Half of what the setting is by default, and a hundred times as long as it is here.
        with within(30), pytest.raises(TimeoutError):
            call()
    consumer.unsubscribe()


# -- deserialisers ---------------------------------------------------------------------------------------------------


def test_records_that_cannot_be_read_are_named_and_can_be_passed(kafka, make_topic, produce):
    topic = make_topic("facade", partitions=2)
    bad = {3, 4, 11}
    produce(
        topic,
        [
            {"key": str(i), "value": b"{" if i in bad else f'{{"n": {i}}}'.encode(), "partition": i % 2}
            for i in range(20)
        ],
    )
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "key.deserializer": "string",
    }
    errors = []
    with Consumer(settings, value_deserializer=Json(pa.schema([("n", pa.int64())]))) as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(2)])
        assert consumer.poll(0).schema.field("value").type == pa.struct([("n", pa.int64())])

        def poll():
            try:
                return consumer.records(0.5)
            except RecordDeserializationException as found:
                errors.append(found)
            error = errors[-1]
            partition = TopicPartition(error.topic, error.partition)
            assert consumer.position(partition) == error.offset
            if sum(str(error) == str(one) for one in errors) == 2:  # it stays until somebody seeks
                consumer.seek(partition, error.offset + 1)
            return ()

        seen = collect(poll, lambda rows: len(rows) >= 17 and len(errors) >= 6, "not all records or errors")
    assert sorted(record.value["n"] for record in seen) == [i for i in range(20) if i not in bad]
    assert {record.key for record in seen} == {str(i) for i in range(20) if i not in bad}
    for p in range(2):
        offsets = [record.offset for record in seen if record.partition == p]
        assert offsets == sorted(offsets)
    assert {(error.partition, error.offset) for error in errors} == {(0, 2), (1, 1), (1, 5)}


def test_a_deserialiser_that_is_none_loses_no_record(kafka, make_topic, produce):
    topic = make_topic("facade")
    produce(topic, [{"value": str(i)} for i in range(10)])
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest"}
    partition = TopicPartition(topic, 0)

    def fickle(column):  # of no rows it makes a column of another type
        return pa.array([value.decode() for value in column.to_pylist()])

    with Consumer(settings, value_deserializer=fickle) as consumer:
        consumer.assign([partition])
        for _ in range(2):
            with pytest.raises(ConfigException, match="its type must never change"):
                consumer.poll(LONG)
            assert consumer.position(partition) == 0


# -- starting --------------------------------------------------------------------------------------------------------


def test_kafka_19898_a_failed_start_leaves_no_thread(monkeypatch):
    def broken(*_, **__):
        raise OSError("no more sockets")

    monkeypatch.setattr(sparkrelay.consumer.api.session, "ConsumerCore", broken)
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="no more sockets"):
        Consumer({"bootstrap.servers": "localhost:1"})
    assert set(threading.enumerate()) <= before  # others' threads may end meanwhile
