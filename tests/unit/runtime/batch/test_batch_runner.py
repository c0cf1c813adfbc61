"""What a micro-batch makes of failures, without Spark and without a broker."""

import contextlib
from collections import Counter
from dataclasses import replace

import pytest
from tests.doubles.jobs import Jobs as OneByOne
from tests.doubles.tasks import serve, task_in

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.errors import (
    BrokerResponseException,
    DisconnectException,
    OffsetOutOfRangeException,
    ProducerFencedException,
    SerializationException,
    StateStoreException,
    StoreCorruptedException,
    StoreFullException,
    StoreOutOfStepException,
    StreamsException,
    TimeoutException,
    UnknownTopicException,
)
from sparkrelay.runtime.batch import batch_runner
from sparkrelay.runtime.batch.batch_runner import BatchRunner
from sparkrelay.runtime.batch.commit_checks import CommitChecks
from sparkrelay.runtime.batch.failing_records import FailingRecords
from sparkrelay.runtime.batch.thread_transactions import TransactionKey
from sparkrelay.runtime.compile.prepared_legs import Wave
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge
from sparkrelay.runtime.spark.job_errors import JobError
from sparkrelay.runtime.spark.jobs import ClosedWorkerLent, JobCancelled, JobFailed, TaskFailed, UserCodeFailed
from sparkrelay.runtime.tasks.batch_notes import read_batch
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId, TopicPartition

ONE, OTHER = TaskId(0, 0), TaskId(0, 1)


class PreparedLegs:
    renewed = False

    def renew(self, subtopologies, collect):
        assert subtopologies == {0}
        if isinstance(self.renewed, Exception):
            raise self.renewed
        return self.renewed

    def all_waves(self):
        return self.waves((), ())

    def waves(self, subtopologies, topics):
        return [Wave(object(), {"leg": (0, frozenset({"orders"}))})]


def Jobs(*answers, spark_partitions=2, **settings):
    """Return jobs that give each of the two tasks a Spark partition, and so a transaction, of its own."""
    return OneByOne(*answers, spark_partitions=spark_partitions, **settings)


class Transactions:
    """Ends every transaction; an outcome may be set for the first task's."""

    def __init__(self, outcome=None):
        self.outcome = outcome
        self.aborted, self.committed = [], []
        self.notes, self.epochs = [], Counter()

    def lend(self, keys):
        return {key: ProducerIdentity(self._name(key), 1, self.epochs[key]) for key in keys}

    def commit(self, offsets, *, notes):
        self.notes.append((dict(offsets), dict(notes)))
        self.committed += [self._name(key) for key in offsets]
        return self._ended(offsets)

    def abort(self, keys):
        self.aborted += [self._name(key) for key in keys]
        return self._ended(keys)

    def _ended(self, keys):
        self.epochs.update(list(keys))
        return {key: self.outcome if key == TransactionKey(0, 0) else None for key in keys}

    def _name(self, key):
        return f"app-{key.subtopology}_{key.spark_partition}"


def tasks():
    work = {}
    for id_ in (ONE, OTHER):
        partition = TopicPartition("orders", id_.partition)
        task = task_in(TaskState.RUNNING, id_, (partition,), positions={partition: 5})
        work[id_] = task, {partition: (5, 9)}
    return work


def initialize_again(task):
    """Have a task that fell out of service in service again, where it was."""
    task.fell_out()
    serve(task)


def run(jobs, transactions=None, work=None, retries=2):
    transactions = transactions or Transactions()
    return BatchRunner(jobs, transactions, "app", retries=retries).run(
        PreparedLegs(), work or tasks(), {}
    ), transactions


def test_a_prewarm_has_no_task_in_any_spark_partition():
    jobs = Jobs(spark_partitions=2)
    BatchRunner(jobs, Transactions(), "app", retries=0).prewarm(PreparedLegs(), over=lambda: False)
    assert jobs.prewarmed.spark_partitions == ((), ())
    assert not jobs.due


