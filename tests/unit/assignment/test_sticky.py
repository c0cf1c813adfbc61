"""Sticky assignors: owners keep tasks up to an even share, former standbys come next, then the least loaded.

Both kinds, the public and the older internal one, and every rack-aware strategy. Which of several equal choices is
made hangs on Java's hash order; tests/oracle compares that, here stands what holds for any choice. See KIP-924.
"""

from __future__ import annotations

import pytest
from tests.oracle.legacy_sticky import LegacyStickyTaskAssignor

from sparkrelay.assignment import StickyTaskAssignor
from sparkrelay.assignment.sticky import FallbackPriorTaskAssignor


@pytest.fixture(params=[StickyTaskAssignor, LegacyStickyTaskAssignor], ids=["public", "internal"])
def place(request, groups, strategy):
    """Return what assigns tasks to clients: given tasks, clients and settings, returns state and answer, checked."""

    def run(tasks, clients, **configs):
        configs = {"traffic_cost": 1, "non_overlap_cost": 10} | configs
        state = groups.state(tasks, clients, strategy=strategy, **configs)
        answer = request.param().assign(state)
        groups.check(state, answer)
        assert not answer.probing_rebalance
        assert all(entry.followup_rebalance_deadline is None for entry in answer.assignment)
        return answer

    return run


def kept(groups, clients, answer):
    """Return how many tasks stay with their owner."""
    active = groups.active(answer)
    return sum(len(client.previous_active_tasks & groups.ids(active[client.process_id.id.int])) for client in clients)


@pytest.mark.parametrize(
    ("tasks", "threads", "standbys", "counts"),
    [
        pytest.param("0_0 0_1 0_2", [1, 1, 1], 0, [1, 1, 1], id="one each"),
        pytest.param("0_0 0_1 0_2", [1, 1, 1], 1, [2, 2, 2], id="one each and a standby"),
        pytest.param("0_0 0_1 0_2", [2, 1], 0, [1, 2], id="by capacity"),
        pytest.param("0_0 0_1 0_2 0_3 0_4 0_5", [1, 2], 0, [2, 4], id="twice the capacity, twice the tasks"),
        pytest.param("0_0 0_1 0_2 1_0 1_1 1_2", [1, 1, 1], 0, [2, 2, 2], id="two subtopologies"),
        pytest.param("0_0 0_1 0_2 1_0 1_1 1_2", [1, 1, 1], 1, [4, 4, 4], id="two subtopologies and standbys"),
        pytest.param("0_0 0_1 0_2 0_3 0_4 0_5 1_0", [1, 1], 0, [3, 4], id="unequal subtopologies"),
        pytest.param("0_0 0_1 0_2", [1] * 6, 0, [0, 0, 0, 1, 1, 1], id="more clients than tasks"),
        pytest.param("0_0 0_1 0_2", [1] * 3, 2, [3, 3, 3], id="two standbys: everything everywhere"),
        pytest.param("0_0 0_1 0_2 0_3", [1] * 4, 3, [4, 4, 4, 4], id="three standbys over four"),
        pytest.param(" ".join(f"{s}_{n}" for s in range(5) for n in range(4)), [1] * 5, 0, [4] * 5, id="many of each"),
    ],
)
def test_a_fresh_group_is_even(groups, place, tasks, threads, standbys, counts):
    clients = [groups.client(number, threads=count) for number, count in enumerate(threads, 1)]
    answer = place(tasks, clients, num_standby_replicas=standbys)
    totals = groups.totals(answer)
    assert sorted(totals) == counts
    # The processes with more threads are those with more tasks.
    per_thread = [total / count for total, count in zip(totals, threads, strict=True)]
    assert max(per_thread) - min(per_thread) <= 1


def test_owners_keep_their_tasks(groups, place):
    clients = [groups.client(1, active="0_1 1_0"), groups.client(2, active="0_0 1_1"), groups.client(3, active="0_2")]
    answer = place("0_0 0_1 0_2 1_0 1_1", clients)
    assert groups.active(answer) == {1: "0_1 1_0", 2: "0_0 1_1", 3: "0_2"}


def test_owners_keep_their_tasks_while_others_idle(groups, place):
    tasks = "0_0 0_1 0_2"
    clients = [groups.client(n) for n in range(1, 6)]
    for owners in ({1: "0_2", 3: "0_0", 5: "0_1"}, {2: "0_1", 3: "0_0", 4: "0_2"}, {1: "0_0", 2: "0_1", 5: "0_2"}):
        clients = [groups.client(n, active=owners.get(n, "")) for n in range(1, 6)]
        assert groups.active(place(tasks, clients)) == {n: owners.get(n, "") for n in range(1, 6)}


def test_a_former_standby_is_preferred(groups, place):
    clients = [groups.client(1, standby="0_2"), groups.client(2, standby="0_1"), groups.client(3, standby="0_0")]
    answer = place("0_0 0_1 0_2", clients)
    assert groups.active(answer) == {1: "0_2", 2: "0_1", 3: "0_0"}


def test_among_former_standbys_capacity_decides(groups, place):
    clients = [
        groups.client(1, active="0_0", standby="0_1"),
        groups.client(2, active="0_2", standby="0_1", threads=2),
    ]
    assert groups.active(place("0_0 0_1 0_2", clients)) == {1: "0_0", 2: "0_1 0_2"}


