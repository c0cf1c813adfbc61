"""The spread over a process's consumers: everything once, even, sticky for state."""

from __future__ import annotations

from hypothesis import given, strategies as st

from sparkrelay.assignment.leader.threads import TaskHeap, ThreadLoads
from sparkrelay.assignment.placement.java_order import process_hash_order, task_hash_order
from sparkrelay.types import ProcessId, TaskId

TASKS = st.builds(TaskId, st.integers(0, 3), st.integers(0, 9))


@given(st.integers(1, 5), st.sets(TASKS, max_size=30), st.data())
def test_tasks_are_given_once_and_evenly_over_all_kinds(threads, tasks, data):
    kind_of = {task: data.draw(st.integers(0, 2)) for task in sorted(tasks)}
    consumers = [f"c{n}" for n in range(threads)]
    loads = ThreadLoads(consumers)
    total = dict.fromkeys(consumers, 0)
    for kind in range(3):
        mine = [task for task in tasks if kind_of[task] == kind]
        spread = loads.spread(mine, {})
        assert sorted(task for given_ in spread.values() for task in given_) == sorted(mine)
        for consumer, given_ in spread.items():
            total[consumer] += len(given_)
        assert max(total.values()) - min(total.values()) <= 1


@given(st.integers(1, 4), st.sets(TASKS, min_size=1, max_size=20))
def test_spreading_again_keeps_everything(threads, tasks):
    consumers = [f"c{n}" for n in range(threads)]
    first = ThreadLoads(consumers).spread(tasks, {})
    again = ThreadLoads(consumers).spread(tasks, first)
    assert {consumer: set(given_) for consumer, given_ in again.items()} == {
        consumer: set(given_) for consumer, given_ in first.items()
    }


@given(st.lists(TASKS, unique=True), st.data())
def test_the_heap_gives_the_least_and_forgets_what_is_removed(tasks, data):
    heap = TaskHeap(tasks)
    removed = data.draw(st.lists(st.sampled_from(tasks), unique=True)) if tasks else []
    for task in removed:
        heap.remove(task)
    rest = sorted(set(tasks) - set(removed))
    assert sorted(heap.array) == rest
    assert [heap.pop() for _ in range(len(heap))] == rest


def test_hash_order_is_javas():
    # Hash codes 29791, 29822, 29853: slots 15, 14, 13 of 16.
    assert task_hash_order(TaskId(0, n) for n in range(3)) == [TaskId(0, 2), TaskId(0, 1), TaskId(0, 0)]
    first, second = (ProcessId.parse(f"00000000-0000-0000-0000-00000000001{n}") for n in (0, 1))
    # Hash codes 16 and 17 fall into slots 0 and 1 of 16; 15 into the last.
    last = ProcessId.parse("00000000-0000-0000-0000-00000000000f")
    assert process_hash_order([last, second, first]) == [first, second, last]
