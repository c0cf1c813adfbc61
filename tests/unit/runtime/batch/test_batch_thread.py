"""The batch thread without Spark and without a broker: what it takes, how it waits, how it ends."""

import threading

import pytest
from tests.doubles.clock import Clock
from tests.doubles.tasks import task_in
from tests.waiting import LONG

from sparkrelay.client.new_records import News
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import (
    DisconnectException,
    OffsetOutOfRangeException,
    ProducerFencedException,
    SerializationException,
    StreamsException,
    UnknownTopicException,
    WakeupException,
)
from sparkrelay.runtime.batch import batch_thread
from sparkrelay.runtime.batch.batch_thread import BatchThread
from sparkrelay.runtime.batch.failing_records import FailingRecords
from sparkrelay.runtime.batch.micro_batch import BatchOutcome
from sparkrelay.runtime.batch.progress import ProgressLog
from sparkrelay.runtime.contract.commands import LegReport
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.tasks.batch_attempt import BatchAttempt
from sparkrelay.runtime.tasks.batch_notes import BatchIntent
from sparkrelay.runtime.tasks.in_service import InService
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId, TopicPartition

ONE, OTHER = TaskId(0, 0), TaskId(0, 1)


class Topics:
    """Says where topics end; or raises what the test put in line."""

    def __init__(self):
        self.ends = {}
        self.troubles = []
        self.asked = threading.Semaphore(0)
        self.silent = self.slow = None
        self.sinks = {"out": 2}
        self.sources = {"orders": 2}
        self.awaited, self.answers, self.listed = [], [], []
        self.news = threading.Event()
        self.topic_ids = {}

    def ids(self, topics):
        return {topic: id_ for topic, id_ in self.topic_ids.items() if topic in topics}

    def await_records(self, positions, *, timeout, over):
        self.awaited.append((dict(positions), timeout))
        if self.answers:
            return self.answers.pop(0)
        while not (news := self.behind(positions)) and not over() and self.news.wait(timeout):
            self.news.clear()
        return news

    def behind(self, positions):
        return News({p: self.ends[p] for p, offset in positions.items() if self.ends.get(p, 0) > offset})

    def wakeup(self):
        self.news.set()

    def end_offsets(self, partitions, *, timeout):
        self.asked.release()
        if partitions:
            self.listed.append(list(partitions))
        ends = {partition: self.ends.get(partition, 0) for partition in partitions}
        if self.slow is not None:
            assert self.slow.wait(LONG)
        if self.silent is not None:
            assert self.silent.wait(LONG)
            raise WakeupException("interrupted")
        if self.troubles:
            raise self.troubles.pop(0)
        return ends

    def layout(self):
        if isinstance(self.sinks, Exception):
            raise self.sinks
        return type("TaskLayout", (), {"sink_partitions": self.sinks})

    def source_partitions(self):
        return self.sources

    def retention_ms(self, topic):
        return 1000 if topic == "out" else None

    def interrupt(self):
        if self.silent is not None:
            self.silent.set()


class Batches:
    """Commits everything, or does what the test put in line."""

    def __init__(self):
        self.ran = []
        self.outcomes = []
        self.gate = None
        self.prewarmed = None
        self.may_prewarm, self.over = threading.Event(), None
        self.may_prewarm.set()
        self.rested, self.closed = 0, threading.Event()
        self.failing = FailingRecords()

    def rest(self):
        self.rested += 1

    def close(self):
        self.closed.set()

    def prewarm(self, plans, over, wanted):
        assert not self.ran
        self.over = over
        assert self.may_prewarm.wait(LONG)
        if self.prewarmed is not None:
            raise self.prewarmed

    def run(self, plans, work, partitions, sources):
        self.ran.append({id_: ranges for id_, (_, ranges) in work.items()})
        if self.gate is not None:
            assert self.gate.wait(LONG)
        planned = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(planned, Exception):
            raise planned
        outcome = planned or BatchOutcome()
        for id_, (task, ranges) in work.items():
            task.batch_begun(ranges)
            if id_ not in outcome.again and id_ not in outcome.reinitialize:
                task.batch_committed()
                outcome.committed += [] if id_ in outcome.committed else [id_]
        return outcome


def made_task(id_):
    partition = TopicPartition("orders", id_.partition)
    return task_in(TaskState.RUNNING, id_, (partition,), positions={partition: 0})


