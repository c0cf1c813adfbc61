"""Sticky assignors when processes or tasks come: the newcomer gets its share, nobody else's tasks are swapped."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, note, settings, strategies as st
from tests.oracle.legacy_sticky import LegacyStickyTaskAssignor

from sparkrelay.assignment import StickyTaskAssignor


@pytest.fixture(scope="session", params=[StickyTaskAssignor, LegacyStickyTaskAssignor], ids=["public", "internal"])
def assign(request):
    return request.param().assign


@pytest.fixture(scope="session")
def place(assign, groups, strategy):
    def run(tasks, clients, **configs):
        configs = {"traffic_cost": 1, "non_overlap_cost": 10} | configs
        state = groups.state(tasks, clients, strategy=strategy, **configs)
        answer = assign(state)
        groups.check(state, answer)
        assert not answer.probing_rebalance
        return answer

    return run


def moved_between_old(groups, clients, answer):
    """Return the tasks that left one former owner for another."""
    owner = {task: client.process_id.id.int for client in clients for task in client.previous_active_tasks}
    old = set(owner.values())
    now = {task: number for number, active in groups.active(answer).items() for task in groups.ids(active)}
    return {task for task, number in now.items() if number in old and owner.get(task, number) != number}


def spread_by_subtopology(groups, answer, *, most):
    """With this strategy, spreading each subtopology goes before keeping owners."""
    for active in groups.active(answer).values():
        of_each = [task.split("_")[0] for task in active.split()]
        assert all(of_each.count(subtopology) <= most for subtopology in of_each)


def test_a_newcomer_gets_one_task_and_the_rest_stays(groups, place):
    clients = [groups.client(1, active="0_0 0_1"), groups.client(2, active="0_2 0_3"), groups.client(3)]
    answer = place("0_0 0_1 0_2 0_3", clients)
    assert sorted(groups.actives(answer)) == [1, 1, 2]
    assert groups.actives(answer)[2] == 1
    assert not moved_between_old(groups, clients, answer)


def test_a_newcomer_takes_only_what_makes_it_fair(groups, place, strategy):
    clients = [groups.client(1, active="0_0 0_1 0_2"), groups.client(2, active="1_0 1_1 1_2"), groups.client(3)]
    answer = place("0_0 0_1 0_2 1_0 1_1 1_2", clients)
    assert groups.actives(answer) == [2, 2, 2]
    if strategy == "balance_subtopology":
        spread_by_subtopology(groups, answer, most=1)
    else:
        assert not moved_between_old(groups, clients, answer)


@pytest.mark.parametrize("newcomers", [1, 2])
def test_tasks_without_an_owner_go_to_newcomers(groups, place, strategy, newcomers):
    old = [groups.client(1, active="0_0 0_1", standby="1_0"), groups.client(2, active="0_2 0_3", standby="1_1")]
    clients = old + [groups.client(n) for n in range(3, 3 + newcomers)]
    unowned = "2_0 2_1 2_2 2_3"[: 8 * newcomers - 1]
    answer = place("0_0 0_1 0_2 0_3 " + unowned, clients)
    assert groups.actives(answer) == [2] * len(clients)
    if strategy == "balance_subtopology":
        spread_by_subtopology(groups, answer, most=2)
    else:
        assert [groups.active(answer)[n] for n in (1, 2)] == ["0_0 0_1", "0_2 0_3"]
        fresh = {task for n in range(3, 3 + newcomers) for task in groups.active(answer)[n].split()}
        assert fresh == set(unowned.split())


@pytest.mark.parametrize("threads", [1, 2])
def test_a_newcomer_gets_its_share_though_others_have_state(groups, place, threads):
    old = "0_0 0_1 0_2 0_3 0_4 0_5"
    clients = [
        groups.client(1, active=old, threads=threads),
        groups.client(2, standby=old, threads=threads),
        groups.client(3, threads=threads),
    ]
    answer = place(old, clients)
    assert groups.actives(answer) == [2, 2, 2]


def test_existing_and_bounced_processes_do_not_swap(groups, place, strategy):
    # The second bounced: it has no actives now, but state of what it ran.
    clients = [
        groups.client(1, active="0_0 0_1 0_2 0_3 0_4 0_5"),
        groups.client(2, standby="1_0 1_1 1_2 1_3 1_4 1_5"),
        groups.client(3),
    ]
    answer = place("0_0 0_1 0_2 0_3 0_4 0_5 1_0 1_1 1_2 1_3 1_4 1_5", clients)
    assert groups.actives(answer) == [4, 4, 4]
    if strategy == "balance_subtopology":
        spread_by_subtopology(groups, answer, most=2)
    else:
        assert all(task.startswith("0_") for task in groups.active(answer)[1].split())
        assert all(task.startswith("1_") for task in groups.active(answer)[2].split())


def test_actives_and_standbys_together_are_even(groups, place):
    clients = [groups.client(1, threads=4), groups.client(2, threads=4), groups.client(3, threads=4)]
    answer = place("0_0 0_1 0_2 0_3 0_4 0_5", clients, num_standby_replicas=1)
    assert groups.totals(answer) == [4, 4, 4]
    assert sum(groups.actives(answer)) == 6


def test_a_newcomer_to_full_processes_with_standbys(groups, place):
    clients = [
        groups.client(1, active="0_0 1_0", standby="0_1 1_1"),
        groups.client(2, active="0_1 1_1", standby="0_0 1_0"),
        groups.client(3),
    ]
    answer = place("0_0 0_1 1_0 1_1", clients, num_standby_replicas=1)
    assert all(1 <= count <= 2 for count in groups.actives(answer))
    assert all(count <= 3 for count in groups.totals(answer))


def test_an_empty_start_mixes_the_subtopologies(groups, place):
    answer = place("0_0 0_1 1_0 1_1", [groups.client(1), groups.client(2)], num_standby_replicas=1)
    for active, standby in groups.table(answer).values():
        assert sorted(task[0] for task in active.split()) == ["0", "1"]
        assert sorted(task[0] for task in standby.split()) == ["0", "1"]


def test_racks_are_weighed_apart_for_tasks_with_and_without_state(groups, strategy, assign):
    # Crosswise: each task runs where its partition is not. Moving a logged task costs more than it saves.
    tasks = [groups.task(f"0_{n}", racks=rack) for n, rack in enumerate("ab")]
    tasks += [groups.task(f"1_{n}", logged=False, racks=rack) for n, rack in enumerate("ab")]
    clients = [
        groups.client(1, active="0_1 1_1", rack_id="a"),
        groups.client(2, active="0_0 1_0", rack_id="b"),
    ]
    state = groups.state(tasks, clients, strategy=strategy, traffic_cost=1, non_overlap_cost=100)
    answer = assign(state)
    expected = {1: "0_1 1_1", 2: "0_0 1_0"} if strategy == "none" else {1: "0_1 1_0", 2: "0_0 1_1"}
    assert groups.active(answer) == expected


def test_without_traffic_cost_racks_change_nothing(groups, assign):
    tasks = "0_0 0_1 0_2 0_3 1_0 1_1 1_2 1_3"
    clients = [
        groups.client(1, active="0_0 0_1 1_2 1_3"),
        groups.client(2, active="0_2"),
        groups.client(3, standby="0_3"),
    ]
    costs = {"traffic_cost": 0, "non_overlap_cost": 10, "num_standby_replicas": 1}
    plain, with_racks = (
        assign(groups.state(tasks, clients, strategy=kind, **costs)) for kind in ("none", "min_traffic")
    )
    assert plain == with_racks


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_random_groups_are_valid_and_no_owner_loses_below_its_share(groups, place, seed):
    note(f"seed {seed}")
    chance = random.Random(seed)
    tasks = [f"{s}_{n}" for s in range(chance.randint(1, 3)) for n in range(chance.randint(1, 6))]
    numbers = chance.sample(range(1, 100), chance.randint(1, 6))
    threads = {number: chance.randint(1, 3) for number in numbers}
    active, standby = ({number: [] for number in numbers} for _ in range(2))
    for task in tasks:
        order = chance.sample(numbers, len(numbers))
        if chance.random() < 0.7:
            active[order.pop()].append(task)
        if order and chance.random() < 0.5:
            standby[order.pop()].append(task)
    clients = [
        groups.client(n, active=" ".join(active[n]), standby=" ".join(standby[n]), threads=threads[n]) for n in numbers
    ]
    note(str([(n, threads[n], active[n], standby[n]) for n in numbers]))
    answer = place(" ".join(tasks), clients, num_standby_replicas=chance.randint(0, 2))
    note(str(groups.table(answer)))
    share = len(tasks) // sum(threads.values())
    for number, count in zip(groups.active(answer), groups.actives(answer), strict=True):
        assert count >= min(len(active[number]), share * threads[number])
