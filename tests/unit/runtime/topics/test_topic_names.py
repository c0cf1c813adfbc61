"""What is said of an internal topic that is missing."""

import pytest

from sparkrelay.errors import TimeoutException, UnknownTopicException
from sparkrelay.runtime.topics.topic_names import TopicNames

NAMES = TopicNames("shop")


@pytest.mark.parametrize(
    ("topic", "what"),
    [
        ("shop-revenue-by-country-changelog", "is the changelog of store 'revenue-by-country', which the application"),
        ("shop-orders-user-repartition", "is a repartition topic, which the application creates itself"),
    ],
)
def test_a_missing_internal_topic_is_named_as_such(topic, what):
    error = UnknownTopicException(f"{topic}-0, {topic}-1 did not exist within 5 s; was the topic created?")
    text = NAMES.explain(error)
    assert text.startswith(f"{error} {topic!r} {what}")
    assert "Stop all instances" in text
    assert "sparkrelay reset --application-id shop ..." in text
    assert ("remove the local state of its tasks on each host; then" in text) == topic.endswith("-changelog")
    assert ("sparkrelay offsets set --application-id shop" in text) == topic.endswith("-changelog")


@pytest.mark.parametrize(
    "error",
    [
        UnknownTopicException("orders-0 did not exist within 5 s"),
        UnknownTopicException("web-revenue-changelog-0 did not exist within 5 s"),
        TimeoutException("shop-revenue-changelog-0 has no leader"),
    ],
)
def test_other_errors_are_left_alone(error):
    assert NAMES.explain(error) == str(error)
