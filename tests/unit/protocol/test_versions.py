"""Versions 1 to 11 one by one: what each carries, what it leaves out, and what later ones read in earlier bytes.

The bytes themselves are compared with Java's in tests/oracle (wire), random values in test_wire.
"""

from __future__ import annotations

import uuid

import pytest

from sparkrelay.errors import TaskAssignmentException
from sparkrelay.protocol import (
    LATEST_OFFSET,
    LATEST_SUPPORTED_VERSION,
    LONG_MAX,
    UNKNOWN_OFFSET_SUM,
    AssignmentInfo,
    ErrorCode,
    HostInfo,
    NamedTaskId,
    SubscriptionInfo,
)
from sparkrelay.types import ProcessId, TaskId, TopicPartition

PROCESS = ProcessId(uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10))
RUNNING, COPY = TaskId(0, 0), TaskId(0, 1)
SUMS = {RUNNING: LATEST_OFFSET, COPY: 40, TaskId(1, 3): 0}
HOST, OTHER = HostInfo("one", 80), HostInfo("two", 81)
VERSIONS = range(1, LATEST_SUPPORTED_VERSION + 1)


def subscription(version, **more):
    fields = {"user_end_point": "one:80", "task_offset_sums": SUMS, "unique_field": -3, "error_code": 4, **more}
    return SubscriptionInfo(process_id=PROCESS, version=version, **{"client_tags": {"zone": "a"}, **fields})


def sent(info):
    return type(info).decode(info.encode())


# Subscriptions