class Bench:
    def __init__(self, *, prewarm=True, **more):
        self.topics, self.batches, self.service = Topics(), Batches(), InService()
        self.tasks = {id_: made_task(id_) for id_ in (ONE, OTHER)}
        self.progress = ProgressLog("app")
        settings = {"application.id": "app", "bootstrap.servers": "h:1", "poll.ms": 1, "max.batch.retries": 1}
        self.thread = BatchThread(
            name="app",
            config=StreamsConfig.from_dict({**settings, "default.api.timeout.ms": 10_000, **more}),
            in_service=self.service,
            batches=self.batches,
            plans=None,
            topics=self.topics,
            progress=self.progress.thread(),
            prewarm=prewarm,
        )

    def start(self):
        self.service.put(self.tasks.values())
        self.thread.start()

    def write(self, id_, end):
        self.topics.ends[TopicPartition("orders", id_.partition)] = end

    def failure(self):
        try:
            self.thread.check()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error
        return None


@pytest.fixture
def bench(request):
    bench = Bench(**getattr(request, "param", {}))
    yield bench
    if bench.batches.gate is not None:
        bench.batches.gate.set()
    bench.thread.stop()


def test_what_could_not_be_prewarmed_runs_all_the_same(bench, wait_until):
    bench.batches.prewarmed = JobFailed("no core for it")
    bench.write(ONE, 3)
    bench.start()
    wait_until(lambda: bench.batches.ran, "no batch runs")


def test_a_prewarm_is_over_with_the_thread(bench, wait_until):
    bench.batches.may_prewarm.clear()
    bench.start()
    wait_until(lambda: bench.batches.over, "no prewarm")
    assert not bench.thread.wait_prewarmed(0)
    assert not bench.batches.over()
    bench.thread.ask_to_end()
    assert bench.batches.over()
    bench.batches.may_prewarm.set()
    assert bench.thread.wait_prewarmed(LONG)


@pytest.mark.parametrize("bench", [{"prewarm": False}], indirect=True)
def test_a_thread_that_is_to_have_no_prewarm_has_none(bench, wait_until):
    assert bench.thread.wait_prewarmed(0)
    bench.write(ONE, 3)
    bench.start()
    wait_until(lambda: bench.batches.ran, "no batch runs")
    assert bench.batches.over is None


def test_a_prewarm_that_spark_does_not_end_is_reported(bench, monkeypatch, wait_until):
    monkeypatch.setattr("sparkrelay.runtime.batch.batch_thread._LONGEST_LEAVE", 0.01)
    bench.batches.may_prewarm.clear()
    bench.start()
    wait_until(lambda: bench.batches.over, "no prewarm")
    with pytest.raises(StreamsException, match="app-batch has not ended within 0.01 s"):
        bench.thread.stop()
    monkeypatch.undo()
    bench.batches.may_prewarm.set()


def test_only_tasks_with_input_are_in_a_batch(bench, wait_until):
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: bench.batches.ran, "no batch ran")
    assert bench.batches.ran == [{ONE: {TopicPartition("orders", 0): (0, 5)}}]
    bench.write(OTHER, 3)
    wait_until(lambda: len(bench.batches.ran) == 2, "no second batch ran")
    assert bench.batches.ran[1] == {OTHER: {TopicPartition("orders", 1): (0, 3)}}


def test_a_task_without_input_leaves_while_a_batch_runs(bench, wait_until):
    bench.batches.gate = threading.Event()
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: bench.batches.ran, "no batch ran")
    assert bench.service.withdraw([OTHER], timeout=0) == frozenset()
    assert bench.service.withdraw([ONE], timeout=0) == {ONE}
    bench.batches.gate.set()
    assert bench.service.withdraw([ONE], timeout=LONG) == frozenset()
    assert bench.tasks[ONE].position.offsets == {TopicPartition("orders", 0): 5}, "its batch was finished"


def test_a_task_that_leaves_during_a_look_and_comes_back_further_on_is_looked_at_anew(bench, wait_until):
    """Nobody waits for the look: the broker may be silent for long."""
    bench.topics.slow = threading.Event()
    bench.write(ONE, 5)
    bench.start()
    assert bench.topics.asked.acquire(timeout=LONG)
    assert bench.service.withdraw([ONE, OTHER], timeout=0) == frozenset()
    bench.tasks[ONE].position.offsets = {TopicPartition("orders", 0): 70}
    bench.service.put(bench.tasks.values())
    bench.write(ONE, 75)
    bench.topics.slow.set()
    wait_until(lambda: bench.batches.ran or bench.failure(), "no batch ran")
    assert (bench.batches.ran, bench.failure()) == ([{ONE: {TopicPartition("orders", 0): (70, 75)}}], None)


