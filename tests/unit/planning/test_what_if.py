"""What-if over a group: it ends where the assignor leads, and counts what has to be restored on the way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.assignment import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    HighAvailabilityTaskAssignor,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    StickyTaskAssignor,
    TaskAssignment,
    TaskAssignor,
    TaskInfo,
)
from sparkrelay.assignment.leader.explain import Kind
from sparkrelay.assignment.process_ids import find_process, new_process_ids
from sparkrelay.errors import ConfigException, StreamsException
from sparkrelay.planning.what_if import Held, Restore, moves_by_place, what_if
from sparkrelay.protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from sparkrelay.types import ProcessId, TaskId, TopicPartition

END = 100_000
HA = HighAvailabilityTaskAssignor()
P1, P2, P3 = (ProcessId.parse(f"{n}0000000-0000-0000-0000-00000000000{n}") for n in (1, 2, 3))


def info(partition):
    return TaskInfo.of(
        TaskId(0, partition),
        inputs=[TopicPartition("in", partition)],
        changelogs=[TopicPartition("cl", partition)],
        stores=["store"],
    )


def group(active, *, copies=None, count=4, end=END, **configs):
    """A stable group: `active` and `copies` name partitions by process."""
    infos = [info(n) for n in range(count)]
    clients = {}
    for process, held in active.items():
        followed = (copies or {}).get(process, ())
        lags = {task.id: end for task in infos} | {TaskId(0, n): 0 for n in followed}
        clients[process] = KafkaStreamsState(
            process_id=process,
            consumer_client_ids=frozenset([f"member-of-{process}"]),
            previous_active_tasks=frozenset(TaskId(0, n) for n in held),
            previous_standby_tasks=frozenset(TaskId(0, n) for n in followed),
            task_lags=lags | {TaskId(0, n): LATEST_OFFSET for n in held},
        )
    return ApplicationState(
        all_tasks=frozenset(infos), clients=clients, assignment_configs=AssignmentConfigs(**configs)
    )


def tasks(*partitions):
    return tuple(TaskId(0, n) for n in partitions)


def test_nothing_changes_in_a_stable_group():
    outcome = what_if(group({P1: [0, 2], P2: [1, 3]}), HA)
    assert outcome.converged
    assert (outcome.moved, outcome.pauses, outcome.restore, outcome.rebalances) == ((), (), Restore(), 1)
    assert [one.decisions for one in outcome.rounds] == [()]


def test_one_more_instance_warms_up_and_takes_over_without_a_pause():
    (new,) = new_process_ids([P1], 1)
    outcome = what_if(group({P1: [0, 1, 2, 3]}), HA, add=[new], ends={TaskId(0, n): END for n in range(4)})
    assert [[d.kind for d in one.decisions] for one in outcome.rounds] == [[Kind.WARM_UP] * 2, [Kind.MOVES] * 2]
    assert [one.hands_over for one in outcome.rounds] == [False, True]
    assert outcome.rebalances == 3
    assert outcome.moved == tasks(1, 3)
    assert outcome.pauses == ()
    old, added = outcome.processes
    assert (old.before, old.after, old.restore) == (Held(tasks(0, 1, 2, 3)), Held(tasks(0, 2)), Restore())
    assert (added.added, added.after, added.restore) == (True, Held(tasks(1, 3)), Restore(tasks=2, records=2 * END))
    assert outcome.seconds(1000) == 200.0


def test_warm_ups_come_one_after_the_other_if_only_one_is_allowed():
    (new,) = new_process_ids([P1], 1)
    state = group({P1: [0, 1, 2, 3]}, max_warmup_replicas=1)
    outcome = what_if(state, HA, add=[new], ends={TaskId(0, n): END for n in range(4)})
    assert outcome.seconds(1000) == 200.0
    assert outcome.rebalances == 5


def test_without_a_standby_the_tasks_of_the_one_that_leaves_pause():
    outcome = what_if(group({P1: [0, 2], P2: [1, 3]}), HA, remove=[P2])
    assert [(pause.task, pause.process, pause.records) for pause in outcome.pauses] == [
        (TaskId(0, 1), P1, END),
        (TaskId(0, 3), P1, END),
    ]
    gone = outcome.processes[1]
    assert (gone.removed, gone.before, gone.after) == (True, Held(tasks(1, 3)), Held())


def test_standbys_cover_the_one_that_leaves():
    state = group({P1: [0, 2], P2: [1, 3]}, copies={P1: [1, 3], P2: [0, 2]}, num_standby_replicas=1)
    outcome = what_if(state, HA, remove=[P2])
    assert outcome.pauses == ()
    assert outcome.restore == Restore()
    assert outcome.moved == tasks(1, 3)


def test_what_is_not_known_is_not_counted_but_warmed_up():
    """One process runs everything: nobody's lag says how long the changelogs are."""
    (new,) = new_process_ids([P1], 1)
    outcome = what_if(group({P1: [0, 1, 2, 3]}), HA, add=[new])
    assert outcome.restore == Restore(tasks=2, records=0, unknown=2)
    assert outcome.rounds[0].decisions[0].kind is Kind.WARM_UP
    assert outcome.pauses == ()


