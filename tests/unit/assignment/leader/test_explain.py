"""Every change has exactly one decision, nothing is invented, and each reason is true."""

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
    TaskInfo,
)
from sparkrelay.assignment.leader.explain import Decision, Kind, Reason, explain, withheld_decisions
from sparkrelay.protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from sparkrelay.types import ProcessId, TaskId, TopicPartition

END = 100_000
ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY
P1, P2, P3 = (ProcessId.parse(f"00000000-0000-0000-0000-{n:012x}") for n in (1, 2, 3))
T0, T1 = TaskId(0, 0), TaskId(0, 1)


def info(task, *, logged=True):
    return TaskInfo.of(
        task,
        inputs=[TopicPartition(f"in-{task.subtopology}", task.partition)],
        changelogs=[TopicPartition(f"cl-{task.subtopology}", task.partition)] if logged else [],
        stores=["store"] if logged else [],
    )


@st.composite
def states(draw):
    tasks = [info(TaskId(0, n)) for n in range(draw(st.integers(0, 5)))]
    tasks += [info(TaskId(1, n), logged=False) for n in range(draw(st.integers(0, 3)))]
    logged = [task.id for task in tasks if task.is_logged]
    processes = [P1, P2, P3][: draw(st.integers(1, 3))]
    owner = {task.id: draw(st.sampled_from([None, *processes])) for task in tasks}
    clients = {}
    for process in processes:
        lags = {
            task: LATEST_OFFSET
            if owner[task] == process and draw(st.booleans())
            else draw(st.sampled_from([0, 5_000, 50_000, END, UNKNOWN_OFFSET_SUM]))
            for task in logged
        }
        clients[process] = KafkaStreamsState(
            process_id=process,
            num_processing_threads=draw(st.integers(1, 2)),
            previous_active_tasks=frozenset(task for task, who in owner.items() if who == process),
            previous_standby_tasks=frozenset(task for task in logged if owner[task] != process and draw(st.booleans())),
            task_lags=lags,
        )
    configs = AssignmentConfigs(
        num_standby_replicas=draw(st.integers(0, 2)), max_warmup_replicas=draw(st.integers(1, 3))
    )
    return ApplicationState(all_tasks=frozenset(tasks), clients=clients, assignment_configs=configs)


@given(states(), st.sampled_from([HighAvailabilityTaskAssignor(), StickyTaskAssignor()]))
@settings(deadline=None)
def test_each_change_has_one_decision_and_nothing_is_invented(state, assignor):
    answer = assignor.assign(state)
    decisions = explain(state, answer)
    reported = [(d.kind, d.task, d.process) for d in decisions]
    assert len(set(reported)) == len(reported)
    before_active = {t: p for p, client in state.clients.items() for t in client.previous_active_tasks}
    before_copies = {(t, p) for p, client in state.clients.items() for t in client.previous_standby_tasks}
    after_active = {t: entry.process_id for entry in answer.assignment for t in entry.active_tasks}
    after_copies = {(t, entry.process_id) for entry in answer.assignment for t in entry.standby_tasks}
    warm_ups = {(t, p) for p, tasks in answer.warm_ups.items() for t in tasks}

    def of(kind):
        return {(task, process) for which, task, process in reported if which is kind}

    assert of(Kind.MOVES) == {(t, p) for t, p in after_active.items() if before_active.get(t, p) != p}
    assert all(before_active[d.task] == d.previous for d in decisions if d.kind is Kind.MOVES)
    assert of(Kind.STARTS) == {(t, p) for t, p in after_active.items() if t not in before_active}
    assert of(Kind.WARM_UP) == warm_ups
    assert of(Kind.STANDBY_PLACED) == after_copies - warm_ups - before_copies
    assert of(Kind.STANDBY_DROPPED) == {(t, p) for t, p in before_copies - after_copies if after_active.get(t) != p}
    assert of(Kind.RESTORES) <= {(t, p) for t, p in after_active.items() if before_active.get(t) == p}
    assert not of(Kind.NOT_RUN)
    for d in decisions:
        lags = [client.lag_for(d.task) for client in state.clients.values()] if d.task.subtopology == 0 else []
        caught_up = [lag for lag in lags if lag == LATEST_OFFSET or 0 <= lag <= 10_000]
        match d.reason:
            case Reason.STATELESS:
                assert d.task.subtopology == 1
            case Reason.CAUGHT_UP | Reason.LITTLE_TO_RESTORE:
                assert 0 <= d.lag <= 10_000
            case Reason.NOBODY_CAUGHT_UP:
                assert not caught_up
                assert d.lag == min(lag for lag in lags if lag >= 0)
            case Reason.NOT_CAUGHT_UP:
                assert d.lag is None or d.lag > 10_000
            case Reason.TOO_FEW_PROCESSES:
                assert len(state.clients) <= state.assignment_configs.num_standby_replicas
        assert "\n" not in d.line()
        assert str(d.task) in d.line()


def process(name, *, active=(), copies=(), **lags):
    return KafkaStreamsState(
        process_id=name,
        previous_active_tasks=frozenset(active),
        previous_standby_tasks=frozenset(copies),
        task_lags={TaskId.parse(task[1:]): lag for task, lag in lags.items()},
    )


