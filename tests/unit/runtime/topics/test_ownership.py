"""Whose a topic is whose name fits two applications."""

import pytest

from sparkrelay.runtime.topics.ownership import doubtful_topics


def doubtful(*topics, groups=(), proven=()):
    return doubtful_topics("orders", topics, groups=groups, proven=proven)


def test_a_name_that_can_be_read_one_way_is_ours():
    assert not doubtful("orders-users-changelog", "orders-users-repartition", groups=["orders-eu", "other"])


def test_a_neighbour_whose_group_is_forgotten():
    topic = "orders-eu-users-changelog"
    assert doubtful(topic) == {topic: "or of an application orders-eu"}
    assert doubtful("orders-by-city-day-changelog") == {
        "orders-by-city-day-changelog": "or of an application orders-by-city"
    }


def test_a_neighbour_whose_group_is_there():
    assert doubtful("orders-eu-users-changelog", groups=["orders-e", "orders-eu"]) == {
        "orders-eu-users-changelog": "group orders-eu"
    }
    # Whatever else is known: both lay claim to it.
    both = doubtful("orders-eu-changelog", groups=["orders-eu"], proven=["orders-eu-changelog"])
    assert both == {"orders-eu-changelog": "group orders-eu"}


@pytest.mark.parametrize("proof", ["orders-by-city-changelog", "orders-by-city-repartition"])
def test_what_is_proven_speaks_for_both_topics_of_a_store(proof):
    found = doubtful(
        "orders-by-city-changelog", "orders-by-city-repartition", "orders-by-day-changelog", proven=[proof]
    )
    assert found == {"orders-by-day-changelog": "or of an application orders-by"}
