from __future__ import annotations

import datetime as dt
import decimal
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.errors import SerializationException
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.formats import Integer, Long, Raw, String
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.records.plain import PLAIN_TYPES, plain_to_column

UTC = dt.UTC
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])

moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001 - Spark's timestamp_ntz has no zone
aware = moments.map(lambda moment: moment.replace(tzinfo=UTC))
KINDS = {
    pa.string(): st.text(max_size=6),
    pa.binary(): st.binary(max_size=6),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False).map(lambda number: number + 0.0),
    pa.float64(): st.floats(allow_nan=False).map(lambda number: number + 0.0),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): aware,
    pa.timestamp("us"): moments,
    pa.decimal128(38, 4): st.decimals(min_value=-(10**20), max_value=10**20, places=4),
    WINDOW: st.fixed_dictionaries({"start": st.one_of(st.none(), aware), "end": aware}),
}


@st.composite
def tables(draw, *, nullable=True):
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4))
    rows = draw(st.integers(1, 8))
    columns = []
    for kind in kinds:
        value = st.one_of(st.none(), KINDS[kind]) if nullable else KINDS[kind]
        columns.append(pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), kind))
    return columns


def schema_of(columns):
    return pa.schema([(f"c{index}", column.type) for index, column in enumerate(columns)])


@settings(deadline=None, max_examples=150)
@given(columns=tables())
def test_keys_are_read_as_written(columns):
    keys = key_bytes(columns)
    keys.validate(full=True)
    back = key_columns(keys, schema_of(columns))
    for column, read in zip(columns, back, strict=True):
        read.validate(full=True)
        assert read.to_pylist() == column.to_pylist()
    # A slice is written as its own rows are.
    assert key_bytes([column.slice(1) for column in columns]).equals(keys.slice(1))
    assert [read.to_pylist() for read in key_columns(keys.slice(1), schema_of(columns))] == [
        column.slice(1).to_pylist() for column in columns
    ]


