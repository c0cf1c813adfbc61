"""What Kafka's serializers write, as its documentation and `javap` have them: big endian, one byte, text."""

import math
import struct

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import SerializationException
from sparkrelay.records.formats import Boolean, Double, Float, Short, Uuid
from sparkrelay.records.formatted import columns_to_format
from sparkrelay.records.plain import PLAIN_TYPES, plain_to_column

ID = "00112233-4455-6677-8899-AABBccddeeff"


def written(form, values):
    return columns_to_format(pa.RecordBatch.from_arrays([pa.array(values, PLAIN_TYPES[form])], ["value"]), form())


@pytest.mark.parametrize(
    ("form", "values", "expected"),
    [
        (Short, [1, -2, None, 2**15 - 1], [b"\0\1", b"\xff\xfe", None, b"\x7f\xff"]),
        (Float, [1.5, None, -0.0], [struct.pack(">f", 1.5), None, b"\x80\0\0\0"]),
        (Double, [math.pi, math.inf], [struct.pack(">d", math.pi), struct.pack(">d", math.inf)]),
        (Boolean, [True, False, None], [b"\1", b"\0", None]),
        (Uuid, [ID, None], [ID.encode(), None]),
    ],
)
def test_bytes_there_and_back(form, values, expected):
    data = written(form, values)
    assert data.to_pylist() == expected
    column, bad = plain_to_column(data, form)
    assert (column.to_pylist(), column.type, bad) == (values, PLAIN_TYPES[form], [])
    column, bad = plain_to_column(pa.array([b"cut off", *expected], pa.binary()).slice(1), form)
    assert (column.to_pylist(), bad) == (values, [])
    assert plain_to_column(pa.array([], pa.binary()), form)[0].to_pylist() == []


@pytest.mark.parametrize(
    ("form", "bad", "good", "reason"),
    [
        (Short, b"\0", b"\0\1", "has 1 bytes: b'\\x00'; int16 is written as 2, big endian"),
        (Float, b"", struct.pack(">f", 1), "has 0 bytes: b''; float is written as 4, big endian"),
        (Double, b"\0" * 9, struct.pack(">d", 1), "has 9 bytes: b'\\x00\\x00"),
        (Boolean, b"\2", b"\1", "is b'\\x02'; a boolean is written as a byte 0 or 1"),
        (Uuid, b"0011", ID.encode(), "is '0011', which is no UUID"),
        (Uuid, b"\xff", ID.encode(), "is not UTF-8 text"),
    ],
)
def test_what_does_not_fit_is_named_and_null(form, bad, good, reason):
    column, found = plain_to_column(pa.array([good, bad, None, bad, good]), form)
    assert [one.index for one in found] == [1, 3]
    assert reason in found[0].reason
    assert [value is None for value in column.to_pylist()] == [False, True, True, True, False]


def test_a_text_that_is_no_uuid_is_not_written():
    with pytest.raises(SerializationException, match="column 'value' cannot be written as Uuid.*'x' is no UUID"):
        written(Uuid, ["x"])


@given(st.lists(st.floats() | st.none()))
def test_doubles(values):
    column, bad = plain_to_column(written(Double, values), Double)
    assert bad == []
    assert repr(column.to_pylist()) == repr(values)


@given(st.lists(st.binary(max_size=9) | st.none()), st.sampled_from([Short, Float, Double, Boolean, Uuid]))
def test_any_bytes(values, form):
    column, bad = plain_to_column(pa.array(values, pa.binary()), form)
    column.validate(full=True)
    assert len(bad) == column.null_count - values.count(None)
