"""The state updater without Spark: what it does with failures, and when it lets go of a task."""

import dataclasses
import itertools
import sys
import threading
from collections import Counter
from types import SimpleNamespace

import pytest
from tests.doubles.jobs import Jobs
from tests.waiting import LONG

from sparkrelay.errors import (
    DisconnectException,
    SchemaRegistryException,
    SerializationException,
    StateStoreException,
    StoreCorruptedException,
    StoreOutOfStepException,
    StreamsException,
    UnknownSchemaException,
    WakeupException,
)
from sparkrelay.runtime.contract.commands import RestoreReport
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.tasks.restore_listeners import RestoreListeners, RestoreNotices, StateRestoreListener
from sparkrelay.runtime.tasks.restore_surroundings import RestorePace, RestoreSurroundings
from sparkrelay.runtime.tasks.restore_work import RestoreWork
from sparkrelay.runtime.tasks.state_updater import StateUpdater
from sparkrelay.types import TaskId, TopicPartition

CHANGELOG = TopicPartition("app-counts-changelog", 0)
TASK, OTHER = TaskId(0, 0), TaskId(0, 1)
PACE = {field.name for field in dataclasses.fields(RestorePace)}


@pytest.fixture
def state_updater_of():
    made = []

    def make(jobs, list_ends=lambda partitions: dict.fromkeys(partitions, 10), **settings):
        paced = {name: settings.pop(name) for name in list(settings) if name in PACE}
        pace = RestorePace(**{"slice": 0.1, "restore": 1.5, "idle": 0.01, "longest_wait": 60.0, "retry": 0.001} | paced)
        made.append(StateUpdater(jobs, RestoreSurroundings(list_ends, **settings), name="restore", pace=pace))
        made[-1].start()
        return made[-1]

    yield make
    for state_updater in made:
        state_updater.stop()


def restore():
    return RestoreWork(
        task=TASK, directory="/nowhere", changelogs={"counts": CHANGELOG}, task_epoch=7, ends={CHANGELOG: 10}
    )


def restored(state_updater, wait_until):
    found = {}

    def done():
        found.update(state_updater.take_restored())
        return found

    wait_until(done, "the task is not restored")
    return found[TASK]


def test_a_restore_ends_at_the_ends_that_were_listed(state_updater_of, wait_until):
    jobs = Jobs()
    state_updater = state_updater_of(jobs)
    state_updater.assign([restore()])
    assert restored(state_updater, wait_until).task_epoch == 7
    assert [command.take_over for (command,) in jobs.commands] == [True]


def test_a_complete_copy_is_shown_until_its_task_is_taken(state_updater_of, wait_until):
    """Else a subscription in between would report less than there is. It is no news of the restore, though."""
    slices = []
    state_updater = state_updater_of(Jobs(), on_slice=lambda copies, records: slices.append(list(copies)))
    state_updater.assign([restore()])
    wait_until(lambda: state_updater.copies()[TASK].lag == 0 and slices, "the task is not restored")
    assert slices == [[]]
    assert list(state_updater.take_restored()) == [TASK]
    assert state_updater.copies() == {}


def test_listeners_of_two_threads_may_ask_where_all_copies_stand(state_updater_of, wait_until):
    """Each was called under its thread's lock, and waited for the other's."""
    both, asked, met = [], [], threading.Barrier(2)

    class Asking(StateRestoreListener):
        def on_batch_restored(self, *about):
            met.wait(LONG)
            asked.append([list(state_updater.copies()) for state_updater in both])

    both += [state_updater_of(Jobs(), notices=RestoreNotices(RestoreListeners(Asking()))) for _ in range(2)]
    for state_updater in both:
        state_updater.assign([restore()])
    for state_updater in both:
        restored(state_updater, wait_until)
    assert len(asked) == 2, "what a listener raises is only logged"


def test_an_exit_in_what_is_called_reaches_the_stream_thread(state_updater_of, wait_until):
    def leave(copies, records):
        sys.exit("enough")

    state_updater = state_updater_of(Jobs(), on_slice=leave)
    state_updater.assign([restore()])
    wait_until(lambda: state_updater._failure is not None, "nobody knows that the thread has ended")
    with pytest.raises(StreamsException, match="restore: SystemExit"):
        state_updater.take_restored()


