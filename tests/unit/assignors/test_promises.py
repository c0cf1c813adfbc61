"""What every assignor here promises on random groups, and what each of them means by balance."""

import ast
import importlib
import itertools
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

import sparkrelay.assignors
from sparkrelay.assignment import (
    ApplicationState,
    AssignmentConfigs,
    AssignmentError,
    KafkaStreamsState,
    ProcessId,
    TaskAssignor,
    TaskId,
    TaskInfo,
    load_assignor,
    validate,
)
from sparkrelay.assignors import (
    ConsumerStickyTaskAssignor,
    CruiseControlTaskAssignor,
    ElasticsearchTaskAssignor,
    SamzaHostAffinityTaskAssignor,
)
from sparkrelay.errors import TaskAssignmentException
from sparkrelay.types import TopicPartition

NAMES = sparkrelay.assignors.__all__
all_assignors = pytest.mark.parametrize("name", NAMES)


def make(name):
    return getattr(sparkrelay.assignors, name)()


def process(number):
    return ProcessId.parse(f"00000000-0000-0000-0000-{number:012x}")


@st.composite
def groups(draw, *, most_threads=3, racks=True, most_replicas=2):
    stateful = draw(st.lists(st.booleans(), max_size=3))
    partitions = [draw(st.integers(1, 8)) for _ in stateful]
    tasks = [
        TaskInfo.of(
            TaskId(subtopology, partition),
            inputs=[TopicPartition(f"in-{subtopology}", partition)],
            changelogs=[TopicPartition(f"cl-{subtopology}", partition)] if stateful[subtopology] else [],
            stores=["store"] if stateful[subtopology] else [],
        )
        for subtopology, count in enumerate(partitions)
        for partition in range(count)
    ]
    numbers = range(draw(st.integers(1, 6)))
    active = {number: set() for number in numbers}
    standby = {number: set() for number in numbers}
    # Some tasks that no longer exist, too, and a few that two claim.
    for task in [*(info.id for info in tasks), TaskId(0, 99), TaskId(9, 0)]:
        for number in draw(st.lists(st.sampled_from(numbers), max_size=2, unique=True)):
            active[number].add(task)
        for number in draw(st.lists(st.sampled_from(numbers), max_size=2, unique=True)):
            if task not in active[number]:
                standby[number].add(task)
    clients = {
        process(number): KafkaStreamsState(
            process_id=process(number),
            num_processing_threads=draw(st.integers(1, most_threads)),
            previous_active_tasks=frozenset(active[number]),
            previous_standby_tasks=frozenset(standby[number]),
            rack_id=draw(st.sampled_from([None, "a", "b"])) if racks else None,
        )
        for number in numbers
    }
    return ApplicationState(
        all_tasks=frozenset(tasks),
        clients=clients,
        assignment_configs=AssignmentConfigs(num_standby_replicas=draw(st.integers(0, most_replicas))),
    )


def after(state, assignment):
    """The same group once it has taken the assignment over."""
    held = {entry.process_id: entry for entry in assignment.assignment}
    clients = {
        name: replace(
            before,
            previous_active_tasks=frozenset(held[name].active_tasks),
            previous_standby_tasks=frozenset(held[name].standby_tasks),
        )
        for name, before in state.clients.items()
    }
    return replace(state, clients=clients)


def actives(assignment):
    return {entry.process_id: len(entry.active_tasks) for entry in assignment.assignment}


# Promises of all


@all_assignors
@given(state=groups())
def test_every_answer_is_valid_and_whole(name, state):
    got = make(name).assign(state)
    assert validate(state, got) is AssignmentError.NONE
    assert sorted(entry.process_id for entry in got.assignment) == sorted(state.clients)
    assert Counter(task for entry in got.assignment for task in entry.active_tasks) == Counter(
        info.id for info in state.all_tasks
    )
    copies = Counter(task for entry in got.assignment for task in entry.standby_tasks)
    wanted = min(state.assignment_configs.num_standby_replicas, len(state.clients) - 1)
    assert copies == Counter({info.id: wanted for info in state.all_tasks if info.is_logged and wanted})
    assert not got.warm_ups
    assert not got.probing_rebalance


