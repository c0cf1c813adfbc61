"""KIP-708: copies of a task on other values of the configured tags, as far as there are any."""

from __future__ import annotations

import itertools

import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor, task_assignment_utils
from sparkrelay.assignment.placement.rack_awareness import Costs, RackAwareness
from sparkrelay.assignment.placement.tag_standbys import TagStandbys, place_standbys
from sparkrelay.assignment.placement.working_copy import Placement


def tagged(groups, *tags, threads=None):
    """Return clients 1, 2, ... with tags written ``"zone:1 cluster:2"``."""
    return [
        groups.client(
            number,
            client_tags=dict(tag.split(":") for tag in text.split()),
            threads=(threads or {}).get(number, 1),
        )
        for number, text in enumerate(tags, 1)
    ]


def grid(groups, zones, clusters, *, per_cell=1):
    cells = itertools.product(range(1, zones + 1), range(1, clusters + 1), range(per_cell))
    return tagged(groups, *(f"zone:{zone} cluster:{cluster}" for zone, cluster, _ in cells))


@pytest.fixture
def place(groups):
    """Return what places standbys beside given actives and answers, for each task, the tags of all its holders."""

    def run(clients, replicas, keys, **active):
        names = " ".join(active.values())
        state = groups.state(
            groups.tasks(names), clients, num_standby_replicas=replicas, rack_aware_assignment_tags=tuple(keys.split())
        )
        idle = {f"p{client.process_id.id.int}": "" for client in clients}
        answer = task_assignment_utils.default_standby_task_assignment(state, groups.entries(**(idle | active)))
        return answer, {
            task: [dict(state.clients[process].client_tags) for process, entry in answer.items() if task in entry.tasks]
            for task in groups.ids(names)
        }

    return run


def values(holders, key):
    return [tags.get(key) for tags in holders]


def test_only_logged_tasks_have_copies(groups):
    tasks = groups.tasks("0_0", "1_0 1_1")
    clients = tagged(groups, "zone:1", "zone:2", "zone:3")
    state = groups.state(tasks, clients, num_standby_replicas=2, rack_aware_assignment_tags=("zone",))
    copies = " ".join(groups.standby(HighAvailabilityTaskAssignor().assign(state)).values()).split()
    assert copies == ["0_0", "0_0"]


@pytest.mark.parametrize("key", ["zone", "cluster"])
def test_actives_in_one_zone_or_cluster_have_their_copies_elsewhere(groups, place, key):
    clients = grid(groups, 3, 3)
    same = [c.process_id.id.int for c in clients if c.client_tags[key] == "1"]
    active = {f"p{number}": f"0_{n}" for n, number in enumerate(same)}
    answer, holders = place(clients, 2, "zone cluster", **active)
    for tags in holders.values():
        assert len(set(values(tags, "zone"))) == 3
        assert len(set(values(tags, "cluster"))) == 3
    # The six clients of the other two zones (or clusters) carry one copy each.
    assert [total for total in groups.totals(answer) if total != 1] == []


def test_a_dimension_with_too_few_values_starts_over_and_the_other_still_counts(place, groups):
    clients = grid(groups, 3, 2)
    _answer, holders = place(clients, 2, "zone cluster", p1="0_0 1_0")
    for tags in holders.values():
        assert len(tags) == 3
        assert len(set(values(tags, "zone"))) == 3
        assert set(values(tags, "cluster")) == {"1", "2"}


def test_another_zone_goes_before_less_load(place, groups):
    # The only process of the other zone is as full as can be, the neighbours in the zone are empty.
    clients = tagged(groups, "zone:1", "zone:1", "zone:1", "zone:2")
    answer, _holders = place(clients, 1, "zone", p1="0_0 0_1", p4="1_0 1_1 1_2")
    assert groups.standby(answer)[4] == "0_0 0_1"
    assert groups.standby(answer)[2] + groups.standby(answer)[3] != ""  # copies of 1_x


def test_tags_that_are_not_configured_do_not_count(place, groups):
    # If zones counted too, nobody would be apart in both, and the second would get it as the first among equals.
    clients = tagged(groups, "zone:1 cluster:1", "zone:2 cluster:1", "zone:1 cluster:2")
    _answer, holders = place(clients, 1, "cluster", p1="0_0")
    [tags] = holders.values()
    assert values(tags, "cluster") == ["1", "2"]
    assert values(tags, "zone") == ["1", "1"]


def test_the_same_value_of_two_tags_is_two_things(place, groups):
    clients = tagged(groups, "zone:1 cluster:1", "zone:2 cluster:3", "zone:3 cluster:1", "zone:1 cluster:2")
    _answer, holders = place(clients, 1, "zone cluster", p1="0_0")
    [tags] = holders.values()
    assert tags == [{"zone": "1", "cluster": "1"}, {"zone": "2", "cluster": "3"}]


@pytest.mark.parametrize("replicas", [1, 2])
def test_without_other_values_copies_go_to_the_least_loaded(place, groups, replicas):
    clients = tagged(groups, "zone:1", "zone:1", "zone:1")
    answer, _holders = place(clients, replicas, "zone", p1="0_0", p2="0_1", p3="0_2")
    assert groups.counts(answer) == {1: (1, replicas), 2: (1, replicas), 3: (1, replicas)}


