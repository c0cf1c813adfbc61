"""The header of a task's store: its bytes, and what damage is refused."""

import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.state.header import JournalEntry, TaskHeader
from sparkrelay.state.lmdb.running_sum import RunningSum
from sparkrelay.state.window_keys import NO_TIME
from sparkrelay.types import TopicPartition

INPUT = TopicPartition("input", 0)
CHANGELOG = TopicPartition("s-changelog", 0)


def test_the_header_keeps_everything():
    ranges = {INPUT: (70, 80), TopicPartition("ü", 2): (-1, 0)}
    entry = JournalEntry(
        3, "leg", 8, 2, "s", "counts", ranges, 5, 1, -6, 7, 1 << 62, -4, -8, {"a": 3, "b": -7}, frozenset("bc")
    )
    header = TaskHeader(
        1 << 60,
        7,
        {INPUT: 70},
        {CHANGELOG: 9},
        "boot",
        True,
        (entry,),
        4,
        "app",
        {"s": "count(*)"},
        {"c": "Qx"},
        {"s": -5},
        {"s": -9},
        {"s": {"a": 2}, "t": {}},
        {"s": RunningSum(3, (1 << 64) - 1, b"\xff" * 511, 5), "t": RunningSum()},
        "instance",
        frozenset("st"),
    )
    assert TaskHeader.decode(header.encode(), "it") == header
    assert (header.watermark("s"), header.expired_by("s"), header.expired_by("t")) == (-5, -8, NO_TIME)
    assert (header.sources_of("s"), header.sources_of("s", 7), header.sources_of("u")) == (entry.sources, {"a": 2}, {})


@pytest.mark.parametrize("sources", [{"t" * 250: 1}, {"": 1}, {f"t{number}": 1 for number in range(1001)}])
def test_a_header_that_names_what_are_no_topics_is_damaged(sources):
    for header in (TaskHeader(sources={"s": sources}), TaskHeader(journals=(entry_of(sources=sources),))):
        with pytest.raises(StoreCorruptedException, match=r"^it names \d+ topics, at most 1000 are possible"):
            TaskHeader.decode(header.encode(), "it")


def entry_of(**more):
    return JournalEntry(3, "leg", 8, 1, "s", "c", {}, 0, **more)


@pytest.mark.parametrize("where", ["header", "journal"])
def test_a_header_by_which_live_windows_would_be_removed_is_damaged(where):
    entry = entry_of(watermark=7, expired=7 + (where == "journal"))
    header = TaskHeader(journals=(entry,), watermarks={"s": 6}, expired={"s": 6 + (where == "header")})
    with pytest.raises(StoreCorruptedException, match=r"^it holds (7 where 6|8 where 7) is the most: it is damaged"):
        TaskHeader.decode(header.encode(), "it")


def test_the_header_has_the_documented_bytes():
    positions = {TopicPartition("t", 3): 4}
    words = {
        "contents": {"s": "c"},
        "topics": {"t": "i"},
        "watermarks": {"s": 8},
        "expired": {"s": 3},
        "sources": {"s": {"t": 2}},
        "sums": {"s": RunningSum(5, 6, b"k", 7)},
        "instance": "i",
        "suspect": frozenset("s"),
    }
    header = TaskHeader(1, 2, positions, boot_id="b", clean=True, application="a", **words)
    assert header.encode().hex(" ") == (
        "07 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 01 00 62 01 "
        "01 00 00 00 01 00 74 03 00 00 00 04 00 00 00 00 00 00 00 00 00 00 00 "
        "01 00 61 01 00 00 00 01 00 73 01 00 63 01 00 00 00 01 00 74 01 00 69 "
        "01 00 00 00 01 00 73 08 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 "
        "01 00 00 00 01 00 73 01 00 00 00 01 00 74 02 00 00 00 00 00 00 00 "
        "01 00 00 00 01 00 73 05 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00 01 00 6b 07 00 00 00 00 00 00 00 "
        "01 00 69 01 00 00 00 01 00 73 00 00 00 00 00 00 00 00"
    )


@settings(max_examples=50)
@given(cut=st.integers(0, 60), version=st.sampled_from([1, 2, 3, 4, 5, 6, 7]))
def test_a_damaged_header_is_named(cut, version):
    data = TaskHeader(1, 2, {INPUT: 4}, {CHANGELOG: 5}, "boot").encode()
    cut = min(cut, len(data) - 1)
    damaged = bytes([version]) + data[1:cut] if cut else b""
    with pytest.raises(StoreCorruptedException, match=r"^it "):
        TaskHeader.decode(damaged, "it")
