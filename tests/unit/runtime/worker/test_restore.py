"""A Spark partition's share of a slice, with stores and without a broker: what is done in its time, and what anyway."""

import contextlib
import dataclasses
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.doubles.clock import Clock
from tests.unit.operators.store_specs import WITHOUT_KAFKA

from sparkrelay import Json, String, hidden_columns as hidden
from sparkrelay.errors import (
    OffsetOutOfRangeException,
    SerializationException,
    StoreCorruptedException,
    TimeoutException,
    UnknownTopicException,
)
from sparkrelay.operators.latest.layout import LatestLayout
from sparkrelay.operators.latest.run import LatestRunner
from sparkrelay.operators.table.newest_rows import NewestRows
from sparkrelay.runtime.contract.commands import RestoreCommand, RestoreSlice, StoreRestore, decode_bytes
from sparkrelay.runtime.contract.specs import FetchSpec, SourceChangelog, StepSpec
from sparkrelay.runtime.worker import connections, restore
from sparkrelay.state import TaskStore
from sparkrelay.state.changelog import Marker, encode_changelog, encode_marker
from sparkrelay.state.window_keys import end_bytes
from sparkrelay.types import TaskId, TopicPartition

SECONDS = 0.1
APPLICATION = "app"
INPUT = TopicPartition("in", 0)


class Fetcher:
    """Gives a record a piece; a piece takes as long as the test says."""

    def __init__(self, clock):
        self.clock, self.takes, self.pieces = clock, 0.06, []
        self.silent = set()
        self.silent_from = 0
        self.log_end, self.markers = 0, {}
        self.max_bytes = None

    def fetch(self, ranges, *, columns, max_bytes=None):
        self.max_bytes = max_bytes
        ((partition, (start, end)),) = ranges.items()
        for offset in range(start, end):
            self.clock.now += self.takes
            self.pieces.append((partition.topic, partition.partition))
            if partition in self.silent and offset >= self.silent_from:
                raise TimeoutException("no answer")
            key, value = self.markers.get(offset, (b"k%d" % offset, None))
            yield (
                partition,
                pa.record_batch(
                    {
                        "key": pa.array([key], pa.binary()),
                        "value": pa.array([value], pa.binary()),
                        "offset": pa.array([offset], pa.int64()),
                    }
                ),
            )

    def log_ends(self, partitions):
        if self.log_end is None:
            raise UnknownTopicException("counts-changelog")
        return dict.fromkeys(partitions, self.log_end)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock(100.0)
    monkeypatch.setattr(restore, "time", clock)
    return clock


@pytest.fixture
def fetcher(monkeypatch, clock):
    fetcher = Fetcher(clock)
    monkeypatch.setattr(connections, "fetcher", lambda _: fetcher)
    return fetcher


@pytest.fixture
def run(monkeypatch, fetcher):
    """`run(*commands)`: those commands are one Spark partition's; returns the reports by task."""
    used = set()

    def run_commands(*commands, **settings):
        used.update(command.directory for command in commands)
        monkeypatch.setattr(restore, "current_command", lambda _: RestoreSlice((commands,), seconds=SECONDS))
        monkeypatch.setattr(restore, "current_spark_partition", lambda _: 0)
        spec = restore.RestoreSpec(1, APPLICATION, {}, 1 << 24, **settings)
        (row,) = restore.restore_partition(spec, iter(()))
        reports = decode_bytes(row.column(0)[0].as_py())
        assert [report.task for report in reports] == [command.task for command in commands], "each task reports"
        return reports

    yield run_commands
    for directory in used:
        connections.forget_store(directory)


@pytest.fixture
def command(tmp_path):
    """`command(number)`: a task whose changelog has ten records."""

    def make(number, *, stores=("counts",), **settings):
        return RestoreCommand(
            TaskId(0, number),
            str(tmp_path / f"0_{number}"),
            tuple(StoreRestore(store, TopicPartition(store, number), 10) for store in stores),
            **{"take_over": True, "task_epoch": 7, **settings},
        )

    return make


