"""Tasks of a small micro-batch are worked on together, and it makes no difference."""

import numpy as np
import pyarrow as pa
import pytest
from tests.doubles.state_steps import task_command

from sparkrelay import hidden_columns
from sparkrelay.runtime.worker import shares
from sparkrelay.runtime.worker.shares import partitions_of, share_out


def rows(*partitions):
    numbers = np.arange(len(partitions))
    return pa.record_batch({"number": numbers, hidden_columns.PARTITION: np.array(partitions, np.int32)})


def numbers_by_partition(share):
    found = {}
    for batch in share.batches:
        for partition, number in zip(partitions_of(batch).tolist(), batch.column("number").to_pylist(), strict=True):
            found.setdefault(partition, []).append(number)
    return found


def test_few_rows_are_one_share_in_the_order_of_partitions():
    (share,) = share_out([task_command(2), task_command(0), task_command(5)], [rows(2, 0, 2), rows(), rows(5)])
    assert [command.task.partition for command in share.tasks] == [0, 2, 5]
    assert [share.rows_in(command) for command in share.tasks] == [1, 2, 1]
    assert numbers_by_partition(share) == {2: [0, 2], 0: [1], 5: [0]}


def test_many_rows_are_a_share_a_task_command(monkeypatch):
    monkeypatch.setattr(shares, "_SMALL", 3)
    found = list(share_out([task_command(2), task_command(0), task_command(5)], [rows(2, 0, 2), rows(0, 0)]))
    assert [[command.task.partition for command in share.tasks] for share in found] == [[0], [2], [5]]
    assert [share.rows_in(share.tasks[0]) for share in found] == [3, 2, 0]
    assert [numbers_by_partition(share) for share in found] == [{0: [1, 0, 1]}, {2: [0, 2]}, {}]


@pytest.mark.parametrize("small", [0, 100])
def test_tasks_without_rows_have_a_share_too(monkeypatch, small):
    monkeypatch.setattr(shares, "_SMALL", small)
    (share,) = share_out([task_command(1), task_command(0)], iter([]))
    assert [share.rows_in(command) for command in share.tasks] == [0, 0]
    assert not list(share_out([], iter([])))