def test_a_prewarm_is_repeated_since_workers_take_turns(monkeypatch):
    jobs = Jobs()
    BatchRunner(jobs, Transactions(), "app", retries=0).prewarm(PreparedLegs(), over=lambda: jobs.prewarms == 3)
    assert jobs.prewarms == 3
    monkeypatch.setattr(batch_runner, "_REPEATING_SECONDS", 0.0)
    jobs = Jobs()
    BatchRunner(jobs, Transactions(), "app", retries=0).prewarm(PreparedLegs(), over=lambda: False)
    assert jobs.prewarms == 1


def test_a_prewarm_is_not_repeated_while_tasks_wait_for_it():
    jobs = Jobs()
    runner = BatchRunner(jobs, Transactions(), "app", retries=0)
    runner.prewarm(PreparedLegs(), over=lambda: False, wanted=lambda: jobs.prewarms == 2)
    assert jobs.prewarms == 2


def test_a_prewarm_of_nothing_is_not_repeated():
    plans = PreparedLegs()
    asked = []
    plans.all_waves = lambda: asked.append(1) or []
    BatchRunner(Jobs(), Transactions(), "app", retries=0).prewarm(plans, over=lambda: False)
    assert len(asked) == 1


def test_nothing_is_prewarmed_for_what_is_over():
    jobs = Jobs()
    BatchRunner(jobs, Transactions(), "app", retries=0).prewarm(PreparedLegs(), over=lambda: True)
    assert jobs.prewarmed is None


def test_a_batch_is_sent_with_the_positions_that_the_state_sees():
    work, jobs = tasks(), Jobs()
    task, ranges = work[ONE]
    unseen = TopicPartition("returns", 0)
    task.inputs += (unseen,)
    task.position.offsets[unseen] = 7
    ranges[unseen] = 7, 8
    task.shape = replace(task.shape, state_topics=frozenset({"orders"}))
    run(jobs, work=work)
    command = next(command for share in jobs.command.spark_partitions for command in share if command.task == ONE)
    assert command.positions == {TopicPartition("orders", 0): 5}
    assert command.positions_after == {TopicPartition("orders", 0): 9}
    assert task.position.offsets[unseen] == 8


def test_a_batch_that_works_moves_positions():
    work = tasks()
    outcome, transactions = run(Jobs(), work=work)
    assert outcome.committed == [ONE, OTHER]
    assert transactions.committed == ["app-0_0", "app-0_1"]
    for task, _ in work.values():
        assert list(task.position.offsets.values()) == [9]
        position = task.position
        assert (position.batch, position.committed, task.attempt.ranges) == (1, 1, None)


def test_tasks_of_a_subtopology_in_one_spark_partition_share_a_transaction():
    work, jobs, transactions = tasks(), Jobs(spark_partitions=1), Transactions()
    partition = TopicPartition("returns", 0)
    third = task_in(TaskState.RUNNING, TaskId(1, 0), (partition,), positions={partition: 5})
    work[third.id] = third, {partition: (5, 9)}
    runner = BatchRunner(jobs, transactions, "app", retries=2)
    plans = PreparedLegs()
    plans.renew = lambda subtopologies, collect: False
    plans.waves = lambda subtopologies, topics: [Wave(object(), {"leg": (0, {"orders"}), "other": (1, {"returns"})})]
    jobs.legs = {0: "leg", 1: "other"}
    assert len(runner.run(plans, work, {}).committed) == 3
    assert transactions.committed == ["app-0_0", "app-1_0"]
    ((offsets, _),) = transactions.notes
    assert [len(some) for some in offsets.values()] == [2, 1]
    lent = {command.task: command.transaction for share in jobs.command.spark_partitions for command in share}
    assert lent[ONE] == lent[OTHER] != lent[third.id]


@pytest.mark.parametrize("error", [JobFailed("a worker died"), DisconnectException("gone")])
@pytest.mark.parametrize("how", ["raised", "reported"])
def test_a_passing_failure_runs_again_with_the_same_ranges(error, how):
    work = tasks()
    outcome, transactions = run(Jobs(**{how: error}), work=work)
    assert (set(outcome.again), outcome.committed, outcome.reinitialize) == ({ONE, OTHER}, [], {})
    assert transactions.aborted == ["app-0_0", "app-0_1"]
    task, ranges = work[ONE]
    assert (task.attempt.ranges, task.position.batch) == (ranges, 1)
    run(Jobs(), work=work)
    assert (task.position.batch, task.position.committed, task.attempt.ranges) == (1, 1, None)