def test_the_tasks_of_a_spark_partition_share_the_time_of_one_slice(run, command, fetcher):
    reports = run(*(command(number) for number in range(50)))
    assert fetcher.pieces == [("counts", 0)] * 2
    assert [report.records for report in reports] == [2] + [0] * 49
    assert all(report.error is None for report in reports)


def test_what_an_instance_before_did_not_close_is_read_through_before_anything_is_restored(run, command, fetcher):
    fetcher.markers = {offset: (b"k%d" % offset, b"\x01value") for offset in range(10)}
    (first,) = run(command(0), instance="first")
    assert (first.read_through, first.records) == (True, 2)
    connections.forget_store(command(0).directory)
    # An inspection closes it, and says nothing of what is in it.
    (looked_at,) = run(command(0, stores=(), take_over=False, close=True), instance="second")
    assert looked_at.read_through
    with closing_store(command(0).directory) as store:
        assert store.header.suspect == {"counts"}
        table = store._table("counts")
        key, old = store.environment.read(lambda t: next(iter(t.cursor(db=table.handle))))
        store.environment.write(lambda t: t.put(key, table.seal(key, b"older"), db=table.handle))
    (damaged,) = run(command(0), instance="second")
    assert isinstance(damaged.error, StoreCorruptedException), damaged
    with closing_store(command(0).directory) as store:
        table = store._table("counts")
        store.environment.write(lambda t: t.put(key, old, db=table.handle))
    (whole,) = run(command(0), instance="second")
    assert (whole.error, whole.read_through) == (None, True)
    with closing_store(command(0).directory, clean=True) as store:
        assert store.header.suspect == set()


@contextlib.contextmanager
def closing_store(directory, *, clean=False):
    connections.forget_store(directory)
    store = TaskStore.open(Path(directory))
    yield store
    store.close(clean=clean)


def test_what_is_left_of_the_time_is_the_next_tasks(run, command, fetcher):
    fetcher.takes = 0.03
    few = TopicPartition("counts", 0)
    run(command(0, stores=()), command(1), command(2))
    assert fetcher.pieces == [("counts", 1)] * 4
    fetcher.pieces.clear()
    short = command(3, stores=())
    run(
        short,
        RestoreCommand(TaskId(0, 0), short.directory, (StoreRestore("counts", few, 1),), task_epoch=7),
        command(4),
    )
    assert fetcher.pieces == [("counts", 0), *[("counts", 4)] * 3]


def test_a_store_of_a_task_that_has_no_time_left_waits_as_well(run, command, fetcher):
    (report,) = run(command(0, stores=("counts", "sums")))
    assert fetcher.pieces == [("counts", 0)] * 2
    assert report.changelog_next == {TopicPartition("counts", 0): 2}


def test_every_task_is_opened_and_closed_whether_there_is_time_or_not(run, command, fetcher, clock):
    fetcher.takes = 1.0
    run(command(0), command(1), command(2, close=True))
    assert fetcher.pieces == [("counts", 0)]
    for number in range(3):
        store = connections.store(command(number).directory, map_limit=1 << 24)
        assert store.header.task_epoch == 7
        assert store.header.application == APPLICATION
        assert store.header.clean == (number == 2)


@pytest.mark.parametrize(
    ("logged", "days", "log_end", "last", "removed"),
    [
        (True, 2, 12, None, True),
        (True, 2, 500, Marker(0, {}), True),
        (True, 2, None, None, True),
        (True, 2, 12, Marker(1, {}), True),
        (True, 2, 12, Marker(0, {INPUT: 5}), True),
        (True, 2, 12, Marker(0, {}), False),
        (True, 2, 10, None, False),
        (True, 0.5, 12, None, False),
        (False, 2, 12, None, False),
    ],
    ids=[
        "left alone",
        "long behind",
        "its topic is gone",
        "others went on",
        "others read on",
        "its own batch is the last",
        "nothing follows",
        "used lately",
        "nowhere else",
    ],
)
def test_a_copy_that_was_left_alone_is_not_looked_at(run, command, fetcher, logged, days, log_end, last, removed):
    """What it had was deleted since, and compaction has left no trace of that: it would stay for ever."""
    fetcher.takes, fetcher.log_end = 0.0, log_end
    if last is not None:
        fetcher.markers[10] = encode_marker(last)
    fill = command(0, stores=("counts",) if logged else ())
    run(fill)
    connections.forget_store(fill.directory, clean=True)
    before = time.time() - days * 86_400
    for path in (*Path(fill.directory).iterdir(), Path(fill.directory)):
        os.utime(path, (before, before))
    settings = {"take_over": False, "task_epoch": 0, "close": True, "unused_before": time.time() - 86_400}
    (report,) = run(command(0, stores=(), **settings))
    assert report.error is None
    assert Path(fill.directory).exists() is not removed
    assert sum(report.changelog_next.values()) == (10 if logged and not removed else 0)
    (anew,) = run(fill)
    assert anew.error is None
    assert anew.records == (10 if logged and removed else 0)


