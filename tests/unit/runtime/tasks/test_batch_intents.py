"""A task with foreachBatch that is opened: which batch it runs first, and under which number."""

import pytest
from tests.doubles.tasks import LENT, initialize, task_in

from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.runtime.contract.commit_notes import note_text
from sparkrelay.runtime.tasks.batch_notes import BatchIntent, BatchNote, read_batch
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId, TopicPartition

TASK = TaskId(0, 3)
A, B = TopicPartition("orders", 3), TopicPartition("returns", 3)
NOW = 1_790_000_000_000


def opened(offsets, note=None, *, stored=None, beside=None):
    """Return a task that stands there, beside commits of which the first has that note, and whether one is given up."""
    parts = {} if note is None else {"batch": note.as_json()}
    commits = {p: OffsetAndMetadata(offset, "") for p, offset in offsets.items()}
    commits[A] = OffsetAndMetadata(offsets[A], note_text(TASK, {**parts, **(beside or {})}))
    directory = None if stored is None else "/state/0_3"
    task = task_in(TaskState.CREATED, TASK, (A, B), directory=directory, foreach_batch=True)
    initialize(task)
    task.positioned(offsets, {}, stored)
    task.continue_event_times(commits)
    lost = task.noted(commits, NOW)
    task.restored()
    return task, lost


def begin(task, ranges=None):
    """Begin the next batch as a batch thread does; return its ranges."""
    wanted = task.next_ranges(task.position.offsets, ranges or {A: 100, B: 100}, 1000, 50.0)
    task.batch_begun(wanted)
    return wanted


def commit(task):
    (text,) = task.commit_notes([]).values()
    task.batch_committed()
    return text


INTENT = BatchIntent({A: (5, 9)}, frozenset({"returns"}), 0, {"s": frozenset({"orders"})}, {"orders": 44}, 12, 13)


def test_a_batch_that_was_begun_is_run_as_it_was():
    task, lost = opened({A: 5, B: 7}, BatchNote(TASK, 41, INTENT), beside={"event_times": {"rows": [4, 3]}})
    assert lost is None
    assert begin(task) == {A: (5, 9)}
    assert (task.position.batch, task.attempt.intended, task.attempt.looked_at) == (41, True, 50.0)
    command = task.command(LENT, {})
    assert command.fixed, "a function may have got its rows"
    assert (command.batch, command.tries, command.behind, command.awaited, command.event_time_limits) == (
        41,
        1,
        {"returns"},
        {"s": {"orders"}},
        {"orders": 44},
    )
    assert (command.clock_ms, command.now_ms) == (12, 13)
    assert read_batch(commit(task)) == BatchNote(TASK, 41)
    assert begin(task) == {A: (9, 100), B: (7, 100)}
    assert (task.position.batch, task.attempt.intended, task.command(LENT, {}).clock_ms) == (42, False, 0)
    assert not task.command(LENT, {}).fixed


def test_a_batch_without_records_is_run_as_it_was_too():
    task, _ = opened({A: 5, B: 7}, BatchNote(TASK, 41, BatchIntent({A: (5, 5)}, silence_ms=300)))
    assert begin(task) == {A: (5, 5)}
    assert task.command(LENT, {}).silence_ms == 300


def test_what_is_intended_is_what_another_owner_reads():
    task, _ = opened({A: 5, B: 7}, BatchNote(TASK, 41), beside={"event_times": {"rows": [4, 3]}})
    begin(task, {A: 9, B: 7})
    notes = task.intent_notes(12)
    assert '"event_times":{"rows":[4,3]}' in notes[A], "it stays until the batch is committed"
    task.batch_intended()
    successor, _ = opened({A: 5, B: 7}, read_batch(notes[A]))
    assert begin(successor) == {A: (5, 9)}
    assert (successor.position.batch, successor.command(LENT, {}).clock_ms) == (42, 12)
    assert successor.command(LENT, {}).behind == task.command(LENT, {}).behind


def test_a_batch_of_too_many_bytes_is_intended_anew():
    task, _ = opened({A: 5, B: 7}, BatchNote(TASK, 41))
    begin(task)
    task.intent_notes(12)
    task.batch_intended()
    task.batch_aborted()
    task.batch_narrowed(4)
    assert not task.attempt.intended
    assert begin(task) == {A: (5, 7), B: (7, 9)}
    successor, _ = opened({A: 5, B: 7}, read_batch(task.intent_notes(13)[A]))
    assert begin(successor) == {A: (5, 7), B: (7, 9)}
    assert (successor.position.batch, successor.attempt.behind) == (42, {"orders", "returns"})


@pytest.mark.parametrize(
    ("offsets", "stored"),
    [({A: 6, B: 7}, None), ({A: 5, B: 7}, 41), ({A: 5, B: 7}, 50)],
    ids=["moved by hand", "committed by the store's word", "long ago"],
)
def test_a_batch_that_cannot_be_next_is_given_up_with_its_number(offsets, stored):
    note = BatchNote(TASK, 41, INTENT)
    task, lost = opened(offsets, note, stored=stored)
    assert lost == note
    begin(task)
    assert task.position.batch == max(41, stored or 0) + 1
    assert not task.attempt.intended


def test_numbers_go_on_behind_the_last_commit():
    task, lost = opened({A: 5, B: 7}, BatchNote(TASK, 41))
    assert lost is None
    begin(task)
    assert task.position.batch == 42


@pytest.mark.parametrize("note", [None, BatchNote(TaskId(1, 3), 41), BatchNote(TaskId(1, 3), 41, INTENT)])
@pytest.mark.parametrize("stored", [None, 8])
def test_where_nothing_says_how_far_they_are_numbers_go_on_from_the_clock(note, stored):
    """A number that a sink knows must not come again with other rows: offsets expire, and are set by hand."""
    task, lost = opened({A: 5, B: 7}, note, stored=stored)
    assert lost is None
    begin(task)
    assert task.position.batch == NOW + 1


def test_a_store_that_is_ahead_says_the_number():
    task, _ = opened({A: 5, B: 7}, BatchNote(TASK, 41), stored=60)
    begin(task)
    assert task.position.batch == 61


def test_a_batch_that_runs_again_here_keeps_all_of_it():
    task, _ = opened({A: 5, B: 7}, BatchNote(TASK, 41))
    ranges = begin(task, {A: 9, B: 7})
    task.intent_notes(12)
    task.batch_intended()
    command = task.command(LENT, {})
    task.batch_aborted()
    assert begin(task, {A: 200, B: 200}) == ranges
    again = task.command(LENT, {})
    assert (again.batch, again.behind, again.clock_ms) == (command.batch, command.behind, 12)
    assert (again.tries, task.attempt.intended) == (2, True)
