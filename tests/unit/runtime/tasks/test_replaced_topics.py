"""Changelogs that were deleted and created again, when only the group's commits know it."""

from tests.doubles.tasks import task_of

from sparkrelay.runtime.contract.commit_notes import CHANGELOGS, note_text
from sparkrelay.runtime.tasks.replaced_topics import lost_changelogs, lost_state, replaced_changelog
from sparkrelay.types import TaskId, TopicPartition

TASK = TaskId(0, 0)
ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)
USERS = TopicPartition("app-users-changelog", 0)
STORES = {"users": USERS}
NOW = {USERS.topic: "new"}


def note(**ids):
    return note_text(TASK, {CHANGELOGS: ids})


def test_a_changelog_with_another_id_than_the_commits_name_is_lost():
    assert lost_changelogs(STORES, {ORDERS: note(users="old")}, NOW) == {"users": {"orders"}}
    assert lost_changelogs(STORES, {ORDERS: note(users="old"), CLICKS: note(users="older")}, NOW) == {
        "users": {"orders", "clicks"}
    }


def test_a_changelog_that_a_commit_names_is_not_lost_whatever_older_notes_say():
    assert lost_changelogs(STORES, {ORDERS: note(users="new")}, NOW) == {}
    assert lost_changelogs(STORES, {ORDERS: note(users="old"), CLICKS: note(users="new")}, NOW) == {}


def test_without_a_note_of_the_store_nothing_is_known_to_be_lost():
    """A fresh application, offsets that an operator has set, a new store, a commit of an older release."""
    for notes in ({}, {ORDERS: ""}, {ORDERS: note(shops="old")}, {ORDERS: '{"set_by_hand":"x"}'}):
        assert lost_changelogs(STORES, notes, NOW) == {}
    assert lost_changelogs(STORES, {ORDERS: note(users="old")}, {}) == {}, "brokers before 2.8 give topics no ids"


def test_the_error_names_the_store_and_both_ways_out():
    text = str(lost_state("app", TASK, {"users": frozenset({"orders", "clicks"})}, STORES))
    assert text.startswith("task 0_0: the changelog of store 'users' ('app-users-changelog') was deleted and created")
    assert "sparkrelay reset --application-id app ..." in text
    removal = text.index("first remove the local state of this task on other hosts")
    for topic in ("orders", "clicks"):
        assert text.index(f"sparkrelay offsets set --application-id app --topic {topic} --to current ...") > removal


def test_the_error_of_a_changelog_that_was_replaced_while_the_task_ran_names_the_state_and_both_ways_out():
    text = str(replaced_changelog("app", task_of(TASK, (ORDERS, CLICKS), STORES, "/state/app/0/0_0"), {USERS.topic}))
    assert text.startswith("task 0_0: changelog 'app-users-changelog' was deleted and created again while")
    assert "sparkrelay reset --application-id app ..." in text
    removal = text.index("first remove /state/app/0/0_0,")
    for topic in ("orders", "clicks"):
        assert text.index(f"sparkrelay offsets set --application-id app --topic {topic} --to current ...") > removal
