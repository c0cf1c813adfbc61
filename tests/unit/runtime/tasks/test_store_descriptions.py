"""When changelogs are to say what their stores hold: near the end, and never lost to a cut."""

from sparkrelay.runtime.tasks.store_descriptions import StoreDescriptions
from sparkrelay.types import TopicPartition

COUNTS, USERS = TopicPartition("app-counts-changelog", 0), TopicPartition("app-users-changelog", 0)


def test_a_new_owner_says_it_with_its_first_batch_of_each_store():
    descriptions = StoreDescriptions()
    assert descriptions.due({COUNTS: 0, USERS: 7}, {}) == {COUNTS.topic, USERS.topic}
    descriptions.committed(COUNTS, 0)
    assert descriptions.due({COUNTS: 12, USERS: 7}, {}) == {USERS.topic}
    descriptions.committed(USERS, 7)
    assert descriptions.due({COUNTS: 24, USERS: 9}, {}) == frozenset()


def test_it_is_said_again_after_many_records():
    descriptions = StoreDescriptions()
    descriptions.committed(COUNTS, 100)
    assert descriptions.due({COUNTS: 50_100}, {}) == frozenset()
    assert descriptions.due({COUNTS: 50_101}, {}) == {COUNTS.topic}


def test_a_changelog_is_cut_no_further_than_where_it_was_said_last():
    descriptions = StoreDescriptions()
    assert descriptions.kept({COUNTS: 30}) == {COUNTS: 0}
    descriptions.committed(COUNTS, 10)
    assert descriptions.kept({COUNTS: 30}) == {COUNTS: 10}
    assert descriptions.due({COUNTS: 40}, {COUNTS: 30}) == {COUNTS.topic}
    descriptions.committed(COUNTS, 40)
    assert descriptions.kept({COUNTS: 30}) == {COUNTS: 30}
    assert descriptions.due({COUNTS: 50}, {COUNTS: 30}) == frozenset()
