"""KIP-924's utilities for authors of assignors: what each may change, and that they can be used one after the other."""

from __future__ import annotations

import pytest

from sparkrelay.assignment import AssignmentError, TaskAssignment, TaskInfo, task_assignment_utils, validate
from sparkrelay.errors import ConfigException
from sparkrelay.types import TopicPartition

COSTS = {"traffic_cost": 10, "non_overlap_cost": 1}


@pytest.fixture(params=["min_traffic", "balance_subtopology"])
def aware(request):
    return request.param


def test_identity_is_what_everybody_had(groups, strategy):
    clients = [groups.client(1, active="0_0 0_1", standby="0_2"), groups.client(2, active="0_2", standby="0_0 0_1")]
    state = groups.state("0_0 0_1 0_2", clients, strategy=strategy)
    assert groups.table(task_assignment_utils.identity_assignment(state)) == {
        1: ("0_0 0_1", "0_2"),
        2: ("0_2", "0_0 0_1"),
    }


def test_actives_change_places_and_counts_stay(groups, aware):
    tasks = [groups.task(f"0_{n}", racks=rack) for n, rack in enumerate("aab")]
    clients = [groups.client(1, rack_id="a"), groups.client(2, rack_id="b")]
    state = groups.state(tasks, clients, strategy=aware, **COSTS)
    before = groups.entries(p1="0_0 0_2", p2="0_1")
    after = task_assignment_utils.optimize_rack_aware_active_tasks(state, before, groups.ids("0_0 0_1 0_2"))
    assert groups.active(after) == {1: "0_0 0_1", 2: "0_2"}
    assert groups.active(before) == {1: "0_0 0_2", 2: "0_1"}


def test_only_the_tasks_that_were_named_change_places(groups, aware):
    tasks = [groups.task(f"0_{n}", racks=rack) for n, rack in enumerate("abab")]
    clients = [groups.client(1, rack_id="a"), groups.client(2, rack_id="b")]
    state = groups.state(tasks, clients, strategy=aware, **COSTS)
    before = groups.entries(p1="0_1 0_3", p2="0_0 0_2")
    after = task_assignment_utils.optimize_rack_aware_active_tasks(state, before, groups.ids("0_0 0_1"))
    assert groups.active(after) == {1: "0_0 0_3", 2: "0_1 0_2"}


@pytest.mark.parametrize("racks", ["ab", "ac"], ids=["two racks", "one beside"])
def test_standbys_change_places_and_actives_stay(groups, aware, racks):
    tasks = [groups.task(f"0_{n}", racks="c", log_racks=rack) for n, rack in enumerate(racks)]
    clients = [groups.client(n, rack_id=rack) for n, rack in enumerate([*racks, "b"], 1)]
    state = groups.state(tasks, clients, strategy=aware, **COSTS)
    before = groups.entries(p1=("", "0_1"), p2=("", "0_0"), p3="0_0 0_1")
    after = task_assignment_utils.optimize_rack_aware_standby_tasks(state, before)
    assert groups.table(after) == {1: ("", "0_0"), 2: ("", "0_1"), 3: ("0_0 0_1", "")}


def test_standbys_of_many_racks_end_where_their_changelogs_are(groups, aware):
    racks = "abcd"
    tasks = [groups.task(f"0_{n}", log_racks=rack, racks="abcd") for n, rack in enumerate(racks)]
    clients = [groups.client(n, rack_id=rack) for n, rack in enumerate([*racks, "a"], 1)]
    state = groups.state(tasks, clients, strategy=aware, **COSTS)
    before = groups.entries(p1=("", "0_1"), p2=("", "0_2"), p3=("", "0_3"), p4=("", "0_0"), p5="0_0 0_1 0_2 0_3")
    after = task_assignment_utils.optimize_rack_aware_standby_tasks(state, before)
    assert groups.standby(after) == {1: "0_0", 2: "0_1", 3: "0_2", 4: "0_3", 5: ""}


def test_costs_must_be_configured_and_can_then_be_replaced(groups, aware):
    tasks = [groups.task(f"0_{n}", racks=rack) for n, rack in enumerate("ab")]
    clients = [groups.client(1, rack_id="a"), groups.client(2, rack_id="b")]
    crossed, local = groups.entries(p1="0_1", p2="0_0"), {1: "0_0", 2: "0_1"}
    optimize, wanted = task_assignment_utils.optimize_rack_aware_active_tasks, groups.ids("0_0 0_1")
    bare = groups.state(tasks, clients, strategy=aware)
    assert optimize(bare, crossed, wanted, **COSTS) == crossed
    dear = groups.state(tasks, clients, strategy=aware, traffic_cost=1, non_overlap_cost=100)
    assert groups.active(optimize(dear, crossed, wanted)) == {1: "0_1", 2: "0_0"}
    assert groups.active(optimize(dear, crossed, wanted, **COSTS)) == local