def test_a_failure_that_tasks_share_is_reported_once(caplog):
    run(Jobs(raised=JobFailed("a worker died")))
    assert caplog.messages == ["batch 1 of 2 tasks, 0_0..0_1 failed and runs again: a worker died"]


@pytest.mark.parametrize("how", ["raised", "reported"])
def test_who_is_fenced_opens_its_tasks_again_and_lives(how):
    outcome, _ = run(Jobs(**{how: ProducerFencedException("somebody else writes")}))
    assert ONE in outcome.reinitialize
    assert isinstance(outcome.reinitialize[ONE], ProducerFencedException)


@pytest.mark.parametrize("answer", [TimeoutException("no answer"), ProducerFencedException("another owner")])
def test_errors_of_a_zombie_are_no_failure_of_the_instance(answer):
    """The new owner's repartition records are deleted once it has committed: a zombie finds them gone."""
    work = tasks()
    gone = OffsetOutOfRangeException("the log does not have it")
    outcome, _ = run(Jobs(raised=gone), Transactions(answer), work)
    assert (set(outcome.reinitialize), set(outcome.again)) == ({ONE}, {OTHER})
    assert outcome.reinitialize[ONE] is answer
    del work[ONE]
    with pytest.raises(OffsetOutOfRangeException):
        run(Jobs(raised=gone), work=work)


@pytest.mark.parametrize("error", [TimeoutException("no answer"), ProducerFencedException("another owner")])
def test_an_unknown_outcome_opens_the_task_again(error):
    work = tasks()
    outcome, _ = run(Jobs(), Transactions(error), work)
    assert (outcome.committed, set(outcome.reinitialize)) == ([OTHER], {ONE})
    assert list(work[ONE][0].position.offsets.values()) == [5]


@pytest.mark.parametrize("with_functions", [False, True])
def test_a_commit_that_is_refused_again_and_again_ends_the_instance(with_functions):
    """Found by a reader: the task was initialized again for ever, and nothing got on."""
    work = work_of_functions() if with_functions else tasks()
    refused = Transactions(broker_error(ErrorCode.OFFSET_METADATA_TOO_LARGE, "committing offsets"))
    for _ in range(2):
        outcome, _ = run(Jobs(), refused, work)
        assert set(outcome.reinitialize) == ({ONE, OTHER} if with_functions else {ONE})
        for id_ in outcome.reinitialize:
            initialize_again(work[id_][0])
    with pytest.raises(BrokerResponseException, match=r"offset\.metadata\.max\.bytes"):
        run(Jobs(), refused, work)


@pytest.mark.parametrize(
    ("error", "wiped"), [(StoreOutOfStepException("elsewhere"), False), (StoreCorruptedException("torn"), True)]
)
@pytest.mark.parametrize("raised", [False, True])
def test_a_store_that_cannot_be_used_as_it_is(error, wiped, raised):
    work = tasks()
    outcome, _ = run(Jobs(raised=TaskFailed(ONE, error)) if raised else Jobs(reported=error), work=work)
    assert set(outcome.reinitialize) == {ONE}
    assert set(outcome.again) == {OTHER}
    assert (work[ONE][0].copy.wipe, work[OTHER][0].copy.wipe) == (wiped, False)


def test_a_store_that_was_rebuilt_in_vain_ends_the_instance():
    work, jobs = tasks(), Jobs(reported=StoreCorruptedException("one has version 3, not 1"))
    task, _ = work[ONE]
    task.changelogs = {"counts": TopicPartition("app-counts-changelog", 0)}
    run(jobs, work=work)
    # It was initialized again: the same batch meets the same values.
    initialize_again(task)
    with pytest.raises(
        StreamsException, match=r"task 0_0: .*rebuilt from app-counts-changelog.* version 3.*newer release"
    ):
        run(jobs, work=work)


def test_a_store_that_is_damaged_again_later_is_rebuilt_again():
    work, damaged = tasks(), Jobs(reported=StoreCorruptedException("torn"))
    for _ in range(3):
        outcome, _ = run(damaged, work=work)
        assert set(outcome.reinitialize) == {ONE}
        for task, _ in work.values():
            initialize_again(task)
        run(Jobs(), work=work)


