"""Rows as the values of a repartition topic, and back."""

import math

import pyarrow as pa
import pytest

from sparkrelay.runtime.worker.encoding import pack_rows, unpack_rows


@pytest.mark.parametrize("columns", [1, 2])
def test_a_packed_tombstone_keeps_its_columns(columns):
    rows = pa.record_batch({"k": ["x", None, "z"], "n": pa.array([1, 2, None], pa.int64())}).select(range(columns))
    packed = pack_rows(rows, pa.array([False, True, True]))
    assert packed.null_count == 0
    found, tombstones = unpack_rows(packed, rows.schema)
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in rows.columns]
    assert tombstones.to_pylist() == [False, True, True]
    assert unpack_rows(pack_rows(rows, None), rows.schema)[1].to_pylist() == [False] * 3


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_packed_zero_keeps_its_sign(kind):
    numbers = pa.array([-0.0, 0.0, math.nan, -math.inf, None], kind)
    rows = pa.record_batch({"x": numbers, "s": pa.StructArray.from_arrays([numbers], ["y"])})
    plain, inside = unpack_rows(pack_rows(rows, None), rows.schema)[0]
    for found in (plain, inside.field(0)):
        assert [str(x) for x in found.to_pylist()] == ["-0.0", "0.0", "nan", "-inf", "None"]
