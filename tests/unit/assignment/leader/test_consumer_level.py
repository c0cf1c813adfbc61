"""From a process's tasks to its consumers, over several rebalances: kept, levelled, withheld, sent where to find what.

See KIP-924, "Consumer Assignments", and KIP-429. The spread alone is in test_threads, the whole leader in test_group.
"""

from __future__ import annotations

import pytest

from sparkrelay.assignment import GroupMember, HighAvailabilityTaskAssignor, StickyTaskAssignor, TaskInfo
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.assignment.leader.threads import ThreadLoads
from sparkrelay.protocol import LATEST_OFFSET, LONG_MAX, HostInfo, SubscriptionInfo
from sparkrelay.types import TaskId, TopicPartition

NOW = 1_000_000


def spread(groups, consumers, tasks, previous=None):
    """Return the tasks of each consumer by its name."""
    had = {name: sorted(groups.ids(text)) for name, text in (previous or {}).items()}
    given = ThreadLoads(consumers).spread(groups.ids(tasks), had)
    return {consumer: groups.names(got) for consumer, got in given.items()}


# Which consumer keeps or gets what


def test_a_fresh_process_deals_tasks_in_order_to_its_consumers_in_turn(groups):
    given = spread(groups, ["a", "b", "c"], "0_0 0_1 0_2 1_0 1_1 1_2")
    assert given == {"a": "0_0 1_0", "b": "0_1 1_1", "c": "0_2 1_2"}


def test_nothing_changes_where_nothing_changed(groups):
    had = {"a": "0_2 1_1", "b": "0_0 1_2", "c": "0_1 1_0"}
    assert spread(groups, had, "0_0 0_1 0_2 1_0 1_1 1_2", had) == had


def test_new_tasks_fill_up_and_old_ones_stay(groups):
    had = {"a": "0_2 1_1", "b": "0_0 1_2", "c": "0_1 1_0"}
    given = spread(groups, had, "0_0 0_1 0_2 1_0 1_1 1_2 2_0 2_1 2_2 2_3", had)
    for consumer, kept in had.items():
        assert groups.ids(kept) <= groups.ids(given[consumer])
    assert sorted(len(tasks.split()) for tasks in given.values()) == [3, 3, 4]


def test_of_a_consumer_that_leaves_only_its_own_tasks_move(groups):
    had = {"a": "0_2 1_1", "b": "0_0 1_2", "c": "0_1 1_0"}
    given = spread(groups, ["a", "c"], "0_0 0_1 0_2 1_0 1_1 1_2", had)
    assert groups.ids(had["a"]) < groups.ids(given["a"])
    assert groups.ids(had["c"]) < groups.ids(given["c"])


def test_a_consumer_that_joins_takes_from_the_fullest_what_makes_it_level(groups):
    had = {"a": "0_0 0_1 0_2", "b": "0_3 1_0", "c": "1_1 1_2 1_3"}
    given = spread(groups, [*had, "d"], "0_0 0_1 0_2 0_3 1_0 1_1 1_2 1_3", had)
    assert all(groups.ids(given[consumer]) <= groups.ids(kept) for consumer, kept in had.items())
    assert given["b"] == had["b"]
    assert sorted(len(tasks.split()) for tasks in given.values()) == [2, 2, 2, 2]


def test_a_task_beyond_the_even_share_goes_back_to_who_had_it(groups):
    # Two each and one over, which both could take: the second had it.
    given = spread(groups, ["a", "b"], "0_0 0_1 0_2 0_3 0_4", {"a": "0_1", "b": "0_0 0_3 0_4"})
    assert given == {"a": "0_1 0_2", "b": "0_0 0_3 0_4"}


@pytest.mark.parametrize(
    ("tasks", "standbys", "spare"),
    [
        pytest.param("0_0 0_1", "1_0 1_1", "", id="as many of each"),
        pytest.param("0_0", "1_0 1_1 1_2", "2_0 2_1", id="few actives"),
        pytest.param("0_0 0_1 0_2 0_3 0_4 0_5 0_6", "1_0", "2_0", id="few standbys"),
        pytest.param("", "1_0 1_1 1_2", "2_0 2_1 2_2 2_3", id="no state"),
    ],
)
def test_standbys_and_stateless_tasks_even_out_what_actives_left(groups, tasks, standbys, spare):
    loads = ThreadLoads(["a", "b", "c"])
    total = dict.fromkeys("abc", 0)
    for kind in (tasks, standbys, spare):
        for consumer, got in loads.spread(groups.ids(kind), {}).items():
            total[consumer] += len(got)
    assert max(total.values()) - min(total.values()) <= 1


# The whole way, rebalance by rebalance