@pytest.mark.parametrize("error", [SerializationException("offset 7 does not decode"), StoreFullException("full")])
@pytest.mark.parametrize("how", ["raised", "reported"])
def test_what_running_again_cannot_mend_is_raised_once_all_is_aborted(error, how):
    transactions = Transactions()
    with pytest.raises(type(error)):
        run(Jobs(**{how: error}), transactions)
    assert transactions.aborted == ["app-0_0", "app-0_1"]


def test_a_failure_that_stays_is_raised_after_the_last_try():
    work, jobs = tasks(), Jobs(raised=JobFailed("ZeroDivisionError"))
    for _ in range(2):
        run(jobs, work=work)
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        run(jobs, work=work)


@pytest.mark.parametrize("how", ["raised", "reported"])
def test_what_the_broker_is_to_blame_for_is_waited_out(how):
    """Also by the tasks beside the one that waits, which have done nothing wrong."""
    work, jobs = tasks(), Jobs(**{how: DisconnectException("gone")})
    for number in range(1, 6):
        outcome, _ = run(jobs, work=work)
        assert set(outcome.again) == {ONE, OTHER}
        assert work[ONE][0].attempt.tries == work[OTHER][0].attempt.tries == number


@pytest.mark.parametrize("how", ["raised", "reported"])
def test_tries_that_an_outage_took_are_not_missing_afterwards(how):
    work = tasks()
    for _ in range(5):
        run(Jobs(**{how: DisconnectException("gone")}), work=work)
    dying = Jobs(raised=JobFailed("a worker died"))
    for _ in range(2):
        outcome, _ = run(dying, work=work)
        assert set(outcome.again) == {ONE, OTHER}
    with pytest.raises(JobFailed, match="a worker died"):
        run(dying, work=work)


@pytest.mark.parametrize("reason", [JobCancelled("cancelled"), ClosedWorkerLent("its channel is closed")])
def test_a_batch_whose_steps_did_not_run_or_that_was_cancelled_uses_up_no_try(reason):
    work = tasks()
    for _ in range(5):
        outcome, _ = run(Jobs(raised=reason), work=work)
        assert set(outcome.again) == {ONE, OTHER}
    assert [task.attempt.failures for task, _ in work.values()] == [0, 0]


def test_a_commit_gives_all_tries_back():
    work = tasks()
    for _ in range(2):
        for _ in range(2):
            run(Jobs(raised=JobFailed("a worker died")), work=work)
        run(Jobs(), work=work)


def test_what_a_store_refuses_again_and_again_ends_the_instance():
    work, jobs = tasks(), Jobs(reported=StateStoreException("key b'0' comes twice"))
    task, _ = work[ONE]
    for _ in range(2):
        outcome, _ = run(jobs, work=work)
        assert (set(outcome.reinitialize), set(outcome.again)) == ({ONE}, {OTHER})
        # It was initialized again: nothing is unfinished, but what happened is not forgotten.
        initialize_again(task)
    with pytest.raises(StateStoreException, match="comes twice"):
        run(jobs, work=work)


@pytest.mark.parametrize("error", [StoreOutOfStepException("elsewhere"), ProducerFencedException("another owner")])
def test_who_has_lost_step_opens_its_task_however_often_it_takes(error):
    work = tasks()
    for _ in range(5):
        outcome, _ = run(Jobs(reported=error), work=work)
        assert (set(outcome.reinitialize), set(outcome.again)) == ({ONE}, {OTHER})
        initialize_again(work[ONE][0])


@pytest.mark.parametrize("outcome", [None, ProducerFencedException("another owner"), TimeoutException("no answer")])
def test_the_ends_of_a_look_count_once_a_commit_has_proved_that_they_are_ours(outcome):
    work, changelog = tasks(), TopicPartition("app-counts-changelog", 0)
    task, _ = work[ONE]
    task.changelogs = {"counts": changelog}
    task.restore_progressed({changelog: 7})
    task.ends_listed({changelog: 90})
    run(Jobs(), Transactions(outcome), work)
    # Who was fenced has seen its successor's records at that end, and its copy has none of them.
    assert task.copy.offsets == {changelog: 90 if outcome is None else 7}


