"""What commits say of micro-batches, and what is made of notes that others wrote, or that are damaged."""

import json

import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commit_notes import note_text
from sparkrelay.runtime.tasks.batch_notes import BatchIntent, BatchNote, newest_batch, read_batch
from sparkrelay.runtime.tasks.event_times import noted_times
from sparkrelay.state.window_keys import LATEST, NO_TIME
from sparkrelay.types import TaskId, TopicPartition

TASK, OTHER = TaskId(0, 3), TaskId(1, 3)
A, B = TopicPartition("orders", 3), TopicPartition("returns", 3)
FULL = BatchIntent(
    {A: (5, 9), B: (0, 0)}, frozenset({"orders"}), 70, {"x": frozenset({"returns"})}, {"orders": 9}, 12, 13
)

topics = st.text(min_size=1, max_size=4)
numbers = st.integers(0, (1 << 63) - 1)
spans = st.tuples(numbers, numbers).map(lambda both: (min(both), max(both)))
times = st.one_of(st.integers(-(1 << 62), 1 << 62), st.sampled_from([LATEST, NO_TIME]))
intents = st.builds(
    BatchIntent,
    st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 9)), spans, min_size=1, max_size=4),
    st.frozensets(topics, max_size=3),
    numbers,
    st.dictionaries(st.text(max_size=3), st.frozensets(topics, max_size=3), max_size=2),
    st.dictionaries(topics, times, max_size=3),
    numbers,
)


@given(st.builds(BatchNote, st.builds(TaskId, numbers, numbers), st.integers(1, 1 << 62), st.none() | intents))
def test_a_note_is_read_as_it_was_written(note):
    assert read_batch(note_text(note.task, {"batch": note.as_json()})) == note


def test_both_parts_live_in_one_note():
    text = note_text(TASK, {"batch": BatchNote(TASK, 7, FULL).as_json(), "event_times": {"rows": [1, 2]}})
    assert read_batch(text) == BatchNote(TASK, 7, FULL)
    assert noted_times(text)["rows"].newest == 1
    assert note_text(TASK, {"batch": None, "event_times": {}}) == ""


@given(st.data())
def test_a_damaged_note_is_another_one_or_nothing(data):
    text = note_text(TASK, {"batch": BatchNote(TASK, 7, FULL).as_json()})
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    found = read_batch(text[:start] + data.draw(st.text(max_size=5)) + text[stop:])
    assert found is None or found.number > 0


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.sampled_from([*BatchNote(TASK, 7, FULL).as_json()]), anything)
def test_no_part_of_a_note_is_trouble(name, value):
    said = BatchNote(TASK, 7, FULL).as_json()
    found = read_batch(json.dumps({"batch": said | {name: value}}))
    assert found is None or found.intent is None or all(start <= stop for start, stop in found.intent.ranges.values())
    read_batch(json.dumps({"batch": value}))


@given(st.text())
def test_no_text_is_trouble(text):
    read_batch(text)


@pytest.mark.parametrize(
    "text", ["", "[" * 4000, "9" * 5000, '{"batch": 5}', '{"batch": {"task": "0_3", "number": true}}']
)
def test_what_others_have_noted_is_nothing(text):
    assert read_batch(text) is None


def test_the_newest_note_of_the_task_counts():
    texts = [note_text(id_, {"batch": BatchNote(id_, n).as_json()}) for id_, n in ((TASK, 4), (TASK, 6), (OTHER, 9))]
    assert newest_batch(TASK, ["", *texts, "x"]) == BatchNote(TASK, 6)
    assert newest_batch(TASK, []) is None


def test_a_note_that_no_broker_keeps_is_refused():
    many = BatchIntent({TopicPartition(f"a-topic-with-a-long-name-{n}", 0): (1 << 40, 1 << 41) for n in range(80)})
    with pytest.raises(StreamsException, match="task 0_3: the metadata of its commits takes .* split the part"):
        note_text(TASK, {"batch": BatchNote(TASK, 1, many).as_json()})