def test_time_that_stores_took_to_open_is_nobodys(run, command, fetcher, clock, monkeypatch):
    opened = connections.store

    def slow(*given, **settings):
        clock.now += 10.0
        return opened(*given, **settings)

    monkeypatch.setattr(connections, "store", slow)
    reports = run(command(0, stores=()), command(1))
    assert [report.records for report in reports] == [0, 2]


def test_a_changelog_that_does_not_answer_holds_the_others_up_once(run, command, fetcher):
    fetcher.takes = 60.0
    fetcher.silent = {TopicPartition("counts", number) for number in range(3)}
    reports = run(*(command(number) for number in range(3)))
    assert fetcher.pieces == [("counts", 0)]
    assert [type(report.error) for report in reports] == [TimeoutException, type(None), type(None)]


def test_records_that_come_within_a_slice_are_written_together(run, command, fetcher, monkeypatch):
    fetcher.takes, slices = 0.0, []
    monkeypatch.setattr(restore.fault_points, "reach", slices.append)
    (report,) = run(command(0))
    assert (report.records, report.changelog_next) == (10, {TopicPartition("counts", 0): 10})
    assert slices.count("restore-after-slice") == 1


def test_no_more_is_gathered_than_a_slice_has_time_to_write(run, command, fetcher, monkeypatch):
    fetcher.takes, slices = 0.0, []
    monkeypatch.setattr(restore, "_BYTES_A_SECOND", 1)
    monkeypatch.setattr(restore.fault_points, "reach", slices.append)
    (report,) = run(command(0))
    assert report.records == 10
    assert slices.count("restore-after-slice") == 10


@pytest.mark.parametrize(("most", "written"), [(400_000, 2), (40_000, 10), (None, 1)])
def test_no_more_is_gathered_than_the_bytes_of_a_batch_allow(run, command, fetcher, monkeypatch, most, written):
    """A record that is larger is written alone."""
    fetcher.takes, slices = 0.0, []
    keys, values = encode_changelog(pa.array([b"k%d" % n for n in range(10)]), pa.array([bytes(20_000)] * 10))
    fetcher.markers = dict(enumerate(zip(keys.to_pylist(), values.to_pylist(), strict=True)))
    monkeypatch.setattr(restore.fault_points, "reach", slices.append)
    (report,) = run(command(0), max_bytes=most)
    assert (report.error, report.records) == (None, 10)
    assert slices.count("restore-after-slice") == written
    assert fetcher.max_bytes == most


def test_what_came_before_an_error_counts(run, command, fetcher):
    fetcher.takes, fetcher.silent_from = 0.0, 7
    fetcher.silent = {TopicPartition("counts", 0)}
    (report,) = run(command(0))
    assert isinstance(report.error, TimeoutException)
    store = connections.store(command(0).directory, map_limit=1 << 24)
    assert store.header.changelog == {TopicPartition("counts", 0): 7}


USERS = TopicPartition("users", 0)
STEP = {"leg": "store:people", "topics": ("users",), **WITHOUT_KAFKA}
HIDDEN = [(hidden.PARTITION, pa.int32()), (hidden.TIMESTAMP, pa.int64()), (hidden.TOMBSTONE, pa.bool_())]
ROW = pa.schema([("user", pa.string()), ("name", pa.string()), *HIDDEN])


