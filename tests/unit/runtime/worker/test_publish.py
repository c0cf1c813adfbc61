"""The last step of a leg: what becomes of its rows, where they are more than one takes into memory at once."""

import dataclasses
import gc
import itertools
import weakref

import pyarrow as pa
import pytest
from tests.doubles.state_steps import task_command

from sparkrelay import hidden_columns
from sparkrelay.client.file_log import LOG_DIRECTORY, FileLog, FileProducer
from sparkrelay.errors import RecordTooLargeException
from sparkrelay.records.formats import Json
from sparkrelay.runtime.contract.commands import BatchCommand, decode_bytes
from sparkrelay.runtime.contract.specs import PublishSpec
from sparkrelay.runtime.worker import publish, shares
from sparkrelay.runtime.worker.context import commanded
from sparkrelay.runtime.worker.publish import publish_leg
from sparkrelay.types import TaskId, TopicPartition

OUT = TopicPartition("out", 0)
TASKS = (task_command(0, span=(0, 9)), task_command(1, span=(0, 9)))


@pytest.fixture(autouse=True)
def one_spark_partition(monkeypatch):
    monkeypatch.setattr("sparkrelay.runtime.worker.context.current_spark_partition", lambda _: 0)


@pytest.fixture
def spec(tmp_path):
    return PublishSpec(
        leg="leg",
        subtopology=0,
        topics=("orders",),
        spark_partitions=1,
        client={LOG_DIRECTORY: str(tmp_path / "topics")},
        map_limit=1,
        failure_key=b"",
        topic="out",
        columns=("n",),
        key_columns=(),
        value=Json(),
        headers=None,
        compression="none",
        flush_seconds=10.0,
    )


def rows(partition, *numbers):
    count = len(numbers)
    return pa.record_batch(
        {
            "n": pa.array(numbers, pa.int64()),
            hidden_columns.PARTITION: pa.array([partition] * count, pa.int32()),
            hidden_columns.TIMESTAMP: pa.array(numbers, pa.int64()),
            hidden_columns.KEY: pa.array([b"k"] * count, pa.binary()),
        }
    )


def published(spec, batches, tasks=TASKS):
    with commanded(BatchCommand((tasks,), {"out": 1})):
        (row,) = publish_leg(spec, batches)
    return {report.task: report for report in decode_bytes(row.column(0)[0].as_py())}


def written(tmp_path, tasks=TASKS):
    log = FileLog(tmp_path / "topics")
    log.commit(tasks[0].transaction.transactional_id)
    return [record["value"] for record in log.read(OUT, 0, log.end(OUT), ("value",)).to_pylist()]


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_rows_are_written_and_reported_in_one_piece_or_many(spec, tmp_path, monkeypatch, most):
    monkeypatch.setattr(publish, "_PIECE_BYTES", most)
    batches = [rows(0, 5, 6), rows(1, 7), rows(0), rows(0, 3), rows(1, 9, 8)]
    reports = published(spec, iter(batches))
    first, second = reports[TaskId(0, 0)], reports[TaskId(0, 1)]
    assert (first.rows_in, first.rows_out, first.oldest_out) == (3, 3, {"out": 3})
    assert (second.rows_in, second.rows_out, second.oldest_out) == (3, 3, {"out": 7})
    assert {**first.next_sequences, **second.next_sequences} == {OUT: 6}, "they write in one transaction"
    assert set(first.seconds) == {"publish"}
    found = written(tmp_path)
    for numbers in ((5, 6, 3), (7, 9, 8)):
        own = [b'{"n":%d}' % n for n in numbers]
        assert [row for row in found if row in own] == own, "a task's rows stay in their order"


def test_rows_that_are_written_are_let_go_before_the_next_ones_come(spec, monkeypatch):
    monkeypatch.setattr(publish, "_PIECE_BYTES", 100)
    alive = []

    def batches():
        for number in range(20):
            batch = rows(0, *range(number, number + 10))
            alive.append(weakref.ref(batch))
            yield batch
            del batch
            gc.collect()
            assert sum(one() is not None for one in alive) <= 3

    assert published(spec, batches(), TASKS[:1])[TaskId(0, 0)].rows_out == 200


@pytest.mark.parametrize("alone", [False, True])
def test_records_that_are_refused_are_those_of_the_tasks_that_may_have_written_them(spec, monkeypatch, alone):
    monkeypatch.setattr(publish, "_PIECE_BYTES", 1)
    monkeypatch.setattr(shares, "_SMALL", 0 if alone else 100)
    send = FileProducer.send

    def refusing(self, tp, batch, **what):
        if b'"n":6' in bytes(batch):
            raise RecordTooLargeException("too large")
        send(self, tp, batch, **what)

    monkeypatch.setattr(FileProducer, "send", refusing)
    read = []
    batches = (read.append(n) or rows(n % 2, n) for n in range(20))
    together = pa.concat_batches([rows(0, 6), rows(1, 7)])
    reports = published(spec, itertools.chain([rows(0, 5), together], batches))
    errors = [type(reports[TaskId(0, number)].error) for number in (0, 1)]
    assert errors == [RecordTooLargeException, type(None) if alone else RecordTooLargeException]
    assert len(read) == 20, "Python workers of Spark's die of input that nobody reads"


def test_workers_wait_as_long_as_settings_say(spec, monkeypatch):
    waited, flush_each = [], FileProducer.flush_each

    def noted(self, timeout):
        waited.append(timeout)
        return flush_each(self, timeout)

    monkeypatch.setattr(FileProducer, "flush_each", noted)
    published(dataclasses.replace(spec, flush_seconds=7.5), iter([rows(0, 1)]))
    assert waited == [7.5]