def test_a_standby_is_never_beside_its_active(groups, place):
    clients = [groups.client(n, active=f"0_{n - 1}") for n in (1, 2, 3, 4)]
    answer = place("0_0 0_1 0_2 0_3", clients, num_standby_replicas=1)
    for active, standby in groups.table(answer).values():
        assert standby
        assert not groups.ids(active) & groups.ids(standby)


def test_one_process_alone_has_no_standbys(groups, place):
    answer = place("0_0", [groups.client(1)], num_standby_replicas=1)
    assert groups.table(answer) == {1: ("0_0", "")}


@pytest.mark.parametrize("ran_before", [False, True])
def test_a_large_process_does_not_starve_small_ones(groups, place, ran_before):
    tasks = "0_0 0_1 0_2"
    clients = [groups.client(1, threads=3, active=tasks if ran_before else ""), groups.client(2), groups.client(3)]
    if ran_before:
        # Three tasks on three threads are no surplus: they stay.
        assert groups.actives(place(tasks, clients)) == [3, 0, 0]
    else:
        assert groups.actives(place(tasks, clients)) == [1, 1, 1]


@pytest.mark.parametrize(
    ("tasks", "active", "standby"),
    [
        pytest.param("0_0 0_1 0_2 0_3", ["", "", "", ""], ["", "", "", ""], id="fresh"),
        pytest.param("0_0 0_1 0_2 0_3", ["0_1 0_2", "0_3", "0_0", ""], ["", "", "", ""], id="actives before"),
        pytest.param("0_0 0_1 0_2 0_3", ["0_1 0_2", "0_3", "0_0", ""], ["0_3 0_0", "0_0", "0_1", "0_2"], id="standbys"),
        pytest.param("0_0 0_1 0_2 0_3 1_0 1_1 1_2 1_3", ["0_1 0_2 1_3", "0_0 1_1 1_2", "", ""], [""] * 4, id="eight"),
    ],
)
def test_no_two_processes_have_the_same_tasks(groups, place, tasks, active, standby):
    clients = [groups.client(n, active=active[n - 1], standby=standby[n - 1]) for n in (1, 2, 3, 4)]
    answer = place(tasks, clients, num_standby_replicas=1)
    held = [groups.ids(running) | groups.ids(copies) for running, copies in groups.table(answer).values()]
    assert len(set(held)) == len(held)


@pytest.mark.parametrize(
    ("tasks", "threads", "owned"),
    [
        pytest.param("0_0 0_1 0_2 0_3", [1, 1, 1, 1], "0_0 0_1 0_2 0_3", id="as many threads as tasks"),
        pytest.param("0_0 0_1 0_2 0_3", [1, 1], "0_0 0_1 0_2 0_3", id="fewer threads than tasks"),
        pytest.param("0_0 0_1 0_2 0_3 0_4 0_5", [2, 4], "0_0 0_1 0_2 0_3 0_4 0_5", id="by capacity"),
    ],
)
def test_only_the_surplus_of_a_process_moves(groups, place, tasks, threads, owned):
    clients = [groups.client(n, threads=count, active=owned if n == 1 else "") for n, count in enumerate(threads, 1)]
    answer = place(tasks, clients)
    share = len(tasks.split()) // sum(threads)
    assert groups.actives(answer) == [share * count for count in threads]
    assert kept(groups, clients, answer) == share * threads[0]


def test_new_tasks_go_to_the_light_process_and_old_ones_stay(groups, place, strategy):
    clients = [groups.client(1, active="0_0 0_1 0_2"), groups.client(2, active="0_3")]
    answer = place("0_0 0_1 0_2 0_3 1_0 1_1", clients)
    assert groups.actives(answer) == [3, 3]
    # Spreading each subtopology goes before keeping owners, but never for more than it takes.
    assert kept(groups, clients, answer) == (3 if strategy == "balance_subtopology" else 4)


def test_large_groups_end(groups, place, strategy):
    partitions, clients = (60, 20) if strategy == "none" else (10, 6)
    tasks = " ".join(f"{s}_{n}" for s in range(5) for n in range(partitions))
    answer = place(tasks, [groups.client(n, threads=50) for n in range(clients)], num_standby_replicas=2)
    totals = groups.totals(answer)
    assert max(totals) - min(totals) <= 50


@pytest.mark.parametrize(
    "assignor",
    [StickyTaskAssignor(must_preserve_active_task_assignment=True), FallbackPriorTaskAssignor()],
    ids=["public", "fallback"],
)
def test_preserving_owners_goes_before_balance_and_another_rebalance_is_asked_for(groups, strategy, assignor):
    clients = [groups.client(1, active="0_0 0_1 0_2"), groups.client(2), groups.client(3)]
    answer = assignor.assign(groups.state("0_0 0_1 0_2", clients, strategy=strategy))
    assert groups.active(answer) == {1: "0_0 0_1 0_2", 2: "", 3: ""}
    asked = [entry.followup_rebalance_deadline for entry in answer.assignment if entry.followup_rebalance_deadline]
    assert answer.probing_rebalance or [deadline.timestamp() for deadline in asked] == [0]
