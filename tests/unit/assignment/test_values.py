"""KIP-924's types: immutable, hashable, refusing what they cannot answer."""

from __future__ import annotations

import datetime as dt
import pickle

import pytest

from sparkrelay.assignment import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    TaskAssignment,
    TaskInfo,
)
from sparkrelay.assignment.lags import lag_of
from sparkrelay.assignment.leader.client_states import end_offset_sums
from sparkrelay.assignment.sorted_set import SortedFrozenSet
from sparkrelay.errors import (
    ConfigException,
    StreamsException,
    TaskAssignmentException,
    UnsupportedOperationException,
)
from sparkrelay.protocol import LONG_MAX
from sparkrelay.testing import application_state
from sparkrelay.types import ProcessId, TaskId, TopicPartition

P1 = ProcessId.parse("00000000-0000-0000-0000-000000000001")
T0, T1 = TaskId(0, 0), TaskId(0, 1)
ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY


def info(task, *, stores=("s",), logged=True):
    logs = [TopicPartition("cl", task.partition)] if logged else []
    return TaskInfo.of(task, inputs=[TopicPartition("in", task.partition)], changelogs=logs, stores=stores)


def test_values_hash_and_compare():
    assert hash(info(T0)) == hash(info(T0))
    assert info(T0) == info(T0) != info(T0, logged=False)
    assert len({AssignedTask(T0, ACTIVE), AssignedTask(T0, ACTIVE), AssignedTask(T0, STANDBY)}) == 2
    state = KafkaStreamsState(process_id=P1, task_lags={T0: 5})
    assert hash(state) == hash(KafkaStreamsState(process_id=P1, task_lags={T0: 5}))
    app = ApplicationState(all_tasks={info(T0)}, clients={P1: state})
    assert hash(app) == hash(ApplicationState(all_tasks={info(T0)}, clients={P1: state}))
    one = KafkaStreamsAssignment.of(P1, [AssignedTask(T0, ACTIVE)])
    assert hash(TaskAssignment([one])) == hash(TaskAssignment([one]))


def test_nothing_can_be_changed():
    state = KafkaStreamsState(process_id=P1, task_lags={T0: 5}, client_tags={"zone": "a"})
    for mapping in (state.stateful_tasks_to_lag_sums, state.client_tags, state.previous_tasks_by_consumer):
        with pytest.raises(TypeError):
            mapping["x"] = 1
    for value, name in ((state, "rack_id"), (info(T0), "id"), (AssignedTask(T0, ACTIVE), "type")):
        with pytest.raises(AttributeError):
            setattr(value, name, None)
    given = KafkaStreamsAssignment.of(P1, [AssignedTask(T0, ACTIVE)])
    more = given.assign_task(AssignedTask(T1, STANDBY))
    assert (given.standby_tasks, more.standby_tasks) == ((), (T1,))


def test_a_process_holds_a_task_in_one_role():
    with pytest.raises(ValueError, match=r"given task 0_0 twice, as ACTIVE 0_0 and as STANDBY 0_0"):
        KafkaStreamsAssignment.of(P1, [AssignedTask(T0, ACTIVE), AssignedTask(T0, STANDBY)])
    replaced = KafkaStreamsAssignment.of(P1, [AssignedTask(T0, ACTIVE)]).assign_task(AssignedTask(T0, STANDBY))
    assert replaced.assignment == {AssignedTask(T0, STANDBY)}
    assert replaced.remove_task(AssignedTask(T0, ACTIVE)).assignment == frozenset()


