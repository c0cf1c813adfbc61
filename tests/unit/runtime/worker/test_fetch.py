"""What is fetched for a leg, and how many bytes of it a micro-batch may take."""

import pyarrow as pa
import pytest
from tests.unit.runtime.worker.test_decoding import raw_records, spec

from sparkrelay.runtime.contract.commands import BatchCommand, TaskCommand
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge, WorkerFailure
from sparkrelay.runtime.worker import connections, context
from sparkrelay.runtime.worker.context import commanded
from sparkrelay.runtime.worker.fetch import BytesRead, fetch_leg
from sparkrelay.types import TaskId, TopicPartition


def of_bytes(count):
    return pa.record_batch({"value": pa.array([b"x" * count])})


def test_records_that_take_more_than_they_may_are_refused_with_the_part_that_fits():
    bytes_read = BytesRead({TopicPartition("orders", 0): (0, 10)}, 1000)
    bytes_read.add(of_bytes(400), records=1)
    with pytest.raises(BatchTooLarge, match=r"2 of 10 records take 1,\d+ bytes, as fetched and decoded") as raised:
        bytes_read.add(of_bytes(1000), records=1)
    assert 100_000 < raised.value.share < 200_000, "two were read, and they are too many"


@pytest.mark.parametrize("fixed", [False, True])
def test_a_batch_whose_records_are_fixed_takes_all_of_them(monkeypatch, fixed):
    """The other task's record is alone, and would pass without a bound."""
    raw = raw_records([(None, n) for n in range(10)])
    one, other = TopicPartition("in", 0), TopicPartition("in", 1)
    asked = []

    class Fetcher:
        def fetch(self, ranges, *, columns, max_bytes, topic_ids):
            asked.append(max_bytes)
            for _ in range(4):
                yield one, raw
            yield other, raw.slice(0, 1)

        def close(self):
            pass

    task = TaskCommand(TaskId(0, 0), 1, 0, 1, None, None, {one: (100, 140)}, {}, fixed=fixed)
    beside = TaskCommand(TaskId(0, 1), 1, 0, 1, None, None, {other: (100, 101)}, {})
    most = raw.nbytes + raw.nbytes // 2
    monkeypatch.setattr(connections, "fetcher", lambda _: Fetcher())
    with commanded(BatchCommand(((task, beside),), {}, max_bytes=most)):
        monkeypatch.setattr(context, "current_spark_partition", lambda _: 0)
        rows = fetch_leg(spec(), iter(()))
        if fixed:
            assert sum(batch.num_rows for batch in rows) == 41
        else:
            with pytest.raises(WorkerFailure):
                list(rows)
    assert asked == [most]


@pytest.mark.parametrize(("stop", "most"), [(1, 1000), (10, 0)])
def test_a_single_record_may_take_anything_and_so_may_all_without_a_bound(stop, most):
    bytes_read = BytesRead({TopicPartition("orders", 0): (0, stop), TopicPartition("orders", 1): (5, 5 + stop)}, most)
    bytes_read.add(of_bytes(5000), records=1)
