from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from kafka.partitioner.default import murmur2

from sparkrelay.records.partition import murmur2_partitions, split_by_partition

# Java: Utils.murmur2("21".getBytes()) and so on, from Kafka's own vectors.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("partitions", [1, 2, 7, 1000, 2**31 - 1])
def test_java_vectors(partitions):
    got = murmur2_partitions(pa.array(list(JAVA)), partitions)
    assert got.tolist() == [(value & 0x7FFFFFFF) % partitions for value in JAVA.values()]


@settings(deadline=None, max_examples=200)
@given(keys=st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30), partitions=st.integers(1, 50))
def test_as_kafka_python_computes_it(keys, partitions):
    expected = [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert murmur2_partitions(pa.array(keys, pa.binary()), partitions).tolist() == expected


def test_slices_and_strings():
    keys = pa.array(["x", "abc", None, "21"]).slice(1)
    assert murmur2_partitions(keys, 1000).tolist() == [479470107 % 1000, -1, (-973932308 & 0x7FFFFFFF) % 1000]


@settings(deadline=None, max_examples=100)
@given(partitions=st.lists(st.integers(0, 6), max_size=60))
def test_rows_are_split_in_their_order(partitions):
    got = split_by_partition(np.array(partitions, np.int32), 7)
    assert [rows.tolist() for rows in got] == [[i for i, p in enumerate(partitions) if p == n] for n in range(7)]


def test_partitions_that_do_not_exist_are_named():
    with pytest.raises(ValueError, match=r"row 1 has partition -1, which is not within 0..2"):
        split_by_partition(np.array([0, -1], np.int32), 3)
    with pytest.raises(ValueError, match="partitions=0"):
        murmur2_partitions(pa.array([b""]), 0)