@all_assignors
@given(state=groups())
def test_nothing_moves_when_nothing_changes(name, state):
    first = make(name).assign(state)
    second = make(name).assign(after(state, first))
    assert second.assignment == first.assignment


@all_assignors
@given(state=groups(), data=st.data())
def test_the_order_in_which_processes_are_named_decides_nothing(name, state, data):
    shuffled = data.draw(st.permutations(list(state.clients.items())))
    other = replace(state, clients=dict(shuffled))
    entries = {entry.process_id: entry for entry in make(name).assign(state).assignment}
    assert {entry.process_id: entry for entry in make(name).assign(other).assignment} == entries


@all_assignors
def test_idle_processes_have_an_entry_too(name, group, table):
    assert table(make(name).assign(group({1: "", 2: ""}, []))) == {1: "", 2: ""}
    assert table(make(name).assign(group({1: "0_0", 2: ""}, [1]))) == {1: "0_0", 2: ""}


@all_assignors
def test_a_group_without_processes_gets_an_empty_answer(name, group):
    assert make(name).assign(group({}, [2])).assignment == ()


@all_assignors
def test_it_can_be_named_in_the_settings(name):
    assignor = load_assignor(f"sparkrelay.assignors:{name}", {})
    assert type(assignor) is getattr(sparkrelay.assignors, name)
    assert isinstance(assignor, TaskAssignor)


@all_assignors
def test_lags_that_cannot_be_computed_do_not_matter(name, group, table):
    state = group({1: "0_0", 2: "0_1"}, [2])

    def fail():
        raise TaskAssignmentException("the broker is away")

    assert table(make(name).assign(replace(state, compute_lags=fail))) == {1: "0_0", 2: "0_1"}


# Balance, as each source means it


@pytest.mark.parametrize("assignor", [ConsumerStickyTaskAssignor, SamzaHostAffinityTaskAssignor])
@given(state=groups())
def test_threads_differ_by_one_task_at_most(assignor, state):
    got = actives(assignor().assign(state))
    threads = {name: client.num_processing_threads for name, client in state.clients.items()}
    share, larger = divmod(len(state.all_tasks), sum(threads.values()))
    for name, count in threads.items():
        assert count * share <= got[name] <= count * (share + (larger > 0))


@given(state=groups())
def test_the_consumers_assignor_keeps_as_much_as_even_shares_allow(state):
    """Everybody keeps up to the share; of the larger shares as many are kept as there are claims to them."""
    got = {entry.process_id: set(entry.active_tasks) for entry in ConsumerStickyTaskAssignor().assign(state).assignment}
    known = {info.id for info in state.all_tasks}
    claims = Counter(task for client in state.clients.values() for task in client.previous_active_tasks)
    share, larger = divmod(len(known), sum(client.num_processing_threads for client in state.clients.values()))
    kept, above = 0, 0
    for client in state.clients.values():
        threads = client.num_processing_threads
        owned = sum(claims[task] == 1 and task in known for task in client.previous_active_tasks)
        kept += min(owned, threads * share)
        above += min(threads, max(0, owned - threads * share))
    stayed = sum(
        claims[task] == 1 for name, client in state.clients.items() for task in got[name] & client.previous_active_tasks
    )
    assert stayed >= kept + min(above, larger)


@given(state=groups())
def test_samza_leaves_groups_that_are_even_alone(state):
    first = SamzaHostAffinityTaskAssignor().assign(state)
    later = after(state, first)
    # One task has lost its host; it comes back there, or goes to nobody who is full.
    assume(len(state.all_tasks) > 0)
    lost = next(iter(later.all_tasks)).id
    without = {
        name: replace(client, previous_active_tasks=client.previous_active_tasks - {lost})
        for name, client in later.clients.items()
    }
    second = SamzaHostAffinityTaskAssignor().assign(replace(later, clients=without))
    for one, other in zip(first.assignment, second.assignment, strict=True):
        assert set(one.active_tasks) - {lost} <= set(other.active_tasks)


