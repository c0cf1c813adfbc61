"""Rows in and out of a test's topics, in every format."""

import datetime as dt

import pytest

from sparkrelay import Integer, Json, Long, Raw, String
from sparkrelay.client.file_log import FileLog
from sparkrelay.testing import TestInputTopic, TestOutputTopic, TestRecord
from sparkrelay.testing.test_topics import TopicFiles
from sparkrelay.types import TopicPartition


@pytest.fixture
def topics(tmp_path):
    """`topics(key, value)` returns an input and an output that are one topic, with four partitions.

    With `ends`, a list, records are taken one by one, and the ends of the partitions are noted each time.
    """
    log = FileLog(tmp_path)

    def make(key, value, ends=None):
        def process():
            ends.append([log.end(TopicPartition("t", number)) for number in range(4)])

        files = TopicFiles(log, 4, process, lambda: 77, lambda: ends is None)
        return (
            TestInputTopic("t", key, value, files),
            TestOutputTopic("t", key, value, TopicFiles(log, 4, lambda: None)),
        )

    return make


@pytest.mark.parametrize(
    ("format_", "value"),
    [
        (Json(), {"a": 1, "b": [None, "x"]}),
        (String(), "zoë"),
        (Integer(), -3),
        (Long(), 1 << 40),
        (Raw(), b"\xff"),
        (None, b"\xff"),
        (Json(), None),
    ],
    ids=str,
)
def test_what_is_piped_in_is_read(topics, format_, value):
    into, out = topics(String(), format_)
    assert out.is_empty
    into.pipe_input("ada", value, 5)
    assert not out.is_empty
    (record,) = out.read_records()
    assert (record.key, record.value, record.timestamp) == ("ada", value, 5)
    assert out.is_empty
    assert out.read_rows() == []


def test_times_are_millis_or_have_a_zone_or_are_the_wall_clocks(topics):
    into, out = topics(String(), String())
    into.pipe_rows([("k", "a", dt.datetime(1970, 1, 1, 0, 0, 2, tzinfo=dt.UTC)), ("k", "b")])
    assert [record.timestamp for record in out.read_records()] == [2000, 77]
    with pytest.raises(TypeError, match="has no time zone"):
        into.pipe_input("k", "c", dt.datetime(1970, 1, 1))  # noqa: DTZ001 - that is the point


def test_keys_decide_the_partition_as_in_kafka(topics):
    into, out = topics(String(), String())
    into.pipe_rows([(f"user-{number}", "x") for number in range(20)])
    into.pipe_input(None, "no key")
    into.pipe_rows([("user-2", "by hand", None, 3)])
    into.pipe_input("user-1", "by hand", partition=3)
    found = out.read_records()
    by_key = {record.key: record.partition for record in found if record.value == "x"}
    assert set(by_key.values()) == {0, 1, 2, 3}
    assert TestRecord(None, "no key", 77, 0) in found
    assert TestRecord("user-1", "by hand", 77, 3) in found
    assert TestRecord("user-2", "by hand", 77, 3) in found


@pytest.mark.parametrize("one_by_one", [True, False])
def test_rows_stay_in_their_order(topics, one_by_one):
    ends = [] if one_by_one else None
    into, out = topics(String(), Integer(), ends)
    into.pipe_rows((f"user-{number % 7}", number) for number in range(50))
    into.pipe_rows([])
    assert ends is None or [sum(taken) for taken in ends] == list(range(1, 51))
    found = out.read_records()
    for number in range(7):
        assert [row.value for row in found if row.key == f"user-{number}"] == list(range(number, 50, 7))


def test_what_a_format_has_no_bytes_for_is_refused(topics):
    into, _ = topics(Integer(), Json())
    with pytest.raises(TypeError, match=r"'ada' cannot be written as Integer"):
        into.pipe_input("ada", {})
    with pytest.raises(TypeError, match="cannot be written as Integer"):
        into.pipe_input(1 << 40, {})
    into.pipe_input(b"not four bytes", b"not json")
