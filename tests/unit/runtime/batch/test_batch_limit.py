"""Batches that outlast their transactions get smaller, or end the instance."""

import pytest
from tests.doubles.tasks import task_in

from sparkrelay.errors import ProducerFencedException, StoreOutOfStepException, StreamsException
from sparkrelay.runtime.batch.batch_limit import BatchLimit
from sparkrelay.runtime.batch.micro_batch import BatchOutcome
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId, TopicPartition

TASK, OTHER = TaskId(0, 0), TaskId(0, 1)


def fenced(seconds, error=None, committed=()):
    error = error or ProducerFencedException("too late")
    return BatchOutcome(committed=list(committed), reinitialize={TASK: error}, seconds={"total": seconds})


def of_tasks(**records):
    """Return the work of a batch: name of a task (`free`, `fixed`) -> the records it has."""
    work = {}
    for number, (name, count) in enumerate(records.items()):
        partition = TopicPartition("orders", number)
        task = task_in(TaskState.RUNNING, TaskId(0, number), (partition,), positions={partition: 0})
        task.batch_begun({partition: (0, count)})
        task.attempt.fixed = name == "fixed"
        work[task.id] = task, task.attempt.ranges
    return work


def done(seconds):
    return BatchOutcome(committed=[TASK], seconds={"total": seconds})


def test_each_batch_that_outlasts_its_transaction_halves_the_next():
    limit = BatchLimit(100, 60_000, tries=3)
    limit.note(fenced(61), 100)
    assert limit.records == 50
    limit.note(fenced(61, committed=[OTHER]), 100)
    assert limit.records == 25


def test_too_many_in_a_row_end_the_instance_and_name_the_remedy():
    limit = BatchLimit(100, 60_000, tries=2)
    limit.note(fenced(61), 100)
    limit.note(fenced(61), 100)
    with pytest.raises(
        StreamsException,
        match=r"3 batches in a row .*transaction.timeout.ms=60000.* took 75.5 s with at most 100 records a task.*"
        r"Raise transaction.timeout.ms .*lower max.batch.records",
    ):
        limit.note(fenced(75.5), 100)


def test_a_batch_in_time_ends_the_row():
    limit = BatchLimit(100, 60_000, tries=1)
    for _ in range(5):
        limit.note(fenced(61), 100)
        limit.note(done(40), 100)
    assert limit.records == 3


def test_easy_batches_grow_again_up_to_the_setting():
    limit = BatchLimit(100, 60_000, tries=3)
    limit.note(fenced(61), 100)
    limit.note(fenced(61), 100)
    limit.note(done(16), 100)
    assert limit.records == 25
    limit.note(done(15), 100)
    assert limit.records == 50
    for _ in range(3):
        limit.note(done(1), 100)
    assert limit.records == 100


def test_a_batch_of_one_record_stays_one():
    limit = BatchLimit(1, 60_000, tries=2)
    limit.note(fenced(61), 100)
    assert limit.records == 1


@pytest.mark.parametrize(
    "outcome",
    [fenced(59), fenced(61, StoreOutOfStepException("another task epoch")), BatchOutcome(seconds={"total": 99.0})],
    ids=["fenced by somebody", "not fenced", "failed otherwise"],
)
def test_what_is_not_the_batchs_length_changes_nothing(outcome):
    limit = BatchLimit(100, 60_000, tries=0)
    limit.note(outcome, 100)
    assert limit.records == 100


def test_where_there_was_little_to_take_half_of_that_is_taken():
    limit = BatchLimit(500_000, 60_000, tries=2)
    limit.note(fenced(61), 5000)
    assert limit.records == 2500
    limit.note(fenced(61), 0)
    assert limit.records == 1250, "one that ended windows alone says nothing of records"


def too_large(share):
    return BatchOutcome(again={TASK: BatchTooLarge("too large", share), OTHER: BatchTooLarge("too large", share * 2)})


def test_a_batch_of_too_many_bytes_is_followed_by_those_that_fit():
    limit = BatchLimit(100_000, 60_000, tries=3)
    limit.note(too_large(50_000), 100_000)
    assert limit.records == 4_000, "0.05 of them, and something is left for larger ones"
    for _ in range(49):
        limit.note(done(1), 4_000)
        assert limit.records == 4_000
    limit.note(done(1), 4_000)
    assert limit.records == 8_000, "now and then more is tried"
    limit.note(too_large(600_000), 8_000)
    assert limit.records == 3_840


def test_batches_of_too_many_bytes_get_smaller_until_they_have_one_record():
    limit = BatchLimit(100, 60_000, tries=3)
    limit.note(too_large(999_999), 2)
    assert limit.records == 1
    limit.note(too_large(1), 100)
    assert limit.records == 1


def test_batches_that_are_not_full_try_nothing():
    limit = BatchLimit(100_000, 60_000, tries=3)
    limit.note(too_large(50_000), 100_000)
    for _ in range(200):
        limit.note(done(1), 10)
    assert limit.records == 4_000


def test_tasks_take_fewer_records_after_too_many_bytes_unless_theirs_are_fixed():
    """What a fixed task takes says nothing of the others."""
    work = of_tasks(fixed=1_000, free=10)
    fixed, free = (task for task, _ in work.values())
    limit = BatchLimit(500_000, 60_000, tries=2)
    for records in (4, 1):
        limit.note_batch(too_large(500_000), work)
        assert [stop for _, stop in free.attempt.ranges.values()] == [limit.records] == [records]
        work = {task.id: (task, task.attempt.ranges) for task in (fixed, free)}
    assert [stop for _, stop in fixed.attempt.ranges.values()] == [1_000]
