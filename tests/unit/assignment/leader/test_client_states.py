"""From what members report to processes with previous tasks, lags and racks; and who counts as fuller. See KIP-441."""

from __future__ import annotations

import pytest

from sparkrelay.assignment import GroupMember, TaskInfo
from sparkrelay.assignment.leader.client_states import client_states, end_offset_sums
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.errors import StreamsException
from sparkrelay.protocol import LATEST_OFFSET, LONG_MAX, UNKNOWN_OFFSET_SUM, HostInfo, SubscriptionInfo
from sparkrelay.types import TaskId, TopicPartition


@pytest.fixture
def member(groups):
    def make(number, thread=0, *, sums=None, owned=(), rack=None, **info):
        return GroupMember(
            consumer_id=f"{number}-{thread}",
            subscription=SubscriptionInfo(
                process_id=groups.process(number),
                task_offset_sums={TaskId.parse(name): total for name, total in (sums or {}).items()},
                **info,
            ),
            owned_partitions=frozenset(TopicPartition(topic, n) for topic, n in owned),
            rack_id=rack,
        )

    return make


@pytest.fixture
def known(groups):
    """Return what makes the one process that the members belong to."""

    def run(members, *, logged="0_0 0_1 0_2", stateless="1_0", ends=100):
        tasks = groups.tasks(logged, stateless)
        sums = None if ends is None else dict.fromkeys(groups.ids(logged), ends)
        [state] = client_states(members, tasks, sums).values()
        return state

    return run


# Previous tasks


def test_what_runs_is_a_previous_active_and_other_state_a_previous_standby(groups, member, known):
    state = known([member(1, sums={"0_0": LATEST_OFFSET, "0_1": 40, "0_2": UNKNOWN_OFFSET_SUM})])
    assert groups.names(state.previous_active_tasks) == "0_0"
    assert groups.names(state.previous_standby_tasks) == "0_1 0_2"


def test_the_task_of_an_owned_partition_ran_though_it_was_restoring(groups, member, known):
    state = known([member(1, sums={"0_1": 40}, owned=[("in-0", 1), ("in-1", 0)])])
    assert groups.names(state.previous_active_tasks) == "0_1 1_0"
    assert groups.names(state.previous_standby_tasks) == ""


def test_partitions_of_no_task_are_passed_over(groups, member, known):
    # The member may run an older topology, or its topic is no longer read.
    state = known([member(1, owned=[("in-0", 0), ("in-0", 99), ("gone", 0)])])
    assert groups.names(state.previous_active_tasks) == "0_0"


def test_tasks_that_no_longer_exist_have_no_lag(groups, member, known):
    state = known([member(1, sums={"0_0": 40, "7_0": 40})])
    assert set(state.task_lags) == groups.ids("0_0 0_1 0_2")
    with pytest.raises(StreamsException, match="unknown task 7_0"):
        state.lag_for(TaskId(7, 0))
    assert state.prev_tasks_by_lag("1-0") == (TaskId(0, 0),)


def test_consumers_of_one_process_are_put_together(groups, member, known):
    state = known([member(1, 1, sums={"0_1": 7}), member(1, 0, sums={"0_0": LATEST_OFFSET, "0_2": 99}), member(1, 2)])
    assert state.num_processing_threads == 3
    assert list(state.consumer_client_ids) == ["1-0", "1-1", "1-2"]
    assert groups.names(state.previous_active_tasks) == "0_0"
    assert list(map(str, state.prev_tasks_by_lag("1-0"))) == ["0_0", "0_2"]
    assert list(map(str, state.prev_tasks_by_lag("1-1"))) == ["0_1"]
    assert state.prev_tasks_by_lag("1-2") == ()


def test_each_process_is_one_client(groups, member):
    members = [member(2, 0), member(1, 0), member(2, 1), member(1, 1), member(2, 2)]
    states = client_states(members, [], {})
    assert {process.id.int: state.num_processing_threads for process, state in states.items()} == {1: 2, 2: 3}


# Lags


@pytest.mark.parametrize(
    ("reported", "lag"),
    [
        pytest.param({"0_0": 30}, 70, id="the rest of the log"),
        pytest.param({}, 100, id="nothing there: all of the log"),
        pytest.param({"0_0": LATEST_OFFSET}, LATEST_OFFSET, id="running"),
        pytest.param({"0_0": UNKNOWN_OFFSET_SUM}, UNKNOWN_OFFSET_SUM, id="unknown"),
        pytest.param({"0_0": 101}, 100, id="beyond the end: not to be trusted"),
    ],
)
def test_a_lag_is_what_is_left_to_read(member, known, reported, lag):
    assert known([member(1, sums=reported)]).lag_for(TaskId(0, 0)) == lag