def test_copies_for_which_there_is_no_process_are_left_out(place, groups):
    clients = tagged(groups, "zone:1", "zone:2")
    answer, _holders = place(clients, 5, "zone", p1="0_0", p2="0_1")
    assert groups.table(answer) == {1: ("0_0", "0_1"), 2: ("0_1", "0_0")}


def test_some_copies_apart_the_rest_by_load(place, groups):
    clients = tagged(groups, "zone:1", "zone:1", "zone:2", "zone:2")
    answer, holders = place(clients, 3, "zone", p1="0_0")
    assert groups.totals(answer) == [1, 1, 1, 1]
    [tags] = holders.values()
    assert sorted(values(tags, "zone")) == ["1", "1", "2", "2"]


def test_nothing_is_pending_where_all_copies_found_their_place(groups):
    clients = tagged(groups, "zone:1", "zone:2", "zone:3")
    state = groups.state("0_0", clients)
    placement = Placement(state.clients, [info.id for info in state.all_tasks])
    placement.active[0].add(0)
    tags = [client.client_tags for client in clients]
    # Task 0 is done apart; nothing of it may be placed a second time as a leftover.
    TagStandbys(placement, tags, ["zone"]).place([0], 2)
    assert placement.standby == [set(), {0}, {0}]


# Rules for moving copies afterwards


def test_a_copy_is_balanced_only_between_equal_tags(groups):
    state = groups.state("0_0", [groups.client(n) for n in (1, 2, 3)])
    placement = Placement(state.clients, [info.id for info in state.all_tasks])
    tags = [{"zone": "1", "host": "a"}, {"zone": "1", "host": "b"}, {"zone": "2", "host": "a"}]
    rules = TagStandbys(placement, tags, ["zone"])
    # The host is not configured to count; every process names one, so nothing would be balanced between hosts.
    assert rules.may_balance(0, 0, 1)
    assert not rules.may_balance(0, 0, 2)


def test_standbys_are_balanced_between_the_hosts_of_a_zone(groups):
    tags = [{"zone": "1", "host": host} for host in "abc"]
    clients = [groups.client(number, threads=2, client_tags=own) for number, own in enumerate(tags, 1)]
    state = groups.state("0_0 0_1 0_2", clients, num_standby_replicas=1, rack_aware_assignment_tags=("zone",))
    assert groups.counts(HighAvailabilityTaskAssignor().assign(state)) == {1: (1, 1), 2: (1, 1), 3: (1, 1)}


def test_tags_that_do_not_count_do_not_keep_a_copy_in_its_rack(groups):
    state = groups.state("0_0", [groups.client(n) for n in (1, 2, 3)])
    placement = Placement(state.clients, [info.id for info in state.all_tasks])
    placement.active[0].add(0)
    placement.standby[1].add(0)
    tags = [{"zone": "1", "host": "a"}, {"zone": "2", "host": "b"}, {"zone": "2", "host": "a"}]
    assert TagStandbys(placement, tags, ["zone"]).may_exchange(0, 1, 2)


@pytest.mark.parametrize(
    ("tags", "allowed"),
    [
        pytest.param(["1", "2", "2"], True, id="same tag"),
        pytest.param(["1", "2", "3"], True, id="another tag, as many in all"),
        pytest.param(["1", "2", "1"], False, id="a tag would be lost"),
        pytest.param(["1", "1", "2"], True, id="a tag is won"),
    ],
)
def test_a_copy_changes_rack_only_if_no_tag_value_is_lost(groups, tags, allowed):
    state = groups.state("0_0", [groups.client(n) for n in (1, 2, 3)])
    placement = Placement(state.clients, [info.id for info in state.all_tasks])
    placement.active[0].add(0)
    placement.standby[1].add(0)
    rules = TagStandbys(placement, [{"zone": value} for value in tags], ["zone"])
    assert rules.may_exchange(0, 1, 2) is allowed


def test_the_rack_optimiser_keeps_copies_apart(groups):
    # Changing places would be cheaper for both copies, but each would land in the zone of its active.
    tasks = [groups.task("0_0", racks="a"), groups.task("0_1", racks="b")]
    clients = [
        groups.client(1, rack_id="a", client_tags={"zone": "1"}),
        groups.client(2, rack_id="b", client_tags={"zone": "2"}),
        groups.client(3, rack_id="a", client_tags={"zone": "1"}),
        groups.client(4, rack_id="b", client_tags={"zone": "2"}),
    ]
    state = groups.state(
        tasks,
        clients,
        strategy="min_traffic",
        num_standby_replicas=1,
        rack_aware_assignment_tags=("zone",),
    )
    infos = {info.id: info for info in state.all_tasks}
    placement = Placement(state.clients, infos)
    placement.active[0].add(0)
    placement.active[1].add(1)
    rules = place_standbys(placement, state.clients, [0, 1], state.assignment_configs)
    apart = [set(held) for held in placement.standby]
    assert apart == [set(), set(), {1}, {0}]
    RackAwareness(placement, state.clients, infos, "min_traffic").optimize_standbys(
        Costs(10, 1), may_move=rules.may_exchange
    )
    assert placement.standby == apart