@given(state=groups())
def test_elasticsearch_leaves_no_heavy_difference_that_a_move_would_lessen(state):
    got = ElasticsearchTaskAssignor().assign(state)
    held = {entry.process_id: set(entry.tasks) for entry in got.assignment}
    for subtopology in {info.id.subtopology for info in state.all_tasks}:
        of_index = {name: {task for task in tasks if task.subtopology == subtopology} for name, tasks in held.items()}
        weight = {name: 0.45 * len(held[name]) + 0.55 * len(of_index[name]) for name in held}
        for heavy, light in itertools.permutations(held, 2):
            if of_index[heavy] - held[light]:
                assert weight[heavy] - weight[light] <= 1.001


@given(state=groups(racks=False, most_replicas=0))
def test_cruise_control_keeps_counts_within_their_limits(state):
    got = actives(CruiseControlTaskAssignor().assign(state))
    threads = {name: client.num_processing_threads for name, client in state.clients.items()}
    for name, count in threads.items():
        share = len(state.all_tasks) * count / sum(threads.values())
        assert share * 0.91 - 1 < got[name] < share * 1.09 + 1


@given(state=groups(racks=False))
def test_cruise_control_leaves_nothing_undone_that_its_goals_allow(state):
    """Counts of copies come first; swapping roles moves no copy, so nothing stands in the way of leader counts."""
    got = CruiseControlTaskAssignor().assign(state)
    held = {entry.process_id: set(entry.tasks) for entry in got.assignment}
    led = {entry.process_id: set(entry.active_tasks) for entry in got.assignment}
    threads = {name: client.num_processing_threads for name, client in state.clients.items()}

    def limits(counted):
        total, all_threads = sum(map(len, counted.values())), sum(threads.values())
        return (
            {name: total * count * 91 // (100 * all_threads) for name, count in threads.items()},
            {name: -(-total * count * 109 // (100 * all_threads)) for name, count in threads.items()},
        )

    lower, upper = limits(held)
    fewest, most = limits(led)
    for rich, poor in itertools.permutations(held, 2):
        if len(held[rich]) > upper[rich] and len(held[poor]) < upper[poor]:
            assert not held[rich] - held[poor]
        if len(held[poor]) < lower[poor] and len(held[rich]) > lower[rich]:
            assert not held[rich] - held[poor]
        if len(led[rich]) > most[rich] and len(led[poor]) < most[poor]:
            assert not led[rich] & held[poor]
        if len(led[poor]) < fewest[poor] and len(led[rich]) > fewest[rich]:
            assert not led[rich] & held[poor]


@given(state=groups())
def test_cruise_control_spreads_copies_over_racks_as_far_as_there_are_processes(state):
    got = CruiseControlTaskAssignor().assign(state)
    rack = {name: client.rack_id or name for name, client in state.clients.items()}
    racks = len(set(rack.values()))
    for info in state.all_tasks:
        holders = {entry.process_id for entry in got.assignment if info.id in entry.tasks}
        most = -(-len(holders) // racks)
        copies = Counter(rack[name] for name in holders)
        if max(copies.values()) > most:
            assert all(name in holders or copies[rack[name]] >= most for name in state.clients)


# They prove the API


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            yield from ((node.module, alias.name) for alias in node.names)


MODULES = sorted(Path(sparkrelay.assignors.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__init__.py"], ids=lambda path: path.stem)
def test_each_needs_nothing_but_the_public_api(path):
    own = f"sparkrelay.assignors.{path.stem}_"
    allowed = {"sparkrelay.assignment", "sparkrelay.types", "sparkrelay.errors"}
    for module, name in _imports(path):
        if module in allowed or module.startswith(own):
            assert name in importlib.import_module(module).__all__, f"{module}.{name} is not public"
        else:
            assert module.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {module}"


def test_the_package_is_these_modules_and_no_more():
    modules = {module for module, _name in _imports(Path(sparkrelay.assignors.__file__))}
    files = {path.stem for path in MODULES if path.name != "__init__.py"}
    # A large one is split: the parts have its name and something after it.
    whole = {stem for stem in files if not any(stem.startswith(f"{other}_") for other in files)}
    assert modules == {f"sparkrelay.assignors.{stem}" for stem in whole}
    assert sorted(NAMES) == NAMES