def test_nothing_is_committed_while_a_report_is_missing():
    """A partition that Spark left out, say: its task's records would be passed over."""
    work, jobs = tasks(), Jobs(silent=OTHER)
    outcome, transactions = run(jobs, work=work)
    assert (outcome.committed, set(outcome.again)) == ([], {ONE, OTHER})
    assert transactions.committed == []
    assert list(work[OTHER][0].position.offsets.values()) == [5]
    run(jobs, work=work)
    with pytest.raises(JobFailed, match="without a report from leg leg of task 0_1"):
        run(jobs, work=work)


class Resident:
    """A residency whose job takes every micro-batch; it reports, or fails, as the jobs' double does."""

    def __init__(self, jobs):
        self.jobs, self.chosen, self.failed, self.cpu_seconds = jobs, None, [], 0.0
        self.closed = 0

    def close(self):
        self.closed += 1

    def job_for(self, plans, legs, records):
        self.chosen = set(legs), records
        return self

    def run(self, command, legs, *, description):
        assert set(legs) == {"leg"}
        self.cpu_seconds += 8.0
        return self.jobs.run_batch(None, command, description=description)

    @contextlib.contextmanager
    def watched(self):
        try:
            yield
        except Exception as error:
            self.failed.append(error)
            raise


def test_a_job_that_stays_gets_all_tasks_in_one_spark_partition():
    jobs = Jobs(spark_partitions=4)
    resident = Resident(jobs)
    runner = BatchRunner(jobs, Transactions(), "app", retries=2, residency=resident)
    outcome = runner.run(PreparedLegs(), tasks(), {})
    assert outcome.resident
    assert 8 <= outcome.cpu_seconds < 9, "that of the workers, and of this thread"
    assert resident.chosen == ({"leg"}, 8)
    assert [[task.task for task in share] for share in jobs.command.spark_partitions] == [[ONE, OTHER]]
    assert sorted(outcome.committed) == [ONE, OTHER]


@pytest.mark.parametrize("error", [JobFailed("user code"), StoreOutOfStepException("behind")], ids=str)
def test_what_fails_in_a_job_that_stays_is_what_fails_in_one_of_its_own(error):
    found = []
    for make in (lambda jobs: None, Resident):
        jobs = Jobs(raised=error, spark_partitions=1)
        resident = make(jobs)
        transactions = Transactions()
        runner = BatchRunner(jobs, transactions, "app", retries=2, residency=resident)
        outcome = runner.run(PreparedLegs(), tasks(), {})
        found.append((outcome.again, outcome.reinitialize, transactions.aborted))
    assert found[0] == found[1]
    assert resident.failed == [error]


def test_a_missing_report_of_a_job_that_stays_fails_the_batch():
    jobs = Jobs(silent=OTHER)
    outcome = BatchRunner(jobs, Transactions(), "app", retries=2, residency=Resident(jobs)).run(
        PreparedLegs(), tasks(), {}
    )
    assert outcome.committed == []
    assert "without a report from leg leg of task 0_1" in str(outcome.again[ONE])


def test_a_job_that_stays_is_ended_where_a_dataframe_has_other_rows_by_now():
    jobs, plans = Jobs(), PreparedLegs()
    resident = Resident(jobs)
    runner = BatchRunner(jobs, Transactions(), "app", retries=2, residency=resident)
    runner.run(plans, tasks(), {})
    assert resident.closed == 0
    plans.renewed = True
    outcome = runner.run(plans, tasks(), {})
    assert (resident.closed, outcome.resident) == (1, True)
    assert BatchRunner(jobs, Transactions(), "app", retries=2).run(plans, tasks(), {}).committed


def test_a_dataframe_that_cannot_be_collected_fails_the_batch_as_user_code_does():
    plans, work, transactions = PreparedLegs(), tasks(), Transactions()
    plans.renewed = JobFailed("pipeline.py:3: the DataFrame of join() could not be collected again")
    runner = BatchRunner(Jobs(), transactions, "app", retries=1)
    assert set(runner.run(plans, work, {}).again) == {ONE, OTHER}
    with pytest.raises(JobFailed, match="could not be collected again"):
        runner.run(plans, work, {})
    assert transactions.committed == []


