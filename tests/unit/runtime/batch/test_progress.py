"""Progress reports: Spark's keys, what SparkRelay adds, and when there is one without a batch."""

import json

from tests.doubles.clock import Clock
from tests.doubles.tasks import task_in

from sparkrelay.runtime.batch.micro_batch import BatchOutcome
from sparkrelay.runtime.batch.progress import ProgressLog
from sparkrelay.runtime.contract.commands import LegReport, StateReport
from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
CHANGELOG = TopicPartition("app-counts-changelog", 0)
#: What users of StreamingQuery read.
SPARK = {
    "id", "runId", "name", "timestamp", "batchId", "numInputRows", "inputRowsPerSecond", "processedRowsPerSecond",
    "durationMs", "stateOperators", "sources", "sink",
}  # fmt: skip


def task(number, partition, **more):
    return task_in(TaskState.RUNNING, TaskId(0, number), (partition,), {"counts": CHANGELOG}, "/nowhere", **more)


def copy(number=0, *, restoring=True, at=40, end=100, first_lag=80):
    offsets = None if at is None else {CHANGELOG: at}
    return RestoreProgress(TaskId(0, number), restoring, 1_700_000_000.0, offsets, {CHANGELOG: end}, first_lag)


def work(*tasks):
    return {one.id: (one, {one.inputs[0]: (10, 25)}) for one in tasks}


def outcome(*committed, **more):
    reports = [LegReport("leg", id_, 1, rows_out=4, seconds={"state": 0.1}) for id_ in committed]
    return BatchOutcome([*committed], reports=reports, seconds={"total": 0.5, "job": 0.4, "commit": 0.05}, **more)


def test_a_batch_has_sparks_keys_and_ours():
    log = ProgressLog("app", state=lambda: "RUNNING")
    progress = log.thread()
    progress.copies = lambda: {TaskId(0, 5): copy(5, restoring=False), TaskId(0, 6): copy(6)}
    tasks = [task(0, A, positions={A: 25}), task(1, B, positions={B: 25})]
    progress.lags(tasks, {A: 30, B: 25})
    progress.batch(work(*tasks), outcome(TaskId(0, 0), TaskId(0, 1)), listed_seconds=0.1)
    report = log.last
    assert set(report) == SPARK | {"sparkrelay"}
    assert json.loads(json.dumps(report)) == report
    assert (report["batchId"], report["numInputRows"], report["durationMs"]["triggerExecution"]) == (0, 30, 600)
    assert report["sources"] == [
        {
            "description": "Kafka[orders]",
            "startOffset": {"0": 10, "1": 10},
            "endOffset": {"0": 25, "1": 25},
            "latestOffset": {"0": 30, "1": 25},
            "numInputRows": 30,
            "numRecordsSkipped": 0,
        }
    ]
    assert report["sparkrelay"] == {
        "state": "RUNNING",
        "rebalances": 0,
        "resident": False,
        "tasks": {"committed": ["0_0", "0_1"], "again": {}, "reopened": {}},
        "restoring": {"0_6": {"remaining": 60, "share": 0.25, "since": "2023-11-14T22:13:20.000Z"}},
        "standby": {"0_5": {"lag": 60, "since": "2023-11-14T22:13:20.000Z"}},
    }


def test_only_what_was_committed_is_counted():
    log = ProgressLog("app")
    done, again, doubtful = task(0, A), task(1, B), task(2, TopicPartition("orders", 2))
    oops = RuntimeError("oops")
    log.thread().batch(
        work(done, again, doubtful),
        outcome(done.id, again={again.id: oops}, reinitialize={doubtful.id: oops}),
        listed_seconds=0.0,
    )
    totals = log.counters.totals()
    assert (dict(totals.records), totals.rows_written, totals.reopened) == ({"orders": 15}, 4, 1)
    assert totals.errors["batch"] == 1
    assert log.last["sparkrelay"]["tasks"]["again"] == {"0_1": "oops"}
    assert log.status == "task 0_2: oops"


def test_late_rows_are_counted_by_store_once_they_are_committed():
    log = ProgressLog("app")
    progress, done, again = log.thread(), task(0, A), task(1, B)
    reports = [
        LegReport("left", done.id, 1, state=StateReport("joined", 1, rows_late=2)),
        LegReport("right", done.id, 1, state=StateReport("joined", 1, rows_late=3)),
        LegReport("leg", done.id, 1, state=StateReport("windows", 1)),
        LegReport("left", again.id, 1, state=StateReport("joined", 1, rows_late=7)),
    ]
    failed = BatchOutcome([done.id], reports=reports, seconds={"total": 0.5}, again={again.id: RuntimeError("oops")})
    progress.batch(work(done, again), failed, listed_seconds=0.0)
    assert dict(log.counters.totals().late) == {"joined": 5, "windows": 0}


def test_a_task_that_failed_and_has_left_is_no_trouble_here():
    log = ProgressLog("app")
    progress, lost = log.thread(), task(0, A)
    progress.batch(work(lost), outcome(reinitialize={lost.id: RuntimeError("another owner")}), listed_seconds=0.0)
    progress.has({lost.id})
    assert log.status == "task 0_0: another owner"
    progress.has({TaskId(0, 1)})
    assert log.status is None


def test_restores_are_reported_once_a_second_without_a_batch():
    clock = Clock(100.0)
    log = ProgressLog("app", state=lambda: "REBALANCING", clock=clock)
    progress = log.thread()
    progress.copies = lambda: {TaskId(0, 0): copy()}
    for clock.now in (100.2, 101.1, 101.9, 102.2):
        progress.restored([copy()], 10)
    assert len(log.recent) == 2
    report = log.last
    assert set(report) == SPARK | {"sparkrelay"}
    assert (report["batchId"], report["numInputRows"], report["sparkrelay"]["tasks"]) == (-1, 0, None)
    assert report["sparkrelay"]["restoring"]["0_0"]["remaining"] == 60
    assert json.loads(json.dumps(report)) == report
    assert log.counters.totals().restored == 40


def test_standbys_alone_are_reported_every_ten_seconds_and_not_beside_batches():
    clock = Clock(100.0)
    log = ProgressLog("app", clock=clock)
    progress = log.thread()
    standby = copy(restoring=False)
    progress.copies = lambda: {standby.task: standby}
    for clock.now in (105.0, 109.0, 110.5, 120.0):
        progress.restored([standby], 1)
    assert len(log.recent) == 1
    one = task(0, A)
    progress.batch(work(one), outcome(one.id), listed_seconds=0.0)
    clock.now = 129.0
    progress.restored([standby], 1)
    assert [report["batchId"] for report in log.recent] == [-1, 0]
    clock.now = 130.5
    progress.restored([], 0)
    assert len(log.recent) == 2
    progress.restored([standby], 1)
    assert [report["batchId"] for report in log.recent] == [-1, 0, 0]


def test_threads_do_not_hide_each_other():
    log = ProgressLog("app")
    first, second = log.thread(), log.thread()
    first.lags([task(0, A, positions={A: 1})], {A: 5})
    second.lags([task(1, B, positions={B: 2})], {B: 9})
    assert log.input_lags == {"orders-0": 4, "orders-1": 7}
    first.trouble("no broker answers")
    second.lags([], {})
    assert log.status == "no broker answers"
    assert log.input_lags == {"orders-0": 4}
    assert log.counters.totals().errors["broker"] == 1
