"""Rows with lists, maps and structs of them as tuples, and back."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from sparkrelay.errors import SerializationException
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.records.tuples import MAX_DEPTH

aware = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001
LEAVES = {
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): aware,
    pa.timestamp("us", "America/New_York"): aware,
    pa.timestamp("us"): aware.map(lambda moment: moment.replace(tzinfo=None)),
    **{
        pa.decimal128(precision, scale): st.integers(-(10**precision) + 1, 10**precision - 1).map(
            lambda number, scale=scale: decimal.Decimal(number).scaleb(-scale, decimal.Context(prec=60))
        )
        for precision, scale in ((1, 0), (9, 9), (18, 2), (19, 4), (38, 0), (38, 38))
    },
}
NESTED = pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]))


def nested(inner):
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)])
        ),
        st.tuples(inner, inner).map(lambda kinds: pa.map_(*kinds)),
    )


kinds = st.recursive(st.sampled_from(list(LEAVES)), nested, max_leaves=6)


def values(kind, *, null=True):
    if pa.types.is_struct(kind):
        value = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pa.types.is_map(kind):
        value = st.lists(st.tuples(values(kind.key_type, null=False), values(kind.item_type)), max_size=3)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value = st.lists(values(kind.value_type), max_size=4)
    else:
        value = LEAVES[kind]
    return st.one_of(st.none(), value) if null else value


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 6))
    some = draw(st.lists(kinds, min_size=1, max_size=3))
    return [pa.array(draw(st.lists(values(kind), min_size=rows, max_size=rows)), kind) for kind in some]


def there_and_back(columns):
    packed = key_bytes(columns, normal=False)
    return packed, key_columns(packed, pa.schema([(f"c{i}", column.type) for i, column in enumerate(columns)]))


@settings(deadline=None, max_examples=examples(300))
@given(columns=tables())
def test_rows_are_read_as_written(columns):
    columns = [*columns, pa.array([True] * len(columns[0]))]
    packed, back = there_and_back(columns)
    packed.validate(full=True)
    for column, read in zip(columns, back, strict=True):
        read.validate(full=True)
        assert read.type == column.type
        assert read.equals(column)
    # However the same rows lie in memory, they have the same bytes.
    sliced = [column.slice(1) for column in columns]
    assert there_and_back(sliced)[0].equals(packed.slice(1))
    for column, read in zip(
        sliced, key_columns(packed.slice(1), pa.schema([(str(i), c.type) for i, c in enumerate(columns)])), strict=True
    ):
        assert read.equals(column)
    chunked = [pa.chunked_array([column.slice(0, 1), column.slice(1)]) for column in columns]
    assert key_bytes(chunked, normal=False).equals(packed)


@settings(deadline=None, max_examples=100)
@given(data=st.data(), kind=kinds)
def test_equal_bytes_are_equal_values(data, kind):
    column = pa.array(data.draw(st.lists(values(kind), min_size=2, max_size=4)), kind)
    packed = there_and_back([column, pa.array([1] * len(column))])[0].to_pylist()
    for a, b in itertools.combinations(range(len(column)), 2):
        if packed[a] == packed[b]:
            assert column.slice(a, 1).equals(column.slice(b, 1))


def test_the_layout_of_lists_and_maps():
    rows = [
        pa.array([[b"a\0", None], []], pa.list_(pa.binary())),
        pa.array([[("k", None)], None], pa.map_(pa.string(), pa.int8())),
    ]
    one, other = (value.hex(" ") for value in there_and_back(rows)[0].to_pylist())
    assert one == "01 72 04 0c 51 61 00 ff 00 00 74 02 08 50 6b 00 00"
    assert other == "01 72 00 00 00"


def test_a_single_column_of_lists_is_null_where_the_list_is():
    column = pa.array([[1], None, [None]], pa.list_(pa.int32()))
    packed, (back,) = there_and_back([column])
    assert [value is None for value in packed.to_pylist()] == [False, True, False]
    assert back.equals(column)


def test_floats_inside_of_lists_stay_what_they_are():
    """No -0.0 becomes 0.0, as in a key."""
    column = pa.array([[-0.0, 0.0, float("nan"), None]], pa.list_(pa.float64()))
    back = there_and_back([column, column])[1][0]
    assert [str(number) for number in back.to_pylist()[0]] == ["-0.0", "0.0", "nan", "None"]


def test_what_stands_behind_nulls_is_not_written():
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3]), mask=pa.array([True, False])
    )
    plain = pa.array([None, [3]], pa.list_(pa.int64()))
    assert there_and_back([hidden, hidden])[0].equals(there_and_back([plain, plain])[0])


def test_entries_of_a_map_that_are_a_part_of_others():
    entries = pa.array([{"key": key, "value": number} for number, key in enumerate("abcd")],
                       pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.int64())]))  # fmt: skip
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.Array.from_buffers(
        kind, 2, [None, pa.py_buffer(np.array([0, 1, 3], np.int32))], children=[entries.slice(1)]
    )
    assert there_and_back([maps, maps])[1][0].to_pylist() == [[("b", 1)], [("c", 2), ("d", 3)]]


def test_dictionaries_inside_of_lists():
    words = pa.array(["x", "y", "x"]).dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), words)
    packed = key_bytes([lists, lists], normal=False)
    plain = pa.array([["x"], ["y", "x"]])
    assert packed.equals(key_bytes([plain, plain], normal=False))


def test_no_rows():
    for kind in (NESTED, pa.list_(pa.decimal128(38, 2)), pa.struct([])):
        packed, back = there_and_back([pa.array([], kind), pa.array([], pa.bool_())])
        assert len(packed) == len(back[0]) == 0
        assert back[0].type == kind
    # As Java writes no rows: without offsets.
    empty = pa.Array.from_buffers(
        pa.list_(pa.int32()), 0, [None, pa.py_buffer(b"")], children=[pa.array([], pa.int32())]
    )
    assert len(key_bytes([empty, empty], normal=False)) == 0


def test_structs_without_fields():
    column = pa.array([{}, None], pa.struct([]))
    assert there_and_back([column, column])[1][0].to_pylist() == [{}, None]


def deep(levels, make=pa.list_):
    kind = pa.int32()
    for _ in range(levels):
        kind = make(kind)
    return kind


def test_depth_is_bounded():
    value = 7
    for _ in range(MAX_DEPTH):
        value = [value, None] if value != 7 else [7]
    column = pa.array([value], deep(MAX_DEPTH))
    assert there_and_back([column, column])[1][0].equals(column)
    for make in (pa.list_, lambda kind: pa.map_(pa.string(), pa.struct([("x", kind)]))):
        column = pa.array([None], deep(MAX_DEPTH + 1, make))
        with pytest.raises(SerializationException, match="nested deeper than 16 levels"):
            key_bytes([column, column], normal=False)


def test_structs_have_255_fields_at_most():
    fine, wide = (pa.array([dict.fromkeys(names, 1)]) for names in ([f"f{i}" for i in range(n)] for n in (255, 256)))
    assert there_and_back([fine, fine])[1][0].equals(fine)
    with pytest.raises(SerializationException, match="struct of 256 fields"):
        key_bytes([wide, wide])


@pytest.mark.parametrize(
    "column",
    [pa.array([[1]]), pa.array([{"a": [1]}]), pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))],
)
def test_lists_are_no_keys(column):
    with pytest.raises(SerializationException, match="a key cannot have a column of type (list|map)<"):
        key_bytes([column, column])


def test_other_types_are_refused_wherever_they_are():
    for kind in (pa.duration("us"), pa.time64("us"), pa.null(), pa.uint8(), pa.decimal256(50, 1)):
        for column in (pa.array([None], kind), pa.array([[None]], pa.list_(kind))):
            with pytest.raises(SerializationException, match="a row cannot have a column of type"):
                key_bytes([column, column], normal=False)


LISTS = pa.schema([("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.int8()))])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("01 72 00", "has a list with an impossible size"),
        ("01 72 fe ff ff ff 0f fe ff ff ff 0f", "has a list with an impossible size"),
        ("01 72 fe ff ff ff 0f 04 00 00 00", "has a list with an impossible size"),
        ("01 72 01 01 00", "has a list with an impossible size"),
        ("01 72 02 08 50 61 00", "has a list with an impossible size"),
        ("01 72 02 04 50 61 00", "ends too early"),
        ("01 72 02 08 50 61 00 00 00", "has bytes after the last column"),
        ("01 72 00 02 00 00", "has bytes after the last column"),
        ("01 72 02 04 18 00 00", "has a column of another type"),
        ("01 74 00 00 00", "has a column of another type"),
        ("01 00 74 02 04 00 00", "has a map with a null key"),
        ("01 00 74 02 06 50 61 00", "ends too early"),
        ("01 00 00 00", "has bytes after the last column"),
    ],
)
def test_damaged_rows_are_named(row, words):
    good = "01 72 04 0c 50 61 00 50 62 00 74 02 08 50 6b 00 00"
    rows = [bytes.fromhex(good), None, bytes.fromhex(row)]
    with pytest.raises(SerializationException, match=f"the key of row 2 {words}"):
        key_columns(pa.array(rows, pa.binary()), LISTS)


def test_damage_deep_inside_is_named_by_its_row():
    kind = pa.list_(pa.list_(pa.map_(pa.string(), pa.int8())))
    rows = [[[], [[("a", 1)]]], None, [], [[[("b", 2)], [("c", 3)]], None], [[[("d", 4)]]]]
    packed = key_bytes([pa.array(rows, kind)] * 2, normal=False).to_pylist()
    packed[3] = packed[3].replace(b"c\0\x11", b"c\0\x12")
    with pytest.raises(SerializationException, match="key of row 3 has a column of another type"):
        key_columns(pa.array(packed), pa.schema([("a", kind), ("b", kind)]))


def test_long_rows_are_not_shown_whole():
    with pytest.raises(SerializationException) as raised:
        key_columns(pa.array([b"\x01\x72" + b"\xff" * 100_000]), LISTS)
    assert "(100002 bytes)" in str(raised.value)
    assert len(str(raised.value)) < 2_000


def test_text_inside_of_lists_that_is_not_utf_8():
    rows = pa.array([bytes.fromhex("01 72 02 06 50 ff 00 00")])
    with pytest.raises(SerializationException, match="not UTF-8"):
        key_columns(rows, LISTS)
