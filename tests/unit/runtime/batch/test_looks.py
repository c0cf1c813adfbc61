"""Which tasks are looked at for input."""

import math
from types import SimpleNamespace

import pytest

from sparkrelay.client.new_records import News
from sparkrelay.runtime.batch.looks import Looks
from sparkrelay.types import TaskId, TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))
CHANGELOG = TopicPartition("app-counts-changelog", 0)


def made(number, *, at=0, due_ms=None, silent=False, inputs=None, cut=frozenset()):
    """Return what a look asks of a task."""
    inputs = inputs or (TopicPartition("orders", number),)
    return SimpleNamespace(
        id=TaskId(0, number),
        inputs=inputs,
        position=SimpleNamespace(offsets=dict.fromkeys(inputs, at)),
        times=SimpleNamespace(
            due_times=SimpleNamespace(next_ms=math.inf if due_ms is None else due_ms), depend_on_silence=silent
        ),
        changelogs={"counts": CHANGELOG},
        shape=SimpleNamespace(cut=cut, clocked={} if due_ms is None else {"timers": frozenset({"orders"})}),
    )


def at_rest(*tasks, asks_writers=False):
    """Return looks that have found all of the tasks without input, at second 0."""
    looks = Looks()
    looks.asks_writers = asks_writers
    looks.reset(tasks)
    assert looks.with_news(0.0) is None, "nothing is known at first"
    looks.on_all_checked(0.0)
    looks.on_planned(tasks, {p: offset for task in tasks for p, offset in task.position.offsets.items()}, {})
    return looks


def test_only_what_brokers_name_is_looked_at():
    one, other = made(0, at=5), made(1)
    looks = at_rest(one, other)
    assert looks.seconds_to_wait(1.0, 0.0) == 59.0
    looks.on_news(News({A: 9}))
    assert looks.seconds_to_wait(1.0, 0.0) == 0.0
    assert looks.with_news(1.0) == ([one], {A: 9})
    looks.on_planned([one], {A: 9}, {one.id: (one, {A: (5, 9)})})
    assert looks.seconds_to_wait(1.0, 0.0) == 59.0
    assert looks.with_news(1.0) is None


def test_a_task_with_several_inputs_is_looked_at_once():
    both = made(0, inputs=(A, B))
    looks = at_rest(both)
    looks.on_news(News({A: 1, B: 1, C: 1}))
    assert looks.with_news(1.0) == ([both], {A: 1, B: 1, C: 1}), "one that is nobody's is passed over"


@pytest.mark.parametrize("ranges", [{}, {A: (0, 4)}], ids=["nothing taken", "a part taken"])
def test_what_is_left_has_all_looked_at(ranges):
    one, other = made(0), made(1)
    looks = at_rest(one, other)
    looks.on_news(News({A: 9}))
    looks.on_planned([one], {A: 9}, {one.id: (one, ranges)} if ranges else {})
    assert looks.seconds_to_wait(1.0, 0.0) == 0.0
    assert looks.with_news(1.0) is None


def test_news_do_not_hide_what_was_left_before():
    """No batch has begun since: its tasks were paused, say."""
    one, other = made(0), made(1)
    looks = at_rest(one, other)
    looks.on_planned([one, other], {A: 9, B: 0}, {})
    looks.on_news(News({B: 3}))
    assert looks.with_news(1.0) is None


@pytest.mark.parametrize("news", [News(trouble=True), News({A: 9}, trouble=True)])
def test_trouble_has_all_looked_at(news):
    looks = at_rest(made(0), made(1))
    looks.on_news(news)
    assert looks.seconds_to_wait(1.0, 0.0) == 0.0
    assert looks.with_news(1.0) is None


def test_no_news_change_nothing():
    looks = at_rest(made(0))
    looks.on_news(News())
    assert looks.seconds_to_wait(1.0, 0.0) == 59.0


def test_all_are_looked_at_now_and_then():
    looks = at_rest(made(0))
    assert looks.seconds_to_wait(60.0, 0.0) == 0.0
    looks.on_news(News({A: 9}))
    assert looks.with_news(59.9) is not None
    assert looks.with_news(60.0) is None


def test_tasks_that_come_are_looked_at():
    one, other = made(0), made(1)
    looks = at_rest(one)
    looks.reset([one, other])
    assert looks.seconds_to_wait(1.0, 0.0) == 0.0
    assert looks.with_news(1.0) is None


@pytest.mark.parametrize(
    "looks",
    [at_rest(made(0), made(1, silent=True)), at_rest(made(0), made(1), asks_writers=True)],
    ids=["silence counts", "writers count"],
)
def test_all_are_always_looked_at_where_it_counts_that_nothing_comes(looks):
    assert looks.seconds_to_wait(1.0, 0.0) == 0.0
    looks.on_news(News({A: 9}))
    assert looks.with_news(1.0) is None


def test_a_task_that_is_due_by_the_clock_has_all_looked_at():
    looks = at_rest(made(0), made(1, due_ms=2_500))
    assert looks.next_due_ms == 2_500
    assert looks.seconds_to_wait(1.0, 1_000.0) == 1.5
    assert looks.seconds_to_wait(2.5, 2_500.0) == 0.0
    looks.on_news(News({A: 9}))
    assert looks.with_news(1.0) is None


def test_changelogs_are_listed_once_a_second():
    one = made(0)
    looks = at_rest(one)
    assert [looks.changelogs_due([one], now) for now in (1.0, 1.9, 2.0)] == [[CHANGELOG], [], [CHANGELOG]]
    looks.reset([one])
    assert looks.changelogs_due([one], 2.1) == [CHANGELOG], "a new owner does not know"


def test_changelogs_that_are_cut_are_always_listed():
    one = made(0, cut=frozenset({"counts"}))
    assert [at_rest(one).changelogs_due([one], now) for now in (1.0, 1.1)] == [[CHANGELOG], [CHANGELOG]]
