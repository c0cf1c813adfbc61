"""The StickyAssignor's rules, worked by hand: even shares first, then what each had."""

import pytest

from sparkrelay.assignors import ConsumerStickyTaskAssignor

# Before, partitions of each subtopology: after.
EXAMPLES = {
    "round robin at first": ({1: "", 2: "", 3: ""}, [7], {1: "0_0 0_3 0_6", 2: "0_1 0_4", 3: "0_2 0_5"}),
    "in order of subtopology, then partition": ({1: "", 2: ""}, [2, 3], {1: "0_0 1_0 1_2", 2: "0_1 1_1"}),
    "the first of what each had stay, a newcomer gets the rest": (
        {1: "0_0 0_2 0_4", 2: "0_1 0_3 0_5", 3: ""},
        [6],
        {1: "0_0 0_2", 2: "0_1 0_3", 3: "0_4 0_5"},
    ),
    "what nobody has any more goes round": (
        {1: "0_0 0_3", 2: "0_1 0_4"},
        [7],
        {1: "0_0 0_2 0_3 0_6", 2: "0_1 0_4 0_5"},
    ),
    # Shares of seven are 3, 2, 2, and 3 stays with the one that has it.
    "the larger share stays where it is": (
        {1: "0_0 0_1", 2: "0_2 0_3", 3: "0_4 0_5 0_6"},
        [7],
        {1: "0_0 0_1", 2: "0_2 0_3", 3: "0_4 0_5 0_6"},
    ),
    "only so many larger shares, the first keep them": (
        {1: "0_0 0_1 0_2", 2: "0_3 0_4 0_5", 3: "0_6"},
        [7],
        {1: "0_0 0_1 0_2", 2: "0_3 0_4", 3: "0_5 0_6"},
    ),
    "a task that two claim is nobody's": ({1: "0_0 0_1", 2: "0_1 0_2"}, [4], {1: "0_0 0_1", 2: "0_2 0_3"}),
    "state is ignored": ({1: "0_0 / 0_3", 2: "0_1 / 0_2"}, [4], {1: "0_0 0_2", 2: "0_1 0_3"}),
    "fewer tasks than processes": ({1: "", 2: "0_0", 3: ""}, [2], {1: "0_1", 2: "0_0", 3: ""}),
    "tasks that are gone are forgotten": ({1: "0_0 7_7", 2: ""}, [2], {1: "0_0", 2: "0_1"}),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(group, table, example):
    before, partitions, expected = EXAMPLES[example]
    assert table(ConsumerStickyTaskAssignor().assign(group(before, partitions))) == expected


def test_a_thread_is_a_consumer(group, table):
    # Seven over four consumers: shares of one, three of them larger. One each in turn up to the share, 1 2 3 2, then
    # the larger shares, 1 2 3.
    state = group({1: "", 2: "", 3: ""}, [7], threads={2: 2})
    assert table(ConsumerStickyTaskAssignor().assign(state)) == {1: "0_0 0_4", 2: "0_1 0_3 0_5", 3: "0_2 0_6"}


def test_standbys_are_placed_by_the_api(group, table):
    state = group({1: "0_0", 2: "0_1"}, [2, 1], replicas=1, stateless=[1])
    assert table(ConsumerStickyTaskAssignor().assign(state)) == {1: "0_0 1_0 / 0_1", 2: "0_1 / 0_0"}