@pytest.mark.parametrize("failure", [JobFailed("a worker died"), DisconnectException("the broker went away")])
def test_a_passing_failure_is_tried_again(failure, state_updater_of, wait_until):
    jobs = Jobs(failure, failure)
    state_updater = state_updater_of(jobs)
    state_updater.assign([restore()])
    restored(state_updater, wait_until)
    assert len(jobs.commands) == 3


def test_ends_that_cannot_be_listed_are_asked_for_again(state_updater_of, wait_until):
    asked = []

    def list_ends(partitions):
        asked.append(partitions)
        if len(asked) == 1:
            raise DisconnectException("the broker went away")
        return dict.fromkeys(partitions, 10)

    state_updater = state_updater_of(Jobs(), list_ends)
    state_updater.assign([RestoreWork(task=TASK, directory="/nowhere", changelogs={"counts": CHANGELOG})])
    wait_until(lambda: state_updater.copies()[TASK].offsets, "the standby is not restored")


def test_jobs_that_fail_are_tried_for_a_minute_with_pauses_that_grow(state_updater_of):
    """A daemon of Python workers that was killed takes seconds to come back, and more where a host is busy."""
    state_updater = state_updater_of(Jobs(), retry=1.0)
    pauses = [state_updater._backoff(JobFailed("the daemon was killed")) for _ in range(7)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    with pytest.raises(JobFailed):
        state_updater._backoff(JobFailed("the daemon was killed"))


def test_a_job_that_fails_behind_a_silence_of_the_broker_is_tried_as_often_as_any(state_updater_of):
    """A broker was down for a minute; that a worker died as it came back must not end the instance."""
    state_updater = state_updater_of(Jobs(), retry=1.0)
    for _ in range(20):
        state_updater._backoff(DisconnectException("the broker went away"))
    assert state_updater._backoff(JobFailed("a worker died")) == 1


@pytest.mark.parametrize(
    "answers", [[JobFailed("a worker died")] * 8, [StateStoreException("the disk is broken")]], ids=["jobs", "ours"]
)
def test_a_failure_that_stays_reaches_the_stream_thread(answers, state_updater_of, wait_until):
    state_updater = state_updater_of(Jobs(*answers))
    state_updater.assign([restore()])

    def raised():
        try:
            state_updater.take_restored()
        except type(answers[0]):
            return True
        return False

    wait_until(raised, "the failure does not arrive")
    state_updater.release([TASK])


def test_a_corrupt_store_is_built_anew(state_updater_of, wait_until):
    jobs, counted = Jobs(StoreCorruptedException("a page is torn")), []
    state_updater = state_updater_of(jobs, on_set_aside=lambda: counted.append(1))
    state_updater.assign([restore()])
    restored(state_updater, wait_until)
    assert [command.wipe for (command,) in jobs.commands] == [False, True, False]
    assert counted == [1]


def test_a_copy_that_is_set_aside_has_nothing_from_then_on(state_updater_of, wait_until):
    """The group would else give the task to a member that is to rebuild it."""
    jobs = Jobs(None, StoreCorruptedException("a page is torn"))
    jobs.may_end = threading.Semaphore(2)
    ends = iter([10, 20])
    state_updater = state_updater_of(jobs, lambda partitions: dict.fromkeys(partitions, next(ends, 20)))
    state_updater.assign([dataclasses.replace(restore(), task_epoch=None, ends=None)])
    wait_until(lambda: len(jobs.commands) == 3, "the copy is not set aside")
    copy = state_updater.copies()[TASK]
    assert (copy.offsets, copy.lag, copy.share) == ({}, 20, None)
    jobs.may_end.release(1000)


def test_a_copy_is_wiped_once_and_filled_in_slices_of_their_own(state_updater_of, wait_until):
    """A slice may fail behind its wiping: the next one must not wipe what was restored."""
    jobs = Jobs(StoreCorruptedException("a page is torn"), None, JobFailed("a worker died"))
    state_updater = state_updater_of(jobs)
    state_updater.assign([restore()])
    restored(state_updater, wait_until)
    slices = [(command.wipe, [store.end for store in command.stores]) for (command,) in jobs.commands]
    assert slices == [(False, [10]), (True, []), (False, [10]), (False, [10])]


def test_a_copy_that_is_damaged_over_and_over_ends_the_instance(state_updater_of, wait_until):
    jobs = Jobs(*[StoreCorruptedException("a page is torn")] * 10)
    state_updater = state_updater_of(jobs)
    state_updater.assign([restore()])
    messages = []

    def failed():
        try:
            state_updater.take_restored()
        except StateStoreException as error:
            messages.append(str(error))
        return messages

    wait_until(failed, "the restore does not fail")
    assert "task 0_0: its local state was rebuilt 3 times and cannot be used again: a page is torn. Look" in messages[0]
    assert len(jobs.commands) == 4


def test_a_record_that_cannot_be_read_ends_the_instance_and_leaves_the_copy(state_updater_of, wait_until):
    error = SerializationException("changelog topic 'c', partition 0, offset 7 cannot be read")
    jobs = Jobs(error)
    state_updater = state_updater_of(jobs)
    state_updater.assign([restore()])
    raised = []

    def failed():
        try:
            state_updater.take_restored()
        except SerializationException as error:
            raised.append(error)
        return raised

    wait_until(failed, "the restore does not fail")
    assert raised[0] is error
    assert [command.wipe for (command,) in jobs.commands] == [False]


def test_schemas_that_records_were_written_by_are_fetched(state_updater_of, wait_until):
    jobs = Jobs(UnknownSchemaException("written by 7 and 9", schema_ids="7,9"))
    state_updater = state_updater_of(jobs)
    state_updater.assign([restore()])
    wait_until(state_updater.take_restored, "it is not tried again")
    assert jobs.learned == [[7, 9]]
    assert len(jobs.commands) == 2


def test_a_restore_waits_for_a_registry_that_does_not_answer(state_updater_of, wait_until):
    unknown = UnknownSchemaException("written by 7", schema_ids="7")
    jobs = Jobs(unknown, unknown, unknown)
    refusals = [SchemaRegistryException("down", retriable=True), SchemaRegistryException("down", retriable=True)]

    def learn(numbers):
        jobs.learned.append(numbers)
        if refusals:
            raise refusals.pop()

    jobs.learn_schemas = learn
    state_updater = state_updater_of(jobs)
    state_updater.assign([restore()])
    wait_until(state_updater.take_restored, "it is not tried again")
    assert jobs.learned == [[7]] * 3


def test_a_copy_that_a_late_batch_reached_is_opened_again(state_updater_of, wait_until):
    jobs = Jobs(None, StoreOutOfStepException("a batch is under way"))
    ends = iter([10, 20])
    state_updater = state_updater_of(jobs, lambda partitions: dict.fromkeys(partitions, next(ends, 20)))
    state_updater.assign([RestoreWork(task=TASK, directory="/nowhere", changelogs={"counts": CHANGELOG})])
    wait_until(lambda: len(jobs.commands) == 3, "it is not tried again")
    # Nobody's task epoch: what comes late for the former owner is refused.
    assert [(command.take_over, command.task_epoch) for (command,) in jobs.commands] == [
        (True, 0),
        (False, 0),
        (True, 0),
    ]


def test_letting_go_waits_for_the_slice_under_way_and_for_no_other(state_updater_of, wait_until):
    jobs = Jobs()
    jobs.may_end = threading.Semaphore(0)
    ends = iter(range(1, 1000))
    # A standby that always lags: slice follows slice.
    state_updater = state_updater_of(jobs, lambda partitions: dict.fromkeys(partitions, next(ends)))
    other = RestoreWork(task=TaskId(0, 1), directory="/elsewhere", changelogs={"counts": TopicPartition("c", 1)})
    state_updater.assign([RestoreWork(task=TASK, directory="/nowhere", changelogs={"counts": CHANGELOG}), other])
    assert jobs.slice_began.acquire(timeout=LONG)
    releasing = threading.Thread(target=state_updater.release, args=([TASK],))
    releasing.start()
    # Else the next slice would have it too.
    wait_until(lambda: TASK not in state_updater._work, "it is not let go")
    assert releasing.is_alive()
    jobs.may_end.release()
    # The next slice has begun, and does not end: nobody waits for it.
    assert jobs.slice_began.acquire(timeout=LONG)
    releasing.join(LONG)
    assert not releasing.is_alive()
    state_updater.release([TASK])
    jobs.may_end.release(1000)


def lagging(state_updater_of, jobs):
    """Return a state updater with two standbys that always lag; its slices wait for a core for ever."""
    jobs.may_end = threading.Semaphore(0)
    ends = iter(range(1, 1000))
    state_updater = state_updater_of(jobs, lambda partitions: dict.fromkeys(partitions, next(ends)), longest_wait=0.01)
    state_updater.assign(
        [RestoreWork(task=OTHER, directory="/elsewhere", changelogs={"counts": TopicPartition("c", 1)})]
    )
    assert jobs.slice_began.acquire(timeout=LONG)
    return state_updater


def test_a_slice_that_waits_for_a_core_keeps_no_task_from_leaving(state_updater_of):
    """It does behind a long batch of other tasks. What is cancelled so is no failure, however often it happens."""
    jobs = Jobs()
    state_updater = lagging(state_updater_of, jobs)
    standby = RestoreWork(task=TASK, directory="/nowhere", changelogs={"counts": CHANGELOG})
    for _ in range(5):
        state_updater.assign([standby])
        jobs.may_end.release()
        assert jobs.slice_began.acquire(timeout=LONG)
        assert {command.task for command in jobs.commands[-1]} == {OTHER, TASK}
        state_updater.release([TASK])
        assert jobs.slice_began.acquire(timeout=LONG)
        assert [command.task for command in jobs.commands[-1]] == [OTHER]
    assert state_updater.take_restored() == {}
    jobs.may_end.release(1000)


def test_the_end_waits_for_no_core(state_updater_of):
    jobs = Jobs()
    lagging(state_updater_of, jobs).stop()
    assert len(jobs.commands) == 1


def test_a_slice_that_cannot_be_cancelled_is_named(state_updater_of, monkeypatch):
    # At each look at it, it is a minute later.
    late = SimpleNamespace(monotonic=itertools.count(0.0, 60.0).__next__)
    monkeypatch.setattr("sparkrelay.runtime.spark.cancelling.time", late)
    monkeypatch.setattr("sparkrelay.runtime.spark.cancelling._AGAIN_SECONDS", 0.01)
    jobs = Jobs()
    jobs.deaf = 1000
    state_updater = lagging(state_updater_of, jobs)
    with pytest.raises(StreamsException, match="Spark neither finished nor cancelled the restore of tasks 0_1"):
        state_updater.release([OTHER])
    jobs.may_end.release(1000)


def test_a_changelog_that_ends_before_the_store_is_refused(state_updater_of, wait_until):
    state_updater = state_updater_of(Jobs(copied={CHANGELOG: 25}))
    state_updater.assign([restore()])

    messages = []

    def failed():
        try:
            state_updater.take_restored()
        except StreamsException as error:
            messages.append(str(error))
        return messages

    wait_until(failed, "the restore does not fail")
    assert "store 'counts' has 25 offsets of app-counts-changelog-0, but the changelog ends at 10" in messages[0]


def test_the_end_breaks_off_a_look_at_a_silent_broker(state_updater_of):
    asked, interrupted = threading.Event(), threading.Event()

    def list_ends(partitions):
        asked.set()
        assert interrupted.wait(LONG)
        raise WakeupException("interrupted")

    state_updater = state_updater_of(Jobs(), list_ends, interrupt=interrupted.set)
    state_updater.assign([RestoreWork(task=TASK, directory="/nowhere", changelogs={"counts": CHANGELOG})])
    assert asked.wait(LONG)
    state_updater.release([TASK])
    state_updater.stop()
    assert state_updater.take_restored() == {}


@pytest.mark.parametrize(("stale", "end"), [(3600.0, 10), (-1.0, 5000)])
def test_a_slice_that_took_long_is_measured_by_the_ends_after_it(state_updater_of, wait_until, stale, end):
    """A copy that waited for its first slice would else ask to take over what it is far behind of."""
    jobs = Jobs()
    jobs.may_end = threading.Semaphore(0)
    ends = {CHANGELOG: 10}
    state_updater = state_updater_of(jobs, lambda _: dict(ends), stale=stale)
    state_updater.assign([dataclasses.replace(restore(), task_epoch=None, ends=None)])
    assert jobs.slice_began.acquire(timeout=LONG)
    ends[CHANGELOG] = 5000
    jobs.may_end.release()
    wait_until(lambda: state_updater.copies()[TASK].offsets, "the slice does not end")
    assert state_updater.copies()[TASK].ends == {CHANGELOG: end}
    jobs.may_end.release(1000)


def test_the_look_after_a_long_slice_holds_nobody_up(state_updater_of, wait_until):
    """The broker went away meanwhile: the slice has ended, whoever leaves or stops need not wait for the answer."""
    jobs = Jobs()
    jobs.may_end = threading.Semaphore(0)
    asked, interrupted = threading.Semaphore(0), threading.Event()

    def list_ends(partitions):
        if not jobs.commands:
            return dict.fromkeys(partitions, 10)
        asked.release()
        assert interrupted.wait(LONG)
        raise WakeupException("we stop")

    state_updater = state_updater_of(jobs, list_ends, stale=-1.0, interrupt=interrupted.set)
    state_updater.assign([dataclasses.replace(restore(), task_epoch=None, ends=None)])
    jobs.may_end.release()
    assert asked.acquire(timeout=LONG)
    state_updater.release([TASK])
    state_updater.stop()
    assert jobs.cancels == 0


def test_ends_that_cannot_be_listed_again_cost_no_slice(state_updater_of, wait_until):
    jobs = Jobs()

    def list_ends(partitions):
        if len(jobs.commands) == 1:
            raise DisconnectException("gone for a moment")
        return dict.fromkeys(partitions, 10)

    state_updater = state_updater_of(jobs, list_ends, stale=-1.0)
    state_updater.assign([dataclasses.replace(restore(), task_epoch=None, ends=None)])
    wait_until(lambda: state_updater.copies()[TASK].offsets, "what the slice did is lost")


def test_a_copy_is_set_aside_in_a_slice_without_others(state_updater_of, wait_until):
    """Others' records may keep a worker waiting; coming back late, it would set the new copy aside."""
    jobs = Jobs()
    state_updater = state_updater_of(jobs)
    other = dataclasses.replace(restore(), task=OTHER, wipe=True)
    state_updater.assign([restore(), other])
    restored(state_updater, wait_until)
    assert [
        [command.task for command in commands]
        for commands in jobs.commands
        if any(command.wipe for command in commands)
    ] == [[OTHER]]


class Unclosed(Jobs):
    """Finds a store that was not closed, and needs three slices to read it through."""

    def restore(self, slice_, *, description):
        reports = super().restore(slice_, description=description)
        return [dataclasses.replace(report, read_through=len(self.commands) > 2) for report in reports]


def test_a_store_that_was_not_closed_is_read_through_before_it_is_used(state_updater_of, wait_until):
    jobs = Unclosed()
    state_updater = state_updater_of(jobs)
    state_updater.assign([restore()])
    restored(state_updater, wait_until)
    assert [command.take_over for (command,) in jobs.commands[:3]] == [True, True, True]
    assert len(jobs.commands) == 3


class Narrow(Jobs):
    """Has time for one record of one task a slice; the broker of one task's changelog is away."""

    def __init__(self, away=None):
        super().__init__()
        self.at, self.away = Counter(), away

    def restore(self, slice_, *, description):
        super().restore(slice_, description=description)
        (commands,) = slice_.spark_partitions
        first = commands[0].task
        self.at[first] += first != self.away
        return [
            RestoreReport(
                command.task,
                {},
                0,
                {store.changelog: self.at[command.task] for store in command.stores},
                records=int(command.task == first),
                task_epoch=command.task_epoch,
                error=DisconnectException("no answer") if command.task == first == self.away else None,
            )
            for command in commands
        ]


def three_restores():
    partitions = [TopicPartition("c", number) for number in range(3)]
    return [
        dataclasses.replace(restore(), task=TaskId(0, p.partition), changelogs={"counts": p}, ends={p: 3 + p.partition})
        for p in partitions
    ]


def test_tasks_take_turns_where_a_slice_has_no_time_for_all(state_updater_of, wait_until):
    jobs = Narrow()
    state_updater = state_updater_of(jobs)
    state_updater.assign(three_restores())
    restored = {}
    wait_until(
        lambda: restored.update(state_updater.take_restored()) or len(restored) == 3, "they are not all restored"
    )
    first = [commands[0].task.partition for commands in jobs.commands]
    # Who has most to restore begins.
    assert first == [2, 1, 0] * 3 + [2, 1, 2]


def test_a_task_that_cannot_be_restored_for_now_has_had_its_turn(state_updater_of, wait_until):
    """Each try takes all the time of a slice."""
    away = TaskId(0, 2)
    state_updater = state_updater_of(Narrow(away))
    state_updater.assign(three_restores())
    restored = {}
    wait_until(lambda: restored.update(state_updater.take_restored()) or len(restored) == 2, "the others have no turn")
    assert away not in restored


@pytest.mark.parametrize(
    ("ends", "running", "seconds"),
    [({CHANGELOG: 10}, False, 1.5), ({CHANGELOG: 10}, True, 0.1), (None, False, 0.1)],
    ids=["nobody waits", "batches wait", "a standby may be promoted"],
)
def test_slices_are_long_where_nobody_waits_for_them(ends, running, seconds, state_updater_of, wait_until):
    jobs = Jobs()
    state_updater_of(jobs, running=lambda: running).assign([dataclasses.replace(restore(), ends=ends)])
    wait_until(lambda: jobs.seconds, "there is no slice")
    assert jobs.seconds[0] == seconds


def test_a_standby_keeps_off_what_another_thread_of_the_process_opens(state_updater_of, wait_until):
    """That thread may follow an assignment first: by taking the copy back we would throw it out, again and again."""
    ends = iter(range(1, 10_000))
    theirs = set()

    class Promoted(Jobs):
        def restore(self, slice_, *, description):
            if len(self.commands) == 1:
                theirs.add(TASK)
                self.answers = [StoreOutOfStepException("the store was opened under 7")]
            return super().restore(slice_, description=description)

    jobs = Promoted()
    # Both always lag.
    state_updater = state_updater_of(
        jobs, lambda partitions: dict.fromkeys(partitions, next(ends)), active_elsewhere=lambda: set(theirs)
    )
    standby = dataclasses.replace(restore(), task_epoch=None, ends=None)
    other = dataclasses.replace(standby, task=OTHER, changelogs={"counts": TopicPartition("c", 1)})
    state_updater.assign([standby, other])
    wait_until(lambda: len(jobs.commands) > 10, "the other copy is not kept up")
    slices = [{command.task for command in commands} for commands in jobs.commands]
    assert slices[:2] == [{TASK, OTHER}] * 2
    assert set().union(*slices[2:]) == {OTHER}
    theirs.clear()
    # Here again, it is taken back.
    wait_until(lambda: TASK in {command.task for command in jobs.commands[-1]}, "the copy is left alone for ever")
    found = [command for commands in jobs.commands[2:] for command in commands if command.task == TASK]
    assert (found[0].take_over, found[0].task_epoch) == (True, 0)


def test_a_task_that_opens_here_is_restored_whoever_else_has_it(state_updater_of, wait_until):
    state_updater = state_updater_of(Jobs(), active_elsewhere=lambda: {TASK})
    state_updater.assign([restore()])
    restored(state_updater, wait_until)


def test_a_settled_standby_is_left_alone_for_a_while_but_not_when_its_task_comes(state_updater_of, wait_until):
    jobs, ends = Jobs(), {CHANGELOG: 10}
    state_updater = state_updater_of(jobs, lambda _: dict(ends), settled_after=0.0, settled_idle=threading.TIMEOUT_MAX)
    state_updater.assign([RestoreWork(task=TASK, directory="/nowhere", changelogs={"counts": CHANGELOG})])
    wait_until(lambda: state_updater.copies()[TASK].lag == 0, "the standby is not restored")
    ends[CHANGELOG] = 20
    state_updater.assign([dataclasses.replace(restore(), ends=dict(ends))])
    assert restored(state_updater, wait_until).task_epoch == 7
    assert len(jobs.commands) == 2


def test_a_standby_that_is_new_is_followed_closely(state_updater_of, wait_until):
    ends = {CHANGELOG: 10}
    state_updater = state_updater_of(Jobs(), lambda _: dict(ends), settled_idle=threading.TIMEOUT_MAX)
    state_updater.assign([RestoreWork(task=TASK, directory="/nowhere", changelogs={"counts": CHANGELOG})])
    for end in (10, 20, 30):
        ends[CHANGELOG] = end
        wait_until(lambda end=end: state_updater.copies()[TASK].offsets == {CHANGELOG: end}, "it is not followed")
