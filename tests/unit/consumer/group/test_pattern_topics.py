"""Patterns: what `subscribe` takes for one, which topics it stands for, and when that changes."""

from __future__ import annotations

import re

import pytest

from sparkrelay.client.backoff import Backoff
from sparkrelay.consumer.base.requests import RequestState
from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager
from sparkrelay.consumer.group.pattern_topics import PatternTopics, pattern_for_broker, topics_or_pattern
from sparkrelay.errors import ConfigException


class Watching:
    def __init__(self, metadata, driver, metadata_message):
        self.metadata, self.message = metadata, metadata_message
        self.topics = TopicMetadataManager(
            metadata, max_age=60.0, state=RequestState(Backoff(0.1, 1.0, jitter=0.0)), fail=lambda error: None
        )
        self.patterns = PatternTopics(metadata, self.topics)
        self.driver = driver(self.topics)

    def know(self, *names, internal=()):
        message = self.message(dict.fromkeys((*names, *internal), 1))
        for topic in message.topics:
            topic.is_internal = topic.name in internal
        unsent = self.driver.waiting[0]
        self.metadata.update(message, requested=unsent.request.topics)
        self.driver.answer("TopicsWanted")
        return unsent.request


@pytest.fixture
def watching(cluster, driver, metadata_message):
    return Watching(cluster({}), driver, metadata_message)


def test_whole_names_match_and_internal_topics_never(watching):
    watching.patterns.watch(re.compile("a.|__.*"))
    assert watching.patterns.changed() is None
    assert watching.driver.poll() == ["TopicsWanted"]
    assert watching.know("a1", "a22", "ba1", "__mine", internal=["__consumer_offsets"]).topics is None
    assert watching.patterns.changed() == {"a1", "__mine"}
    assert watching.patterns.changed() is None


def test_nothing_is_said_before_all_topics_are_known(watching):
    watching.topics.ask(frozenset(["a1"]), lambda: None)
    watching.driver.poll()
    watching.patterns.watch(re.compile("a."))
    watching.know("a1")
    assert watching.patterns.changed() is None
    watching.driver.pass_time(0.1)
    watching.know("a1", "a2")
    assert watching.patterns.changed() == {"a1", "a2"}


def test_topics_that_come_and_go_are_seen_when_metadata_is_old(watching):
    watching.patterns.watch(re.compile("a."))
    watching.driver.poll()
    watching.know("b")
    assert watching.patterns.changed() == set()
    assert watching.driver.pass_time(59) == []
    assert watching.driver.pass_time(1) == ["TopicsWanted"]
    assert watching.know("a1").topics is None
    assert watching.patterns.changed() == {"a1"}
    watching.driver.pass_time(60)
    watching.know("a1")
    assert watching.patterns.changed() is None


def test_without_a_pattern_only_what_is_wanted_is_asked_for(watching):
    watching.patterns.watch(re.compile("a."))
    watching.driver.poll()
    watching.patterns.watch(None)
    assert not watching.patterns.watching
    watching.know("a1")
    assert watching.patterns.changed() is None
    assert watching.driver.pass_time(1000) == []


def test_another_pattern_looks_anew(watching):
    watching.patterns.watch(re.compile("a."))
    watching.driver.poll()
    watching.patterns.watch(re.compile("b."))
    watching.know("a1", "b1")
    assert watching.patterns.changed() is None  # that was asked for the other one
    watching.driver.pass_time(0.1)
    watching.know("a1", "b1")
    assert watching.patterns.changed() == {"b1"}


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


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (0, "a.|b"),
        (re.IGNORECASE, "(?i:a.|b)"),
        (re.IGNORECASE | re.MULTILINE | re.DOTALL, "(?ims:a.|b)"),
        (re.ASCII, "a.|b"),  # so are the names of topics
    ],
)
def test_the_broker_gets_a_patterns_flags(flags, expected):
    assert pattern_for_broker(re.compile("a.|b", flags)) == expected


def test_a_flag_that_the_broker_does_not_have_is_refused():
    with pytest.raises(ConfigException, match=r"'a \| b'.*re\.VERBOSE.*group\.protocol='classic'"):
        pattern_for_broker(re.compile("a | b", re.VERBOSE))


def test_a_pattern_of_bytes_is_refused():
    with pytest.raises(ConfigException, match=r"b'a\.'.*write the pattern as text"):
        topics_or_pattern(re.compile(b"a."))
