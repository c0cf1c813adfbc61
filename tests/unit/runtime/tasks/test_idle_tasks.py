"""Tasks whose windows end although nothing comes: what is silence, and what is not."""

import math

from tests.doubles.tasks import LENT, initialize, task_of

from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.tasks.event_times import Limit
from sparkrelay.types import TaskId, TopicPartition

CLICKS, USERS, CHANGELOG = (TopicPartition(topic, 0) for topic in ("clicks", "users", "app-counts-changelog"))
ENDS = {CLICKS: 5, USERS: 5, CHANGELOG: 9}
OPEN = StateReport("counts", 1, expired=0, last_end=1, left_ms=1)


def idle_task(changelogs=None):
    task = task_of(
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
    silence_ms = task.command(LENT, {}).silence_ms
    task.batch_committed([OPEN])
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
    task.times.inputs_unknown(600.0)
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


WEB = TopicPartition("web", 0)


def merging_task(**more):
    task = task_of(
        TaskId(0, 0),
        (CLICKS, USERS, WEB),
        more.pop("changelogs", {"counts": CHANGELOG}),
        "/nowhere",
        frozenset({"clicks", "web"}),
        timed_topics=frozenset({"clicks", "web"}),
        cut=frozenset({"counts"}),
        merged={"counts": frozenset({"clicks", "web"})},
        task_idle_seconds={"counts": 10.0},
        **more,
    )
    initialize(task, {CHANGELOG: 9})
    task.positioned({CLICKS: 5, USERS: 5, WEB: 5}, {}, None)
    task.restored()
    return task


def run_merging(task, ranges, *read, left_ms=0):
    task.batch_begun(ranges)
    command = task.command(LENT, {})
    report = StateReport("counts", 1, expired=0, left_ms=left_ms, sources=frozenset(read))
    task.batch_committed([report])
    return command


def test_a_topic_that_is_read_to_its_end_is_waited_for_until_it_is_silent():
    task = merging_task()
    command = run_merging(task, look(task, 0.0, clicks=6, web=200), "clicks", "web")
    assert (command.behind, command.awaited) == ({"web"}, {"counts": {"clicks", "web"}})
    command = run_merging(task, look(task, 8.0, clicks=6, web=200), "web")
    assert (command.behind, command.awaited) == (frozenset(), {"counts": {"clicks", "web"}})
    assert look(task, 9.0, clicks=6, web=200) == {}
    ranges = look(task, 10.0, clicks=6, web=200)
    assert ranges == {CLICKS: (6, 6), WEB: (200, 200)}
    # It is tried again, and what it waits for stays.
    task.batch_begun(ranges)
    assert look(task, 30.0, clicks=6, web=200) == ranges
    assert run_merging(task, ranges).awaited == {"counts": {"web"}}
    assert look(task, 17.0, clicks=6, web=200) == {}
    # Beside it there is input of another topic.
    assert look(task, 18.0, clicks=6, web=200, users=7) == {CLICKS: (6, 6), WEB: (200, 200), USERS: (5, 7)}


def test_a_topic_whose_writers_are_behind_is_not_silent_however_long_they_take():
    task = merging_task()
    for now in (0.0, 9.0, 18.0, 27.0):
        task.times.event_time_limits.seen(WEB, 5, Limit(3, unread_since=-math.inf))
        command = run_merging(task, look(task, now, clicks=6 + int(now)), "clicks")
        assert command.awaited == {"counts": {"clicks", "web"}}
        task.position.offsets[CLICKS] = 6 + int(now)
    task.times.event_time_limits.seen(WEB, 5, Limit(3))
    look(task, 99.0, clicks=40)
    assert task.attempt.awaited == {"counts": {"web"}}, "the last batch of it was long, and what it wrote does not show"
    look(task, 108.0, clicks=40)
    assert task.attempt.awaited == {"counts": {"web"}}
    look(task, 109.0, clicks=40)
    assert task.attempt.awaited == {"counts": frozenset()}


def test_a_topic_of_which_all_is_filtered_away_in_a_steady_flow_is_silent():
    """Found by a reader: something had always been unread for a moment, and the topic was waited for for ever."""
    task, awaited = merging_task(), {}
    for now in range(40):
        # What was unread is read within six seconds, and other records have come since.
        task.times.event_time_limits.seen(WEB, 5, Limit(3, unread_since=now - now % 6))
        run_merging(task, look(task, float(now), clicks=6 + now), "clicks")
        task.position.offsets[CLICKS] = 6 + now
        awaited[now] = "web" in task.attempt.awaited["counts"]
    assert all(awaited[now] for now in range(10))
    assert not any(awaited[now] for now in range(12, 40))


def test_the_clock_goes_on_once_no_topic_is_waited_for():
    task = merging_task(watermark_idle_seconds=3.0)
    run_merging(task, look(task, 0.0, web=6), "web", left_ms=2000)
    assert look(task, 9.0, web=6) == {}
    ranges = look(task, 10.0, web=6)
    command = run_merging(task, ranges)
    assert (command.silence_ms, command.awaited) == (10_000, {"counts": frozenset()})


def test_without_a_changelog_no_batch_comes_of_a_topic_s_silence():
    task = merging_task(changelogs={})
    run_merging(task, look(task, 0.0, web=6), "web")
    assert look(task, 99.0, web=6) == {}
    ranges = look(task, 100.0, web=7)
    assert run_merging(task, ranges, "web").awaited == {"counts": frozenset()}


def test_without_a_changelog_windows_wait_for_rows():
    task = idle_task(changelogs={})
    look(task, 0.0)
    assert look(task, 1e6) == {}


def clocked_task():
    task = task_of(
        TaskId(0, 0),
        (CLICKS, USERS),
        {"counts": CHANGELOG},
        "/nowhere",
        frozenset({"clicks"}),
        clocked={"counts": frozenset({"clicks"})},
    )
    serve(task)
    return task


def look_by_clock(task, clock_ms, **more):
    ends = ENDS | {TopicPartition(topic, 0): end for topic, end in more.items()}
    return task.next_ranges(task.position.offsets, ends, 100, 0.0, clock_ms)


def test_a_task_runs_when_something_is_due_by_the_clock():
    task = clocked_task()
    ranges = look_by_clock(task, 1000)
    assert ranges == {CLICKS: (5, 5)}, "a new owner looks"
    task.batch_begun(ranges)
    assert task.command(LENT, {}).now_ms == 1000
    task.batch_aborted()
    # Another try is of the same time.
    task.batch_begun(look_by_clock(task, 1700))
    assert task.command(LENT, {}).now_ms == 1000
    task.batch_committed([StateReport("counts", 1, expired=1000, last_end=1 << 62, left_ms=500)])
    assert task.cuts.before == {}
    assert look_by_clock(task, 1499) == {}
    assert task.times.due_times.next_ms == 1500
    ranges = look_by_clock(task, 1500, users=7)
    assert ranges == {CLICKS: (5, 5), USERS: (5, 7)}
    task.batch_begun(ranges)
    assert task.command(LENT, {}).now_ms == 1500
    task.batch_committed([StateReport("counts", 1, expired=1500, left_ms=None)])
    assert look_by_clock(task, 1 << 60, users=7) == {}


def test_a_changelog_that_is_not_cut_stays_whole():
    task = clocked_task()
    task.batch_begun(look_by_clock(task, 1000))
    task.batch_committed([StateReport("counts", 0, expired=1000, last_end=-(1 << 62))])
    assert task.cuts.before == {}
