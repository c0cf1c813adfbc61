"""Samza's two steps, worked by hand: groups of even size by name, started where their state is."""

import pytest

from sparkrelay.assignors import SamzaHostAffinityTaskAssignor

# Before, partitions of each subtopology: after.
EXAMPLES = {
    "dealt by name at first": ({1: "", 2: "", 3: ""}, [7], {1: "0_0 0_3 0_6", 2: "0_1 0_4", 3: "0_2 0_5"}),
    "groups stay as they are": ({1: "0_0 0_5", 2: "0_1 0_2 0_3"}, [4, 0], {1: "0_0 0_3", 2: "0_1 0_2"}),
    "a new container gets the ends of the others": (
        {1: "0_0 0_2 0_4", 2: "0_1 0_3 0_5", 3: ""},
        [6],
        {1: "0_0 0_2", 2: "0_1 0_3", 3: "0_4 0_5"},
    ),
    "if a host is gone for good, the others are filled one after the other": (
        {1: "0_0 0_3", 2: "0_1 0_4", 3: "0_2 0_5"},
        [12],
        {1: "0_0 0_3 0_6 0_7", 2: "0_1 0_4 0_8 0_9", 3: "0_2 0_5 0_10 0_11"},
    ),
    "a host that takes the place of another takes its container": (
        {1: "0_0 0_3", 2: "0_1 0_4", 4: ""},
        [6],
        {1: "0_0 0_3", 2: "0_1 0_4", 4: "0_2 0_5"},
    ),
    "after a redeploy, containers start where their state is": (
        {1: "/ 0_4 0_5", 2: "/ 0_1 0_3", 3: "/ 0_0 0_2"},
        [6],
        {1: "0_4 0_5", 2: "0_1 0_3", 3: "0_0 0_2"},
    ),
    "a preferred host without room is passed over": (
        {1: "/ 0_0 0_1 0_2 0_3", 2: ""},
        [4],
        {1: "0_0 0_1", 2: "0_2 0_3"},
    ),
    "where it ran last counts for more than where its state is": (
        {1: "0_0", 2: "0_1 / 0_0"},
        [2],
        {1: "0_0", 2: "0_1"},
    ),
    "the larger group stays where it is": (
        {1: "0_0 0_1", 2: "0_2 0_3 0_4"},
        [5],
        {1: "0_0 0_1", 2: "0_2 0_3 0_4"},
    ),
    "tasks that are gone are forgotten": ({1: "0_0 7_7", 2: ""}, [2], {1: "0_0", 2: "0_1"}),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(group, table, example):
    before, partitions, expected = EXAMPLES[example]
    assert table(SamzaHostAffinityTaskAssignor().assign(group(before, partitions))) == expected


def test_a_host_has_a_container_for_each_thread(group, table):
    # Containers, in order: one on host 1, two on host 2, one on host 3.
    state = group({1: "", 2: "", 3: ""}, [7], threads={2: 2})
    assert table(SamzaHostAffinityTaskAssignor().assign(state)) == {1: "0_0 0_4", 2: "0_1 0_2 0_5 0_6", 3: "0_3"}


def test_a_failed_container_starts_on_the_host_of_its_standbys(group, table):
    # Host 3 ran 0_1 and 0_4; 1 had a standby of 0_1, 2 of 0_4. Standbys are placed anew afterwards.
    state = group({1: "0_0 0_3 / 0_1", 2: "0_2 0_5 / 0_0 0_4"}, [6], replicas=1)
    assert table(SamzaHostAffinityTaskAssignor().assign(state)) == {
        1: "0_0 0_1 0_3 / 0_2 0_4 0_5",
        2: "0_2 0_4 0_5 / 0_0 0_1 0_3",
    }