class BatchFunctions:
    """Takes note of what it is to call, or fails as the test says."""

    def __init__(self, raises=None):
        self.raises, self.calls = raises, []

    def directory(self, number):
        return f"/rows/{number}"

    def release(self, reports):
        pass

    def call(self, plans, reports):
        self.calls.append([(report.task, report.batch) for report in reports])
        if self.raises is not None:
            raise self.raises


def giving(transactions, functions, work, jobs=None):
    runner = BatchRunner(jobs or Jobs(), transactions, "app", retries=2, functions=functions)
    return runner.run(PreparedLegs(), work, {})


def work_of_functions():
    work = tasks()
    for task, _ in work.values():
        task.shape = replace(task.shape, foreach_batch=True)
    return work


def test_what_a_batch_takes_is_committed_before_its_job():
    transactions, work, jobs, functions = Transactions(), work_of_functions(), Jobs(), BatchFunctions()
    outcome = giving(transactions, functions, work, jobs)
    assert outcome.committed == [ONE, OTHER]
    (intents, said), (offsets, done) = transactions.notes
    partition = TopicPartition("orders", 0)
    assert [read_batch(said[p]).intent.ranges for p in said] == [{p: (5, 9)} for p in said]
    assert [*intents.values()] == [dict.fromkeys(said, 5)], "the offsets stay as they were"
    assert [*offsets.values()] == [{p: 9} for p in said]
    assert read_batch(said[partition]).number == read_batch(done[partition]).number == 1
    assert read_batch(done[partition]).intent is None
    assert [command.transaction.epoch for share in jobs.command.spark_partitions for command in share] == [1, 0]
    assert jobs.command.kept_rows == "/rows/1"
    assert functions.calls == [[(ONE, 1), (OTHER, 1)]]


def test_a_function_that_fails_has_the_batch_run_again_as_it_was():
    transactions, work = Transactions(), work_of_functions()
    failure = TaskFailed(ONE, JobFailed("the sink is full"))
    outcome = giving(transactions, BatchFunctions(failure), work)
    assert (outcome.committed, set(outcome.again)) == ([], {ONE, OTHER})
    assert outcome.again[ONE] is failure.cause
    assert transactions.aborted == ["app-0_0", "app-0_1"]
    assert (work[ONE][0].attempt.failures, work[OTHER][0].attempt.failures) == (1, 0)
    functions = BatchFunctions()
    giving(transactions, functions, work)
    assert functions.calls == [[(ONE, 1), (OTHER, 1)]]
    assert len(transactions.notes) == 2, "it was said already what it takes"


@pytest.mark.parametrize("error", [TimeoutException("no answer"), ProducerFencedException("another owner")])
def test_nothing_is_run_of_a_batch_that_nobody_may_know_of(error):
    transactions, work, jobs, functions = Transactions(error), work_of_functions(), Jobs(), BatchFunctions()
    outcome = giving(transactions, functions, work, jobs)
    assert (outcome.committed, outcome.reinitialize) == ([], {ONE: error, OTHER: error})
    assert functions.calls == [[]]


def test_no_function_is_called_of_a_batch_that_failed():
    functions = BatchFunctions()
    giving(Transactions(), functions, work_of_functions(), Jobs(reported=StoreOutOfStepException("elsewhere")))
    assert functions.calls == []


def failing_runner(jobs, retries):
    failing = FailingRecords(processing=True, production=True, most=100)
    return BatchRunner(jobs, Transactions(), "app", retries=retries, failing=failing), failing


