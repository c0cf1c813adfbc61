"""Topics that are wanted, and who waits for them."""

from __future__ import annotations

import pytest

from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager
from sparkrelay.errors import AuthenticationException, DisconnectException


class Knowing:
    def __init__(self, driver, metadata, state):
        self.failures, self.metadata = [], metadata
        self.manager = TopicMetadataManager(metadata, max_age=300, state=state, fail=self.failures.append)
        self.driver = driver(self.manager)

    def answer(self, response=None, error=None):
        if response is not None:
            self.metadata.update(response, requested=self.driver.find("TopicsWanted").request.topics)
        return self.driver.answer("TopicsWanted", response, error).topics


@pytest.fixture
def knowing(driver, cluster, make_state):
    return Knowing(driver, cluster({}), make_state())


def test_wanted_topics_are_asked_for_and_refreshed(knowing, metadata_message):
    knowing.manager.want({"t"})
    assert knowing.driver.poll() == ["TopicsWanted"]
    assert knowing.answer(metadata_message({"t": 1})) == {"t"}
    assert knowing.driver.pass_time(299) == []
    assert knowing.driver.pass_time(1) == ["TopicsWanted"]


def test_absent_topics_are_looked_for_each_second(knowing, metadata_message):
    knowing.manager.want({"t"})
    knowing.driver.poll()
    knowing.answer(metadata_message({}))
    assert knowing.driver.pass_time(0.5) == []
    assert knowing.driver.pass_time(0.5) == ["TopicsWanted"]


def test_a_stale_leader_is_not_asked_for_all_the_time(knowing, metadata_message):
    knowing.manager.stale("t")
    knowing.driver.poll()
    knowing.answer(metadata_message({"t": 1}))
    knowing.manager.stale("t")
    assert knowing.driver.poll() == []
    assert knowing.driver.pass_time(0.1) == ["TopicsWanted"]


def test_whoever_asks_is_notified_when_it_is_there_also_after_failures(knowing, metadata_message):
    received = []
    knowing.manager.ask(frozenset({"x"}), lambda: received.append(1))
    knowing.driver.poll()
    knowing.answer(error=DisconnectException("gone"))
    assert received == []
    assert knowing.driver.pass_time(0.1) == ["TopicsWanted"]
    knowing.answer(metadata_message({"x": 1}))
    assert received == [1]


def test_a_question_is_not_answered_by_a_response_that_was_on_its_way(knowing, metadata_message):
    """A leader needs metadata that is fresh, so what was asked before does not count."""
    received = []
    knowing.manager.stale("t")
    knowing.driver.poll()
    knowing.manager.ask(frozenset({"t"}), lambda: received.append(1))
    knowing.answer(metadata_message({"t": 1}))
    assert received == []
    assert knowing.driver.poll() == ["TopicsWanted"]
    knowing.answer(metadata_message({"t": 1}))
    assert received == [1]


def test_a_refused_login_is_reported(knowing):
    knowing.manager.want({"t"})
    knowing.driver.poll()
    knowing.answer(error=AuthenticationException("no"))
    assert len(knowing.failures) == 1


def test_whoever_waits_for_metadata_gets_it_once_the_login_is_mended(knowing, metadata_message):
    """A leader that never gets its topics would never assign, and the group would wait for it."""
    received = []
    knowing.manager.ask(frozenset({"x"}), lambda: received.append(1))
    knowing.manager.stale("y")
    knowing.driver.poll()
    knowing.answer(error=AuthenticationException("no"))
    assert (received, len(knowing.failures)) == ([], 1)
    assert knowing.driver.poll() == []
    assert knowing.driver.pass_time(0.1) == ["TopicsWanted"]
    assert knowing.answer(metadata_message({"x": 1, "y": 1})) == {"x", "y"}
    assert received == [1]


def test_a_question_that_can_fail_does_so_at_once_and_poll_gets_nothing(knowing):
    received, refused = [], []
    knowing.manager.ask(frozenset({"x"}), lambda: received.append(1), refused.append)
    knowing.driver.poll()
    error = AuthenticationException("no")
    knowing.answer(error=error)
    assert (received, refused, knowing.failures) == ([], [error], [])
    assert knowing.driver.pass_time(100) == []