def test_without_ends_there_are_no_lags(member, known):
    state = known([member(1, sums={"0_0": LATEST_OFFSET, "0_1": 40})], ends=None)
    assert state.task_lags is None
    assert (set(state.previous_active_tasks), set(state.previous_standby_tasks)) == ({TaskId(0, 0)}, {TaskId(0, 1)})


def test_stateless_tasks_have_no_lag(member, known):
    with pytest.raises(StreamsException, match="unknown task 1_0"):
        known([member(1)]).lag_for(TaskId(1, 0))


def test_ends_of_several_changelogs_add_up_and_stop_at_the_greatest_number():
    logs = [TopicPartition(name, 0) for name in ("a", "b")]
    task = TaskInfo.of(TaskId(0, 0), inputs=[TopicPartition("in", 0)], changelogs=logs, stores=["a", "b"])
    assert end_offset_sums([task], dict(zip(logs, (5, 6), strict=True))) == {task.id: 11}
    assert end_offset_sums([task], dict(zip(logs, (5, LONG_MAX), strict=True))) == {task.id: LONG_MAX}
    with pytest.raises(StreamsException, match="partition b-0 of task 0_0"):
        end_offset_sums([task], {logs[0]: 5})


def test_a_changelog_made_just_now_is_empty_and_not_asked_for():
    task = TaskInfo.of(
        TaskId(0, 0), inputs=[TopicPartition("in", 0)], changelogs=[TopicPartition("new", 0)], stores=["s"]
    )
    assert end_offset_sums([task], {}, created=["new"]) == {task.id: 0}


# Racks, tags, end points


@pytest.mark.parametrize(
    ("racks", "rack"),
    [(["a", "a"], "a"), (["a", "b"], None), ([None, None], None), (["a", None], None)],
    ids=["one", "two racks in a process", "none", "one consumer without"],
)
def test_a_process_has_a_rack_if_all_its_consumers_agree(member, known, racks, rack):
    assert known([member(1, thread, rack=named) for thread, named in enumerate(racks)]).rack_id == rack


def test_tags_and_end_point_are_the_processs(member, known):
    reported = {"client_tags": {"zone": "a", "sparkrelay.topology": "f"}, "user_end_point": "h:1"}
    state = known([member(1, 0, **reported), member(1, 1, **reported)])
    assert dict(state.client_tags) == {"zone": "a"}
    assert str(state.host_info) == "h:1"


@pytest.mark.parametrize("end_point", ["nonsense", "one:x", ":80", "one:99999"])
def test_a_bad_end_point_hides_its_process_and_fails_nobody(member, known, end_point):
    assert known([member(1, 0, user_end_point=end_point)]).host_info is None
    both = [member(1, 0, user_end_point=end_point), member(1, 1, user_end_point="one:80")]
    assert known(both).host_info == HostInfo("one", 80)


# Who is fuller


@pytest.mark.parametrize(
    ("threads", "held", "first"),
    [
        pytest.param([1, 1], ["0_0", ""], 1, id="fewer tasks"),
        pytest.param([2, 1], ["0_0", "0_1"], 0, id="more threads for as many tasks"),
        pytest.param([3, 2], ["0_0 0_1", "0_2 1_0"], 0, id="tasks by thread"),
        pytest.param([2, 1], ["0_0 0_1", "0_2"], 0, id="equal: the first by id"),
        pytest.param([1, 3], ["0_0 0_1", "0_2 1_0 1_1"], 1, id="beyond one task a thread"),
    ],
)
def test_load_is_tasks_by_thread(groups, threads, held, first):
    state = groups.state(
        "0_0 0_1 0_2 1_0 1_1 1_2", [groups.client(n, threads=count) for n, count in enumerate(threads)]
    )
    placement = Placement(state.clients, [info.id for info in state.all_tasks])
    for client, tasks in enumerate(held):
        placement.active[client] |= {placement.tasks.index(task) for task in groups.ids(tasks)}
    placement.place_standbys([placement.tasks.index(TaskId(1, 2))], 1)
    assert placement.standby[first] == {placement.tasks.index(TaskId(1, 2))}


def test_a_process_without_threads_is_refused(groups):
    with pytest.raises(ValueError, match="0 threads; it needs at least 1"):
        groups.client(1, threads=0)
