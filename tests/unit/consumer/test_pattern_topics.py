"""What `subscribe` takes for names, and what for patterns."""

from __future__ import annotations

import re

import pytest

from sparkrelay.consumer.pattern_topics import topics_or_pattern
from sparkrelay.errors import ConfigException


@pytest.mark.parametrize(
    ("given", "names"), [("t", {"t"}), (["a", "b", "a"], {"a", "b"}), ([], set()), (iter(["a.b"]), {"a.b"})]
)
def test_names(given, names):
    assert topics_or_pattern(given) == (names, None)


@pytest.mark.parametrize(
    ("given", "matching", "others"),
    [
        (re.compile("t.*"), ["t", "t1"], ["at"]),
        ("^t", ["t", "t1"], ["at"]),
        (["^t$"], ["t"], ["t1", "at"]),
        (["^a|b"], ["a", "ax", "b"], ["c"]),
        (["^t", "x.y", "^z$"], ["t1", "x.y", "z"], ["x-y", "x.yy", "z1"]),
    ],
)
def test_patterns_need_not_match_to_the_end_in_librdkafkas_form(given, matching, others):
    names, pattern = topics_or_pattern(given)
    assert names == set()
    assert all(pattern.fullmatch(topic) for topic in matching)
    assert not any(pattern.fullmatch(topic) for topic in others)


def test_what_is_no_pattern_is_named():
    with pytest.raises(ConfigException, match=r"\^\(.*regular expression"):
        topics_or_pattern(["^("])
