"""What listeners are called with, as copies move."""

import logging

import pytest
from hypothesis import given, strategies as st

from sparkrelay.runtime.tasks.restore_listeners import (
    RestoreListeners,
    RestoreNotices,
    StandbyUpdateListener,
    StateRestoreListener,
)
from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
from sparkrelay.types import TaskId, TopicPartition

TASK, AT = TaskId(0, 1), TopicPartition("app-counts-changelog", 1)


class Recorder(StateRestoreListener, StandbyUpdateListener):
    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)
        return lambda *about: self.calls.append((name.removeprefix("on_"), *about[2:]))


def progress(at, end=100, *, restoring=True, first=0):
    offsets = None if at is None else {AT: at}
    return RestoreProgress(TASK, restoring, 0.0, offsets, {AT: end}, None, {"counts": AT}, {AT: first})


def notices():
    recorder = Recorder()
    return RestoreNotices(RestoreListeners(recorder, recorder)), recorder.calls


def test_a_restore_begins_goes_on_and_ends():
    made, calls = notices()
    made.moved([progress(None)], ())
    assert calls == []
    made.moved([progress(40, first=10)], ())
    made.moved([progress(40)], ())
    made.moved([progress(100)], {TASK})
    assert calls == [
        ("restore_start", 10, 100),
        ("batch_restored", 40, 30),
        ("batch_restored", 100, 60),
        ("restore_end", 90),
    ]
    made.left([TASK])
    assert len(calls) == 4


def test_a_store_that_has_everything_begins_and_ends_at_once():
    made, calls = notices()
    made.moved([progress(100, first=100)], {TASK})
    assert calls == [("restore_start", 100, 100), ("restore_end", 0)]


def test_a_task_that_leaves_suspends_its_restore():
    made, calls = notices()
    made.moved([progress(40)], ())
    made.left([TaskId(0, 0)])
    made.left([TASK])
    assert calls[2:] == [("restore_suspended", 40)]


def test_a_standby_follows_and_is_promoted_or_moves_away():
    made, calls = notices()
    made.moved([progress(40, 90, restoring=False, first=30)], ())
    made.moved([progress(95, 95, restoring=False)], ())
    made.moved([progress(100, restoring=True, first=95)], {TASK})
    assert calls == [
        ("update_start", 30),
        ("batch_loaded", TASK, 40, 10, 90),
        ("batch_loaded", TASK, 95, 55, 95),
        ("update_suspended", 95, 95, "PROMOTED"),
        ("restore_start", 95, 100),
        ("batch_restored", 100, 5),
        ("restore_end", 5),
    ]
    made.moved([progress(10, restoring=False)], ())
    made.left([TASK])
    assert calls[-1] == ("update_suspended", 10, 100, "MIGRATED")


def test_a_copy_that_is_built_anew_begins_anew():
    made, calls = notices()
    made.moved([progress(60)], ())
    made.moved([progress(20)], ())
    assert calls[2:] == [("restore_start", 0, 100), ("batch_restored", 20, 20)]


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.sampled_from(["move", "restored", "leave"]))))
def test_what_was_begun_is_ended_once_and_counts_add_up(steps):
    made, calls = notices()
    for at, restoring, what in steps:
        if what == "leave":
            made.left([TASK])
        else:
            made.moved([progress(at, 50, restoring=restoring)], {TASK} if restoring and what == "restored" else ())
    made.left([TASK])
    starts = [call[0] for call in calls if call[0].endswith("_start")]
    ends = [call[0] for call in calls if call[0].endswith(("_end", "_suspended"))]
    # One that is built anew begins again without an end.
    assert len(starts) >= len(ends)
    total = 0
    for name, *about in calls:
        if name in {"restore_start", "update_start"}:
            total = 0
        elif name in {"batch_restored", "batch_loaded"}:
            total += about[1] if name == "batch_restored" else about[2]
        elif name in {"restore_end", "restore_suspended"}:
            assert about == [total]


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(1)])
def test_what_a_listener_raises_is_logged(raised, caplog):
    class Raising(StateRestoreListener):
        def on_restore_start(self, *about):
            raise raised

    made = RestoreNotices(RestoreListeners(Raising()))
    with caplog.at_level(logging.ERROR):
        made.moved([progress(40)], ())
    assert "on_restore_start of a listener has failed" in caplog.text


def test_the_methods_are_there_to_be_overridden():
    about = AT, "counts", 1, 2
    for name, count in (("restore_start", 4), ("batch_restored", 4), ("restore_end", 3), ("restore_suspended", 3)):
        assert getattr(StateRestoreListener(), f"on_{name}")(*about[:count]) is None
    standby = StandbyUpdateListener()
    assert standby.on_update_start(*about[:3]) is None
    assert standby.on_batch_loaded(AT, "counts", TASK, 1, 2, 3) is None
    assert standby.on_update_suspended(*about, "MIGRATED") is None
