"""Groups come to rest although a task that is handed over has no owner for one rebalance.

A process that is to give a task up does so in one rebalance, its successor gets it in the next. In between nobody owns
it; the old owner shows a copy, the new one perhaps none. If the assignor then decides anew, and takes another task in
its stead, the two take turns for ever.
"""

import pytest
from hypothesis import given, strategies as st

import sparkrelay.assignors
from sparkrelay.simulate import Scenario, mixed_scenarios, simulate
from sparkrelay.simulate.cluster import Cluster
from sparkrelay.simulate.leader import Leader

# Enough for one hand-over after the other; a group that moves in circles never comes to an end.
MOST_REBALANCES = 20

all_assignors = pytest.mark.parametrize("name", sparkrelay.assignors.__all__)


def make(name):
    return getattr(sparkrelay.assignors, name)()


# What nobody runs is being handed over: before, after.
IN_THE_MIDST = {
    # 0_1. Active tasks: a share of 5/4 allows 1 to 2. Process 1 has none and a copy of 0_1, so that is for it, and
    # nobody gives up what he runs.
    "CruiseControlTaskAssignor": (
        {1: "/ 0_1 0_2 0_3", 2: "0_0 0_4 / 0_1 0_2", 3: "0_3 / 0_0 0_2 0_4", 4: "0_2 / 0_0 0_1 0_3"},
        [5],
        {1: "0_1", 2: "0_0 0_4", 3: "0_3", 4: "0_2"},
    ),
    # 0_0 and 0_2. Each is run by a process that has a copy, the lightest at that moment; only replicas move.
    "ElasticsearchTaskAssignor": (
        {
            1: "1_0 1_1 / 0_0 0_1 0_2 0_3",
            2: "/ 0_0 0_2 1_0 1_1 1_2",
            3: "0_3 0_4 1_2 / 0_0 0_1",
            4: "0_5 / 0_0 0_1 0_4 1_0 1_2",
            5: "0_1 / 0_5 1_0 1_1",
        },
        [6, 3],
        {1: "0_2 1_0 1_1", 2: "0_0", 3: "0_3 0_4 1_2", 4: "0_5", 5: "0_1"},
    ),
}


def active(rows):
    return {number: row.partition("/")[0].strip() for number, row in rows.items()}


@pytest.mark.parametrize("name", IN_THE_MIDST)
def test_what_waits_for_its_owner_finds_one_and_nothing_else_moves(group, table, name):
    before, partitions, expected = IN_THE_MIDST[name]
    got = active(table(make(name).assign(group(before, partitions, replicas=1))))
    assert got == expected
    for number, row in active(before).items():
        assert set(row.split()) <= set(got[number].split())


def test_a_task_that_was_given_up_goes_to_who_has_less_than_his_share_even_without_a_copy(group, table):
    # A share of 2 allows 1 to 3. Process 1 has given 0_3 up for process 2, and still has its state.
    before = {1: "0_0 0_1 0_2 / 0_3", 2: ""}
    assert table(make("CruiseControlTaskAssignor").assign(group(before, [4]))) == {1: "0_0 0_1 0_2", 2: "0_3"}


def test_a_shard_that_was_given_up_is_the_one_that_moves_on(group, table):
    # With 0_3 back on node 1, the weights are 80 against 40 and 40.
    before = {1: "0_0 0_1 0_2 / 0_3", 2: "0_4 0_5", 3: "0_6 0_7"}
    got = table(make("ElasticsearchTaskAssignor").assign(group(before, [8])))
    assert got == {1: "0_0 0_1 0_2", 2: "0_3 0_4 0_5", 3: "0_6 0_7"}


@st.composite
def lives(draw):
    """A group in any state: its scenario, what everybody has, and who comes or goes, how many rebalances apart."""
    clients = draw(st.integers(2, 6))
    scenario = Scenario(
        seed=draw(st.integers(0, 1_000)),
        clients=clients,
        threads=draw(st.integers(1, 3)),
        subtopologies=draw(st.integers(1, 2)),
        stateless_subtopologies=draw(st.integers(0, 1)),
        partitions=draw(st.integers(1, 12)),
        standbys=draw(st.integers(0, 2)),
        racks=draw(st.integers(1, 3)),
    )
    some = st.sets(st.integers(0, scenario.tasks - 1))
    stateful = scenario.subtopologies * scenario.partitions
    placed, left = {}, set(range(scenario.tasks))
    for number in range(clients):
        mine = draw(some) & left
        left -= mine
        placed[number] = (mine, {task for task in draw(some) - mine if task < stateful})
    turns = draw(st.lists(st.tuples(st.integers(0, clients - 1), st.integers(0, 2)), max_size=5))
    return scenario, placed, turns


@all_assignors
@given(life=lives())
def test_a_group_comes_to_rest_whoever_came_and_went(name, life):
    scenario, placed, turns = life
    nowhere = [frozenset()] * scenario.tasks
    cluster = Cluster(
        scenario,
        ends=[1_000.0] * (scenario.subtopologies * scenario.partitions),
        replica_racks=nowhere,
        process_count=scenario.clients,
    )
    leader = Leader(scenario, make(name), scenario.clients)
    leader.place_replicas(nowhere)
    for number in placed:
        cluster.join(number)
    cluster.put_in_place(placed)

    def rebalance():
        return cluster.follow(leader.ask(cluster).placed)

    for number, rebalances in turns:
        if number not in cluster.members:
            cluster.join(number)
        elif len(cluster.members) > 1:
            cluster.leave(number)
        for _ in range(rebalances):
            rebalance()
    # At rest, it comes to rest again after a rebalance without a reason.
    for _ in range(2):
        history = []
        while rebalance():
            history.append([sorted(process.active) for process in cluster.processes])
            assert len(history) < MOST_REBALANCES, history
        assert None not in cluster.owner


@all_assignors
def test_rolling_bounces_come_to_rest(name):
    for scenario in mixed_scenarios(12, seed=1, kinds=["rolling-bounce", "flapping"]):
        outcome = simulate(scenario, make(name))
        assert outcome.error is None, scenario
        assert outcome.converged, scenario
