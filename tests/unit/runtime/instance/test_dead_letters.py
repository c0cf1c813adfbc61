"""What letters say of where they come from is somebody's text."""

import pytest

from sparkrelay.runtime.instance.dead_letters import _letter
from sparkrelay.types import TopicPartition

AT = TopicPartition("letters", 0)


def letter(*headers):
    given = [{"key": name, "value": value} for name, value in headers] or None
    return _letter(AT, 5, {"key": b"k", "value": None, "offset": 9, "headers": given})


def said(topic=b"orders", partition=b"3", offset=b"41"):
    given = {"topic": topic, "partition": partition, "offset": offset}
    return [(f"__streams.errors.{name}", value) for name, value in given.items()]


def test_a_letter_has_its_own_headers_and_what_went_wrong():
    found = letter(("id", b"1"), *said(), ("__streams.errors.exception", b"E"), ("__streams.errors.message", b"\xff"))
    assert (found.source, found.source_offset, found.headers) == (TopicPartition("orders", 3), 41, (("id", b"1"),))
    assert (found.exception, found.message, found.replayable) == ("E", "\ufffd", True)


def test_of_a_letter_that_was_left_out_again_the_last_words_count():
    assert letter(*said(), *said(b"other", b"0", b"1")).source == TopicPartition("other", 0)


@pytest.mark.parametrize("number", [b"-1", b"1e3", "٣".encode(), b"9" * 40, b"", None, b" 1", b"1_0"])
def test_a_number_that_is_none_leads_nowhere(number):
    assert letter(*said(partition=number)).source is None
    assert not letter(*said(partition=number)).replayable


@pytest.mark.parametrize(
    "topic", [b"", b".", b"..", b"a b", b"a\n", b"\xff", "\u00fc".encode(), b"x" * 250, b"y" * 40_000]
)
def test_what_is_no_name_of_a_topic_is_not_asked_for(topic):
    """The broker would close the connection at a name of many kilobytes, and no later letter went back."""
    assert not letter(*said(topic)).replayable
    assert letter(*said(b"x" * 249)).replayable


def test_what_is_no_letter_stays():
    assert not letter().replayable


@pytest.mark.parametrize(
    "topic", [b"app-by-user-repartition", b"app-counts-changelog", b"__consumer_offsets", b"__transaction_state"]
)
def test_nothing_is_written_to_internal_topics_whatever_a_letter_says(topic):
    """A forged record in a changelog would be state."""
    assert not letter(*said(topic)).replayable