def source(*, skips=False):
    """How a table of users and their names is restored from its topic."""
    for_fetch = {name: STEP[name] for name in (field.name for field in dataclasses.fields(StepSpec))}
    fetch = FetchSpec(
        **for_fetch,
        key=String("user"),
        value=Json("name string"),
        internal=False,
        value_schema=pa.schema([("name", pa.string())]),
        key_schema=pa.schema([("user", pa.string())]),
        output=ROW,
        event_time=None,
        skip_tombstones=False,
        skip_bad_records=skips,
    )
    columns = {"keys": pa.schema([("user", pa.string())]), "row": pa.schema([("name", pa.string())])}
    layout = LatestLayout(store="people", **columns)
    state = LatestRunner(**STEP, store="people", contents="rows", layout=layout, input=ROW, output=ROW)
    return SourceChangelog(fetch, state.stored_rows, "rows")


class Topic:
    """A topic of users."""

    def __init__(self, *records, start=0):
        self.records, self.start, self.asked = records, start, []

    def fetch(self, ranges, *, columns, max_bytes=None):
        assert columns >= {"key", "value", "offset", "timestamp"}
        ((partition, (first, end)),) = ranges.items()
        self.asked.append((first, end))
        if first < self.start:
            raise OffsetOutOfRangeException("gone")
        for offset in range(first, min(end, len(self.records))):
            key, value = self.records[offset]
            raw = {
                "key": pa.array([key], pa.binary()),
                "value": pa.array([value], pa.binary()),
                "offset": pa.array([offset], pa.int64()),
                "timestamp": pa.array([offset], pa.timestamp("ms", "UTC")),
            }
            yield partition, pa.record_batch(raw)

    def log_start(self, partition):
        return self.start


@pytest.fixture
def restore_people(monkeypatch, tmp_path):
    """`restore_people(topic, end, **settings)`: restore the table, and return its report and its rows."""
    directory = str(tmp_path / "0_0")

    def run(topic, end, *, skips=False, **settings):
        monkeypatch.setattr(connections, "fetcher", lambda _: topic)
        command = RestoreCommand(
            TaskId(0, 0),
            directory,
            (StoreRestore("people", USERS, end),) if end else (),
            **{
                "take_over": True,
                "task_epoch": 7,
                "changelogs": {"people": USERS},
                "source_ends": {"people": end},
                **settings,
            },
        )
        monkeypatch.setattr(restore, "current_command", lambda _: RestoreSlice(((command,),), seconds=60))
        monkeypatch.setattr(restore, "current_spark_partition", lambda _: 0)
        spec = restore.RestoreSpec(1, APPLICATION, {}, 1 << 24, {"people": source(skips=skips)})
        (row,) = restore.restore_partition(spec, iter(()))
        (report,) = decode_bytes(row.column(0)[0].as_py())
        store = connections.store(directory, map_limit=1 << 24)
        rows = pa.Table.from_batches(store.scan("people"), pa.schema([("key", pa.binary()), ("value", pa.binary())]))
        names, _ = NewestRows(pa.schema([("name", pa.string())])).results(rows["value"].combine_chunks())
        return report, dict(zip((key[1:].decode() for key in rows["key"].to_pylist()), names.to_pylist(), strict=True))

    yield run
    connections.forget_store(directory)


def test_a_table_is_restored_from_its_topic(restore_people):
    topic = Topic(
        (b"ada", b'{"name": "Ada"}'),
        (b"bob", b'{"name": "Bob"}'),
        (None, b"{}"),
        (b"bob", None),
        (b"ada", b'{"name": "L"}'),
    )
    report, rows = restore_people(topic, 3)
    assert (report.error, report.positions, report.changelog_next) == (None, {USERS: 3}, {USERS: 3})
    assert set(rows.values()) == {"Ada", "Bob"}
    report, rows = restore_people(topic, 5, task_epoch=8)
    assert topic.asked == [(0, 3), (3, 5)]
    assert list(rows.values()) == ["L"]
    # A group that was set back reads on there; what the copy has beyond it would be old before it is read.
    report, rows = restore_people(topic, 2, task_epoch=9)
    assert (topic.asked[-1], report.positions) == ((0, 2), {USERS: 2})
    assert set(rows.values()) == {"Ada", "Bob"}
    report, rows = restore_people(topic, 0, task_epoch=10)
    assert (report.positions, report.changelog_next, rows) == ({}, {}, {})