def test_deadlines_have_a_time_zone():
    given = KafkaStreamsAssignment.of(P1, [])
    with pytest.raises(ValueError, match="no time zone"):
        given.with_followup_rebalance(dt.datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    deadline = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert given.with_followup_rebalance(deadline).followup_rebalance_deadline == deadline
    assert given.followup_rebalance_deadline is None


def test_lags_that_were_not_asked_for_are_refused():
    with_lags = KafkaStreamsState(process_id=P1, task_lags={T0: 5}, previous_tasks_by_consumer={"c": {T0, T1}})
    app = ApplicationState(all_tasks={info(T0)}, clients={P1: with_lags})
    state = app.kafka_streams_states(False)[P1]
    for ask in (
        lambda: state.lag_for(T0),
        lambda: state.prev_tasks_by_lag("c"),
        lambda: state.stateful_tasks_to_lag_sums,
    ):
        with pytest.raises(UnsupportedOperationException, match="compute_task_lags=True"):
            ask()
    state = app.kafka_streams_states(True)[P1]
    assert state.lag_for(T0) == 5
    assert state.prev_tasks_by_lag("c") == (T0,)  # 0_1 is no task of this application
    with pytest.raises(StreamsException, match="unknown task 0_1"):
        state.lag_for(T1)


def test_lags_that_cannot_be_computed_raise_only_where_they_are_wanted():
    def fail():
        raise TaskAssignmentException("broker gone")

    app = ApplicationState(all_tasks={info(T0)}, clients={}, compute_lags=fail)
    assert app.kafka_streams_states(False) == {}
    with pytest.raises(TaskAssignmentException, match="broker gone"):
        app.kafka_streams_states(True)


def test_lags_are_computed_when_they_are_first_asked_for_and_not_again():
    asked = []

    def compute():
        asked.append("lags")
        return {P1: {T0: 5}}

    app = ApplicationState(all_tasks={info(T0)}, clients={P1: KafkaStreamsState(process_id=P1)}, compute_lags=compute)
    app.kafka_streams_states(False)
    assert asked == []
    assert [app.kafka_streams_states(True)[P1].lag_for(T0) for _ in range(2)] == [5, 5]
    assert asked == ["lags"]
    assert app.kafka_streams_states(False)[P1].task_lags is None


@pytest.mark.parametrize(
    ("offset_sum", "end", "lag"),
    [(None, 7, 7), (-2, 7, -2), (-3, 7, -3), (0, 7, 7), (5, 7, 2), (7, 7, 0), (8, 7, 7)],
)
def test_lag_of_an_offset_sum(offset_sum, end, lag):
    assert lag_of(offset_sum, end) == lag


def test_end_offset_sums():
    task = TaskInfo.of(T0, inputs=[], changelogs=[TopicPartition("a", 0), TopicPartition("b", 0)], stores=["s"])
    ends = {TopicPartition("a", 0): 5, TopicPartition("b", 0): 6}
    assert end_offset_sums([task, info(T1, logged=False)], ends) == {T0: 11}
    assert end_offset_sums([task], {TopicPartition("a", 0): 5}, created=["b"]) == {T0: 5}
    assert end_offset_sums([task], dict.fromkeys(ends, LONG_MAX)) == {T0: LONG_MAX}
    with pytest.raises(StreamsException, match="b-0 of task 0_0"):
        end_offset_sums([task], {TopicPartition("a", 0): 5})


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"acceptable_recovery_lag": -1}, "acceptable.recovery.lag"),
        ({"max_warmup_replicas": 0}, "max.warmup.replicas"),
        ({"probing_rebalance_interval_ms": 59_999}, "probing.rebalance.interval.ms"),
        ({"rack_aware_assignment_strategy": "nearest"}, "rack.aware.assignment.strategy"),
        ({"rack_aware_assignment_tags": tuple("abcdef")}, "rack.aware.assignment.tags"),
    ],
)
def test_settings_out_of_range_are_named(settings, key):
    with pytest.raises(ConfigException, match=key):
        AssignmentConfigs(**settings)


def test_a_task_with_logging_off_is_stateful_but_not_logged():
    assert (info(T0, logged=False).is_stateful, info(T0, logged=False).is_logged) == (True, False)
    both = TaskInfo.of(
        T0,
        inputs=[TopicPartition("t", 0)],
        changelogs=[TopicPartition("t", 0)],
        stores=["s"],
        racks={TopicPartition("t", 0): ["r"]},
    )
    assert both.input_topic_partitions == both.changelog_topic_partitions == {TopicPartition("t", 0)}
    assert both.partition_to_rack_ids == {TopicPartition("t", 0): {"r"}}


def test_racks_are_looked_up_when_they_are_asked_for():
    asked, one, other = [], TopicPartition("t", 0), TopicPartition("u", 0)

    def racks():
        asked.append("racks")
        return {one: ["r"]}

    task = TaskInfo.of(T0, inputs=[one], changelogs=[other], stores=["s"], racks=racks)
    assert (task.is_logged, task.input_topic_partitions, asked) == (True, {one}, [])
    assert task.partition_to_rack_ids == {one: {"r"}}
    assert {p.topic_partition: p.rack_ids for p in task.topic_partitions} == {one: {"r"}, other: None}


def test_sorted_sets_are_walked_in_order_and_pickle():
    names = SortedFrozenSet(["b", "c", "a"])
    assert list(names) == ["a", "b", "c"]
    assert names == {"a", "b", "c"}
    assert list(pickle.loads(pickle.dumps(names))) == ["a", "b", "c"]


def test_a_case_becomes_a_state_in_both_forms():
    tasks = [{"id": "0_0", "stateful": True, "end_offset_sum": 10}, {"id": "1_0"}]
    direct = {"process_id": str(P1), "threads": 2, "prev_active": ["0_0"], "lags": {"0_0": -2}}
    consumers = [{"consumer_id": "a", "owned_partitions": [["in-1", 0]], "offset_sums": {"0_0": 4}}]
    first = application_state({"tasks": tasks, "clients": [direct]}).clients[P1]
    assert (first.num_processing_threads, first.lag_for(T0)) == (2, -2)
    clients = [{"process_id": str(P1), "consumers": consumers, "client_tags": {"sparkrelay.x": "1", "zone": "a"}}]
    second = application_state({"tasks": tasks, "clients": clients}).clients[P1]
    assert second.previous_active_tasks == {TaskId(1, 0)}
    assert second.previous_standby_tasks == {T0}
    assert (second.lag_for(T0), dict(second.client_tags)) == (6, {"zone": "a"})
