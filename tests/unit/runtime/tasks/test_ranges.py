import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.tasks.ranges import plan_ranges, require_inputs, share_out
from sparkrelay.types import TaskId, TopicPartition

PARTITIONS = [TopicPartition("in", n) for n in range(5)]


@given(
    st.dictionaries(st.sampled_from(PARTITIONS), st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=5),
    st.integers(1, 2000),
)
def test_ranges_start_where_the_task_stands_and_keep_to_the_limit(logs, limit):
    positions = {p: start for p, (start, _) in logs.items()}
    ends = {p: start + new for p, (start, new) in logs.items()}
    ranges = plan_ranges(positions, ends, limit)
    backlog = sum(new for _, new in logs.values())
    assert sum(end - start for start, end in ranges.values()) == min(limit, backlog)
    for partition, (start, end) in ranges.items():
        assert start == positions[partition]
        assert start < end <= ends[partition]


def test_ranges_are_fair_between_partitions():
    positions = dict.fromkeys(PARTITIONS[:3], 0)
    ends = {PARTITIONS[0]: 1_000_000, PARTITIONS[1]: 10, PARTITIONS[2]: 1_000_000}
    ranges = plan_ranges(positions, ends, 1010)
    assert ranges == {PARTITIONS[0]: (0, 500), PARTITIONS[1]: (0, 10), PARTITIONS[2]: (0, 500)}


def test_an_end_before_the_position_is_no_work():
    assert plan_ranges({PARTITIONS[0]: 10}, {PARTITIONS[0]: 5}, 100) == {}


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 100), max_size=12), st.integers(1, 4))
def test_shares_hold_each_task_once_and_are_balanced(weights, spark_partitions):
    tasks = {TaskId(0, n): weight for n, weight in weights.items()}
    shares = share_out(tasks, spark_partitions)
    assert len(shares) == spark_partitions
    assert sorted(task for share in shares for task in share) == sorted(tasks)
    loads = [sum(tasks[task] for task in share) for share in shares]
    assert max(loads) - min(loads) <= max(tasks.values(), default=0)


def test_a_log_that_ends_before_the_task_is_not_the_log_it_read():
    positions = {TaskId(0, 1): {PARTITIONS[1]: 100}}
    require_inputs("app", positions, {PARTITIONS[1]: 100})
    with pytest.raises(StreamsException, match=r"task 0_1 is at offset 100 of in-1, but the log ends at 10: "):
        require_inputs("app", positions, {PARTITIONS[1]: 10})


def test_tables_that_are_looked_into_come_first():
    users, clicks = TopicPartition("users", 0), TopicPartition("clicks", 0)
    at = {users: 0, clicks: 0}
    assert plan_ranges(at, {users: 30, clicks: 50}, 20, {"users"}) == {users: (0, 20)}
    assert plan_ranges(at, {users: 8, clicks: 50}, 20, {"users"}) == {users: (0, 8), clicks: (0, 12)}
    assert plan_ranges(at, {users: 20, clicks: 50}, 20, {"users"}) == {users: (0, 20)}
    assert plan_ranges(at, {users: 0, clicks: 50}, 20, {"users"}) == {clicks: (0, 20)}
    assert plan_ranges(at, {users: 30, clicks: 50}, 20) == {users: (0, 10), clicks: (0, 10)}
