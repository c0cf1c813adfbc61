"""Windows that are over: their state goes, their changelog is cut, and whoever restores from what is left is right."""

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F
from tests.waiting import LONG, remove_folder

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.runtime.thread import stream_thread
from sparkrelay.state import TaskStore
from sparkrelay.state.window_keys import end_of, over

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MINUTE = 60_000
#: When 2024 began, in milliseconds since 1970.
YEAR = 1_704_067_200_000


def counting(source, sink, **more):
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("user"), value=Json("at timestamp")).withWatermark("at", "0 seconds")
    grouped = rows.groupBy("user", F.window("at", "1 minute"))
    counts = grouped.agg(F.count("*").alias("count"), name="counts", **more)
    counts.outputMode("append").select("user", F.unix_millis("window.start").alias("start"), "count").to(sink)
    return builder


@pytest.fixture
def log_start(kafka, application_id):
    """`log_start()` returns where the changelog begins."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "looks"})
    partition = TopicPartition(f"{application_id}-counts-changelog", 0)
    yield lambda: consumer.get_watermark_offsets(partition, timeout=LONG)[0]
    consumer.close()


def test_a_cut_changelog_is_restored(
    instance, make_topic, produce, consumed, wait_until, log_start, monkeypatch, tmp_path
):
    monkeypatch.setattr(stream_thread, "_PURGE_SECONDS", 0.5)
    source, sink = make_topic("in", 1), make_topic("out", 1)

    def write(minute, count):
        at = f"2024-01-01T{minute // 60:02}:{minute % 60:02}:00Z"
        produce(source, [("a", {"at": at})] * count)

    def finals():
        return [value.partition(b'"count":')[2].rstrip(b"}") for _, _, _, value in consumed(sink)]

    with instance(counting(source, sink)) as streams:
        streams.start()
        for minute in range(5):
            write(minute, minute + 1)
            wait_until(lambda n=minute: len(finals()) == n, f"{streams.status}: {finals()}")
        wait_until(lambda: log_start() > 0, "the changelog is not cut")
        write(4, 2)
    assert finals() == [b"1", b"2", b"3", b"4"]
    remove_folder(tmp_path / "state")
    with instance(counting(source, sink)) as streams:
        streams.start()
        write(0, 1)
        write(4, 1)
        write(5, 1)
        wait_until(lambda: len(finals()) == 5, f"{streams.status}: {finals()}")
        # Five, two before and one after the restore; the row of the first minute is late.
        assert finals()[-1] == b"8"
        assert streams.exception() is None


@pytest.mark.long
def test_a_topic_that_is_silent_is_waited_for_and_then_no_longer(
    instance, make_topic, produce, consumed, wait_until, application_id, tmp_path
):
    sources, sink = [make_topic("in", 1), make_topic("in", 1)], make_topic("out", 1)
    settings = {"max.task.idle.ms": 1_000}

    def write(source, *minutes):
        produce(source, [("a", {"at": f"2024-01-01T00:{minute:02}:00Z"}) for minute in minutes])

    with instance(counting(sources, sink), settings) as streams:
        streams.start()
        write(sources[0], 0, 1, 5)
        wait_until(lambda: len(consumed(sink)) == 2, f"{streams.status}: {consumed(sink)}")
    remove_folder(tmp_path / "state")
    with instance(counting(sources, sink), settings) as streams:
        streams.start()
        write(sources[1], 7)
        # The other one's newest row is of minute 5, as the changelog has it. Then it is silent.
        wait_until(lambda: len(consumed(sink)) == 3, f"{streams.status}: {consumed(sink)}")
        assert streams.exception() is None
    store = TaskStore.open(tmp_path / "state" / application_id / "0" / "0_0", create=False)
    header = store.header
    store.close(clean=False)
    minutes = {topic: (ms - YEAR) // MINUTE for topic, ms in header.sources_of("counts").items()}
    assert minutes == dict(zip(sources, (5, 7), strict=True))
    assert (header.watermark("counts") - YEAR) // MINUTE == 7


def minutes_stored(tmp_path, application_id):
    """Return the minutes of 2024 whose windows a store keeps."""
    store = TaskStore.open(tmp_path / "state" / application_id / "0" / "0_0", create=False)
    try:
        start = over(store.header.expired_by("counts"))
        ends = [end_of(key) for rows in store.scan("counts", start=start) for key in rows.column("key").to_pylist()]
        return [end // MINUTE - 1 - YEAR // MINUTE for end in ends]
    finally:
        store.close(clean=False)


@pytest.mark.long
def test_windows_are_kept_through_cuts_restores_and_other_retentions(
    instance, make_topic, produce, consumed, wait_until, log_start, application_id, monkeypatch, tmp_path
):
    """The proof on a real broker; tests/integration/testing/test_watermarks.py has which rows windows have."""
    monkeypatch.setattr(stream_thread, "_PURGE_SECONDS", 0.5)
    source, sink = make_topic("in", 1), make_topic("out", 1)

    def write(*minutes):
        produce(source, [("a", {"at": f"2024-01-01T00:{minute:02}:00Z"}) for minute in minutes])

    def run(retention, minutes, *, cut=False):
        """Take a row of each minute, one after the other; return which windows are in the store in the end."""
        with instance(counting(source, sink, retention=retention)) as streams:
            streams.start()
            for minute in minutes:
                write(minute)
                wait_until(lambda n=minute: len(consumed(sink)) == n, f"{streams.status}: {consumed(sink)}")
            if cut:
                wait_until(lambda: log_start() > 0, "the changelog is not cut")
            assert streams.exception() is None
        return minutes_stored(tmp_path, application_id)

    assert run("3 minutes", range(8), cut=True) == [4, 5, 6, 7]
    remove_folder(tmp_path / "state")
    assert run("5 minutes", [8]) == [4, 5, 6, 7, 8], "what is gone is gone"
    assert run("1 minute", [9, 10]) == [9, 10]
    remove_folder(tmp_path / "state")
    assert run("1 hour", [11]) == [9, 10, 11]
    assert len(consumed(sink)) == 11, "each window is final once"


def test_the_last_window_ends_without_more_input(instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    produce(source, [("a", {"at": "2024-01-01T00:00:59.500Z"})] * 3)
    with instance(counting(source, sink), {"watermark.idle.ms": 500}) as streams:
        streams.start()
        wait_until(lambda: len(consumed(sink)) == 1, f"the window does not end: {streams.status}")
