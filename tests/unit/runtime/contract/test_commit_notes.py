"""What is noted with the group's offsets: it fits, and what an operator sets replaces only what it means to."""

import pytest

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commit_notes import (
    CHANGELOGS,
    MOST_CHARACTERS,
    note_parts,
    note_text,
    noted_changelogs,
    set_by_hand,
    set_by_hand_note,
)
from sparkrelay.types import TaskId

TASK = TaskId(0, 0)


def test_the_ids_of_changelogs_come_back():
    text = note_text(TASK, {CHANGELOGS: {"users": "one", "shops": "two"}, "batch": None})
    assert noted_changelogs(text) == {"users": "one", "shops": "two"}


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"changelogs":[1]}', '{"changelogs":{"users":1}}'])
def test_what_somebody_else_wrote_names_no_changelog(text):
    assert noted_changelogs(text) == {}


def test_a_note_that_is_too_long_lacks_the_changelogs():
    """They are a safeguard: a task with many stores must be able to commit."""
    ids = {f"store-{number}": "x" * 36 for number in range(200)}
    assert note_parts(note_text(TASK, {CHANGELOGS: ids, "event_times": {"a": 1}})) == {"event_times": {"a": 1}}
    assert note_text(TASK, {CHANGELOGS: ids}) == ""
    with pytest.raises(StreamsException, match="brokers keep at most"):
        note_text(TASK, {CHANGELOGS: ids, "event_times": "x" * MOST_CHARACTERS})


def test_an_operator_who_sets_an_offset_accepts_the_state_that_there_is():
    noted = note_text(TASK, {CHANGELOGS: {"users": "one"}, "batch": {"number": 7}})
    text = set_by_hand_note("topic", noted)
    assert set_by_hand(text) == "topic"
    assert noted_changelogs(text) == {}
    assert note_parts(text)["batch"] == {"number": 7}
