"""What brokers are asked before a micro-batch is committed, without Spark and without a broker."""

import pytest
from tests.doubles.tasks import task_in

from sparkrelay.errors import StreamsException, TimeoutException
from sparkrelay.runtime.batch.commit_checks import CommitChecks
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId, TopicPartition

ORDERS, COUNTS = TopicPartition("orders", 0), TopicPartition("app-counts-changelog", 0)


def counting_task(changelog=COUNTS, known="old"):
    task = task_in(TaskState.RUNNING, TaskId(0, 0), (ORDERS,), {"counts": changelog}, "/state/0_0")
    task.positioned({ORDERS: 5}, {}, None, changelog_ids={changelog.topic: known} if known else {})
    return task


class Brokers:
    """Have all topics under one id, or none; write down what they are asked."""

    def __init__(self, id_=None):
        self.id, self.asked = id_, []

    def __call__(self, topics):
        self.asked.append(topics)
        return dict.fromkeys(topics, self.id) if self.id else {}


def test_the_ids_of_all_changelogs_are_asked_for_once():
    brokers = Brokers("old")
    CommitChecks("app", topic_ids=brokers).require([counting_task(), counting_task()], {})
    assert brokers.asked == [[COUNTS.topic]]


def test_a_changelog_that_was_created_again_is_refused():
    with pytest.raises(StreamsException, match=r"task 0_0: changelog 'app-counts-changelog' was deleted and created"):
        CommitChecks("app", topic_ids=Brokers("new")).require([counting_task()], {})


def test_a_changelog_that_is_missing_is_waited_for():
    with pytest.raises(TimeoutException, match="changelog 'app-counts-changelog' does not exist now"):
        CommitChecks("app", topic_ids=Brokers()).require([counting_task()], {})


@pytest.mark.parametrize(("by_name", "asked"), [(False, []), (True, [[COUNTS.topic]])])
def test_brokers_that_refuse_what_is_for_another_topic_are_asked_only_for_old_transactions(by_name, asked):
    """Produce requests of old transactions go by names."""
    brokers = Brokers("old")
    checks = CommitChecks("app", topic_ids=brokers, writes_by_id=lambda: True)
    checks.require([counting_task()], {}, by_name=by_name)
    assert brokers.asked == asked


@pytest.mark.parametrize(
    "task",
    [
        task_in(TaskState.RUNNING, TaskId(0, 0), (ORDERS,), positions={ORDERS: 5}),
        counting_task(ORDERS),
        counting_task(known=None),
    ],
    ids=["no state", "a table whose source topic is its changelog", "brokers before 2.8 give no ids"],
)
def test_nobody_is_asked_for_changelogs_whose_id_is_not_known(task):
    brokers = Brokers()
    CommitChecks("app", topic_ids=brokers).require([task], {})
    assert brokers.asked == []


def test_nobody_is_asked_for_new_partitions_where_there_is_no_state():
    class Unasked:
        def ask(self, counts):
            raise AssertionError(counts)

        def found(self, timeout):
            raise AssertionError(timeout)

    checks = CommitChecks("app", new_partitions=Unasked())
    checks.begin({})
    checks.require([], {})