@pytest.mark.parametrize("shorter", [True, False])
def test_a_source_topic_that_is_created_again_ends_the_thread(bench, wait_until, shorter):
    """A shorter one ends before the position; in a longer one the workers do not find the topic that was asked for."""
    bench.topics.topic_ids = {"orders": "new"}
    for task in bench.tasks.values():
        task.position.topic_ids = {"orders": "old"}
    if shorter:
        bench.tasks[ONE].position.offsets = {TopicPartition("orders", 0): 7}
    else:
        bench.batches.outcomes = [BatchOutcome(again={ONE: JobFailed("no such topic")})]
    bench.write(ONE, 5)
    bench.start()
    wait_until(bench.failure, "the thread goes on")
    assert "source topic 'orders' was deleted and created again while the task read it" in str(bench.failure())
    assert len(bench.batches.ran) == (not shorter)


@pytest.mark.parametrize("bench", [{"commit.interval.ms": 125}], ids=["125 ms"], indirect=True)
def test_batches_keep_the_distance_that_is_asked_for(bench, wait_until, monkeypatch):
    clock, rests, rest = Clock(), [], bench.service.rest
    monkeypatch.setattr(batch_thread, "time", clock)
    monkeypatch.setattr(bench.service, "rest", lambda seconds: (rests.append(seconds), rest(seconds)))
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: rests, "no batch ran")
    bench.write(ONE, 9)
    wait_until(lambda: len(rests) >= 3, "the thread does not go on")
    assert set(rests) == {0.125}, "it sleeps for what is left, and does not look meanwhile"
    assert len(bench.batches.ran) == 1
    clock.now += 0.0625
    wait_until(lambda: 0.0625 in rests, "the thread does not go on")
    assert len(bench.batches.ran) == 1
    clock.now += 0.0625
    wait_until(lambda: len(bench.batches.ran) == 2, "the next batch does not come")


@pytest.mark.parametrize("bench", [{"batch.cpu.percent": 25}], ids=["25 percent"], indirect=True)
@pytest.mark.parametrize(
    ("outcome", "distance"),
    [
        (BatchOutcome(committed=[ONE], resident=True, cpu_seconds=0.015625), 0.0625),
        (BatchOutcome(committed=[ONE], resident=True, cpu_seconds=9.0), 0.1),
        (BatchOutcome(committed=[ONE], cpu_seconds=9.0), 0.0),
    ],
    ids=["small", "expensive", "of a backlog"],
)
def test_small_batches_are_spaced_by_what_they_cost(bench, wait_until, monkeypatch, outcome, distance):
    clock, rests, rest = Clock(), [], bench.service.rest
    monkeypatch.setattr(batch_thread, "time", clock)
    monkeypatch.setattr(bench.service, "rest", lambda seconds: (rests.append(seconds), rest(seconds)))
    bench.batches.outcomes = [outcome]
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: rests, "no batch ran")
    assert rests[0] == distance


def test_rows_that_are_older_than_their_topic_keeps_them_are_warned_of(bench, wait_until, caplog):
    reports = [LegReport("sink:out", ONE, 1, oldest_out={"out": 0})]
    bench.batches.outcomes = [BatchOutcome(committed=[ONE], reports=reports)]
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: caplog.records, "nobody says so")
    assert "rows of 1970-01-01T00:00:00 UTC are written to it" in caplog.text


def test_what_fell_out_is_handed_back(bench, wait_until):
    reason = ProducerFencedException("another owner")
    bench.batches.outcomes = [BatchOutcome(reinitialize={ONE: reason})]
    bench.write(ONE, 5)
    bench.write(OTHER, 5)
    bench.start()
    fallen = []
    wait_until(lambda: fallen.extend(bench.service.take_fallen_out()) or fallen, "nothing fell out")
    assert fallen == [(bench.tasks[ONE], reason)]
    bench.write(OTHER, 9)
    wait_until(lambda: len(bench.batches.ran) == 2, "the other task does not go on")
    assert list(bench.batches.ran[1]) == [OTHER]