@pytest.mark.parametrize("version", [0, -1, 12, 2**31 - 1])
def test_versions_that_do_not_exist_cannot_be_made(version):
    with pytest.raises(ValueError, match=f"between 1 and 11; was: {version}"):
        SubscriptionInfo(process_id=PROCESS, version=version)
    with pytest.raises(ValueError, match=f"between 1 and 11; was: {version}"):
        AssignmentInfo(version=version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_subscription_carries_what_its_version_can(version):
    info = sent(subscription(version))
    assert (info.version, info.process_id, info.prev_tasks) == (version, PROCESS, {RUNNING})
    assert info.standby_tasks == {COPY, TaskId(1, 3)}
    assert info.latest_supported_version == (11 if version >= 3 else -1)
    assert info.user_end_point == ("one:80" if version >= 2 else None)
    assert info.unique_field == (-3 if version >= 8 else 0)
    assert info.error_code == (ErrorCode.SHUTDOWN_REQUESTED if version >= 9 else ErrorCode.NONE)
    assert info.client_tags == ({"zone": "a"} if version >= 11 else {})


@pytest.mark.parametrize("version", VERSIONS)
def test_sums_become_sentinels_below_version_7(version):
    unknown = {RUNNING: LATEST_OFFSET, COPY: UNKNOWN_OFFSET_SUM, TaskId(1, 3): UNKNOWN_OFFSET_SUM}
    assert sent(subscription(version)).task_offset_sums == (SUMS if version >= 7 else unknown)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_subscription_is_read_in_every_version(version):
    info = sent(SubscriptionInfo(process_id=PROCESS, version=version))
    assert (info.task_offset_sums, info.prev_tasks, info.standby_tasks) == ({}, frozenset(), frozenset())
    assert (info.user_end_point, info.client_tags) == (None, {})


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_the_old_layouts_stand_byte_by_byte(version):
    # Task lists of eight bytes a task came before offset sums; the end point came with version 2.
    info = SubscriptionInfo(process_id=PROCESS, version=version, user_end_point="h:1", task_offset_sums={COPY: 9})
    head = version.to_bytes(4, "big") + (b"\0\0\0\x0b" if version >= 3 else b"")
    lists = b"\0\0\0\0" + b"\0\0\0\x01" + b"\0\0\0\0" + b"\0\0\0\x01"
    end_point = b"\0\0\0\x03h:1" if version >= 2 else b""
    assert info.encode() == head + PROCESS.id.bytes + lists + end_point


@pytest.mark.parametrize(
    ("version", "latest", "reason"),
    [(3, -1, "only versions 1 and 2"), (11, -1, "only versions 1 and 2"), (11, 10, "between 1 and 10; was: 11")],
)
def test_a_version_that_contradicts_the_latest_is_refused(version, latest, reason):
    with pytest.raises(ValueError, match=reason):
        subscription(version, latest_supported_version=latest)
    data = bytearray(subscription(version).encode())
    data[4:8] = latest.to_bytes(4, "big", signed=True)
    with pytest.raises(ValueError, match=reason):
        SubscriptionInfo.decode(bytes(data))


@pytest.mark.parametrize("latest", [3, 10])
def test_a_member_may_support_less_than_we(latest):
    info = sent(subscription(3, latest_supported_version=latest))
    assert (info.version, info.latest_supported_version) == (3, latest)


def test_of_a_future_version_only_the_numbers_are_read():
    info = SubscriptionInfo.decode(bytes.fromhex("0000000c0000000c") + b"whatever comes after")
    assert (info.is_future, info.version, info.latest_supported_version) == (True, 12, 12)
    # What we could not read is empty and can be asked for without harm.
    assert (info.prev_tasks, info.standby_tasks, info.task_offset_sums) == (frozenset(), frozenset(), {})
    assert (info.user_end_point, info.unique_field, info.error_code, info.client_tags) == (None, 0, 0, {})


@pytest.mark.parametrize("version", VERSIONS)
def test_named_topologies_come_with_version_10(version):
    named = NamedTaskId("orders", 0, 1)
    info = subscription(version, task_offset_sums={named: 5, COPY: LATEST_OFFSET})
    if version < 10:
        with pytest.raises(TaskAssignmentException, match="orders__0_1"):
            info.encode()
    else:
        assert sent(info).task_offset_sums == {named: 5, COPY: LATEST_OFFSET}
        assert sent(info).standby_tasks == {named}


@pytest.mark.parametrize("tags", [{}, {"zone": "a"}, {"zone": "a", "rack": "ä"}])
def test_tags_travel_in_version_11(tags):
    assert sent(subscription(11, client_tags=tags)).client_tags == tags
    assert sent(subscription(10, client_tags=tags)).client_tags == {}


@pytest.mark.parametrize("unique", [-128, -1, 0, 127])
def test_the_unique_field_is_a_signed_byte(unique):
    assert sent(subscription(8, unique_field=unique)).unique_field == unique


# Assignments


def assignment(version, **more):
    fields = {
        "active_tasks": [RUNNING, RUNNING, COPY],
        "standby_tasks": {TaskId(1, 0): [TopicPartition("in", 0), TopicPartition("on", 0)]},
        "partitions_by_host": {HOST: [TopicPartition("in", 0)], OTHER: []},
        "standby_partitions_by_host": {OTHER: [TopicPartition("in", 0), TopicPartition("in", 1)]},
        "err_code": 3,
        "next_rebalance_ms": 5,
        **more,
    }
    return AssignmentInfo(version=version, **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_assignment_carries_what_its_version_can(version):
    info, full = sent(assignment(version)), assignment(version)
    assert info.active_tasks == full.active_tasks
    assert info.standby_tasks == full.standby_tasks
    assert info.commonly_supported_version == (11 if version >= 3 else -1)
    assert info.partitions_by_host == (full.partitions_by_host if version >= 2 else {})
    assert info.standby_partitions_by_host == (full.standby_partitions_by_host if version >= 6 else {})
    assert info.err_code == (3 if version >= 4 else 0)
    assert info.next_rebalance_ms == (5 if version >= 7 else LONG_MAX)


def test_an_assignment_is_of_the_latest_version_and_asks_for_nothing_by_default():
    info = AssignmentInfo()
    assert (info.version, info.commonly_supported_version) == (LATEST_SUPPORTED_VERSION, LATEST_SUPPORTED_VERSION)
    assert (info.next_rebalance_ms, info.err_code) == (LONG_MAX, ErrorCode.NONE)
    assert sent(info) == info


@pytest.mark.parametrize("version", VERSIONS)
def test_named_topologies_travel_in_assignments_from_version_10(version):
    named = NamedTaskId("orders", 0, 1)
    info = assignment(version, active_tasks=[named], standby_tasks={NamedTaskId("bills", 2, 0): []})
    if version < 10:
        with pytest.raises(TaskAssignmentException, match="orders__0_1"):
            info.encode()
    else:
        assert sent(info) == info


@pytest.mark.parametrize("common", [3, 7, 10])
def test_the_commonly_supported_version_may_be_lower_than_ours(common):
    info = sent(assignment(3, commonly_supported_version=common))
    assert (info.version, info.commonly_supported_version) == (3, common)


@pytest.mark.parametrize("deadline", [0, 1, LONG_MAX])
def test_the_next_rebalance_travels_in_version_7(deadline):
    assert sent(assignment(7, next_rebalance_ms=deadline)).next_rebalance_ms == deadline
    assert sent(assignment(6, next_rebalance_ms=deadline)).next_rebalance_ms == LONG_MAX


@pytest.mark.parametrize("version", [b"\0\0\0\0", b"\0\0\0\x0c", b"\xff\xff\xff\xff"])
def test_an_assignment_of_a_version_that_we_cannot_know_is_refused(version):
    with pytest.raises(TaskAssignmentException, match="latest supported version: 11"):
        AssignmentInfo.decode(version + bytes(60))
