"""Tasks whose windows end although nothing comes: what is silence, and what is not."""

from tests.doubles.tasks import initialize

from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.tasks.task import Task
from sparkrelay.types import TaskId, TopicPartition

CLICKS, USERS, CHANGELOG = (TopicPartition(topic, 0) for topic in ("clicks", "users", "app-counts-changelog"))
ENDS = {CLICKS: 5, USERS: 5, CHANGELOG: 9}
OPEN = StateReport("counts", 1, expired=0, last_end=1, left_ms=1)


def idle_task(changelogs=None):
    task = Task(
        TaskId(0, 0),
        (CLICKS, USERS),
        {"counts": CHANGELOG} if changelogs is None else changelogs,
        "/nowhere",
        frozenset({"clicks"}),
        timed_topics=frozenset({"clicks"}),
        cut=frozenset({"counts"}),
        watermark_idle_seconds=30.0,
    )
    serve(task)
    return task


def serve(task):
    initialize(task, {CHANGELOG: 9})
    task.positioned({CLICKS: 5, USERS: 5}, {}, None)
    task.restored()


def look(task, now, **more):
    ends = ENDS | {TopicPartition(topic, 0): end for topic, end in more.items()}
    return task.next_ranges(task.position.offsets, ends, 100, now)


def run(task, ranges):
    task.batch_begun(ranges)
    silence_ms = task.command({}).silence_ms
    task.batch_committed(task.producer, [OPEN])
    return silence_ms


def test_a_batch_without_records_comes_of_silence():
    task = idle_task()
    assert run(task, look(task, 0.0, clicks=6)) == 0
    task.position.offsets[CLICKS] = 6
    assert look(task, 29.0, clicks=6) == {}
    ranges = look(task, 31.0, clicks=6)
    assert ranges == {CLICKS: (6, 6)}
    assert run(task, ranges) == 31_000
    assert look(task, 60.0, clicks=6) == {}


def test_what_another_topic_gets_is_no_input_of_the_windows():
    task = idle_task()
    look(task, 0.0)
    ranges = look(task, 30.0, users=8)
    assert ranges == {CLICKS: (5, 5), USERS: (5, 8)}
    assert run(task, ranges) == 30_000


def test_the_silence_of_a_broker_is_none_of_the_topics():
    task = idle_task()
    look(task, 0.0)
    task.inputs_unknown(600.0)
    assert look(task, 629.0) == {}
    assert look(task, 630.0) == {CLICKS: (5, 5)}


def test_what_others_did_with_the_task_meanwhile_is_no_silence():
    task = idle_task()
    look(task, 0.0)
    task.fell_out()
    serve(task)
    assert look(task, 3600.0) == {}
    task.assigned_standby()
    task.assigned_active()
    serve(task)
    assert look(task, 7200.0) == {}
    assert look(task, 7230.0) == {CLICKS: (5, 5)}


def test_without_a_changelog_windows_wait_for_rows():
    task = idle_task(changelogs={})
    look(task, 0.0)
    assert look(task, 1e6) == {}
