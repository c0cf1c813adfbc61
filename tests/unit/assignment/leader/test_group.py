"""The leader's work: the cooperative rule over many rounds, and an answer for every member whatever goes wrong."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, note, settings, strategies as st

from sparkrelay.assignment import (
    AssignedTask,
    AssignmentConfigs,
    AssignmentError,
    GroupMember,
    HighAvailabilityTaskAssignor,
    KafkaStreamsAssignment,
    StickyTaskAssignor,
    TaskAssignment,
    TaskAssignor,
    TaskInfo,
    load_assignor,
    task_assignment_utils,
)
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.errors import ConfigException, StreamsException, TaskAssignmentException
from sparkrelay.protocol import LATEST_OFFSET, LONG_MAX, AssignmentInfo, ErrorCode, SubscriptionInfo
from sparkrelay.types import ProcessId, TaskId, TopicPartition

NOW = 1_000_000
ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY


def process(number):
    return ProcessId.parse(f"00000000-0000-0000-0000-{number:012x}")


def tasks(count, *, logged=True, subtopology=0):
    return [
        TaskInfo.of(
            TaskId(subtopology, n),
            inputs=[TopicPartition(f"in-{subtopology}", n)],
            changelogs=[TopicPartition(f"cl-{subtopology}", n)] if logged else [],
            stores=["s"] if logged else [],
        )
        for n in range(count)
    ]


def member(number, thread=0, *, owned=(), sums=None, **info):
    subscription = SubscriptionInfo(process_id=process(number), task_offset_sums=sums or {}, **info)
    return GroupMember(
        consumer_id=f"{number:02}-{thread}",
        subscription=subscription,
        owned_partitions=frozenset(TopicPartition("in-0", n) for n in owned),
    )


def no_ends():
    raise TaskAssignmentException("the end offsets could not be listed")


def assign(members, infos, *, assignor=None, ends=100, **settings_):
    return assign_group(
        members=members,
        tasks=infos,
        ends=no_ends if ends is None else {task.id: ends for task in infos if task.is_logged},
        assignor=assignor or HighAvailabilityTaskAssignor(),
        configs=settings_.pop("configs", AssignmentConfigs()),
        leader=settings_.pop("leader", members[0].process_id if members else process(1)),
        now_ms=NOW,
        **settings_,
    )


class Fixed(TaskAssignor):
    """Answers what the test gave it, and remembers what it was shown."""

    def __init__(self, answer):
        self.answer = answer
        self.seen = []

    def assign(self, application_state):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(application_state) if callable(self.answer) else self.answer

    def on_assignment_computed(self, assignment, subscription, error):
        self.seen.append((assignment, subscription, error))


def give(number, *held):
    return KafkaStreamsAssignment.of(process(number), [AssignedTask(TaskId(*task), role) for task, role in held])


# The cooperative rule


class Group:
    """Members that follow what they are sent, as cooperative consumers do: revoke, then rejoin."""

    def __init__(self, infos, configs):
        self.infos, self.configs = infos, configs
        self.threads = {}
        self.owned = {}
        self.sums = {}

    def join(self, number, threads):
        for thread in range(threads):
            name = f"{number:02}-{thread}"
            self.threads[name] = (number, thread)
            self.owned[name], self.sums[name] = frozenset(), {}

    def leave(self, number):
        for name in [name for name, (owner, _) in self.threads.items() if owner == number]:
            del self.threads[name], self.owned[name], self.sums[name]

    def rebalance(self):
        members = [
            GroupMember(
                consumer_id=name,
                subscription=SubscriptionInfo(process_id=process(number), task_offset_sums=self.sums[name]),
                owned_partitions=self.owned[name],
            )
            for name, (number, _) in self.threads.items()
        ]
        result = assign(members, self.infos, configs=self.configs)
        assert result.failure is None
        for name, sent in result.members.items():
            note(f"{name}: {sent.partitions} {sent.info.standby_tasks.keys()} {sent.info.next_rebalance_ms}")
        self.check(result)
        logged = {info.id for info in self.infos if info.is_logged}
        for name, sent in result.members.items():
            self.owned[name] = frozenset(sent.partitions)
            running = {task: LATEST_OFFSET for task in sent.info.active_tasks if task in logged}
            self.sums[name] = dict.fromkeys(sent.info.standby_tasks, 100) | running
        return result

    def check(self, result):
        given_out = [partition for sent in result.members.values() for partition in sent.partitions]
        assert len(given_out) == len(set(given_out)), "a partition for two consumers"
        owner = {partition: name for name, owned in self.owned.items() for partition in owned}
        for name, sent in result.members.items():
            for partition in sent.partitions:
                assert owner.get(partition, name) == name, f"{partition} was not yet revoked"
            assert list(sent.partitions) == sorted(sent.partitions)
            assert len(sent.info.active_tasks) == len(sent.partitions)
            info_of = {info.id: info for info in self.infos}
            for task, partition in zip(sent.info.active_tasks, sent.partitions, strict=True):
                assert partition in info_of[task].input_topic_partitions
            assert not set(sent.info.active_tasks) & set(sent.info.standby_tasks)
        everything = {partition for info in self.infos for partition in info.input_topic_partitions}
        if set(given_out) != everything:
            assert any(sent.info.next_rebalance_ms == 0 for sent in result.members.values())


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_no_partition_changes_hands_within_one_rebalance(data):
    infos = tasks(data.draw(st.integers(1, 9))) + tasks(data.draw(st.integers(0, 4)), logged=False, subtopology=1)
    configs = AssignmentConfigs(num_standby_replicas=data.draw(st.integers(0, 1)), acceptable_recovery_lag=0)
    group = Group(infos, configs)
    group.join(1, data.draw(st.integers(1, 3)))
    for number in range(2, 2 + data.draw(st.integers(1, 3))):
        group.rebalance()
        group.join(number, data.draw(st.integers(1, 3)))
    if data.draw(st.booleans()):
        group.rebalance()
        group.leave(1)
    for _ in range(30):
        if group.rebalance().stable:
            break
    else:
        pytest.fail("not stable after 30 rebalances")
    before = dict(group.owned)
    assert group.rebalance().stable
    assert group.owned == before, "a stable group moves nothing"


def test_a_withheld_task_stays_warm_and_comes_at_once():
    infos = tasks(2)
    members = [
        member(1, owned=[0, 1], sums={TaskId(0, 0): -2, TaskId(0, 1): -2}),
        member(2, sums={TaskId(0, 1): 100}),
    ]
    result = assign(members, infos)
    first, second = result.members["01-0"], result.members["02-0"]
    assert first.partitions == (TopicPartition("in-0", 0),)
    assert (second.partitions, second.info.next_rebalance_ms) == ((), 0)
    assert second.info.standby_tasks == {TaskId(0, 1): (TopicPartition("in-0", 1),)}
    assert not result.stable


def test_only_the_leaders_process_asks_for_probing():
    infos = tasks(4)
    members = [
        member(1, 0, owned=[0, 1], sums={TaskId(0, 0): -2, TaskId(0, 1): -2}),
        member(1, 1, owned=[2, 3], sums={TaskId(0, 2): -2, TaskId(0, 3): -2}),
        member(2),
    ]
    configs = AssignmentConfigs(acceptable_recovery_lag=0)
    result = assign(members, infos, configs=configs, leader=process(1))
    times = {name: sent.info.next_rebalance_ms for name, sent in result.members.items()}
    assert times == {"01-0": NOW + 600_000, "01-1": LONG_MAX, "02-0": LONG_MAX}
    assert result.probing_rebalance
    assert result.warm_ups


def test_a_custom_deadline_is_that_processs_own():
    deadline = dt.datetime.fromtimestamp(2_000, dt.UTC)
    answer = TaskAssignment([give(1, ((0, 0), ACTIVE)), give(2).with_followup_rebalance(deadline)])
    result = assign([member(1), member(2)], tasks(1), assignor=Fixed(answer))
    assert [sent.info.next_rebalance_ms for sent in result.members.values()] == [LONG_MAX, 2_000_000]


# Whatever goes wrong, every member is answered


def codes(result):
    return {name: sent.info.err_code for name, sent in result.members.items()}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RuntimeError("out of ideas"), "RuntimeError: out of ideas"),
        (None, "returned None instead of a TaskAssignment"),
        ([], r"returned \[\] instead"),
    ],
)
def test_an_assignor_that_fails_is_named_and_nobody_hangs(answer, reason):
    result = assign([member(1), member(2)], tasks(2), assignor=Fixed(answer))
    assert codes(result) == {"01-0": ErrorCode.ASSIGNMENT_ERROR, "02-0": ErrorCode.ASSIGNMENT_ERROR}
    assert isinstance(result.failure, StreamsException)
    assert "test_group:Fixed" in str(result.failure).replace("tests.unit.assignment.", "")
    with pytest.raises(StreamsException, match=reason):
        raise result.failure


BAD_ANSWERS = {
    AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES: [give(1, ((0, 0), ACTIVE)), give(2, ((0, 0), ACTIVE))],
    AssignmentError.ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS: [
        give(1, ((0, 0), ACTIVE)),
        give(1, ((0, 0), STANDBY)),
        give(2),
    ],
    AssignmentError.INVALID_STANDBY_TASK: [give(1, ((1, 0), ACTIVE)), give(2, ((1, 0), STANDBY))],
    AssignmentError.MISSING_PROCESS_ID: [give(1, ((0, 0), ACTIVE))],
    AssignmentError.UNKNOWN_PROCESS_ID: [give(1), give(2), give(3, ((0, 0), ACTIVE))],
    AssignmentError.UNKNOWN_TASK_ID: [give(1, ((7, 0), ACTIVE)), give(2)],
}


@pytest.mark.parametrize("error", BAD_ANSWERS, ids=lambda error: error.name)
def test_a_bad_answer_is_given_to_its_callback_and_then_raised(error):
    assignor = Fixed(TaskAssignment(BAD_ANSWERS[error]))
    infos = tasks(1) + tasks(1, logged=False, subtopology=1)
    result = assign([member(1), member(2)], infos, assignor=assignor)
    assert result.error is error
    with pytest.raises(StreamsException, match=error.value):
        raise result.failure
    assert set(codes(result).values()) == {ErrorCode.ASSIGNMENT_ERROR}
    [(shown, subscription, reported)] = assignor.seen
    assert reported is error
    assert list(subscription.group_subscription) == ["01-0", "02-0"]
    unusable = {AssignmentError.UNKNOWN_PROCESS_ID, AssignmentError.UNKNOWN_TASK_ID}
    assert bool(shown.group_assignment) == (error not in unusable)


def test_a_failing_callback_is_a_failing_assignor():
    class Failing(HighAvailabilityTaskAssignor):
        def on_assignment_computed(self, assignment, subscription, error):
            raise OSError("no disk")

    result = assign([member(1)], tasks(1), assignor=Failing())
    assert codes(result) == {"01-0": ErrorCode.ASSIGNMENT_ERROR}
    assert "on_assignment_computed: OSError: no disk" in str(result.failure)


def test_task_assignment_exception_keeps_what_there_is_and_looks_again_at_once():
    infos = tasks(3)
    members = [
        member(1, owned=[0, 2], sums={TaskId(0, 0): -2, TaskId(0, 2): -2, TaskId(0, 1): 50, TaskId(9, 9): 1}),
        member(2, owned=[1], sums={TaskId(0, 1): -2}),
    ]
    configs = AssignmentConfigs(num_standby_replicas=1)
    not_now = Fixed(TaskAssignmentException("not now"))
    result = assign(members, infos, assignor=not_now, leader=process(2), configs=configs)
    assert (result.failure, result.kept) == (None, "not now")
    assert result.members["01-0"].partitions == (TopicPartition("in-0", 0), TopicPartition("in-0", 2))
    assert set(result.members["01-0"].info.standby_tasks) == {TaskId(0, 1)}
    assert result.members["02-0"].partitions == (TopicPartition("in-0", 1),)
    assert {name: sent.info.next_rebalance_ms for name, sent in result.members.items()} == {
        "01-0": LONG_MAX,
        "02-0": 0,
    }


def test_without_end_offsets_the_built_in_assignor_keeps_owners_and_probes():
    infos = tasks(3)
    members = [member(1, owned=[0, 1, 2], sums={info.id: -2 for info in infos}), member(2)]
    result = assign(members, infos, ends=None)
    assert (len(result.members["01-0"].partitions), result.probing_rebalance) == (3, True)

    def wants_lags(state):
        return state.kafka_streams_states(True)

    assert "could not be listed" in assign(members, infos, ends=None, assignor=Fixed(wants_lags)).kept


def test_a_wish_to_shut_down_goes_to_all():
    result = assign([member(1), member(2, error_code=ErrorCode.SHUTDOWN_REQUESTED)], tasks(1))
    assert set(codes(result).values()) == {ErrorCode.SHUTDOWN_REQUESTED}
    assert result.failure is None


def test_refused_members_get_a_code_and_nothing_else():
    refused = {"02-0": ErrorCode.ASSIGNMENT_ERROR}
    result = assign([member(1), member(2)], tasks(2), refused=refused)
    assert codes(result) == {"01-0": 0, "02-0": ErrorCode.ASSIGNMENT_ERROR}
    assert len(result.members["01-0"].partitions) == 2
    assert codes(assign([member(2)], tasks(2), refused=refused)) == {"02-0": ErrorCode.ASSIGNMENT_ERROR}


def test_what_a_refused_member_owns_is_not_given_away_before_it_lets_go():
    refused = {"02-0": ErrorCode.ASSIGNMENT_ERROR}
    result = assign([member(1), member(2, owned=[1])], tasks(2), refused=refused)
    sent = result.members["01-0"]
    assert (sent.partitions, sent.info.next_rebalance_ms) == ((TopicPartition("in-0", 0),), 0)


# Versions


def test_the_answer_is_in_the_least_version_received():
    members = [member(1), member(2, version=10, latest_supported_version=10)]
    for sent in assign(members, tasks(2)).members.values():
        assert (sent.info.version, sent.info.commonly_supported_version) == (10, 10)
        assert AssignmentInfo.decode(sent.info.encode()) == sent.info


def test_future_members_get_tasks_in_our_version():
    future = GroupMember(consumer_id="99-0", subscription=SubscriptionInfo.decode(bytes.fromhex("0000000c0000000c")))
    result = assign([member(1), future], tasks(2))
    assert {name: len(sent.partitions) for name, sent in result.members.items()} == {"01-0": 1, "99-0": 1}
    assert all(sent.info.version == 11 for sent in result.members.values())
    old = member(1, version=2, latest_supported_version=-1)
    refused = assign([old, future], tasks(2))
    assert set(codes(refused).values()) == {ErrorCode.ASSIGNMENT_ERROR}
    assert "upgrade the old one first" in str(refused.failure)


# Choosing an assignor


@pytest.mark.parametrize(
    "setting",
    [
        "sparkrelay.assignment:StickyTaskAssignor",
        "sparkrelay.assignment.StickyTaskAssignor",
        StickyTaskAssignor,
    ],
)
def test_assignors_load_by_path_or_class(setting):
    assert type(load_assignor(setting, {})) is StickyTaskAssignor
    assert type(load_assignor(None, {})) is HighAvailabilityTaskAssignor


@pytest.mark.parametrize("setting", ["nonsense", "no.such:Thing", "sparkrelay.assignment:Nothing", "json:JSONDecoder"])
def test_an_assignor_that_cannot_be_loaded_is_named(setting):
    with pytest.raises(ConfigException, match=setting):
        load_assignor(setting, {})


def test_utilities_change_nothing_and_keep_deadlines():
    infos = tasks(2)
    state = assign([member(1), member(2)], infos, configs=AssignmentConfigs(num_standby_replicas=1)).state
    deadline = dt.datetime.fromtimestamp(5, dt.UTC)
    before = {
        process(1): give(1, ((0, 0), ACTIVE), ((0, 1), ACTIVE)).with_followup_rebalance(deadline),
        process(2): give(2),
    }
    after = task_assignment_utils.default_standby_task_assignment(state, before)
    assert after[process(2)].standby_tasks == (TaskId(0, 0), TaskId(0, 1))
    assert before[process(2)].standby_tasks == ()
    assert after[process(1)].followup_rebalance_deadline == deadline