def test_a_failed_batch_runs_again_with_the_same_ranges(bench, wait_until):
    bench.batches.outcomes = [BatchOutcome(again={ONE: ValueError("user code")})]
    bench.topics.sinks = {"out": 1}
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: bench.batches.ran, "no batch ran")
    bench.write(ONE, 7)
    wait_until(lambda: len(bench.batches.ran) >= 3, "it does not go on")
    partition = TopicPartition("orders", 0)
    assert bench.batches.ran[:3] == [{ONE: {partition: (0, 5)}}, {ONE: {partition: (0, 5)}}, {ONE: {partition: (5, 7)}}]
    assert bench.service.sink_partitions == {"out": 1}, "the topics were looked at again"


def test_a_topic_that_stays_away_ends_it(bench, wait_until):
    bench.batches.outcomes = [BatchOutcome(again={ONE: ValueError("no such topic")}) for _ in range(3)]
    bench.topics.sinks = UnknownTopicException("out is gone")
    bench.write(ONE, 5)
    bench.start()
    wait_until(bench.failure, "it does not end")
    assert isinstance(bench.failure(), UnknownTopicException)
    assert len(bench.batches.ran) == 2, "max.batch.retries=1"


@pytest.mark.long
def test_a_broker_that_comes_back_may_not_know_its_topics_for_a_moment(bench, wait_until):
    """However long it was away: the tries that took do not count."""
    bench.tasks[ONE].attempt.tries = 9
    bench.batches.outcomes = [BatchOutcome(again={ONE: DisconnectException("gone")})]
    bench.topics.sinks = UnknownTopicException("out is gone")
    bench.write(ONE, 5)
    bench.tasks[ONE].attempt.ranges = {TopicPartition("orders", 0): (0, 5)}
    bench.start()
    wait_until(lambda: len(bench.batches.ran) >= 2 or bench.failure(), "it does not go on")
    assert bench.failure() is None


def test_a_broker_that_is_away_is_waited_for(bench, wait_until):
    bench.topics.troubles = [UnknownTopicException("not known yet"), DisconnectException("the connection broke")]
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: bench.progress.status, "nobody says so")
    wait_until(lambda: bench.batches.ran, "no batch ran")
    assert bench.progress.status is None
    assert bench.failure() is None


def test_partitions_that_a_source_gets_are_reported_until_an_assignment_knows_them(
    bench, wait_until, monkeypatch, caplog
):
    monkeypatch.setattr(batch_thread, "_SOURCES_SECONDS", 0.0)
    bench.service.source_partitions = {"orders": 2}
    bench.start()
    assert bench.topics.asked.acquire(timeout=LONG)
    bench.topics.sources = {"orders": 5}
    wait_until(lambda: bench.progress.status, "nobody says so")
    assert bench.progress.status == "source topic 'orders' has 5 partitions by now, 2 of them are read"
    bench.service.source_partitions = {"orders": 5}
    wait_until(lambda: bench.progress.status is None, "it is not forgotten")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("app: source topic 'orders' has 5 partitions by now, 2 of them are read; asking for a")


def test_a_source_that_stays_away_ends_it(bench, wait_until):
    bench.topics.troubles = [UnknownTopicException(f"orders is gone {n}") for n in range(9)]
    bench.start()
    wait_until(bench.failure, "it does not end")
    assert "orders is gone 1" in str(bench.failure()), "the second look took as long as any may"


def test_a_changelog_that_stays_away_ends_it_with_the_way_out(bench, wait_until):
    bench.topics.troubles = [UnknownTopicException("app-users-changelog-0 did not exist") for _ in range(9)]
    bench.start()
    wait_until(bench.failure, "it does not end")
    assert isinstance(bench.failure(), UnknownTopicException)
    assert "'app-users-changelog' is the changelog of store 'users'" in str(bench.failure())
    assert "sparkrelay reset --application-id app ..." in str(bench.failure())


def test_what_cannot_be_mended_is_reported_and_frees_the_tasks(bench, wait_until):
    bench.batches.outcomes = [SerializationException("offset 3 does not decode")]
    bench.write(ONE, 5)
    bench.start()
    wait_until(bench.failure, "it does not end")
    assert isinstance(bench.failure(), SerializationException)
    assert bench.service.withdraw([ONE, OTHER], timeout=0) == frozenset()


def test_stopping_finishes_the_batch(bench, wait_until):
    bench.batches.gate = threading.Event()
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: bench.batches.ran, "no batch ran")
    bench.thread.ask_to_end()
    bench.batches.gate.set()
    bench.thread.stop()
    assert bench.tasks[ONE].position.offsets == {TopicPartition("orders", 0): 5}
    assert bench.failure() is None


