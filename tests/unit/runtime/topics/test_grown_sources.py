"""Which source topics decide how many partitions an internal topic has."""

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.runtime.topics.grown_sources import grown_source, sources_of
from sparkrelay.runtime.topics.topic_names import TopicNames

pytestmark = pytest.mark.usefixtures("spark")

NAMES = TopicNames("app")


def topology(partitions=None):
    """Two topics, one store by their key, and one behind a repartition topic."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=Json("city string"))
    orders.groupBy("user").count(name="users")
    orders.repartition("city", partitions=partitions, name="by-city").groupBy("city").count(name="cities")
    builder.stream("others", key=String("user"), value=Json("n int")).groupBy("user").count(name="others")
    return builder.build()


def test_the_topics_upstream_decide():
    for internal in ("app-users-changelog", "app-by-city-repartition", "app-cities-changelog"):
        assert sources_of(topology(), NAMES, internal) == {"orders"}
    assert sources_of(topology(), NAMES, "app-others-changelog") == {"others"}
    assert sources_of(topology(), NAMES, "nowhere") == frozenset()


def test_no_topic_decides_where_partitions_were_given():
    for internal in ("app-by-city-repartition", "app-cities-changelog"):
        assert sources_of(topology(partitions=4), NAMES, internal) == frozenset()
    assert sources_of(topology(partitions=4), NAMES, "app-users-changelog") == {"orders"}


def test_the_error_names_the_topics_and_the_ways_out():
    text = str(grown_source("app", {"orders": 2, "clicks": 2}, now=3))
    assert text.startswith("source topic 'clicks' has 3 partitions now, not 2, 'orders' has 3 partitions now, not")
    # The records of a key that moved are in two partitions: read again, they would be counted by two tasks.
    assert "put repartition(..., partitions=N) before the first step with state" in text
    assert "sparkrelay reset --application-id app ... (a reset alone gives a key whose partition changed two" in text
    assert "a new topic with 2 partitions" in text