def story(clients, held, *, warm_ups=None, tasks=(T0,), **configs):
    state = ApplicationState(
        all_tasks=frozenset(map(info, tasks)),
        clients={client.process_id: client for client in clients},
        assignment_configs=AssignmentConfigs(**configs),
    )
    entries = [
        KafkaStreamsAssignment.of(name, [AssignedTask(task, role) for task, role in given_]) for name, given_ in held
    ]
    return explain(state, TaskAssignment(entries, warm_ups=warm_ups))


def test_a_warm_up_says_how_far_it_has_to_go_and_who_works_meanwhile():
    (decision,) = story(
        [process(P1, active=[T0], t0_0=LATEST_OFFSET), process(P2, t0_0=END)],
        [(P1, [(T0, ACTIVE)]), (P2, [(T0, STANDBY)])],
        warm_ups={P2: frozenset([T0])},
    )
    assert decision == Decision(
        task=T0, kind=Kind.WARM_UP, reason=Reason.NOT_CAUGHT_UP, process=P2, previous=P1, lag=END
    )
    assert decision.line({P1: "A", P2: "B"}) == (
        "task 0_0 warms up on B; A runs it meanwhile: its copy is not caught up (100,000 offsets behind)"
    )


def test_the_warm_up_that_is_done_takes_over():
    (decision,) = story(
        [process(P1, active=[T0], t0_0=LATEST_OFFSET), process(P2, copies=[T0], t0_0=12)],
        [(P1, []), (P2, [(T0, ACTIVE)])],
    )
    assert decision.line({P1: "A", P2: "B"}) == (
        "task 0_0 moves from A to B: its copy is caught up (12 offsets behind)"
    )


@pytest.mark.parametrize(
    ("lags", "copies", "reason"),
    [
        ((50_000, END), [T0], Reason.NOBODY_CAUGHT_UP),
        ((END, 50_000), [T0], Reason.BALANCE),
        ((END, 0), [], Reason.BALANCE),
        ((UNKNOWN_OFFSET_SUM, END), [T0], Reason.LAGS_UNKNOWN),
        ((5, END), [], Reason.LITTLE_TO_RESTORE),
        ((5, 0), [T0], Reason.CAUGHT_UP),
    ],
)
def test_why_a_task_that_nobody_ran_starts_where_it_does(lags, copies, reason):
    decisions = story(
        [process(P1, copies=copies, t0_0=lags[0]), process(P2, t0_0=lags[1])], [(P1, [(T0, ACTIVE)]), (P2, [])]
    )
    assert [(d.kind, d.reason, d.process) for d in decisions] == [(Kind.STARTS, reason, P1)]


def test_a_task_that_stays_but_has_lost_its_state_is_reported():
    (decision,) = story([process(P1, active=[T0], t0_0=END)], [(P1, [(T0, ACTIVE)])])
    assert (decision.kind, decision.reason, decision.lag) == (Kind.RESTORES, Reason.NOBODY_CAUGHT_UP, END)


def test_a_task_that_nobody_gets_is_reported():
    (decision,) = story([process(P1, active=[T0], t0_0=LATEST_OFFSET)], [(P1, [])])
    assert decision.line({P1: "A"}) == "task 0_0 is run by nobody; before: A: the assignor left it out"


def test_roles_that_are_swapped():
    decisions = story(
        [process(P1, active=[T0], t0_0=LATEST_OFFSET), process(P2, copies=[T0], t0_0=0)],
        [(P1, [(T0, STANDBY)]), (P2, [(T0, ACTIVE)])],
        num_standby_replicas=1,
    )
    assert [(d.kind, d.reason, d.process) for d in decisions] == [
        (Kind.MOVES, Reason.CAUGHT_UP, P2),
        (Kind.STANDBY_PLACED, Reason.RAN_HERE, P1),
    ]


def test_standbys_without_a_place():
    alone = story([process(P1, active=[T0], t0_0=-2)], [(P1, [(T0, ACTIVE)])], num_standby_replicas=1)
    assert [(d.kind, d.reason, d.process) for d in alone] == [(Kind.STANDBY_LEFT_OUT, Reason.TOO_FEW_PROCESSES, None)]
    both = [process(P1, active=[T0], t0_0=-2), process(P2, t0_0=END)]
    held = [(P1, [(T0, ACTIVE)]), (P2, [])]
    (tagged,) = story(both, held, num_standby_replicas=1, rack_aware_assignment_tags=("zone",))
    assert tagged.reason is Reason.TAGS_USED_UP
    (forgotten,) = story(both, held, num_standby_replicas=1)
    assert forgotten.reason is Reason.LEFT_OUT


def test_copies_that_are_no_longer_followed_and_tasks_that_are_gone():
    decisions = story(
        [process(P1, active=[T0], t0_0=-2), process(P2, copies=[T0, T1], t0_0=3)], [(P1, [(T0, ACTIVE)]), (P2, [])]
    )
    assert [(d.kind, d.task, d.reason) for d in decisions] == [(Kind.STANDBY_DROPPED, T0, Reason.ENOUGH_COPIES)]


def test_a_withheld_task_names_who_still_owns_it():
    state = ApplicationState(
        all_tasks=frozenset([info(T0)]),
        clients={P1: process(P1, active=[T0], t0_0=-2), P2: process(P2, copies=[T0], t0_0=0)},
    )
    (decision,) = withheld_decisions(state, {P2: [T0]})
    assert decision.line({P1: "A", P2: "B"}) == (
        "task 0_0 waits for the next rebalance to run on B: another consumer has to let go of its partitions first"
    )
    assert decision.previous == P1
