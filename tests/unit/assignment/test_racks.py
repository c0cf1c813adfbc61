"""KIP-925: when racks are looked at, and what exchanging tasks may and may not change. See also test_racks_and_tags."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, note, settings, strategies as st

from sparkrelay.assignment import HighAvailabilityTaskAssignor, TaskInfo, task_assignment_utils
from sparkrelay.assignment.placement.rack_awareness import Costs, RackAwareness, cross_rack, racks_known
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.types import TaskId, TopicPartition

COSTS = {"traffic_cost": 10, "non_overlap_cost": 1}
AWARE = ["min_traffic", "balance_subtopology"]


@pytest.fixture(params=AWARE)
def aware(request):
    """Return each strategy that looks at racks."""
    return request.param


@pytest.fixture(params=[True, False], ids=["logged", "stateless"])
def logged(request):
    return request.param


def traffic(state, answer, *, standby=False):
    """Return how many partitions are read across racks."""
    infos = {info.id: info for info in state.all_tasks}
    return sum(
        cross_rack(
            infos[task],
            infos[task].changelog_topic_partitions if standby else infos[task].input_topic_partitions,
            state.clients[process].rack_id,
        )
        for process, entry in answer.items()
        for task in (entry.standby_tasks if standby else entry.active_tasks)
    )


def exchange(state, before, tasks=None):
    """Exchange actives; every process keeps its number of tasks, and no task is lost."""
    wanted = [info.id for info in state.all_tasks] if tasks is None else tasks
    after = task_assignment_utils.optimize_rack_aware_active_tasks(state, before, wanted)
    assert {name: len(entry.active_tasks) for name, entry in before.items()} == {
        name: len(entry.active_tasks) for name, entry in after.items()
    }
    assert sorted(task for entry in after.values() for task in entry.active_tasks) == sorted(
        task for entry in before.values() for task in entry.active_tasks
    )
    return after


# When racks are looked at


def without_racks(info):
    partitions = info.input_topic_partitions
    return TaskInfo.of(
        info.id, inputs=partitions, changelogs=info.changelog_topic_partitions, stores=info.state_store_names
    )


def with_no_rack(info):
    partitions = info.input_topic_partitions
    return TaskInfo.of(
        info.id,
        inputs=partitions,
        changelogs=info.changelog_topic_partitions,
        stores=info.state_store_names,
        racks=dict.fromkeys((*partitions, *info.changelog_topic_partitions), ()),
    )


def test_unknown_racks_switch_it_off(groups, aware):
    """So does a partition all of whose brokers have no `broker.rack`."""
    known = groups.tasks("0_0 0_1 0_2 0_3")
    unknown = [*known[:3], without_racks(known[3])]
    none = [*known[:3], with_no_rack(known[3])]
    everywhere = [groups.client(n, threads=n) for n in (1, 2)]
    one_without = [everywhere[0], groups.client(2, threads=2, rack_id=None)]
    assign = HighAvailabilityTaskAssignor().assign
    for tasks, clients in ((unknown, everywhere), (none, everywhere), (known, one_without)):
        state = groups.state(tasks, clients, strategy=aware)
        assert not racks_known(state.clients, state.all_tasks, changelogs=False)
        assert assign(state) == assign(groups.state(tasks, clients, strategy="none"))
    assert racks_known(groups.state(known, everywhere).clients, known, changelogs=True)


def test_changelogs_need_racks_only_for_standbys(groups):
    source, log = TopicPartition("in", 0), TopicPartition("cl", 0)
    info = TaskInfo.of(TaskId(0, 0), inputs=[source], changelogs=[log], stores=["s"], racks={source: "a"})
    clients = groups.state([info], [groups.client(1)]).clients
    assert racks_known(clients, [info], changelogs=False)
    assert not racks_known(clients, [info], changelogs=True)


def test_strategy_none_looks_at_no_rack(groups):
    tasks = [groups.task(f"0_{n}", racks=rack) for n, rack in enumerate("ab")]
    clients = [groups.client(1, rack_id="a"), groups.client(2, rack_id="b")]
    crossed = groups.entries(p1="0_1", p2="0_0")
    state = groups.state(tasks, clients, strategy="none", **COSTS)
    assert task_assignment_utils.optimize_rack_aware_active_tasks(state, crossed, groups.ids("0_0 0_1")) == crossed


@pytest.mark.parametrize("kind", ["none", *AWARE])
def test_the_default_assignor_looks_at_racks_of_actives(groups, kind, logged):
    # Dealt in order, each task would be where its partition is not.
    tasks = [groups.task(f"0_{n}", racks=rack, logged=logged) for n, rack in enumerate("ba")]
    clients = [groups.client(1, rack_id="a"), groups.client(2, rack_id="b")]
    answer = HighAvailabilityTaskAssignor().assign(groups.state(tasks, clients, strategy=kind))
    assert groups.active(answer) == ({1: "0_0", 2: "0_1"} if kind == "none" else {1: "0_1", 2: "0_0"})


@pytest.mark.parametrize("kind", ["none", *AWARE])
def test_the_default_assignor_looks_at_racks_of_standbys(groups, kind):
    tasks = [groups.task("0_0", racks="a", log_racks="b"), groups.task("0_1", racks="b", log_racks="a")]
    clients = [groups.client(n, rack_id=rack) for n, rack in enumerate("abab", 1)]
    answer = HighAvailabilityTaskAssignor().assign(groups.state(tasks, clients, strategy=kind, num_standby_replicas=1))
    standbys = ("0_0", "0_1") if kind == "none" else ("0_1", "0_0")
    assert list(groups.table(answer).values()) == [("0_0", ""), ("0_1", ""), ("", standbys[0]), ("", standbys[1])]


# Exchanging actives


def test_nothing_to_exchange_is_fine(groups, aware, logged):
    tasks = [groups.task("0_0", logged=logged)]
    state = groups.state(tasks, [groups.client(1), groups.client(2)], strategy=aware, **COSTS)
    empty = groups.entries(p1="", p2="")
    assert groups.table(exchange(state, empty, tasks=[])) == groups.table(empty)
    assert groups.table(task_assignment_utils.optimize_rack_aware_standby_tasks(state, empty)) == groups.table(empty)


@pytest.mark.parametrize(
    ("racks", "clients", "before", "after"),
    [
        pytest.param("ab", "ab", ["0_1", "0_0"], ["0_0", "0_1"], id="crossed"),
        pytest.param("abc", "abc", ["0_1", "0_2", "0_0"], ["0_0", "0_1", "0_2"], id="in a ring"),
        pytest.param("ab", "abc", ["0_1", "0_0", ""], ["0_0", "0_1", ""], id="an idle process stays idle"),
        pytest.param(
            "aabb", "abc", ["0_0 0_2", "0_1 0_3", ""], ["0_0 0_1", "0_2 0_3", ""], id="two tasks each and an idle one"
        ),
        pytest.param("aaa", "ab", ["0_0", "0_1 0_2"], ["0_0", "0_1 0_2"], id="cheaper alone, but counts are kept"),
    ],
)
def test_tasks_go_to_the_rack_of_their_partitions(groups, aware, logged, racks, clients, before, after):
    tasks = [groups.task(f"0_{n}", racks=rack, logged=logged) for n, rack in enumerate(racks)]
    state = groups.state(
        tasks, [groups.client(n, rack_id=rack) for n, rack in enumerate(clients, 1)], strategy=aware, **COSTS
    )
    found = exchange(state, groups.entries(**{f"p{n}": held for n, held in enumerate(before, 1)}))
    assert groups.active(found) == dict(enumerate(after, 1))


def random_group(groups, seed, **settings_):
    chance = random.Random(seed)
    tasks = [
        groups.task(
            f"{sub}_{n}",
            racks=set(chance.sample("abcd", chance.randint(1, 2))),
            log_racks=set(chance.sample("abcd", chance.randint(1, 2))),
        )
        for sub in range(chance.randint(1, 3))
        for n in range(chance.randint(1, 6))
    ]
    clients = [groups.client(n, rack_id=chance.choice("abcd")) for n in range(1, chance.randint(2, 5))]
    state = groups.state(tasks, clients, **settings_)
    held = {f"p{n}": ([], []) for n in range(1, len(clients) + 1)}
    for info in tasks:
        holders = chance.sample(sorted(held), min(len(held), 1 + chance.randint(0, 2)))
        for index, name in enumerate(holders):
            held[name][index > 0].append(str(info.id))
    before = groups.entries(**{name: tuple(map(" ".join, kinds)) for name, kinds in held.items()})
    note(f"seed {seed}: {groups.table(before)}")
    return state, before


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(AWARE))
@settings(deadline=None, max_examples=60)
def test_exchanging_actives_saves_traffic_and_keeps_counts(groups, seed, kind):
    state, before = random_group(groups, seed, strategy=kind, traffic_cost=10, non_overlap_cost=0)
    # Standbys stay out of this: an active that came to its own copy would end it.
    actives = {
        name: groups.entry(name.id.int, active=groups.names(entry.active_tasks)) for name, entry in before.items()
    }
    after = exchange(state, actives)
    if kind == "min_traffic":
        assert traffic(state, after) + traffic_of_logs(state, after) <= traffic(state, actives) + traffic_of_logs(
            state, actives
        )


def traffic_of_logs(state, answer):
    # The public utility counts changelogs of actives too.
    infos = {info.id: info for info in state.all_tasks}
    return sum(
        cross_rack(infos[task], infos[task].changelog_topic_partitions, state.clients[process].rack_id)
        for process, entry in answer.items()
        for task in entry.active_tasks
    )


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(AWARE))
@settings(deadline=None, max_examples=60)
def test_exchanging_standbys_saves_traffic_and_keeps_counts(groups, seed, kind):
    state, before = random_group(groups, seed, strategy=kind, traffic_cost=10, non_overlap_cost=0)
    after = task_assignment_utils.optimize_rack_aware_standby_tasks(state, before)
    for name, entry in before.items():
        assert after[name].active_tasks == entry.active_tasks
        assert len(after[name].standby_tasks) == len(entry.standby_tasks)
    assert sorted(t for e in after.values() for t in e.standby_tasks) == sorted(
        t for e in before.values() for t in e.standby_tasks
    )
    if kind == "min_traffic":
        assert traffic(state, after, standby=True) <= traffic(state, before, standby=True)


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_without_traffic_cost_nothing_moves(groups, seed):
    state, before = random_group(groups, seed, strategy="min_traffic", traffic_cost=0, non_overlap_cost=5)
    after = task_assignment_utils.optimize_rack_aware_standby_tasks(state, before)
    assert groups.table(after) == groups.table(before)
    actives = {name: groups.entry(name.id.int, active=groups.names(e.active_tasks)) for name, e in before.items()}
    assert groups.table(exchange(state, actives)) == groups.table(actives)


def test_a_task_that_runs_nowhere_or_twice_is_refused(groups, aware):
    state = groups.state("0_0 0_1", [groups.client(1), groups.client(2)], strategy=aware, **COSTS)
    for before, message in (
        (groups.entries(p1="0_0", p2=""), "0_1 not assigned to any client"),
        (groups.entries(p1="0_0 0_1", p2="0_1"), "0_1 assigned to multiple clients"),
    ):
        with pytest.raises(ValueError, match=message):
            task_assignment_utils.optimize_rack_aware_active_tasks(state, before, groups.ids("0_0 0_1"))


# Exchanging standbys


@pytest.fixture
def crossed_standbys(groups, aware):
    """Return a placement whose two standbys would both be local if they changed places, and its optimiser."""
    tasks = [groups.task(f"0_{n}", racks=rack) for n, rack in enumerate("ab")]
    clients = [groups.client(n, rack_id=rack) for n, rack in enumerate("abc", 1)]
    state = groups.state(tasks, clients, strategy=aware)
    infos = {info.id: info for info in state.all_tasks}
    placement = Placement(state.clients, infos)
    placement.active[2] |= {0, 1}
    placement.standby[0].add(1)
    placement.standby[1].add(0)
    return placement, RackAwareness(placement, state.clients, infos, aware)


def test_standbys_change_places_for_their_racks(crossed_standbys):
    placement, racks = crossed_standbys
    racks.optimize_standbys(Costs(**COSTS))
    assert placement.standby == [{0}, {1}, set()]


def test_standbys_stay_where_a_rule_keeps_them(crossed_standbys):
    placement, racks = crossed_standbys
    asked = []

    def refuse(task, source, destination):
        asked.append((task, source, destination))
        return False

    racks.optimize_standbys(Costs(**COSTS), may_move=refuse)
    assert placement.standby == [{1}, {0}, set()]
    assert (1, 0, 1) in asked


def test_an_active_that_comes_to_its_own_standby_takes_its_place(groups, aware):
    tasks = [groups.task(f"0_{n}", racks=rack) for n, rack in enumerate("ab")]
    clients = [groups.client(1, rack_id="a"), groups.client(2, rack_id="b")]
    state = groups.state(tasks, clients, strategy=aware, **COSTS)
    before = groups.entries(p1=("0_1", "0_0"), p2=("0_0", "0_1"))
    after = task_assignment_utils.optimize_rack_aware_active_tasks(state, before, groups.ids("0_0 0_1"))
    assert groups.table(after) == {1: ("0_0", ""), 2: ("0_1", "")}
