import json

import pytest
from hypothesis import given, strategies as st

from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.contract.commit_notes import note_text
from sparkrelay.runtime.tasks.event_times import EventTimeLimits, Limit, Reached, WrittenTimes, noted_times
from sparkrelay.state.window_keys import LATEST, NO_TIME
from sparkrelay.types import TaskId, TopicPartition

ROWS = TopicPartition("rows", 3)
OPEN, CLOSED = StateReport("counts", 1, left_ms=0), StateReport("counts", 1, left_ms=500)


def said(times, newest, **how):
    return note_text(TaskId(0, 0), {"event_times": times.note(newest, **how)})


def test_a_commit_says_how_far_a_task_has_come():
    times = WrittenTimes({"b", "a"})
    assert noted_times(said(times, {"a": 70}, limit=LATEST)) == {"a": Reached(70, 70), "b": Reached(None, None)}
    assert noted_times(said(times, {"a": 60, "b": 90}, limit=80)) == {"a": Reached(70, 70), "b": Reached(90, 80)}
    assert noted_times(said(times, {}, limit=50)) == {"a": Reached(70, 70), "b": Reached(90, 80)}
    assert noted_times(said(times, {"other": 99}, limit=50)).keys() == {"a", "b"}


def test_a_task_that_writes_no_such_topic_says_nothing():
    assert WrittenTimes(()).note({}, limit=LATEST) == {}


@pytest.mark.parametrize(
    "text",
    [
        *("", "AgAAAYw", "[]", "null", "{", "[" * 4000, '{"event_times": 5}', '{"event_times": {"a": 5}}'),
        *(
            '{"event_times": {"a": [1]}}',
            '{"event_times": {"a": ["1", 2]}}',
            '{"event_times": {"a": [1.5, 2]}}',
        ),
        '{"event_times": {"a": [true, 2]}}',
    ],
)
def test_what_others_have_noted_is_nothing(text):
    assert noted_times(text) == {}


@given(st.text())
def test_no_note_is_trouble(text):
    noted_times(text)
    noted_times(json.dumps({"event_times": {"a": [text, 1]}}))


def limit(limits, position, stop):
    """Return the limit of rows for a batch up to `stop`; None: nobody has looked."""
    return limits.at({ROWS: position}, {ROWS: stop})[0].get(ROWS.topic)


def test_a_limit_counts_once_what_it_is_true_of_is_read():
    limits = EventTimeLimits()
    assert limit(limits, 0, 10) is None, "nobody has looked"
    limits.seen(ROWS, 20, Limit(5, unread_since=3.0))
    assert limit(limits, 0, 10) == NO_TIME
    limits.seen(ROWS, 30, Limit(LATEST))
    assert [limit(limits, 0, stop) for stop in (20, 29, 30)] == [5, 5, LATEST]


def test_a_batch_that_takes_less_than_was_planned_has_the_limit_of_what_it_takes():
    limits = EventTimeLimits()
    limits.seen(ROWS, 20, Limit(5, unread_since=3.0))
    limits.seen(ROWS, 30, Limit(LATEST))
    assert limits.at({ROWS: 10}, {ROWS: 30}) == ({ROWS.topic: LATEST}, frozenset())
    assert limits.at({ROWS: 10}, {ROWS: 25}) == ({ROWS.topic: 5}, {ROWS.topic})
    assert limits.at({ROWS: 10}, {ROWS: 15}) == ({ROWS.topic: NO_TIME}, {ROWS.topic})
    assert limit(limits, 25, 25) == 5
    assert limit(limits, 25, 30) == LATEST


def test_more_is_to_come_while_something_is_unread_here_or_upstream():
    limits = EventTimeLimits()

    def to_come(stop):
        return limits.at({}, {ROWS: stop})[1]

    assert to_come(0) == frozenset()
    limits.seen(ROWS, 20, Limit(5, unread_since=3.0))
    assert to_come(19) == to_come(20) == {ROWS.topic}
    limits.seen(ROWS, 30, Limit(9))
    assert to_come(29) == {ROWS.topic}
    assert to_come(30) == frozenset()


def test_another_look_at_the_same_end_replaces_the_one_before():
    limits = EventTimeLimits()
    limits.seen(ROWS, 20, Limit(5, unread_since=3.0))
    assert limits.unread_since == {ROWS.topic: 3.0}
    limits.seen(ROWS, 20, Limit(9))
    assert not limits.unread_since
    assert limit(limits, 0, 20) == 9


def test_many_looks_in_a_long_backlog_are_not_all_kept():
    limits = EventTimeLimits()
    for end in range(1000):
        limits.seen(ROWS, end, Limit(end))
    assert limit(limits, 0, 10) == 10
    assert 0 < limit(limits, 10, 500) < 500
    limits.seen(ROWS, 1000, Limit(1000))
    assert limit(limits, 500, 1000) == 1000


def test_windows_that_wait_for_it_end_once_a_limit_lets_go():
    limits = EventTimeLimits()
    read = {ROWS: 20}
    assert not limits.due({})
    limits.seen(ROWS, 20, Limit(5, unread_since=3.0))
    used, _ = limits.at({}, read)
    assert limits.due(used) == {"rows"}, "a new owner looks"
    limits.committed([OPEN], used, {"rows"}, read)
    assert not limits.due(used)
    limits.seen(ROWS, 20, Limit(LATEST))
    used, _ = limits.at(read, read)
    assert limits.due(used) == {"rows"}
    limits.committed([OPEN], used, {"others"}, read)
    assert limits.due(used) == {"rows"}, "a batch of other topics has changed nothing"
    limits.committed([CLOSED], used, {"rows"}, read)
    assert not limits.due(used)
