"""Rows as the values of a repartition topic, and back."""

import math
from types import SimpleNamespace

import pyarrow as pa
import pytest

from sparkrelay.errors import SerializationException
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.worker.encoding import first_of_another_layout, pack_rows, sink_keys, sink_values, unpack_rows

LAYOUT = -7


@pytest.mark.parametrize("columns", [1, 2])
def test_a_packed_tombstone_keeps_its_columns(columns):
    rows = pa.record_batch({"k": ["x", None, "z"], "n": pa.array([1, 2, None], pa.int64())}).select(range(columns))
    packed = pack_rows(rows, pa.array([False, True, True]), LAYOUT)
    assert packed.null_count == 0
    found, tombstones = unpack_rows(packed, rows.schema)
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in rows.columns]
    assert tombstones.to_pylist() == [False, True, True]
    assert unpack_rows(pack_rows(rows, None, LAYOUT), rows.schema)[1].to_pylist() == [False] * 3


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_packed_zero_keeps_its_sign(kind):
    numbers = pa.array([-0.0, 0.0, math.nan, -math.inf, None], kind)
    rows = pa.record_batch({"x": numbers, "s": pa.StructArray.from_arrays([numbers], ["y"])})
    plain, inside = unpack_rows(pack_rows(rows, None, LAYOUT), rows.schema)[0]
    for found in (plain, inside.field(0)):
        assert [str(x) for x in found.to_pylist()] == ["-0.0", "0.0", "nan", "-inf", "None"]


@pytest.mark.parametrize("layout", [0, -1, 1, 7, (1 << 31) - 1, -(1 << 31)])
def test_rows_of_another_layout_are_reported(layout):
    rows = pa.record_batch({"k": ["x", None, "z"]})
    values = pa.concat_arrays([pack_rows(rows, None, LAYOUT), pack_rows(rows, None, layout)])
    assert first_of_another_layout(values, LAYOUT) == 3
    assert first_of_another_layout(values.slice(0, 3), LAYOUT) is None
    assert first_of_another_layout(values.slice(0, 0), LAYOUT) is None
    # What earlier releases wrote, and what is no packed row at all.
    for foreign in (b"", b"\x01", b"\x01\x50x\x00", None):
        assert first_of_another_layout(pa.array([foreign], pa.binary()), LAYOUT) == 0


def not_utf8(*texts):
    """Return text as Spark makes it of bytes."""
    packed = pa.array(texts, pa.binary())
    return pa.StringArray.from_buffers(len(texts), packed.buffers()[1], packed.buffers()[2])


@pytest.mark.parametrize("value", [None, Json(), String("t")])
def test_text_that_is_not_utf_8_is_not_written(value):
    """It would be JSON that no parser takes, or a row that the pipeline behind it dies of, for ever."""
    rows = pa.record_batch({"t": not_utf8(b"ok", b"\xff\xfe")})
    spec = SimpleNamespace(columns=["t"], key_columns=["t"], key=None, value=value, layout=LAYOUT)
    for write in (sink_values, sink_keys):
        with pytest.raises(SerializationException, match=r"column 't' .* not UTF-8 .*is_valid_utf8\(t\)"):
            write(spec, rows)
        assert len(write(spec, rows.slice(0, 1))) == 1


def test_text_inside_a_struct_is_looked_at_too():
    rows = pa.record_batch({"s": pa.StructArray.from_arrays([not_utf8(b"\xc3")], ["t"])})
    with pytest.raises(SerializationException, match="column 's'"):
        sink_values(SimpleNamespace(columns=["s"], value=Json()), rows)


def test_lists_and_maps_are_packed_beside_other_columns():
    kind = pa.map_(
        pa.string(), pa.list_(pa.struct([("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(20, 4))]))
    )
    rows = pa.record_batch({"m": pa.array([[("a", [None, {"at": 1, "price": 2}])], None, []], kind), "n": [1, 2, None]})
    packed = pack_rows(rows, pa.array([False, True, False]), LAYOUT)
    found, tombstones = unpack_rows(packed, rows.schema)
    assert [a.equals(b) for a, b in zip(found, rows.columns, strict=True)] == [True, True]
    assert tombstones.to_pylist() == [False, True, False]


def test_text_inside_of_lists_is_looked_at_too():
    rows = pa.record_batch({"l": pa.ListArray.from_arrays([0, 1], not_utf8(b"\xc3"))})
    with pytest.raises(SerializationException, match="column 'l' .* not UTF-8"):
        sink_values(SimpleNamespace(columns=["l"], value=None, layout=LAYOUT), rows)
