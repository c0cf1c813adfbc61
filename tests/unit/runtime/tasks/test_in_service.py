"""Tasks change hands between two threads: each belongs to one of them at any time, and nobody waits for strangers."""

import random
import threading
import time

import pytest
from tests.doubles.tasks import task_of
from tests.waiting import AVOIDED, LONG, within

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.runtime.tasks.in_service import InService
from sparkrelay.types import TaskId

A, B, C = (TaskId(0, n) for n in range(3))


def task(id_):
    return task_of(id_=id_, inputs=(), changelogs={}, directory=None)


@pytest.fixture
def service():
    service = InService()
    service.put([task(A), task(B)])
    yield service
    service.end()


def test_all_are_looked_at_and_some_begin(service):
    assert [one.id for one in service.look()] == [A, B]
    assert service.begin([A]) == {A}
    assert service.withdraw([B], timeout=0) == frozenset()
    assert service.withdraw([A], timeout=0) == {A}
    service.done({})
    assert service.withdraw([A], timeout=0) == frozenset()


@pytest.mark.parametrize("comes_again", [False, True])
def test_who_left_during_the_look_does_not_begin(service, comes_again):
    """Nobody waits for a look, which may itself wait for a silent broker; what it found is of no use any more."""
    service.look()
    assert service.withdraw([A], timeout=0) == frozenset()
    if comes_again:
        service.put([task(A)])
    assert service.begin([A, B]) == {B}
    assert service.withdraw([A], timeout=0) == frozenset()


def test_withdrawing_waits_for_the_batch_and_no_longer(service):
    service.look()
    service.begin([A, B])
    left = []
    waiting = threading.Thread(target=lambda: left.append(service.withdraw([A], timeout=LONG)))
    waiting.start()
    service.done({})
    waiting.join(LONG)
    assert left == [frozenset()]
    assert [one.id for one in service.look()] == [B]


def test_what_falls_out_is_reported_once_and_not_looked_at_again(service):
    service.look()
    reason = ValueError("fenced")
    service.done({A: reason})
    assert [(one.id, why) for one, why in service.take_fallen_out()] == [(A, reason)]
    assert service.take_fallen_out() == []
    assert [one.id for one in service.look()] == [B]


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_withdrawn_is_not_opened_again(service, when):
    service.look()
    if when == "before":
        service.withdraw([A], timeout=0)
    service.done({A: ValueError("fenced")})
    service.withdraw([A], timeout=0)
    assert service.take_fallen_out() == []


def test_a_rest_ends_when_there_is_something_to_do(service):
    for wake in (lambda: service.put([task(C)]), service.end):
        resting = threading.Thread(target=service.rest, args=(600,))
        resting.start()
        time.sleep(0.01)  # usually in its rest by now; if not, there is nothing to see
        while resting.is_alive():
            wake()
            resting.join(0.01)


def test_a_task_put_in_since_the_look_is_seen_before_a_rest(service):
    service.look()
    service.put([task(TaskId(7, 7))])
    service.done({})
    with within():
        service.rest(AVOIDED)
    assert TaskId(7, 7) in {one.id for one in service.look()}


def test_the_end_wakes_who_waits_for_tasks():
    service, found = InService(), []
    looking = threading.Thread(target=lambda: found.append(service.look()))
    looking.start()
    service.end()
    looking.join(LONG)
    assert found == [[]]


def test_a_task_never_has_two_owners():
    service, dice, seen = InService(), random.Random(7), []
    owner = dict.fromkeys((A, B, C), "stream")

    def batches():
        while tasks := service.look():
            work = service.begin([one.id for one in tasks if dice.random() < 0.8])
            for id_ in work:
                seen.append(owner[id_])
                owner[id_] = "batch"
            time.sleep(0)
            for id_ in work:
                owner[id_] = "free"
            service.done({id_: ValueError() for id_ in work if dice.random() < 0.2})

    thread = threading.Thread(target=batches)
    thread.start()
    tasks = {id_: task(id_) for id_ in owner}
    rounds = 0
    # On a busy machine all rounds may be over before the other thread has had a core.
    while rounds < 3000 or not seen:
        rounds += 1
        assert thread.is_alive()
        ids = [id_ for id_ in owner if dice.random() < 0.5]
        assert service.withdraw(ids, timeout=LONG) == frozenset()
        for id_ in ids:
            assert owner[id_] != "batch"
            owner[id_] = "stream"
        for id_ in ids:
            owner[id_] = "free"
        service.put([tasks[id_] for id_ in ids])
        service.put([one for one, _ in service.take_fallen_out()])
    service.end()
    thread.join(LONG)
    assert not thread.is_alive()
    assert set(seen) == {"free"}


def test_what_cancels_a_batch_cannot_hit_the_next(service):
    cancelled = []
    service.look()
    service.begin([A])
    service.while_under_way([B], lambda: cancelled.append("another's"))
    assert cancelled == []
    cancelling, may_end = threading.Event(), threading.Event()

    def cancel():
        cancelling.set()
        assert may_end.wait(LONG)
        cancelled.append("ours")

    canceller = threading.Thread(target=service.while_under_way, args=([A], cancel))
    canceller.start()
    assert cancelling.wait(LONG)
    ended = threading.Thread(target=lambda: (service.done({}), service.look(), service.begin([B])))
    ended.start()
    assert service._under_way == {A}, "the batch ends only once the cancelling is through"
    may_end.set()
    canceller.join(LONG)
    ended.join(LONG)
    assert cancelled == ["ours"]
    assert service._under_way == {B}
    service.while_under_way([A], lambda: cancelled.append("late"))
    assert cancelled == ["ours"]


ONE, MEMBER, LATER = TaskId(0, 0), GroupMetadata("app", 1, "me"), GroupMetadata("app", 2, "me")


@pytest.fixture
def under_way():
    """A micro-batch is under way, of a task of a member of the group."""
    service = InService()
    service.joined(MEMBER)
    service.put([task_of(ONE, (), {}, None)])
    service.look()
    service.begin([ONE])
    return service


def test_offsets_are_committed_as_the_member_of_now(under_way):
    assert under_way.member() == MEMBER
    assert under_way.member(but=MEMBER) is None
    under_way.joined(LATER)
    assert under_way.member(but=MEMBER) == under_way.member() == LATER


def test_a_generation_that_is_about_to_begin_is_waited_for(under_way):
    found = []
    waiting = threading.Thread(target=lambda: found.append(under_way.member(but=MEMBER, seconds=LONG)))
    waiting.start()
    under_way.joined(LATER)
    waiting.join(LONG)
    assert found == [LATER]


@pytest.mark.parametrize("back", [False, True], ids=["gone", "in the group again"])
def test_who_was_expelled_since_the_batch_began_commits_nothing_of_it(under_way, back):
    """Its tasks may be others' by now, though it is in the group."""
    under_way.expelled()
    if back:
        under_way.joined(LATER)
    assert under_way.member() is None
    assert under_way.member(but=MEMBER, seconds=LONG) is None, "nothing is waited for"
    assert under_way.present_member == (LATER if back else None)
    under_way.done({})
    under_way.look()
    under_way.begin([ONE])
    assert under_way.member() == (LATER if back else None)
