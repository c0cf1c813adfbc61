"""With which batches a task has its changelogs say what they hold."""

from tests.doubles.tasks import LENT, initialize, serve, task_of

from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.types import TaskId, TopicPartition

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)
COUNTS, NAMES = TopicPartition("app-counts-changelog", 0), TopicPartition("app-names-changelog", 0)
CHANGELOGS = {"counts": COUNTS, "names": NAMES, "users": USERS}


def running(**more):
    task = task_of(TaskId(0, 0), (ORDERS, USERS), CHANGELOGS, "/nowhere", frozenset({"orders", "users"}), **more)
    serve(task, {ORDERS: 0, USERS: 0})
    return task


def batch(task, ends, *states, commits=True):
    """Run a batch of one more order; return which changelogs it had describe their stores."""
    start = task.position.offsets[ORDERS]
    ranges = task.next_ranges(task.position.offsets, {ORDERS: start + 1, USERS: 0, **ends}, 100, 0.0)
    task.batch_begun(ranges)
    asked = task.command(LENT, {}).describe
    if commits:
        task.batch_committed([StateReport(store, 1) for store in states])
    else:
        task.batch_aborted()
    return asked


def test_each_store_is_described_with_the_first_batch_that_changes_it_and_is_committed():
    task = running()
    both = {COUNTS.topic, NAMES.topic}
    # The table of users has its topic for a changelog: what stands there is the user's.
    assert batch(task, {COUNTS: 0, NAMES: 0}, "counts", commits=False) == both
    assert batch(task, {COUNTS: 0, NAMES: 0}, "counts") == both
    assert batch(task, {COUNTS: 3, NAMES: 0}, "counts", "names") == {NAMES.topic}
    assert batch(task, {COUNTS: 6, NAMES: 3}, "counts", "names") == frozenset()


def test_a_new_owner_says_it_again():
    task = running()
    batch(task, {COUNTS: 0, NAMES: 0}, "counts", "names")
    task.fell_out()
    initialize(task, {COUNTS: 9, NAMES: 9})
    serve(task, {ORDERS: 1, USERS: 0})
    assert batch(task, {COUNTS: 9, NAMES: 9}, "counts", "names") == {COUNTS.topic, NAMES.topic}


def test_what_is_to_be_cut_is_said_again_first():
    task = running(cut=frozenset({"counts"}))

    def run(end, expired, last_end):
        ranges = task.next_ranges(
            task.position.offsets,
            {ORDERS: task.position.offsets[ORDERS] + 1, USERS: 0, COUNTS: end, NAMES: 0},
            100,
            0.0,
        )
        task.batch_begun(ranges)
        asked = COUNTS.topic in task.command(LENT, {}).describe
        task.batch_committed([StateReport("counts", 1, expired=expired, last_end=last_end)])
        return asked, task.descriptions.kept(task.cuts.before).get(COUNTS, 0)

    assert run(0, expired=0, last_end=10) == (True, 0)
    assert run(10, expired=5, last_end=10) == (False, 0)
    # The window is over: what stands before 10 may go, but not the description in front of it.
    assert run(20, expired=10, last_end=20) == (False, 0)
    assert run(30, expired=11, last_end=20) == (True, 10)