def test_a_record_of_a_topic_that_does_not_decode_is_what_the_handler_makes_of_it(restore_people):
    topic = Topic((b"ada", b'{"name": "Ada"}'), (b"bob", b"no json"))
    report, _ = restore_people(topic, 2)
    assert isinstance(report.error, SerializationException)
    assert "record users-0 at offset 1 does not decode" in str(report.error)
    report, rows = restore_people(topic, 2, skips=True)
    assert (report.error, list(rows.values())) == (None, ["Ada"])


def test_what_is_gone_from_the_beginning_of_a_topic_is_passed_over(restore_people, caplog):
    topic = Topic(*[(b"ada", b'{"name": "%d"}' % number) for number in range(6)], start=4)
    report, rows = restore_people(topic, 6)
    assert (report.error, report.changelog_next, rows) == (None, {USERS: 4}, {})
    report, rows = restore_people(topic, 6, take_over=False, source_ends={})
    assert (report.changelog_next, list(rows.values())) == ({USERS: 6}, ["5"])
    assert "are gone" not in caplog.text


def test_a_table_is_rebuilt_where_records_behind_its_own_are_gone(restore_people, caplog):
    """Its copy cannot know which of its rows were deleted by them."""
    topic = Topic((b"ada", b'{"name": "Ada"}'), (b"bob", b'{"name": "Bob"}'))
    restore_people(topic, 2)
    topic.records += ((b"ada", None), (b"bob", b'{"name": "B"}'), (b"cid", b'{"name": "Cid"}'))
    topic.start = 3
    report, rows = restore_people(topic, 5, take_over=False, source_ends={})
    assert (report.error, report.positions, report.changelog_next, rows) == (None, {USERS: 3}, {USERS: 3}, {})
    assert "records 2 to 3 are gone from users-0; store 'people', which had what was before them" in caplog.text
    _, rows = restore_people(topic, 5, take_over=False, source_ends={})
    assert set(rows.values()) == {"B", "Cid"}


COUNTS = TopicPartition("counts", 0)


class CutLog:
    """A changelog of which the beginning may be gone."""

    def __init__(self):
        self.records, self.start, self.at_once = [], 0, 1 << 20

    def batch(self, number, rows, *, watermark):
        keys, values = encode_changelog(pa.array([*rows], pa.binary()), pa.array([*rows.values()], pa.binary()))
        self.records += zip(keys.to_pylist(), values.to_pylist(), strict=True)
        self.records.append(encode_marker(Marker(number, {USERS: number}, "counts", watermark, watermark)))

    def fetch(self, ranges, *, columns, max_bytes=None):
        ((partition, (first, end)),) = ranges.items()
        while first < end:
            if first < self.start:
                raise OffsetOutOfRangeException("gone")
            some = self.records[first : min(end, first + self.at_once)]
            keys, values = zip(*some, strict=True)
            offsets = pa.array(range(first, first + len(some)), pa.int64())
            raw = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "offset": offsets}
            first += len(some)
            yield partition, pa.record_batch(raw)

    def log_start(self, partition):
        return self.start


