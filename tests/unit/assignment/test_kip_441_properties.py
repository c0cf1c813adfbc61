"""KIP-441, "Assignment Algorithm": its numbered properties and its balance, over random groups and many rebalances."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, note, settings, strategies as st
from tests.examples import examples

from sparkrelay.assignment import AssignmentConfigs, HighAvailabilityTaskAssignor, LeastMovementTaskAssignor
from sparkrelay.assignment.placement.least_movement_target import fair_shares
from sparkrelay.testing import SimulatedGroup, task

ASSIGNORS = [LeastMovementTaskAssignor, HighAvailabilityTaskAssignor]


def lag(group, number, name):
    return group.ends[name] - group.processes[number].offsets.get(name, 0)


def rank(group, number, name):
    """KIP-441, "Computing the most-caught-up instances": whoever is within the acceptable lag has none."""
    behind = lag(group, number, name)
    return 0 if behind <= group.configs.acceptable_recovery_lag else behind


def ranks_before(group):
    return {name: {number: rank(group, number, name) for number in group.processes} for name in group.ends}


def warm_ups(group):
    return {process.id.int: set(tasks) for process, tasks in group.answer.warm_ups.items()}


@st.composite
def groups(draw, *, most_threads=3):
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3), label="sizes of logged sub-topologies")
    plain = draw(st.integers(0, 5), label="stateless tasks")
    tasks = [task(f"{sub}_{part}") for sub, size in enumerate(sizes) for part in range(size)]
    tasks += [task(f"{len(sizes)}_{part}", logged=False) for part in range(plain)]
    configs = AssignmentConfigs(
        num_standby_replicas=draw(st.integers(0, 2), label="standbys"),
        max_warmup_replicas=draw(st.integers(1, 3), label="warm-ups"),
        acceptable_recovery_lag=draw(st.sampled_from([0, 10_000]), label="acceptable lag"),
    )
    group = SimulatedGroup(tasks, configs)
    for number in range(draw(st.integers(1, 5), label="processes")):
        group.add(number + 1, threads=draw(st.integers(1, most_threads)))
    return group


def check_one_rebalance(group, assignor):
    """Properties 1 to 4, which every single assignment has to have."""
    before = ranks_before(group)
    group.rebalance(assignor)
    extra = warm_ups(group)
    assert sum(map(len, extra.values())) <= group.configs.max_warmup_replicas
    assert all(tasks <= group.processes[number].standby for number, tasks in extra.items())
    wanted = min(group.configs.num_standby_replicas, len(group.processes) - 1)
    for name, ranks in before.items():
        (runner,) = (number for number, process in group.processes.items() if name in process.active)
        # 1: on a most-caught-up process.
        assert ranks[runner] == min(ranks.values()), name
        followers = {
            number
            for number, process in group.processes.items()
            if name in process.standby and name not in extra.get(number, ())
        }
        # 2: on the next-most-caught-up ones, as many as asked for; what goes beyond is a warm-up (3).
        assert len(followers) == wanted, name
        others = [ranks[number] for number in ranks if number != runner and number not in followers]
        assert max((ranks[number] for number in followers), default=0) <= min(others, default=1 << 62), name
    # 4, and that nothing runs twice: the group itself checks that every task is active somewhere.
    assert sorted(name for process in group.processes.values() for name in process.active) == sorted(group.tasks)


def check_balance(group):
    threads = [process.threads for process in group.processes.values()]
    active = [len(process.active) for process in group.processes.values()]
    logged = [len(process.active & group.ends.keys()) for process in group.processes.values()]
    copies = [len((process.active | process.standby) & group.ends.keys()) for process in group.processes.values()]
    replicas = 1 + min(group.configs.num_standby_replicas, len(threads) - 1)
    for counts, share in (
        (active, fair_shares(threads, 1, len(group.tasks))),
        (logged, fair_shares(threads, 1, len(group.ends))),
        (copies, fair_shares(threads, replicas, len(group.ends))),
    ):
        assert all(low <= count <= high for low, count, high in zip(share[0], counts, share[1], strict=True)), counts
    if len(set(threads)) > 1:
        return
    # KIP-441, "Defining balance": instances, then sub-topologies.
    assert max(active) - min(active) <= 1
    assert max(copies) - min(copies) <= 1
    for sub, size in Counter(name.subtopology for name in group.ends).items():
        runs = [sum(name.subtopology == sub for name in process.active) for process in group.processes.values()]
        assert sum(count > 0 for count in runs) == min(size, len(runs)), "as many processes as it can have"
        assert max(runs) - min(runs) <= 1


@settings(max_examples=examples(120), deadline=None)
@given(group=groups(), data=st.data())
def test_all_properties_through_joins_and_losses(group, data):
    """Whatever comes and goes: each assignment has properties 1 to 4, and the group comes to rest, balanced."""
    assignor = LeastMovementTaskAssignor()
    for _ in range(data.draw(st.integers(1, 4), label="events")):
        event = data.draw(st.sampled_from(["join", "leave", "partly", "nothing"]), label="event")
        if event == "join":
            group.add(max(group.processes) + 1, threads=data.draw(st.integers(1, 3)))
        elif event == "leave" and len(group.processes) > 1:
            group.remove(data.draw(st.sampled_from(sorted(group.processes))))
        elif event == "partly":
            for process in group.processes.values():
                for name in process.offsets:
                    process.offsets[name] = data.draw(st.integers(process.offsets[name], group.ends[name]))
        check_one_rebalance(group, assignor)
    note(f"history: {group.history}")
    copies = len(group.ends) * (1 + group.configs.num_standby_replicas)
    for _ in range(copies + 4):
        check_one_rebalance(group, assignor)
        if not group.answer.probing_rebalance:
            break
        group.catch_up()
    assert not group.answer.probing_rebalance, group.history
    check_balance(group)
    # 5: a balanced assignment is not altered. 6: nor are stateless tasks shuffled.
    group.catch_up()
    at_rest = group.table()
    for _ in range(2):
        check_one_rebalance(group, assignor)
        assert group.table() == at_rest, group.history


@settings(max_examples=examples(60), deadline=None)
@given(group=groups(most_threads=1))
def test_a_newcomer_takes_a_share_and_nobody_else_gets_anything_new(group):
    assignor = LeastMovementTaskAssignor()
    group.converge(assignor, rounds=3)
    group.catch_up()
    held = {number: set(process.offsets) for number, process in group.processes.items()}
    newcomer = max(group.processes) + 1
    group.add(newcomer)
    group.converge(assignor, rounds=len(group.ends) * 3 + 4)
    note(f"history: {group.history}")
    new = {number: process.offsets.keys() - held.get(number, set()) for number, process in group.processes.items()}
    replicas = 1 + min(group.configs.num_standby_replicas, len(group.processes) - 1)
    least, most = fair_shares([1] * len(group.processes), replicas, len(group.ends))
    assert least[0] <= len(new[newcomer]) <= most[0]
    if group.configs.num_standby_replicas < len(held):
        # Unless the newcomer makes room for one more copy of each task, only sub-topology balance moves others.
        subs = len({name.subtopology for name in group.ends})
        assert sum(map(len, new.values())) - len(new[newcomer]) <= subs * len(group.processes)


@pytest.mark.parametrize("assignor", ASSIGNORS)
@settings(max_examples=examples(60), deadline=None)
@given(group=groups(), data=st.data())
def test_both_come_to_rest_and_stay_there(assignor, group, data):
    """Property 5, which Kafka's assignor has too: its target does not depend on who ran what."""
    made = assignor()
    group.rebalance(made)
    if data.draw(st.booleans(), label="one leaves") and len(group.processes) > 1:
        group.remove(data.draw(st.sampled_from(sorted(group.processes))))
    else:
        group.add(max(group.processes) + 1)
    group.catch_up()
    group.converge(made, rounds=3 * len(group.ends) + 5)
    group.catch_up()
    at_rest = group.table()
    assert not group.rebalance(made).probing_rebalance
    assert group.table() == at_rest, group.history