def test_stopping_breaks_off_a_look_at_a_silent_broker(bench):
    bench.topics.silent = threading.Event()
    bench.start()
    assert bench.topics.asked.acquire(timeout=LONG)
    bench.thread.stop()
    assert bench.failure() is None
    assert bench.service.withdraw([ONE, OTHER], timeout=0) == frozenset()


@pytest.mark.parametrize("bench", [{"poll.ms": 60_000}], ids=["a minute"], indirect=True)
def test_what_brokers_name_is_taken_without_another_question(bench, wait_until):
    bench.start()
    wait_until(lambda: bench.topics.awaited, "it does not wait")
    listed = len(bench.topics.listed)
    for end in (3, 5):
        bench.write(OTHER, end)
        bench.topics.wakeup()
        wait_until(lambda end=end: list(bench.tasks[OTHER].position.offsets.values()) == [end], "no batch ran")
    wait_until(lambda: len(bench.topics.awaited) == 3, "it does not wait again")
    assert len(bench.topics.listed) == listed
    assert bench.progress.input_lags == {"orders-0": 0, "orders-1": 0}


@pytest.mark.parametrize("bench", [{"poll.ms": 60_000}], ids=["a minute"], indirect=True)
def test_the_changelogs_of_what_brokers_name_are_listed_now_and_then(bench, wait_until, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(batch_thread, "time", clock)
    task, changelog = bench.tasks[ONE], TopicPartition("app-counts-changelog", 0)
    task.changelogs = {"counts": changelog}
    bench.start()
    wait_until(lambda: bench.topics.awaited, "it does not wait")
    for end, seconds, seen in ((3, 0.5, 0), (5, 0.5, 90)):
        clock.now += seconds
        bench.topics.ends[changelog] = 90
        bench.write(ONE, end)
        bench.topics.wakeup()
        wait_until(lambda end=end: list(task.position.offsets.values()) == [end], "no batch ran")
        assert task.copy.offsets == {changelog: seen}
    assert bench.topics.listed[-1] == [changelog], "nothing else is asked for"


def test_a_look_alone_moves_no_copy_on(bench, wait_until):
    changelog = TopicPartition("app-counts-changelog", 0)
    task = bench.tasks[ONE]
    task.changelogs = {"counts": changelog}
    task.restore_progressed({changelog: 7})
    bench.topics.ends[changelog] = 90
    bench.start()
    wait_until(lambda: task.copy.listed, "nobody looked")
    assert task.copy.listed == {changelog: 90}
    assert task.copy.offsets == {changelog: 7}


def test_what_fell_out_is_handed_back_though_the_topics_cannot_be_looked_at(bench, wait_until):
    reason = ProducerFencedException("another owner")
    bench.batches.outcomes = [BatchOutcome(reinitialize={ONE: reason}, again={OTHER: ValueError("user code")})]
    bench.topics.sinks = DisconnectException("the broker is away")
    bench.write(ONE, 5)
    bench.write(OTHER, 5)
    bench.start()
    fallen = []
    wait_until(lambda: fallen.extend(bench.service.take_fallen_out()) or fallen, "nothing fell out")
    assert fallen == [(bench.tasks[ONE], reason)]


def test_the_job_that_stays_ends_with_the_thread_and_learns_of_quiet_times(bench, wait_until):
    bench.start()
    wait_until(lambda: bench.batches.rested, "nobody says that there is nothing to do")
    assert not bench.batches.closed.is_set()
    bench.thread.stop()
    assert bench.batches.closed.is_set()


def test_the_job_that_stays_ends_once_there_are_no_tasks(bench, wait_until):
    bench.start()
    wait_until(lambda: bench.batches.rested, "no task was looked at")
    assert bench.service.withdraw([ONE, OTHER], timeout=LONG) == frozenset()
    wait_until(bench.batches.closed.is_set, "it stays although there are no tasks")


@pytest.mark.parametrize("bench", [{"poll.ms": 60_000}], ids=["a minute"], indirect=True)
def test_a_quiet_thread_leaves_it_to_the_brokers_to_wake_it(bench, wait_until):
    bench.write(ONE, 5)
    bench.start()
    wait_until(lambda: bench.topics.awaited, "it does not wait")
    assert bench.topics.awaited == [({TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 0}, 60.0)]
    bench.write(OTHER, 3)
    late = made_task(TaskId(0, 2))
    bench.service.put([late])
    wait_until(lambda: len(bench.topics.awaited) == 2, "a task that is put into service does not end the wait")
    assert bench.batches.ran[1] == {OTHER: {TopicPartition("orders", 1): (0, 3)}}
    assert bench.topics.awaited[1][0][TopicPartition("orders", 2)] == 0
    bench.thread.stop()
    assert bench.failure() is None, "nor does the end"


def test_brokers_that_wake_it_for_nothing_do_so_ever_less_often(bench, wait_until, monkeypatch):
    rests, rest = [], bench.service.rest
    monkeypatch.setattr(bench.service, "rest", lambda seconds: (rests.append(seconds), rest(0)))
    vain, nothing = News(trouble=True), News()
    bench.topics.answers = [vain] * 9 + [nothing, vain, vain]
    bench.start()
    wait_until(lambda: len(bench.topics.awaited) > 12, "it does not go on")
    pauses = [seconds for seconds in rests if seconds]
    assert pauses[:11] == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.1, 0.1, 0.002, 0.004]