@pytest.fixture
def follow(monkeypatch, tmp_path):
    """`follow(log)`: restore to its end, by as many slices as it takes; returns the keys that are there then."""
    directory = str(tmp_path / "0_0")

    def run(log, *, cut=True):
        monkeypatch.setattr(connections, "fetcher", lambda _: log)
        target = StoreRestore("counts", COUNTS, len(log.records), cut)
        command = RestoreCommand(TaskId(0, 0), directory, (target,), take_over=True, task_epoch=7)
        monkeypatch.setattr(restore, "current_command", lambda _: RestoreSlice(((command,),), seconds=60))
        monkeypatch.setattr(restore, "current_spark_partition", lambda _: 0)
        at = -1
        while at < len(log.records):
            (row,) = restore.restore_partition(restore.RestoreSpec(1, APPLICATION, {}, 1 << 24), iter(()))
            (report,) = decode_bytes(row.column(0)[0].as_py())
            if report.error is not None:
                raise report.error
            assert report.changelog_next[COUNTS] > at, "each slice brings it forward"
            at = report.changelog_next[COUNTS]
        store = connections.store(directory, map_limit=1 << 24)
        return [key for batch in store.scan("counts") for key in batch.column("key").to_pylist()]

    yield run
    connections.forget_store(directory)


NEVER = end_bytes(1 << 62)


def test_what_was_deleted_in_front_of_a_cut_does_not_come_back_with_a_copy_from_before(follow):
    """A processor's variables end never: what removes one of a copy is its tombstone alone."""
    log = CutLog()
    log.batch(1, {NEVER + b"ada": b"a", end_bytes(50) + b"timer": b""}, watermark=10)
    assert follow(log) == [end_bytes(50) + b"timer", NEVER + b"ada"]
    log.batch(2, {NEVER + b"ada": None}, watermark=20)
    log.start = len(log.records)
    log.batch(3, {end_bytes(90) + b"timer": b""}, watermark=60)
    assert follow(log) == [end_bytes(90) + b"timer"]


def test_what_is_gone_from_a_changelog_that_is_not_cut_is_named_with_its_store_and_what_helps(follow):
    log = CutLog()
    log.batch(1, {b"ada": b"a"}, watermark=10)
    log.start = 1
    words = r"task 0_0: store 'counts' is to be restored from offset 0 of its changelog counts-0, which does.*"
    with pytest.raises(OffsetOutOfRangeException, match=rf"{words}sparkrelay reset --application-id {APPLICATION}"):
        follow(log, cut=False)


def test_a_changelog_that_is_cut_while_it_is_read_is_read_anew(follow):
    log = CutLog()
    log.at_once = 2
    log.batch(1, {NEVER + b"ada": b"a"}, watermark=10)
    log.batch(2, {NEVER + b"ada": None}, watermark=20)
    log.batch(3, {NEVER + b"bob": b"b"}, watermark=30)
    fetch = log.fetch

    def cut_meanwhile(ranges, *, columns, max_bytes):
        for batch in fetch(ranges, columns=columns, max_bytes=max_bytes):
            yield batch
            log.start = 4

    log.fetch = cut_meanwhile
    assert follow(log) == [NEVER + b"bob"]


def test_a_marker_of_another_store_says_nothing_of_a_topic_that_is_restored_itself(monkeypatch, tmp_path):
    directory, counts, orders = str(tmp_path / "0_0"), TopicPartition("counts", 0), TopicPartition("orders", 0)
    key, value = encode_marker(Marker(7, {orders: 70, USERS: 50}, "counts"))

    class Changelog:
        def fetch(self, ranges, *, columns, max_bytes=None):
            given = pa.array([key], pa.binary()), pa.array([value], pa.binary()), pa.array([3], pa.int64())
            yield counts, pa.record_batch(dict(zip(("key", "value", "offset"), given, strict=True)))

    monkeypatch.setattr(connections, "fetcher", lambda _: Changelog())
    command = RestoreCommand(TaskId(0, 0), directory, (StoreRestore("counts", counts, 4),), take_over=True)
    monkeypatch.setattr(restore, "current_command", lambda _: RestoreSlice(((command,),), seconds=60))
    monkeypatch.setattr(restore, "current_spark_partition", lambda _: 0)
    spec = restore.RestoreSpec(1, APPLICATION, {}, 1 << 24, {"people": source()})
    (row,) = restore.restore_partition(spec, iter(()))
    (report,) = decode_bytes(row.column(0)[0].as_py())
    connections.forget_store(directory)
    assert (report.batch, report.positions) == (7, {orders: 70})