def test_high_availability_does_not_promise_balanced_subtopologies():
    """A departure from KIP-441's text: per thread it evens out tasks, whatever sub-topology they belong to."""
    tables = {}
    for assignor in (LeastMovementTaskAssignor(), HighAvailabilityTaskAssignor()):
        group = SimulatedGroup(task(f"{sub}_{part}") for sub in range(2) for part in range(4))
        group.add(1, threads=1)
        group.add(2, threads=3)
        group.rebalance(assignor)
        tables[type(assignor)] = group.table()
    assert tables[HighAvailabilityTaskAssignor][1] == ("1_0 1_2", "")  # nothing of sub-topology 0
    runs = tables[LeastMovementTaskAssignor][1][0].split()
    assert sorted(name[0] for name in runs) == ["0", "1"]


def test_high_availability_does_not_keep_actives_where_they_are():
    """Another departure: both processes have both copies, and still the two tasks change places."""
    for assignor, stays in ((LeastMovementTaskAssignor(), True), (HighAvailabilityTaskAssignor(), False)):
        group = SimulatedGroup([task("0_0"), task("0_1")], AssignmentConfigs(num_standby_replicas=1))
        group.add(1, active=["0_1"], standby=["0_0"])
        group.add(2, active=["0_0"], standby=["0_1"])
        group.rebalance(assignor)
        assert (group.table() == {1: ("0_1", "0_0"), 2: ("0_0", "0_1")}) is stays


def test_stores_without_a_changelog_have_no_standbys_and_move_like_stateless_tasks():
    """KIP-441, "State with logging disabled": heavy for balance, but everybody is equally caught up."""
    unlogged = task("1_0", logged=False)
    heavy = type(unlogged)(unlogged.id, frozenset({"cache"}), unlogged.topic_partitions)
    assert heavy.is_stateful
    assert not heavy.is_logged
    for assignor in (LeastMovementTaskAssignor(), HighAvailabilityTaskAssignor()):
        group = SimulatedGroup([task("0_0"), heavy], AssignmentConfigs(num_standby_replicas=1))
        group.add(1, active=["0_0", "1_0"])
        group.add(2)
        group.converge(assignor, rounds=4)
        assert group.table() == {1: ("0_0", ""), 2: ("1_0", "0_0")}


def test_too_few_processes_for_the_standbys_asked_for():
    for assignor in (LeastMovementTaskAssignor(), HighAvailabilityTaskAssignor()):
        group = SimulatedGroup([task("0_0"), task("0_1")], AssignmentConfigs(num_standby_replicas=3))
        group.add(1)
        group.rebalance(assignor)
        assert group.table() == {1: ("0_0 0_1", "")}
        group.add(2)
        group.catch_up()
        group.converge(assignor, rounds=4)
        assert [len(process.offsets) for process in group.processes.values()] == [2, 2]
