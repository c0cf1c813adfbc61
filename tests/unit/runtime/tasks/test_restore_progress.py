"""What restore slices are called in Spark's UI."""

import pytest

from sparkrelay.runtime.tasks.restore_progress import RestoreProgress, describe_slice
from sparkrelay.types import TaskId, TopicPartition


def copy(number, *, restoring=True, at=0, end=100, first_lag=100):
    changelog = TopicPartition("app-counts-changelog", number)
    offsets = None if at is None else {changelog: at}
    return RestoreProgress(TaskId(1, number), restoring, 0.0, offsets, {changelog: end}, first_lag)


def new(number, *, restoring=True):
    return copy(number, restoring=restoring, at=None, first_lag=None)


@pytest.mark.parametrize(
    ("copies", "name"),
    [
        ([copy(0, at=60), copy(1, at=20), copy(2, at=40)], "restoring 3 tasks, 1_0..1_2: 40 %"),
        ([copy(0, at=99, end=100, first_lag=1000)], "restoring 1_0: 99 %"),
        ([new(0)], "restoring 1_0"),
        ([copy(0, at=50), new(1)], "restoring 2 tasks, 1_0..1_1"),
        ([copy(0, at=100, first_lag=0)], "restoring 1_0: 100 %"),
        ([copy(0, at=0, end=5000, first_lag=100)], "restoring 1_0: 0 %"),
        ([new(3, restoring=False)], "standby of 1_3"),
        ([copy(n, restoring=False, end=600) for n in range(4)], "standby of 4 tasks, 1_0..1_3: 2,400 offsets behind"),
    ],
)
def test_a_slice_says_what_it_is_for_and_how_far_it_is(copies, name):
    assert describe_slice(copies) == name


def test_shares():
    assert new(0).share is None
    assert copy(0, at=25).share == 0.25
    assert copy(0, at=100, first_lag=0).share == 1.0
    assert copy(0, at=150).share == 1.0
