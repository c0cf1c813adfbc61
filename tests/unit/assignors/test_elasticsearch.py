"""The allocator's rules, worked by hand. In twentieths a shard weighs 9, and 11 more in the eyes of its index."""

import pytest

from sparkrelay.assignors import ElasticsearchTaskAssignor
from sparkrelay.errors import ConfigException

# Before, partitions of each subtopology, standbys: after.
EXAMPLES = {
    "each shard to the lightest node, the next index to who has least": (
        {1: "", 2: "", 3: ""},
        [4, 2],
        0,
        {1: "0_0 0_3", 2: "0_1 1_0", 3: "0_2 1_1"},
    ),
    "replicas go round in a ring against primaries": (
        {1: "", 2: "", 3: ""},
        [3],
        1,
        {1: "0_0 / 0_2", 2: "0_1 / 0_0", 3: "0_2 / 0_1"},
    ),
    # Weights 80, 80, 0: the heaviest gives its lowest shard. 60, 80, 20 and the other gives one. 60, 60, 40: near
    # enough, the difference must exceed 20.
    "a new node is filled until differences are within the threshold": (
        {1: "0_0 0_1 0_2 0_3", 2: "0_4 0_5 0_6 0_7", 3: ""},
        [8],
        0,
        {1: "0_1 0_2 0_3", 2: "0_5 0_6 0_7", 3: "0_0 0_4"},
    ),
    "a difference of exactly the threshold stays": ({1: "0_0 0_1", 2: "0_2"}, [3], 0, {1: "0_0 0_1", 2: "0_2"}),
    "a difference of two shards does not": ({1: "0_0 0_1", 2: ""}, [2], 0, {1: "0_1", 2: "0_0"}),
    # Index 0 sees 2*9+2*11 = 40 against 18.
    "an index is spread though the totals are even": (
        {1: "0_0 0_1", 2: "1_0 1_1"},
        [2, 2],
        0,
        {1: "0_1 1_0", 2: "0_0 1_1"},
    ),
    # 3*9+2*11 = 49 against 3*9+1*11 = 38 for either index: 11, no reason to move.
    "but not further than the threshold asks": (
        {1: "0_0 0_1 1_0", 2: "0_2 1_1 1_2"},
        [3, 3],
        0,
        {1: "0_0 0_1 1_0", 2: "0_2 1_1 1_2"},
    ),
    "a crash promotes the replica and makes new replicas elsewhere": (
        {1: "0_0 / 0_2", 2: "0_1 / 0_0"},
        [3],
        1,
        {1: "0_0 0_2 / 0_1", 2: "0_1 / 0_0 0_2"},
    ),
    "primaries are not balanced among themselves": (
        {1: "0_0 0_1 0_2 0_3", 2: "/ 0_0 0_1 0_2 0_3"},
        [4],
        1,
        {1: "0_0 0_1 0_2 0_3", 2: "/ 0_0 0_1 0_2 0_3"},
    ),
    "more replicas than nodes stay unassigned": (
        {1: "0_0", 2: ""},
        [1],
        3,
        {1: "0_0", 2: "/ 0_0"},
    ),
    "replicas that are not wanted any more go": (
        {1: "0_0", 2: "/ 0_0", 3: "/ 0_0"},
        [1],
        1,
        {1: "0_0", 2: "/ 0_0", 3: ""},
    ),
    "of two primaries the second becomes a replica": ({1: "0_0", 2: "0_0"}, [1], 1, {1: "0_0", 2: "/ 0_0"}),
    "shards that are gone are forgotten": ({1: "0_0 7_7 / 8_8", 2: "0_1"}, [2], 0, {1: "0_0", 2: "0_1"}),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(group, table, example):
    before, partitions, replicas, expected = EXAMPLES[example]
    assert table(ElasticsearchTaskAssignor().assign(group(before, partitions, replicas=replicas))) == expected


def test_threads_are_not_looked_at(group, table):
    state = group({1: "", 2: ""}, [4], threads={1: 3})
    assert table(ElasticsearchTaskAssignor().assign(state)) == {1: "0_0 0_2", 2: "0_1 0_3"}


def test_the_window_shrinks_where_the_heaviest_has_nothing_to_give(group, table):
    # Node 1 has nothing but what it runs, so the next heaviest is asked: node 3 gives node 2 its replica of 0_0. Now
    # there are 80 against 40 and 40, and node 1 must give up a task: the lowest of which node 2 has no replica.
    before = {1: "0_0 0_1 0_2 0_3", 2: "/ 0_3", 3: "/ 0_0 0_1 0_2"}
    got = table(ElasticsearchTaskAssignor().assign(group(before, [4], replicas=1)))
    assert got == {1: "0_0 0_2 0_3", 2: "0_1 / 0_0 0_3", 3: "/ 0_1 0_2"}


def test_tasks_without_a_changelog_have_no_replicas(group, table):
    state = group({1: "", 2: ""}, [2, 2], replicas=1, stateless=[1])
    assert table(ElasticsearchTaskAssignor().assign(state)) == {1: "0_0 1_0 / 0_1", 2: "0_1 1_1 / 0_0"}


@pytest.mark.parametrize(
    ("name", "value", "before", "partitions", "after"),
    [
        # Two shards more on one node are a difference of 2, in whatever unit.
        ("threshold", "2", {1: "0_0 0_1", 2: ""}, [2], {1: "0_0 0_1", 2: ""}),
        ("threshold", 1.99, {1: "0_0 0_1", 2: ""}, [2], {1: "0_1", 2: "0_0"}),
        # Totals alone count: they are even.
        ("index", 0, {1: "0_0 0_1", 2: "1_0 1_1"}, [2, 2], {1: "0_0 0_1", 2: "1_0 1_1"}),
        # Of each index alone: for index 0 it is 2 against 0, for index 1 as well.
        ("shard", "0", {1: "0_0 0_1 1_0 1_1", 2: ""}, [2, 2], {1: "0_1 1_1", 2: "0_0 1_0"}),
    ],
)
def test_factors_and_threshold_are_settings(group, table, name, value, before, partitions, after):
    assignor = ElasticsearchTaskAssignor()
    assignor.configure({f"task.assignor.elasticsearch.balance.{name}": value})
    assert table(assignor.assign(group(before, partitions))) == after


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": "0.5"}, "balance.threshold='0.5' must be a number from 1 to 1000000, such as 1.0"),
        ({"shard": "much"}, "balance.shard='much' must be a number from 0"),
        ({"index": True}, "balance.index=True must be a number"),
        ({"index": float("nan")}, "balance.index=nan must be a number"),
        ({"index": "1" * 100_000}, "must be a number"),
        ({"index": "1e999999999"}, "must be a number"),
        ({"shard": 0, "index": 0}, "are both 0"),
    ],
)
def test_what_is_no_factor_is_refused(settings, message):
    given = {f"task.assignor.elasticsearch.balance.{name}": value for name, value in settings.items()}
    with pytest.raises(ConfigException, match=message):
        ElasticsearchTaskAssignor().configure(given)
