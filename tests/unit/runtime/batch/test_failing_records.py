"""The search for records that make batches fail, over tasks of which a few records do."""

import pytest
from hypothesis import given, strategies as st
from tests.doubles.tasks import task_in

from sparkrelay.errors import RecordRefusedException, RecordTooLargeException, SerializationException, StreamsException
from sparkrelay.runtime.batch.failing_records import FailingRecords
from sparkrelay.runtime.spark.job_errors import JobError
from sparkrelay.runtime.spark.jobs import JobFailed, UserCodeFailed
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId, TopicPartition

RAISED = UserCodeFailed("the job failed", JobError("Traceback", "ValueError: no (f.py:3, in f)", raised="ValueError"))


def tasks(count, inputs=1):
    made = {}
    for number in range(count):
        partitions = tuple(TopicPartition(f"in{i}", number) for i in range(inputs))
        id_ = TaskId(0, number)
        made[id_] = task_in(TaskState.RUNNING, id_, partitions, positions=dict.fromkeys(partitions, 0))
    return made


def committed(task):
    task.batch_committed()


def records_in(ranges):
    return {(partition, offset) for partition, span in ranges.items() for offset in range(*span)}


class Run:
    """Runs batches until there is no input left; one fails if it takes a bad record."""

    def __init__(self, made, ends, bad, limit, error=RAISED):
        self.search = FailingRecords(processing=True, production=True, most=limit)
        self.taken, self.left_out, self.jobs = [], set(), 0
        while work := self._work(made, ends, limit):
            self.jobs += 1
            assert self.jobs < 2000, "it comes to no end"
            for task, ranges in work.values():
                task.batch_begun(ranges)
            outs = {
                (partition, offset)
                for task, _ in work.values()
                for partition, some in task.attempt.left_out.items()
                for offset in some
            }
            records = set().union(*(records_in(ranges) for _, ranges in work.values()))
            if (records - outs) & bad:
                for task, _ in work.values():
                    task.batch_aborted()
                assert self.search.failed(error, [task for task, _ in work.values()], resident=False)
                continue
            self.taken += records
            self.left_out |= outs
            for task, _ in work.values():
                committed(task)
            counts = {id_: len(records_in(ranges)) for id_, (_, ranges) in work.items()}
            self.search.passed([task for task, _ in work.values()], counts)

    def _work(self, made, ends, limit):
        work = {}
        for id_, task in made.items():
            ranges = task.next_ranges(dict(task.position.offsets), ends, self.search.limited(limit), 0.0, 0)
            if ranges:
                work[id_] = task, ranges
        return self.search.chosen(work)


@given(st.data())
def test_all_records_are_taken_once_and_the_bad_ones_left_out(data):
    made = tasks(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2)))
    partitions = [partition for task in made.values() for partition in task.inputs]
    ends = {partition: data.draw(st.integers(0, 40)) for partition in partitions}
    everything = records_in({partition: (0, end) for partition, end in ends.items()})
    bad = data.draw(st.sets(st.sampled_from(sorted(everything)), max_size=6)) if everything else set()
    run = Run(made, ends, bad, data.draw(st.integers(1, 100)))
    assert sorted(run.taken) == sorted(everything)
    assert run.left_out == bad


def test_it_takes_about_two_jobs_for_each_halving():
    [partition] = [partition for task in tasks(1).values() for partition in task.inputs]
    run = Run(tasks(1), {partition: 1024}, {(partition, 700)}, 1024)
    assert run.jobs <= 10 + 2 + 10 + 11, "halved down, tried again, and doubled up"
    assert not run.search.searching


def test_only_what_records_can_bring_about_is_looked_for():
    def takes(error, resident=False, **handlers):
        [task] = tasks(1).values()
        task.batch_begun({task.inputs[0]: (0, 4)})
        search = FailingRecords(**{"processing": False, "production": False, **handlers}, most=10)
        return search.failed(error, [task], resident=resident)

    assert takes(RAISED, processing=True)
    assert not takes(RAISED, production=True)
    assert takes(SerializationException("not UTF-8"), production=True)
    assert takes(RecordTooLargeException("2 MB"), production=True)
    assert takes(RecordRefusedException("no key"), production=True)
    assert not takes(RecordRefusedException("no key"), processing=True)
    assert not takes(SerializationException("not UTF-8"), processing=True)
    assert not takes(JobFailed("a Python worker died"), processing=True, production=True)
    assert not takes(StreamsException("the disk is full"), processing=True, production=True)
    # What was raised in a resident job is seen once the batch has a job of its own.
    assert takes(JobFailed("a resident job has lost a step"), resident=True, processing=True)


def test_a_batch_without_records_has_none_to_leave_out():
    [task] = tasks(1).values()
    task.batch_begun({task.inputs[0]: (3, 3)})
    assert not FailingRecords(processing=True, production=True, most=10).failed(RAISED, [task], resident=False)


@pytest.mark.parametrize(
    "error", [RecordTooLargeException("a dead letter does not fit letters-0"), RAISED], ids=["letter", "timer"]
)
def test_what_fails_without_the_record_as_well_ends_the_instance(error):
    """Its letter is refused, say: the record would be left out, and fail, for ever."""
    [task] = tasks(1).values()
    search = FailingRecords(processing=True, production=True, most=10)
    [partition] = task.inputs

    def fail():
        task.batch_begun(task.next_ranges({partition: 0}, {partition: 1}, search.limited(10), 0.0, 0))
        task.batch_aborted()
        assert search.failed(error, [task], resident=False)

    fail()
    assert not task.attempt.left_out
    fail()
    assert set(task.attempt.left_out[partition]) == {0}
    with pytest.raises(
        StreamsException, match=f"{partition} at offset 0 fails although .* left out: {error}"
    ) as raised:
        fail()
    assert raised.value.__cause__ is error


def test_a_later_search_runs_a_record_again_before_it_is_left_out():
    made = tasks(1)
    ((id_, task),) = made.items()
    partition = TopicPartition("in0", 0)
    first = Run(made, {partition: 8}, {(partition, 3)}, 8)
    assert first.left_out == {(partition, 3)}
    while first.search.searching:
        first.search.passed([task], {id_: 0})
    # A service that the step calls is away for a moment, and raises the same.
    task.batch_begun(task.next_ranges(dict(task.position.offsets), {partition: 9}, 8, 0.0, 0))
    task.batch_aborted()
    assert first.search.failed(RAISED, [task], resident=False)
    assert not task.attempt.left_out