def test_where_a_record_is_looked_for_its_failures_are_not_tried_again_but_others_are():
    raised = UserCodeFailed("no", JobError("text", "ValueError: no", raised="ValueError"))
    jobs, work = Jobs(raised=raised), tasks()
    runner, failing = failing_runner(jobs, retries=1)
    assert set(runner.run(PreparedLegs(), work, {}).again) == {ONE, OTHER}
    assert not failing.searching
    for records in (2, 1):
        runner.run(PreparedLegs(), work, {})
        assert failing.limited(100) == records
        work = {id_: (task, task.attempt.ranges) for id_, (task, _) in work.items()}
        assert {stop - start for _, ranges in work.values() for start, stop in ranges.values()} == {records}
        # A worker that dies has nothing to do with it.
        jobs.raised = JobFailed("a worker died")
        assert set(runner.run(PreparedLegs(), work, {}).again) == {ONE, OTHER}
        jobs.raised = raised
    jobs.raised = JobFailed("a worker died")
    with pytest.raises(JobFailed, match="a worker died"):
        runner.run(PreparedLegs(), work, {})


def test_of_rows_that_cannot_be_written_only_the_task_is_looked_at_that_has_them():
    jobs, work = Jobs(reported=SerializationException("not UTF-8")), tasks()
    runner, failing = failing_runner(jobs, retries=0)
    assert set(runner.run(PreparedLegs(), work, {}).again) == {ONE, OTHER}
    assert [sum(stop - start for start, stop in work[id_][0].attempt.ranges.values()) for id_ in work] == [2, 4]
    assert failing.searching