@pytest.mark.parametrize("first", [7, 0])
def test_records_that_are_gone_are_passed_over(bench, wait_until, first):
    """The runner gives the reason only where that is wanted. Records that are there after all end the thread."""
    lost = OffsetOutOfRangeException("gone")
    bench.topics.offsets = lambda wanted, *, timeout: dict.fromkeys(wanted, first)
    bench.batches.outcomes = [BatchOutcome(again={ONE: lost})]
    bench.write(ONE, 9)
    bench.start()
    if first == 0:
        wait_until(lambda: bench.failure() is lost, "no failure")
        return
    wait_until(lambda: len(bench.batches.ran) == 2, "no second batch")
    partition = TopicPartition("orders", 0)
    assert bench.batches.ran == [{ONE: {partition: (0, 9)}}, {ONE: {partition: (7, 9)}}]
    assert dict(bench.progress.counters.totals().lost) == {"orders": 7}
    assert (bench.tasks[ONE].position.offsets, bench.tasks[ONE].position.skipped) == ({partition: 9}, {})


def test_records_that_are_gone_are_named_for_all_partitions(bench, wait_until):
    """The worker's error names one."""
    bench.topics.offsets = lambda wanted, *, timeout: dict.fromkeys(wanted, 7)
    bench.batches.outcomes = [OffsetOutOfRangeException("fetching orders-0 at offset 0: gone")]
    bench.write(ONE, 9)
    bench.start()
    wait_until(lambda: bench.failure() is not None, "no failure")
    assert "orders-0 (offsets 0 to 6), orders-1 (offsets 0 to 6)." in str(bench.failure())


@pytest.mark.parametrize("known", [True, False])
def test_the_workers_error_is_kept_where_no_records_are_known_to_be_gone(bench, wait_until, known):
    """The log is shorter than thought, or brokers do not answer."""
    gone = OffsetOutOfRangeException("fetching orders-0 at offset 0: gone")

    def offsets(wanted, *, timeout):
        if not known:
            raise DisconnectException("no answer")
        return dict.fromkeys(wanted, 0)

    bench.topics.offsets = offsets
    bench.batches.outcomes = [gone]
    bench.write(ONE, 9)
    bench.start()
    wait_until(lambda: bench.failure() is gone, "no failure")


def test_a_batch_whose_records_are_fixed_keeps_all_of_them(bench, wait_until):
    task, partition = bench.tasks[ONE], TopicPartition("orders", 0)
    task.attempt = BatchAttempt.of(BatchIntent({partition: (0, 100)}), failures=0)
    bench.batches.outcomes = [BatchOutcome(again={ONE: BatchTooLarge("too large", 500_000)})]
    bench.write(ONE, 100)
    bench.start()
    wait_until(lambda: len(bench.batches.ran) == 2, "no second batch")
    assert [batch[ONE][partition] for batch in bench.batches.ran] == [(0, 100), (0, 100)]


def test_a_batch_of_too_many_bytes_runs_again_with_the_records_that_fit(bench, wait_until):
    bench.batches.outcomes = [BatchOutcome(again={ONE: BatchTooLarge("too large", 500_000)})]
    bench.write(ONE, 100)
    bench.start()
    wait_until(lambda: len(bench.batches.ran) == 4, "no fourth batch")
    partition = TopicPartition("orders", 0)
    assert [batch[ONE][partition] for batch in bench.batches.ran] == [(0, 100), (0, 40), (40, 80), (80, 100)]
