"""Which keys and partitions values of columns are of."""

import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec

from sparkrelay.datasources.key_values import message_keys, partition_of
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions

KEYS = [("shop", pa.string()), ("n", pa.int32())]


def spec_of(keys=KEYS, repartitioned_by=()):
    return state_spec(keys, [], [("sum", pa.int64())], (), repartitioned_by=repartitioned_by)


def test_keys_are_all_combinations_of_the_values():
    found = message_keys(spec_of(), {"shop": ["a", "b"], "n": [1], "sum": [9]}, 10)
    assert found.equals(key_bytes([pa.array(["a", "b"]), pa.array([1, 1], pa.int32())]).cast(pa.binary()))
    assert message_keys(spec_of(), {"shop": ["a"]}, 10) is None
    assert message_keys(spec_of(), {"shop": ["a", "b"], "n": [1, 2]}, 3) is None
    assert message_keys(spec_of(), {"shop": [None], "n": [1]}, 10).to_pylist() == []


@pytest.mark.parametrize("value", [1 << 40, "x", 1.5])
def test_values_of_another_type_are_left_to_spark(value):
    assert message_keys(spec_of(), {"shop": ["a"], "n": [value]}, 10) is None


def test_types_that_may_be_spelt_in_several_ways_are_left_to_spark():
    assert message_keys(spec_of([("x", pa.float64())]), {"x": [0.0]}, 10) is None


def test_a_partition_is_known_behind_a_repartition_topic_alone():
    values = {"shop": ["a"], "n": [1]}
    assert partition_of(spec_of(), values, 7) is None
    assert partition_of(spec_of(repartitioned_by=("shop",)), values, 7) == murmur2_partitions(pa.array([b"a"]), 7)[0]
    assert partition_of(spec_of(repartitioned_by=("shop",)), {"shop": ["a", "b"]}, 7) is None
    assert partition_of(spec_of(repartitioned_by=("user",)), {"user": ["a"]}, 7) is None