def member(groups, name, *, owned="", standby="", tasks=(), end_point=None, **more):
    """Make member ``"1-a"`` of process 1, which runs ``owned`` and follows ``standby``."""
    of = {info.id: info for info in tasks}
    logged = {task for task in groups.ids(owned) if task not in of or of[task].is_logged}
    sums = dict.fromkeys(groups.ids(standby), 100) | dict.fromkeys(logged, LATEST_OFFSET)
    return GroupMember(
        consumer_id=name,
        subscription=SubscriptionInfo(
            process_id=groups.process(int(name.split("-")[0])),
            task_offset_sums=sums,
            user_end_point=end_point,
            **more,
        ),
        owned_partitions=frozenset(TopicPartition(f"in-{t.subtopology}", t.partition) for t in groups.ids(owned)),
    )


def lead(groups, members, tasks, *, assignor=None, ends=None, **configs):
    result = assign_group(
        members=members,
        tasks=tasks,
        ends=ends or {info.id: 100 for info in tasks if info.is_logged},
        assignor=assignor or HighAvailabilityTaskAssignor(),
        configs=groups.state(tasks, [], **configs).assignment_configs,
        leader=members[0].process_id,
        now_ms=NOW,
    )
    assert result.failure is None
    return result


def running(groups, result):
    return {name: groups.names(set(sent.info.active_tasks)) for name, sent in result.members.items()}


def following(groups, result):
    return {name: groups.names(sent.info.standby_tasks) for name, sent in result.members.items()}


def at_once(result):
    return [name for name, sent in result.members.items() if sent.info.next_rebalance_ms == 0]


def test_a_fresh_group_has_everything_once_with_partitions_beside_it(groups):
    tasks = groups.tasks("0_0 0_1 0_2", "1_0 1_1 1_2")
    result = lead(groups, [member(groups, name) for name in ("1-a", "1-b", "2-a")], tasks)
    assert sorted(" ".join(running(groups, result).values()).split()) == ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]
    for sent in result.members.values():
        expected = [TopicPartition(f"in-{t.subtopology}", t.partition) for t in sent.info.active_tasks]
        assert list(sent.partitions) == expected
        assert sent.info.next_rebalance_ms == LONG_MAX
    assert result.stable


def test_threads_keep_what_they_run_though_nobody_asked_for_lags(groups):
    members = [member(groups, "1-a", owned="0_2 0_3", standby="0_0 0_1"), member(groups, "1-b")]
    asked = []
    result = lead(
        groups, members, groups.tasks("0_0 0_1 0_2 0_3"), assignor=StickyTaskAssignor(), ends=lambda: asked.append(1)
    )
    assert asked == []
    assert running(groups, result) == {"1-a": "0_2 0_3", "1-b": "0_0 0_1"}


def test_one_process_with_two_threads_halves_its_tasks(groups):
    result = lead(groups, [member(groups, "1-a"), member(groups, "1-b")], groups.tasks("0_0 0_1 1_0 1_1"))
    assert [len(tasks.split()) for tasks in running(groups, result).values()] == [2, 2]


def test_a_task_of_many_partitions_stands_once_for_each(groups):
    inputs = [TopicPartition("b", 0), TopicPartition("a", 0), TopicPartition("c", 0)]
    task = TaskInfo.of(TaskId(0, 0), inputs=inputs)
    sent = lead(groups, [member(groups, "1-a")], [task]).members["1-a"]
    assert (sent.partitions, sent.info.active_tasks) == (tuple(sorted(inputs)), (task.id,) * 3)


def test_new_partitions_are_given_out_and_nothing_else_moves(groups):
    tasks = groups.tasks("", "0_0 0_1 0_2 0_3")
    members = [member(groups, "1-a", owned="0_0", tasks=tasks), member(groups, "2-a", owned="0_1", tasks=tasks)]
    result = lead(groups, members, tasks)
    assert running(groups, result) == {"1-a": "0_0 0_2", "2-a": "0_1 0_3"}
    assert result.stable


def test_without_tasks_nothing_is_given_and_with_tasks_all_is(groups):
    members = [member(groups, "1-a"), member(groups, "2-a")]
    assert running(groups, lead(groups, members, [])) == {"1-a": "", "2-a": ""}
    assert running(groups, lead(groups, members, groups.tasks("0_0 0_1"))) == {"1-a": "0_0", "2-a": "0_1"}


def test_what_the_other_still_owns_is_withheld_and_asked_for_at_once(groups):
    tasks = groups.tasks("", "0_0 0_1 0_2 0_3")
    owner = member(groups, "1-a", owned="0_0 0_1 0_2 0_3", tasks=tasks)
    first = lead(groups, [owner, member(groups, "2-a")], tasks)
    assert running(groups, first) == {"1-a": "0_0 0_2", "2-a": ""}
    assert at_once(first) == ["2-a"]
    second = lead(groups, [member(groups, "1-a", owned="0_0 0_2", tasks=tasks), member(groups, "2-a")], tasks)
    assert running(groups, second) == {"1-a": "0_0 0_2", "2-a": "0_1 0_3"}
    assert second.stable