def test_standbys_by_tags_survive_the_rack_optimiser(groups, aware):
    tasks = [groups.task("0_0", racks="a"), groups.task("0_1", racks="b")]
    clients = [
        groups.client(number, rack_id=rack, client_tags={"zone": zone})
        for number, (rack, zone) in enumerate([("a", "1"), ("b", "2"), ("b", "1"), ("a", "2")], 1)
    ]
    settings = {"num_standby_replicas": 1, "rack_aware_assignment_tags": ("zone",), **COSTS}
    state = groups.state(tasks, clients, strategy=aware, **settings)
    placed = task_assignment_utils.default_standby_task_assignment(
        state, groups.entries(p1="0_0", p2="0_1", p3="", p4="")
    )
    assert groups.standby(placed) == {1: "", 2: "", 3: "0_1", 4: "0_0"}
    assert task_assignment_utils.optimize_rack_aware_standby_tasks(state, placed) == placed


def test_tasks_that_no_longer_exist_are_carried_along(groups, aware):
    # A topic is gone, but processes still report it: identity keeps the task, so the others must bear it.
    clients = [groups.client(1, active="0_0 7_0", rack_id="a"), groups.client(2, active="0_1", standby="7_1")]
    state = groups.state("0_0 0_1", clients, strategy=aware, num_standby_replicas=1, **COSTS)
    had = task_assignment_utils.identity_assignment(state)
    placed = task_assignment_utils.default_standby_task_assignment(state, had)
    assert groups.table(placed) == {1: ("0_0 7_0", "0_1"), 2: ("0_1", "0_0 7_1")}
    moved = task_assignment_utils.optimize_rack_aware_standby_tasks(state, placed)
    moved = task_assignment_utils.optimize_rack_aware_active_tasks(state, moved, groups.ids("0_0 0_1"))
    assert sorted(" ".join(groups.active(moved).values()).split()) == ["0_0", "0_1", "7_0"]
    assert validate(state, TaskAssignment(moved.values())) is AssignmentError.UNKNOWN_TASK_ID


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"p1": "0_0", "p2": ("0_1", "0_0")}, AssignmentError.NONE),
        ({"p1": "0_0"}, AssignmentError.MISSING_PROCESS_ID),
        ({"p1": "0_0", "p2": "0_1", "p3": ""}, AssignmentError.UNKNOWN_PROCESS_ID),
        ({"p1": "0_0 0_5", "p2": "0_1"}, AssignmentError.UNKNOWN_TASK_ID),
        ({"p1": "0_0 0_1", "p2": "0_1"}, AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES),
        ({"p1": "1_0", "p2": ("0_1", "1_0")}, AssignmentError.INVALID_STANDBY_TASK),
    ],
    ids=lambda value: value.name if isinstance(value, AssignmentError) else "",
)
def test_answers_are_checked(groups, entries, error):
    state = groups.state(groups.tasks("0_0 0_1", "1_0"), [groups.client(1), groups.client(2)])
    answer = TaskAssignment(groups.entries(**entries).values())
    assert task_assignment_utils.validate_task_assignment(state, answer) is error


# The values that assignors see and give


def test_an_entry_reads_well(groups):
    entry = groups.entry(1, active="0_1 0_0", standby="1_0")
    text = repr(entry)
    for part in ("00000000-0000-0000-0000-000000000001", "TaskId(subtopology=0, partition=1)", "ACTIVE", "STANDBY"):
        assert part in text
    assert [str(task) for task in entry.tasks.values()] == ["ACTIVE 0_0", "ACTIVE 0_1", "STANDBY 1_0"]


def test_a_consumers_tasks_come_by_lag_then_by_id(groups):
    had = groups.ids("0_0 0_1 0_2 1_0")
    client = groups.client(
        1,
        lags={"0_0": 500, "0_1": 3, "0_2": 3, "1_0": -2},
        previous_tasks_by_consumer={"a": had, "b": frozenset()},
    )
    state = groups.state("0_0 0_1 0_2 1_0", [client]).clients[client.process_id]
    assert list(map(str, state.prev_tasks_by_lag("a"))) == ["1_0", "0_1", "0_2", "0_0"]
    assert state.prev_tasks_by_lag("b") == state.prev_tasks_by_lag("stranger") == ()


def test_a_group_without_warm_ups_cannot_be_configured(groups):
    with pytest.raises(ConfigException, match="max.warmup.replicas"):
        groups.state("0_0", [groups.client(1)], max_warmup_replicas=0)


def test_a_source_topic_may_be_the_changelog(groups):
    shared = TopicPartition("table", 0)
    info = TaskInfo.of(next(iter(groups.ids("0_0"))), inputs=[shared], changelogs=[shared], stores=["s"])
    state = groups.state([info], [groups.client(1), groups.client(2)], num_standby_replicas=1)
    placed = task_assignment_utils.default_standby_task_assignment(state, groups.entries(p1="0_0", p2=""))
    assert groups.standby(placed) == {1: "", 2: "0_0"}
