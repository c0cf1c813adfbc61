"""Goals by priority, worked by hand. Nine per cent about the share, rounded outwards: a share of 4 allows 3 to 5."""

import pytest

from sparkrelay.assignors import CruiseControlTaskAssignor
from sparkrelay.errors import ConfigException

# Before, partitions of each subtopology, standbys, racks: after.
EXAMPLES = {
    "the least loaded take what is missing": (
        {1: "", 2: "", 3: ""},
        [4, 2],
        0,
        {},
        {1: "0_0 0_3", 2: "0_1 1_0", 3: "0_2 1_1"},
    ),
    # A share of 8/3 allows 2 to 3: one and two give one each, and three has enough.
    "a new process is filled up to what its share allows": (
        {1: "0_0 0_1 0_2 0_3", 2: "0_4 0_5 0_6 0_7", 3: ""},
        [8],
        0,
        {},
        {1: "0_1 0_2 0_3", 2: "0_5 0_6 0_7", 3: "0_0 0_4"},
    ),
    "within the limits nothing moves": (
        {1: "0_0 0_1 0_2 0_3 0_4", 2: "0_5 0_6 0_7"},
        [8],
        0,
        {},
        {1: "0_0 0_1 0_2 0_3 0_4", 2: "0_5 0_6 0_7"},
    ),
    # Copies are even, so replica distribution is content. Leaders: a share of 2 allows 1 to 3.
    "leadership moves to a standby, and no copy moves": (
        {1: "0_0 0_1 0_2 0_3", 2: "/ 0_0 0_1 0_2 0_3"},
        [4],
        1,
        {},
        {1: "0_1 0_2 0_3 / 0_0", 2: "0_0 / 0_1 0_2 0_3"},
    ),
    # Both copies of both tasks are in rack a. The standbys leave for rack b, where process 3 then has 2: a share of 4/3
    # allows 1 to 2.
    "racks come first, counts after them": (
        {1: "0_0 / 0_1", 2: "0_1 / 0_0", 3: ""},
        [2],
        1,
        {1: "a", 2: "a", 3: "b"},
        {1: "0_0", 2: "0_1", 3: "/ 0_0 0_1"},
    ),
    # Shares of copies are 8/3 each, which allows 2 to 3; but rack b is one process and must hold a copy of all four
    # tasks. Leaders: a share of 4/3 allows 1 to 2, so 3 becomes the leader of one.
    "a soft goal gives way to a hard one": (
        {1: "0_0 0_1", 2: "0_2 0_3", 3: "/ 0_0 0_1 0_2 0_3"},
        [4],
        1,
        {1: "a", 2: "a", 3: "b"},
        {1: "0_1 / 0_0", 2: "0_2 0_3", 3: "0_0 / 0_1 0_2 0_3"},
    ),
    # Leaders: a share of 3/2 allows 1 to 2. Copies: a share of 3.
    "what a crash left without a leader is led by a standby": (
        {1: "0_0 / 0_2", 2: "0_1 / 0_0"},
        [3],
        1,
        {},
        {1: "0_0 0_2 / 0_1", 2: "0_1 / 0_0 0_2"},
    ),
    # Of each subtopology a share of 1 allows 0 to 3, in all a share of 4 allows 3 to 5. 1 gives 0_0 to 2, the first of
    # those that have none; 2 gives 1_0 to 1, 3 gives 2_0 to 1, which then has 5, so 4 gives 3_0 to 2, which has 4.
    "a subtopology is spread, loosely": (
        {1: "0_0 0_1 0_2 0_3", 2: "1_0 1_1 1_2 1_3", 3: "2_0 2_1 2_2 2_3", 4: "3_0 3_1 3_2 3_3"},
        [4, 4, 4, 4],
        0,
        {},
        {1: "0_1 0_2 0_3 1_0 2_0", 2: "0_0 1_1 1_2 1_3 3_0", 3: "2_1 2_2 2_3", 4: "3_1 3_2 3_3"},
    ),
    "more standbys than processes are left out": ({1: "0_0", 2: ""}, [1], 3, {}, {1: "0_0", 2: "/ 0_0"}),
    "of two leaders the second becomes a standby": ({1: "0_0", 2: "0_0"}, [1], 1, {}, {1: "0_0", 2: "/ 0_0"}),
    "tasks that are gone are forgotten": ({1: "0_0 7_7 / 8_8", 2: "0_1"}, [2], 0, {}, {1: "0_0", 2: "0_1"}),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(group, table, example):
    before, partitions, replicas, racks, expected = EXAMPLES[example]
    state = group(before, partitions, replicas=replicas, racks=racks)
    assert table(CruiseControlTaskAssignor().assign(state)) == expected


def test_the_share_is_in_proportion_to_threads(group, table):
    # Six tasks on three threads: two a thread.
    state = group({1: "0_0 0_1 0_2 0_3 0_4 0_5", 2: ""}, [6], threads={1: 2})
    # A share of 4 allows 3 to 5, one of 2 allows 1 to 3.
    assert table(CruiseControlTaskAssignor().assign(state)) == {1: "0_1 0_2 0_3 0_4 0_5", 2: "0_0"}


def test_what_is_missing_evens_out_without_moving_what_is_there(group, table):
    state = group({1: "0_0 0_1 0_2 0_3", 2: "0_4 0_5"}, [9])
    got = table(CruiseControlTaskAssignor().assign(state))
    assert got == {1: "0_0 0_1 0_2 0_3 0_8", 2: "0_4 0_5 0_6 0_7"}


def test_processes_without_a_rack_are_racks_of_their_own(group, table):
    # Racks: a, and process 3 and 4 for themselves; the standby of 0_0 goes to 3, its leader being in a.
    state = group({1: "0_0", 2: "/ 0_0", 3: "", 4: ""}, [1], replicas=1, racks={1: "a", 2: "a"})
    assert table(CruiseControlTaskAssignor().assign(state)) == {1: "0_0", 2: "", 3: "/ 0_0", 4: ""}


def configured(**settings):
    assignor = CruiseControlTaskAssignor()
    assignor.configure({f"task.assignor.cruise.control.{key.replace('_', '.')}": of for key, of in settings.items()})
    return assignor


def test_limits_are_settings(group, table):
    # A share of 4: nine tenths of 100 % allow 1 to 8 leaders, and the usual limits 3 to 5.
    before = {1: "0_0 0_1 0_2 0_3 0_4 0_5 0_6", 2: "0_7"}
    state = group(before, [8])
    assert table(CruiseControlTaskAssignor().assign(state)) != before
    wide = configured(leader_replica_count_balance_threshold="2.0", replica_count_balance_threshold=2)
    assert table(wide.assign(state)) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replica_count_balance_threshold": 0.9}, "replica.count.balance.threshold=0.9 must be a number from 1 to"),
        ({"topic_replica_count_balance_min_gap": 50}, r"min.gap=50 is more than .*max.gap=40"),
    ],
)
def test_what_is_no_limit_is_refused(settings, message):
    with pytest.raises(ConfigException, match=message):
        configured(**settings)