def test_a_thread_that_joins_waits_for_its_neighbour_too(groups):
    tasks = groups.tasks("0_0 0_1")
    first = lead(groups, [member(groups, "1-a", owned="0_0 0_1"), member(groups, "1-b")], tasks)
    assert running(groups, first) == {"1-a": "0_0", "1-b": ""}
    assert at_once(first) == ["1-b"]


def test_a_withheld_task_is_no_standby_where_there_was_no_state(groups):
    # Nobody is behind by more than is acceptable, so the newcomer is to run it, with nothing to follow from.
    tasks = groups.tasks("0_0 0_1")
    members = [member(groups, "1-a", owned="0_0 0_1"), member(groups, "2-a")]
    result = lead(groups, members, tasks)
    assert running(groups, result) == {"1-a": "0_0", "2-a": ""}
    assert following(groups, result) == {"1-a": "", "2-a": ""}


@pytest.mark.parametrize("clients", [["1-a", "2-a", "3-a"], ["1-a", "1-b", "2-a"], ["1-a", "1-b", "2-a", "2-b"]])
def test_standbys_are_spread_beside_the_actives(groups, clients):
    tasks = groups.tasks("0_0 0_1 0_2 0_3 0_4 0_5", "1_0 1_1 1_2")
    result = lead(groups, [member(groups, name) for name in clients], tasks, num_standby_replicas=1)
    active, standby = running(groups, result), following(groups, result)
    copies = sorted(" ".join(standby.values()).split())
    assert copies == ["0_0", "0_1", "0_2", "0_3", "0_4", "0_5"]
    for process in ("1", "2", "3"):
        mine = [name for name in clients if name.startswith(process)]
        counts = [len((active[name] + " " + standby[name]).split()) for name in mine]
        assert not counts or max(counts) - min(counts) <= 1
        ran = {task for name in mine for task in active[name].split()}
        assert not ran & {task for name in mine for task in standby[name].split()}


def test_tasks_without_changelog_have_no_standby_though_they_have_stores(groups):
    unlogged = TaskInfo.of(TaskId(0, 0), inputs=[TopicPartition("in-0", 0)], stores=["s"])
    members = [member(groups, "1-a"), member(groups, "2-a")]
    result = lead(groups, members, [unlogged, groups.task("1_0")], num_standby_replicas=1)
    assert sorted(" ".join(following(groups, result).values()).split()) == ["1_0"]


# Who hosts what


def test_hosts_of_actives_and_of_standbys_are_told_apart(groups):
    tasks = groups.tasks("0_0 0_1")
    members = [
        member(groups, "1-a", owned="0_0", standby="0_1", end_point="one:80"),
        member(groups, "2-a", owned="0_1", standby="0_0", end_point="two:81"),
    ]
    result = lead(groups, members, tasks, num_standby_replicas=1)
    for sent in result.members.values():
        assert sent.info.partitions_by_host == {
            HostInfo("one", 80): (TopicPartition("in-0", 0),),
            HostInfo("two", 81): (TopicPartition("in-0", 1),),
        }
        assert sent.info.standby_partitions_by_host == {
            HostInfo("one", 80): (TopicPartition("in-0", 1),),
            HostInfo("two", 81): (TopicPartition("in-0", 0),),
        }


def test_who_answers_no_queries_is_no_host(groups):
    members = [member(groups, "1-a", end_point="one:80"), member(groups, "2-a")]
    [hosts] = {
        tuple(sent.info.partitions_by_host) for sent in lead(groups, members, groups.tasks("0_0 0_1")).members.values()
    }
    assert hosts == (HostInfo("one", 80),)


# When to look again


def test_the_probing_appointment_is_one_consumers_and_not_beside_a_wish_for_at_once(groups):
    tasks = groups.tasks("0_0 0_1 0_2 0_3")
    members = [member(groups, "1-a", owned="0_0 0_1 0_2 0_3"), member(groups, "1-b"), member(groups, "2-a")]
    result = lead(groups, members, tasks, acceptable_recovery_lag=0)
    times = {name: sent.info.next_rebalance_ms for name, sent in result.members.items()}
    # The first consumer has the appointment; the second waits for the first and asks at once.
    assert times == {"1-a": NOW + 600_000, "1-b": 0, "2-a": LONG_MAX}


def test_a_rebalance_at_once_serves_as_the_appointment_of_the_consumers_behind_it(groups):
    tasks = groups.tasks("0_0 0_1 0_2 0_3")
    members = [member(groups, "1-a"), member(groups, "1-b", owned="0_0 0_1 0_2 0_3"), member(groups, "2-a")]
    result = lead(groups, members, tasks, acceptable_recovery_lag=0)
    assert result.probing_rebalance
    assert {name: sent.info.next_rebalance_ms for name, sent in result.members.items()} == {
        "1-a": 0,
        "1-b": LONG_MAX,
        "2-a": LONG_MAX,
    }