def order(value):
    """Nulls first, structs field by field, text by its bytes."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, tuple(order(item) for item in value.values()))
    return (1, value.encode() if isinstance(value, str) else value)


@settings(deadline=None, max_examples=120)
@given(columns=tables())
def test_tuple_bytes_sort_as_their_columns(columns):
    if len(columns) == 1:
        columns = [*columns, columns[0]]
    keys = key_bytes(columns).to_pylist()
    rows = [tuple(order(value) for value in row) for row in zip(*(c.to_pylist() for c in columns), strict=True)]
    for key_a, row_a in zip(keys, rows, strict=True):
        for key_b, row_b in zip(keys, rows, strict=True):
            assert (key_a < key_b) == (row_a < row_b)
            assert (key_a == key_b) == (row_a == row_b)


def test_single_columns_are_written_as_kafka_would():
    assert key_bytes([pa.array(["ü", None])]).to_pylist() == ["ü".encode(), None]
    assert key_bytes([pa.array([b"\x00", None])]).to_pylist() == [b"\x00", None]
    assert key_bytes([pa.array([1, -2, None], pa.int32())]).to_pylist() == [b"\0\0\0\1", b"\xff\xff\xff\xfe", None]
    assert key_bytes([pa.array([1, None], pa.int64())]).to_pylist() == [b"\0\0\0\0\0\0\0\1", None]


def test_the_layout_of_a_tuple():
    window = [{"start": dt.datetime(1970, 1, 1, tzinfo=UTC), "end": None}]
    keys = key_bytes(
        [pa.array(["a\0b"]), pa.array(window, WINDOW), pa.array([None], pa.int32()), pa.array([-1], pa.int8())]
    )
    assert keys[0].as_py().hex(" ") == "01 50 61 00 ff 62 00 70 02 38 80 00 00 00 00 00 00 00 00 00 11 7f"


def test_a_null_alone_is_a_null_key_and_among_others_part_of_it():
    day = pa.array([dt.date(2013, 1, 1), None])
    assert key_bytes([day]).to_pylist()[1] is None
    assert key_bytes([day, day]).to_pylist()[1] == b"\x01\x00\x00"
    assert key_columns(pa.array([None], pa.binary()), pa.schema([("a", pa.string()), ("w", WINDOW)])) == [
        pa.array([None], pa.string()), pa.array([None], WINDOW),
    ]  # fmt: skip


def test_equal_numbers_have_equal_bytes():
    numbers = pa.array([0.0, -0.0, math.nan, float.fromhex("-0x1p0") * math.nan])
    keys = key_bytes([numbers]).to_pylist()
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert math.isnan(key_columns(pa.array(keys[2:3]), pa.schema([("d", pa.float64())]))[0][0].as_py())


def test_decimals_keep_their_128_bits():
    column = pa.array([decimal.Decimal(10) ** 37, -(decimal.Decimal(10) ** 37), None], pa.decimal128(38, 0))
    assert key_columns(key_bytes([column]), pa.schema([("d", column.type)]))[0].equals(column)


@settings(deadline=None, max_examples=120)
@given(columns=tables(), data=st.data())
def test_damaged_keys_are_named(columns, data):
    if len(columns) == 1:
        columns = [*columns, columns[0]]
    raw = bytearray(key_bytes(columns)[0].as_py())
    change = data.draw(st.sampled_from(["cut", "grow", "flip"]))
    if change == "cut":
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    elif change == "grow":
        raw += b"\x01"
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        back = key_columns(pa.array([bytes(raw)]), schema_of(columns))
    except SerializationException as error:
        assert "key" in str(error)  # noqa: PT017 - a flipped bit of a number is still a key
    else:
        assert change == "flip"
        for column in back:
            assert len(column) == 1


def test_errors_name_row_and_remedy():
    with pytest.raises(
        SerializationException, match="key of row 1 has 3 bytes: b'abc'; int32 is written as 4, big endian"
    ):
        key_columns(pa.array([b"1234", b"abc"]), pa.schema([("a", pa.int32())]))
    with pytest.raises(
        SerializationException,
        match="key of row 0 does not start with tuple version 1: b'x'; expected a tuple of a string, b",
    ):
        key_columns(pa.array([b"x"]), pa.schema([("a", pa.string()), ("b", pa.int32())]))
    with pytest.raises(SerializationException, match="cannot have a column of type list<"):
        key_bytes([pa.array([[1]])])
    with pytest.raises(SerializationException, match="key of row 0 is not UTF-8"):
        key_columns(pa.array([b"\xff"]), pa.schema([("a", pa.string())]))
    with pytest.raises(ValueError, match="at least one column"):
        key_bytes([])


@pytest.mark.parametrize(
    ("form", "values", "expected", "reason"),
    [
        (String, [b"a", b"\xff", None], ["a", None, None], "is not UTF-8 text: b'\\xff'; read it as binary"),
        (Integer, [b"\0\0\0\1", b"", None], [1, None, None], "has 0 bytes: b''; int32 is written as 4, big endian"),
        (Long, [b"\xff" * 8, b"abc"], [-1, None], "has 3 bytes: b'abc'; int64 is written as 8, big endian"),
    ],
)
def test_plain_values_that_do_not_fit_are_named_and_null(form, values, expected, reason):
    column, bad = plain_to_column(pa.array([b"cut off", *values], pa.binary()).slice(1), form)
    assert (column.type, column.to_pylist(), bad) == (PLAIN_TYPES[form], expected, [BadRecord(1, reason)])


def test_plain_values_that_fit():
    assert plain_to_column(pa.array([b"\xff", None]), Raw) == (pa.array([b"\xff", None]), [])
    assert plain_to_column(pa.array([], pa.binary()), Long) == (pa.array([], pa.int64()), [])
    assert plain_to_column(pa.array([b"\0\0\0\2"]).slice(0), Integer) == (pa.array([2], pa.int32()), [])