class GrownTopics:
    """What brokers say of new partitions."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def ask(self, counts):
        self.asked.append(counts)

    def found(self, timeout):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_batch_whose_source_topic_has_grown_is_not_committed():
    """Its rows may be of keys whose state another task has."""
    grown, transactions = GrownTopics({"orders"}), Transactions()
    runner = BatchRunner(Jobs(), transactions, "app", retries=2, checks=CommitChecks("app", new_partitions=grown))
    with pytest.raises(StreamsException, match="source topic 'orders' has more partitions now, not 2"):
        runner.run(PreparedLegs(), tasks(), {}, {"orders": 2})
    assert (grown.asked, transactions.committed, len(transactions.aborted)) == ([{"orders": 2}], [], 2)


def work_with_changelog():
    partition, changelog = TopicPartition("orders", 0), TopicPartition("app-counts-changelog", 0)
    task = task_in(TaskState.RUNNING, ONE, (partition,), {"counts": changelog}, "/state/0_0")
    task.positioned({partition: 5}, {}, None, changelog_ids={changelog.topic: "old"})
    return {ONE: (task, {partition: (5, 9)})}


def test_a_batch_is_not_committed_to_a_changelog_that_was_created_again():
    """The new topic would be taken for a copy of the old one, though it lacks what was written before."""
    transactions, jobs, written = Transactions(), Jobs(), []
    ids = lambda topics: written.append(jobs.command is not None) or dict.fromkeys(topics, "new")  # noqa: E731
    runner = BatchRunner(jobs, transactions, "app", retries=2, checks=CommitChecks("app", topic_ids=ids))
    with pytest.raises(StreamsException, match=r"task 0_0: changelog 'app-counts-changelog' was deleted and created"):
        runner.run(PreparedLegs(), work_with_changelog(), {})
    assert (transactions.committed, transactions.aborted) == ([], ["app-0_0"])
    assert written == [True], "ids that were the same before say nothing"


def test_where_a_broker_refuses_what_is_for_another_topic_the_ids_say_why():
    transactions, asked = Transactions(), []
    ids = lambda topics: asked.append(topics) or dict.fromkeys(topics, "new")  # noqa: E731
    checks = CommitChecks("app", topic_ids=ids, writes_by_id=lambda: True)
    refused = Jobs(reported=UnknownTopicException("producing 1 records to app-counts-changelog-0"))
    runner = BatchRunner(refused, transactions, "app", retries=2, checks=checks)
    with pytest.raises(StreamsException, match=r"task 0_0: changelog 'app-counts-changelog' was deleted and created"):
        runner.run(PreparedLegs(), work_with_changelog(), {})
    assert (transactions.committed, asked) == ([], [["app-counts-changelog"]])


@pytest.mark.parametrize(
    ("checks", "sources", "reason"),
    [
        (CommitChecks("app", new_partitions=GrownTopics(TimeoutException("silent"))), {"orders": 2}, "silent"),
        (
            CommitChecks("app", topic_ids=lambda topics: {}),
            {},
            "changelog 'app-counts-changelog' does not exist now; it is waited for",
        ),
    ],
    ids=["no broker says whether topics have grown", "a changelog is missing"],
)
def test_a_batch_of_which_is_not_known_whether_it_may_be_committed_runs_again(checks, sources, reason):
    transactions = Transactions()
    runner = BatchRunner(Jobs(), transactions, "app", retries=2, checks=checks)
    outcome = runner.run(PreparedLegs(), work_with_changelog(), {}, sources)
    assert ({id_: str(error) for id_, error in outcome.again.items()}, transactions.committed) == ({ONE: reason}, [])


@pytest.mark.parametrize("intended", [False, True])
def test_a_batch_whose_records_are_gone_is_chosen_anew_where_that_is_wanted(intended):
    """Not one of foreachBatch that somebody may have got already."""
    work, transactions = tasks(), Transactions()
    if intended:
        task, ranges = work[ONE]
        task.attempt.ranges, task.attempt.intended = ranges, True
    jobs = Jobs(raised=OffsetOutOfRangeException("gone"))
    runner = BatchRunner(jobs, transactions, "app", retries=2, passes_over_lost=True)
    if intended:
        with pytest.raises(OffsetOutOfRangeException):
            runner.run(PreparedLegs(), work, {})
        return
    outcome = runner.run(PreparedLegs(), work, {})
    assert {type(reason) for reason in outcome.again.values()} == {OffsetOutOfRangeException}
    assert (set(outcome.again), len(transactions.aborted)) == ({ONE, OTHER}, 2)


def test_a_batch_of_too_many_bytes_runs_again():
    work, transactions = tasks(), Transactions()
    jobs = Jobs(raised=BatchTooLarge("too large", 500_000))
    outcome = BatchRunner(jobs, transactions, "app", retries=0, max_bytes=1000).run(PreparedLegs(), work, {})
    assert {type(reason) for reason in outcome.again.values()} == {BatchTooLarge}
    assert (set(outcome.again), len(transactions.aborted)) == ({ONE, OTHER}, 2)
    assert jobs.command.max_bytes == 500


@pytest.mark.parametrize(("spark_partitions", "legs", "each"), [(1, 1, 600), (2, 1, 600), (4, 1, 600), (2, 3, 200)])
def test_all_that_read_at_a_time_share_the_bytes(spark_partitions, legs, each):
    """Two tasks never occupy more than two Spark partitions; a leg without input reads nothing; none gets all."""
    plans = PreparedLegs()
    read = {f"leg {number}": (0, frozenset({"orders"})) for number in range(legs)}
    idle = {"of another topic": (0, frozenset({"returns"})), "of another subtopology": (1, frozenset({"orders"}))}
    plans.waves = lambda *_: [Wave(object(), read | idle)]
    jobs = Jobs(spark_partitions=spark_partitions)
    runner = BatchRunner(jobs, Transactions(), "app", retries=0, max_bytes=1200)
    with contextlib.suppress(JobFailed):
        runner.run(plans, tasks(), {})
    assert jobs.command.max_bytes == each


def test_a_batch_of_functions_says_anew_what_it_takes_until_one_may_have_got_its_rows():
    transactions, work, jobs = Transactions(), work_of_functions(), Jobs(raised=BatchTooLarge("too large", 500_000))
    task, partition = work[ONE][0], TopicPartition("orders", 0)
    giving(transactions, BatchFunctions(), work, jobs)
    assert (task.attempt.intended, task.attempt.fixed) == (True, False)
    for some, _ in work.values():
        some.batch_narrowed(2)
    work = {id_: (some, some.attempt.ranges) for id_, (some, _) in work.items()}
    jobs.raised = None
    giving(transactions, BatchFunctions(TaskFailed(ONE, JobFailed("the sink is full"))), work, jobs)
    said = [read_batch(notes[partition]) for _, notes in transactions.notes]
    assert [(one.number, one.intent.ranges) for one in said] == [(1, {partition: (5, 9)}), (1, {partition: (5, 7)})]
    assert {command.fixed for share in jobs.command.spark_partitions for command in share} == {False}
    giving(transactions, BatchFunctions(), work, jobs)
    assert {command.fixed for share in jobs.command.spark_partitions for command in share} == {True}
    assert task.position.offsets == {partition: 7}
