"""Positions belong to a topic id: those in a topic that was deleted and created again count for nothing."""

import pyarrow as pa
import pytest

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.state.changelog import Marker, decode_marker, encode_marker
from sparkrelay.state.header import TaskHeader, replaced_topics
from sparkrelay.types import TopicPartition

INPUT, USERS = TopicPartition("input", 0), TopicPartition("users", 0)
CHANGELOG, OTHER = TopicPartition("s-changelog", 0), TopicPartition("r-changelog", 0)
OLD, NEW = {"input": "old"}, {"input": "new"}


@pytest.mark.parametrize(
    ("known", "now", "replaced"),
    [(OLD, NEW, {"input"}), (OLD, OLD, set()), ({}, NEW, set()), (OLD, {}, set()), (OLD, {"users": "new"}, set())],
)
def test_what_is_not_known_is_not_replaced(known, now, replaced):
    assert replaced_topics(known, now) == replaced


def test_a_marker_names_topics_after_all_that_older_releases_read():
    marker = Marker(5, {INPUT: 9}, "c", 9, 4, {"t": 8})
    named = Marker(5, {INPUT: 9}, "c", 9, 4, {"t": 8}, OLD)
    value, longer = encode_marker(marker)[1], encode_marker(named)[1]
    assert longer.startswith(value)
    assert (decode_marker(value), decode_marker(longer)) == (marker, named)
    with pytest.raises(StoreCorruptedException, match="in the middle of a field"):
        decode_marker(longer[:-1])


def marked(number, at, topics, changelog=CHANGELOG, users=0):
    """Return what a store restores from a changelog with one marker."""
    none = pa.array([], pa.binary())
    return changelog.topic[0], changelog, none, none, number, Marker(number, {INPUT: at, USERS: users}, topics=topics)


def test_a_restore_keeps_the_ids_that_positions_belong_to(store):
    store.restore(*marked(7, 70, OLD))
    assert (store.header.positions, store.header.topics) == ({INPUT: 70, USERS: 0}, OLD)


def test_a_position_goes_back_to_that_in_the_new_topic(store):
    store.restore(*marked(7, 70, OLD, users=5))
    store.restore(*marked(8, 3, NEW, users=4))
    assert (store.header.positions, store.header.topics) == ({INPUT: 3, USERS: 5}, NEW)


def test_of_two_changelogs_the_one_with_the_newer_batch_says_which_topic_it_is(store):
    """Its own batches have ended while the other store did not change."""
    store.restore(*marked(8, 3, NEW))
    store.restore(*marked(7, 70, OLD, OTHER, users=6))
    assert (store.header.positions, store.header.topics) == ({INPUT: 3, USERS: 6}, NEW)


def test_markers_of_older_releases_say_nothing_of_topics(store):
    store.restore(*marked(7, 70, {}))
    store.restore(*marked(8, 80, OLD))
    store.restore(*marked(9, 90, {}))
    assert (store.header.positions[INPUT], store.header.topics) == (90, OLD)


def test_a_batch_of_a_new_topic_replaces_the_position(driver):
    driver.apply({b"a": b"1"}, topics=OLD)
    driver.store.commit_known(1, {})
    assert (driver.store.header.positions, driver.store.header.topics) == ({INPUT: 10}, OLD)
    driver.position = 0
    driver.apply({b"a": b"2"}, topics=NEW, skipped={INPUT: 10})
    driver.store.commit_known(2, {})
    assert (driver.store.header.positions, driver.store.header.topics) == ({INPUT: 10}, NEW)


def test_a_first_batch_of_a_new_topic_that_is_taken_back_leaves_no_position(driver):
    """What the group's offset says counts then: it is not taken for one of the old topic."""
    driver.apply({b"a": b"1"}, topics=OLD)
    driver.store.commit_known(1, {})
    driver.position = 3
    driver.apply({b"a": b"2"}, topics=NEW, skipped={INPUT: 10}, commit=False)
    driver.store.take_over(2)
    assert (driver.store.header.positions, driver.store.header.topics) == ({}, NEW)


def test_the_ids_of_sources_stay_where_a_store_is_removed(store):
    store.restore(*marked(7, 70, OLD))
    store.restore(*marked(7, 70, OLD, OTHER))
    store.claim("app", {CHANGELOG.topic: "1", OTHER.topic: "2"})
    assert store.keep_only({"s": CHANGELOG}) == [OTHER]
    assert store.header.topics == {**OLD, CHANGELOG.topic: "1"}


def test_headers_keep_them():
    header = TaskHeader(positions={INPUT: 3}, topics=NEW)
    assert TaskHeader.decode(header.encode(), "it") == header
