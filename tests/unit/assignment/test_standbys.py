"""Standbys without tags: one copy after the other to the least loaded, and which placement applies when."""

from __future__ import annotations

import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor, task_assignment_utils
from sparkrelay.assignment.placement.tag_standbys import TagStandbys, place_standbys
from sparkrelay.assignment.placement.working_copy import Placement


@pytest.fixture
def placement_of(groups):
    def make(tasks, threads, **active):
        state = groups.state(tasks, [groups.client(n, threads=count) for n, count in enumerate(threads, 1)])
        placement = Placement(state.clients, [info.id for info in state.all_tasks])
        for name, held in active.items():
            placement.active[int(name[1:]) - 1] |= {placement.tasks.index(task) for task in groups.ids(held)}
        return placement

    return make


@pytest.mark.parametrize("tags", [(), ("zone",)])
def test_configured_tags_decide_which_placement_applies(groups, strategy, tags):
    # Loads say the second process, tags say the third.
    clients = [
        groups.client(1, client_tags={"zone": "1"}),
        groups.client(2, client_tags={"zone": "1"}, threads=9),
        groups.client(3, client_tags={"zone": "2"}),
    ]
    state = groups.state("0_0", clients, strategy=strategy, num_standby_replicas=1, rack_aware_assignment_tags=tags)
    placement = Placement(state.clients, [info.id for info in state.all_tasks])
    placement.active[0].add(0)
    rules = place_standbys(placement, state.clients, [0], state.assignment_configs)
    assert isinstance(rules, TagStandbys) is bool(tags)
    assert placement.standby == ([set(), set(), {0}] if tags else [set(), {0}, set()])


def test_the_only_process_gets_it(placement_of):
    placement = placement_of("0_0", [1])
    placement.place_standbys([0], 1)
    assert placement.standby == [{0}]


def test_where_every_process_holds_it_already_nothing_is_placed(placement_of):
    placement = placement_of("0_0", [1], p1="0_0")
    placement.place_standbys([0], 3)
    assert placement.standby == [set()]


@pytest.mark.parametrize(
    ("threads", "chosen"),
    [([1, 1, 1], 1), ([1, 1, 9], 2), ([1, 3, 2], 1)],
    ids=["equal, the first", "more threads", "most threads"],
)
def test_the_least_loaded_gets_it(placement_of, threads, chosen):
    placement = placement_of("0_0 0_1 0_2", threads, p1="0_0", p2="0_1", p3="0_2")
    placement.place_standbys([0], 1)
    assert placement.standby[chosen] == {0}
    assert sum(map(len, placement.standby)) == 1


def test_each_copy_counts_as_load_for_the_next(placement_of):
    placement = placement_of("0_0 0_1 0_2", [1, 1, 1], p1="0_0 0_1 0_2")
    placement.place_standbys([0, 1, 2], 1)
    assert placement.standby == [set(), {0, 2}, {1}]


def test_a_process_that_holds_it_is_passed_over_and_asked_again_for_the_next_task(placement_of):
    placement = placement_of("0_0 0_1 0_2", [9, 1, 1], p1="0_0", p2="0_1", p3="0_2")
    placement.place_standbys([0, 1], 1)
    assert placement.standby == [{1}, {0}, set()]


@pytest.mark.parametrize(("clients", "replicas", "placed"), [(1, 2, 0), (2, 2, 1), (3, 2, 2), (4, 2, 2)])
def test_as_many_copies_as_there_are_other_processes(groups, strategy, clients, replicas, placed):
    state = groups.state(
        "0_0 0_1", [groups.client(n) for n in range(clients)], strategy=strategy, num_standby_replicas=replicas
    )
    answer = HighAvailabilityTaskAssignor().assign(state)
    groups.check(state, answer)
    assert sum(len(entry.standby_tasks) for entry in answer.assignment) == 2 * placed


def test_the_utility_places_by_load(groups, strategy):
    state = groups.state(
        "0_0 0_1 0_2", [groups.client(n) for n in (1, 2, 3)], strategy=strategy, num_standby_replicas=2
    )
    before = groups.entries(p1="0_0", p2="0_1", p3="0_2")
    after = task_assignment_utils.default_standby_task_assignment(state, before)
    assert groups.table(after) == {1: ("0_0", "0_1 0_2"), 2: ("0_1", "0_0 0_2"), 3: ("0_2", "0_0 0_1")}