def test_a_newcomer_stands_where_fewest_do():
    state = group({P1: [0], P2: [1], P3: [2, 3]})
    racks = {P1: "a", P2: "b", P3: "a"}
    clients = {
        process: KafkaStreamsState(process_id=process, rack_id=rack, task_lags=state.clients[process].task_lags)
        for process, rack in racks.items()
    }
    seen = []

    class Looking(TaskAssignor):
        def assign(self, application_state):
            seen.append(application_state)
            return HA.assign(application_state)

    (new,) = new_process_ids(clients, 1)
    moved = ApplicationState(all_tasks=state.all_tasks, clients=clients)
    what_if(moved, Looking(), add=[new], threads=3)
    assert (seen[0].clients[new].rack_id, seen[0].clients[new].num_processing_threads) == ("b", 3)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 2), st.integers(0, 3), st.integers(0, 2), st.integers(1, 3))
@settings(deadline=None)
def test_every_outcome_of_the_built_in_assignors_settles_and_its_story_agrees(
    count, present, standbys, added, removed, warm_ups
):
    ids = [P1, P2, P3, ProcessId.random()][:present]
    state = group(
        {process: range(at, count, present) for at, process in enumerate(ids)},
        count=count,
        num_standby_replicas=standbys,
        max_warmup_replicas=warm_ups,
    )
    leaving = ids[: min(removed, present - 1 + bool(added))]
    joining = new_process_ids([one for one in ids if one not in leaving], added)
    for assignor in (HA, StickyTaskAssignor()):
        outcome = what_if(state, assignor, add=joining, remove=leaving)
        assert outcome.converged
        after = [task for one in outcome.processes for task in one.after.active]
        assert sorted(after) == list(tasks(*range(count)))
        # Following the decisions leads from before to after.
        runner = {task: one.process for one in outcome.processes if not one.removed for task in one.before.active}
        for one in outcome.rounds:
            for decision in one.decisions:
                if decision.kind is Kind.MOVES:
                    assert runner[decision.task] == decision.previous
                if decision.kind in {Kind.MOVES, Kind.STARTS}:
                    runner[decision.task] = decision.process
        assert runner == {task: one.process for one in outcome.processes for task in one.after.active}
        assert outcome.restore.tasks == sum(one.restores[p].tasks for one in outcome.rounds for p in one.restores)
        if assignor is HA and not leaving:
            assert not outcome.pauses, "a task in service is not taken away before its next owner is warm"


class Restless(TaskAssignor):
    def assign(self, application_state):
        return TaskAssignment(HA.assign(application_state).assignment, probing_rebalance=True)


class Doubling(TaskAssignor):
    def assign(self, application_state):
        active = AssignedTask(TaskId(0, 0), AssignedTask.Type.ACTIVE)
        return TaskAssignment([KafkaStreamsAssignment.of(process, [active]) for process in application_state.clients])


def test_an_assignor_that_never_rests_ends_all_the_same():
    outcome = what_if(group({P1: [0, 2], P2: [1, 3]}), Restless())
    assert not outcome.converged
    assert len(outcome.rounds) == 1


class Broken(TaskAssignor):
    def assign(self, application_state):
        return application_state.no_such_thing


def test_an_assignor_that_fails_is_blamed():
    with pytest.raises(StreamsException, match=r"the assignor failed: AttributeError: .*no_such_thing"):
        what_if(group({P1: [0]}), Broken())


def test_an_invalid_answer_is_refused():
    with pytest.raises(StreamsException, match="ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"):
        what_if(group({P1: [0, 2], P2: [1, 3]}), Doubling())


def test_who_leaves_must_be_there_and_somebody_must_stay():
    state = group({P1: [0, 1, 2, 3]})
    with pytest.raises(ConfigException, match=f"process {P2} is not in the group"):
        what_if(state, HA, remove=[P2])
    with pytest.raises(ConfigException, match="no process would be left"):
        what_if(state, HA, remove=[P1])


def test_processes_are_found_by_the_beginning_of_their_ids_or_members():
    state = group({P1: [0], P2: [1]})
    assert find_process(state, str(P1)) == P1
    assert find_process(state, "2000") == P2
    assert find_process(state, f"member-of-{P2}") == P2
    for text, complaint in (("4", "no process matches '4'; the group has 1000"), ("", "''"), ("member", "several")):
        with pytest.raises(ConfigException, match=complaint):
            find_process(state, text)


@given(st.lists(st.uuids(), max_size=6, unique=True), st.integers(1, 4), st.data())
def test_new_ids_sort_where_they_are_wanted(ids, count, data):
    present = sorted(map(ProcessId, ids))
    place = data.draw(st.integers(0, len(present)))
    new = new_process_ids(present, count, place=place)
    assert sorted(present + new) == present[:place] + new + present[place:]
    assert sorted(present + new_process_ids(present, count))[: len(present)] == present


def test_where_a_new_id_sorts_decides_how_much_moves():
    state = group({P1: [0, 2], P2: [1, 3]})
    assert moves_by_place(state, HA, count=1) == (2, 4)
    assert moves_by_place(group({P1: []}, count=0), HA, count=2) == (0, 0)


def test_a_task_whose_lag_is_unknown_pauses_for_an_unknown_time():
    state = ApplicationState(
        all_tasks=frozenset([info(0)]),
        clients={P1: KafkaStreamsState(process_id=P1, task_lags={TaskId(0, 0): UNKNOWN_OFFSET_SUM})},
    )
    (pause,) = what_if(state, HA).pauses
    assert pause.records is None
