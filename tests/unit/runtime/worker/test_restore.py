"""A Spark partition's share of a slice, with stores and without a broker: what is done in its time, and what anyway."""

import pyarrow as pa
import pytest
from tests.doubles.clock import Clock

from sparkrelay.errors import TimeoutException
from sparkrelay.runtime.contract.commands import RestoreCommand, RestoreSlice, StoreRestore, decode_bytes
from sparkrelay.runtime.worker import connections, restore
from sparkrelay.types import TaskId, TopicPartition

SECONDS = 0.1
APPLICATION = "app"


class Fetcher:
    """Gives a record a piece; a piece takes as long as the test says."""

    def __init__(self, clock):
        self.clock, self.takes, self.pieces = clock, 0.06, []
        self.silent = set()
        self.silent_from = 0

    def fetch(self, ranges, *, columns):
        ((partition, (start, end)),) = ranges.items()
        for offset in range(start, end):
            self.clock.now += self.takes
            self.pieces.append((partition.topic, partition.partition))
            if partition in self.silent and offset >= self.silent_from:
                raise TimeoutException("no answer")
            yield (
                partition,
                pa.record_batch(
                    {
                        "key": pa.array([b"k%d" % offset], pa.binary()),
                        "value": pa.array([None], pa.binary()),
                        "offset": pa.array([offset], pa.int64()),
                    }
                ),
            )


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

    def run_commands(*commands):
        used.update(command.directory for command in commands)
        monkeypatch.setattr(restore, "current_command", lambda _: RestoreSlice((commands,), seconds=SECONDS))
        monkeypatch.setattr(restore, "current_spark_partition", lambda _: 0)
        spec = restore.RestoreSpec(1, APPLICATION, {}, 1 << 24)
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


def test_what_came_before_an_error_counts(run, command, fetcher):
    fetcher.takes, fetcher.silent_from = 0.0, 7
    fetcher.silent = {TopicPartition("counts", 0)}
    (report,) = run(command(0))
    assert isinstance(report.error, TimeoutException)
    store = connections.store(command(0).directory, map_limit=1 << 24)
    assert store.header.changelog == {TopicPartition("counts", 0): 7}
