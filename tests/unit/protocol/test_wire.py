"""Round trips, bounds and version rules of the two user-data formats; the byte vectors are in tests/oracle."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import TaskAssignmentException
from sparkrelay.protocol import (
    LATEST_OFFSET,
    LONG_MAX,
    UNKNOWN_OFFSET_SUM,
    AssignmentInfo,
    HostInfo,
    NamedTaskId,
    SubscriptionInfo,
    parse_task_id,
    split_tags,
)
from sparkrelay.types import ProcessId, TaskId, TopicPartition

INT32 = st.integers(0, 2**31 - 1)
TASKS = st.builds(TaskId, INT32, INT32)
NAMED = st.builds(NamedTaskId, st.text(min_size=1, max_size=8).filter(lambda t: t.isprintable()), INT32, INT32)
SUMS = st.one_of(st.sampled_from([LATEST_OFFSET, UNKNOWN_OFFSET_SUM]), st.integers(0, LONG_MAX))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PARTITIONS = st.lists(st.builds(TopicPartition, TEXT, INT32), max_size=4)
HOSTS = st.dictionaries(st.builds(HostInfo, TEXT, st.integers(0, 65535)), PARTITIONS, max_size=3)
PROCESSES = st.builds(ProcessId, st.uuids())


@st.composite
def subscriptions(draw):
    version = draw(st.integers(1, 11))
    tasks = TASKS | NAMED if version >= 10 else TASKS
    sums = draw(st.dictionaries(tasks, SUMS, max_size=6))
    if version < 7:
        sums = {t: LATEST_OFFSET if v == LATEST_OFFSET else UNKNOWN_OFFSET_SUM for t, v in sums.items()}
    return SubscriptionInfo(
        process_id=draw(PROCESSES),
        version=version,
        latest_supported_version=draw(st.integers(version, 11)) if version >= 3 else -1,
        user_end_point=draw(TEXT.filter(bool) | st.none()) if version >= 2 else None,
        task_offset_sums=sums,
        unique_field=draw(st.integers(-128, 127)) if version >= 8 else 0,
        error_code=draw(st.integers(0, 4)) if version >= 9 else 0,
        client_tags=draw(st.dictionaries(TEXT, TEXT, max_size=3)) if version >= 11 else {},
    )


@st.composite
def assignments(draw):
    version = draw(st.integers(1, 11))
    tasks = TASKS | NAMED if version >= 10 else TASKS
    return AssignmentInfo(
        version=version,
        commonly_supported_version=draw(st.integers(version, 11)) if version >= 3 else -1,
        active_tasks=draw(st.lists(tasks, max_size=4)),
        standby_tasks=draw(st.dictionaries(tasks, PARTITIONS, max_size=4)),
        partitions_by_host=draw(HOSTS) if version >= 2 else {},
        standby_partitions_by_host=draw(HOSTS) if version >= 6 else {},
        err_code=draw(st.integers(0, 4)) if version >= 4 else 0,
        next_rebalance_ms=draw(st.integers(0, LONG_MAX)) if version >= 7 else LONG_MAX,
    )


@given(subscriptions())
def test_a_subscription_survives_the_wire(info):
    assert SubscriptionInfo.decode(info.encode()) == info


@given(assignments())
def test_an_assignment_survives_the_wire(info):
    assert AssignmentInfo.decode(info.encode()) == info


@given(subscriptions(), st.data())
def test_a_cut_subscription_is_refused(info, data):
    encoded = info.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(TaskAssignmentException, match="cannot read a member's subscription"):
        SubscriptionInfo.decode(cut)


@given(assignments(), st.data())
def test_a_cut_assignment_is_refused(info, data):
    encoded = info.encode()
    with pytest.raises(TaskAssignmentException):
        AssignmentInfo.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_our_error(data):
    for kind in (SubscriptionInfo, AssignmentInfo):
        for prefix in (b"", b"\0\0\0\x0b\0\0\0\x0b"):
            with contextlib.suppress(TaskAssignmentException, ValueError):
                kind.decode(prefix + data)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_grouped_offsets_keep_partition_and_sum_apart(version):
    # Java's bytes of one sum: subtopology 0 with one entry, partition 4, sum 9.
    head = bytes([0, 0, 0, version, 0, 0, 0, 11]) + bytes(16) + bytes(4)
    body = bytes([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, *bytes(7), 9])
    tail = b"" if version < 8 else bytes(1) if version == 8 else bytes(5)
    assert SubscriptionInfo.decode(head + body + tail).task_offset_sums == {TaskId(0, 4): 9}


def test_a_future_member_is_read_as_far_as_its_versions():
    info = SubscriptionInfo.decode(bytes.fromhex("0000000d0000000ddeadbeef"))
    assert (info.is_future, info.version, info.latest_supported_version) == (True, 13, 13)
    with pytest.raises(ValueError, match="between 1 and 11; was: 13"):
        info.encode()


def test_named_topologies_need_version_10():
    task = parse_task_id("orders__0_1")
    assert task == NamedTaskId("orders", 0, 1)
    assert task != TaskId(0, 1)
    assert str(task) == "orders__0_1"
    for version in (6, 9):
        with pytest.raises(TaskAssignmentException, match="orders__0_1"):
            SubscriptionInfo(process_id=ProcessId.random(), version=version, task_offset_sums={task: 5}).encode()
    with pytest.raises(TaskAssignmentException, match="orders__0_1"):
        AssignmentInfo(version=9, active_tasks=[task]).encode()


def test_values_are_immutable_and_hash():
    info = SubscriptionInfo(process_id=ProcessId.random(), task_offset_sums={TaskId(0, 0): 1})
    assert hash(info) == hash(SubscriptionInfo.decode(info.encode()))
    with pytest.raises(TypeError):
        info.task_offset_sums[TaskId(0, 1)] = 2
    with pytest.raises(AttributeError, match="immutable"):
        NamedTaskId("a", 0, 0).topology = "b"


def test_reserved_tags_are_split_off():
    own, reserved = split_tags({"zone": "a", "sparkrelay.topology": "f00"})
    assert own == {"zone": "a"}
    assert reserved == {"sparkrelay.topology": "f00"}


@pytest.mark.parametrize("text", ["localhost", "localhost:", ":80", "localhost:x", "localhost:70000"])
def test_a_bad_end_point_is_named(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        HostInfo.parse(text)


def test_end_points_with_brackets():
    assert HostInfo.parse("[::1]:80") == HostInfo("[::1]", 80)
