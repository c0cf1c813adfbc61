from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from sparkrelay.errors import SerializationException
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.json.writer import columns_to_json

UTC = dt.UTC
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
SCHEMA = pa.schema(
    [
        ("s", pa.string()),
        ('quo"ted\n', pa.int64()),
        ("i8", pa.int8()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("dec", pa.decimal128(30, 12)),
        ("window", WINDOW),
        ("deep", pa.struct([("a", pa.struct([("b", pa.string())])), ("c", pa.bool_())])),
        ("ls", pa.list_(pa.struct([("x", pa.string())]))),
        ("nums", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.list_(pa.float64()))),
        ("none", pa.null()),
    ]
)
millis = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)).map(  # noqa: DTZ001 - zones are added below
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
zoned = millis.map(lambda moment: moment.replace(tzinfo=UTC))
texts = st.text(max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
VALUES = {
    "s": texts,
    'quo"ted\n': st.integers(-(2**63), 2**63 - 1),
    "i8": st.integers(-128, 127),
    "d": st.one_of(finite, st.integers(-(10**9), 10**9).map(lambda number: number / 100)),
    "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "b": st.booleans(),
    "t": zoned,
    "n": millis,
    "day": st.dates(),
    "raw": st.binary(max_size=7),
    "dec": st.integers(-(10**25), 10**25).map(lambda number: decimal.Decimal(number).scaleb(-12)),
    "window": st.fixed_dictionaries({"start": zoned, "end": st.one_of(st.none(), zoned)}),
    "deep": st.fixed_dictionaries(
        {"a": st.one_of(st.none(), st.fixed_dictionaries({"b": st.one_of(st.none(), texts)})), "c": st.none()}
    ),
    "ls": st.lists(st.one_of(st.none(), st.fixed_dictionaries({"x": st.one_of(st.none(), texts)})), max_size=3),
    "nums": st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=3),
    "m": st.dictionaries(texts, st.one_of(st.none(), st.lists(finite, max_size=2)), max_size=3).map(
        lambda pairs: list(pairs.items())
    ),
    "none": st.none(),
}
rows = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), value) for name, value in VALUES.items()}),
    min_size=1,
    max_size=12,
)


def expected(value, kind):
    """What a JSON reader should find for a Python value."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, float):
        return float(np.float32(value)) if kind == pa.float32() else value
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, dt.datetime):
        return (
            f"{value:%Y-%m-%dT%H:%M:%S}".zfill(19) + f".{value.microsecond // 1000:03d}" + ("Z" if value.tzinfo else "")
        )
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {f.name: expected(value[f.name], f.type) for f in kind if value[f.name] is not None}
    if pa.types.is_map(kind):
        return {name: expected(item, kind.item_type) for name, item in value}
    return [expected(item, kind.value_type) for item in value]


@settings(deadline=None, max_examples=examples(120))
@given(items=rows, cut=st.integers(0, 3))
def test_python_reads_what_is_written(items, cut):
    batch = pa.RecordBatch.from_pylist(items, schema=SCHEMA).slice(cut)
    written = columns_to_json(batch)
    written.validate(full=True)
    assert len(written) == batch.num_rows
    for text, item in zip(written.to_pylist(), items[cut:], strict=True):
        read = json.loads(text)
        if "f" in read:
            read["f"] = float(np.float32(read["f"]))
        assert read == {f.name: expected(item[f.name], f.type) for f in SCHEMA if item[f.name] is not None}


hostile = st.text(st.sampled_from('\x00\x1f\x7f"\\/{},:a\x80\u2028\ud7ff\uffff\U0010ffff'), max_size=12)
extremes = st.sampled_from([0.0, -0.0, 0.5, math.nan, math.inf, -math.inf])
PLAIN = (
    (pa.string(), hostile), (pa.large_string(), hostile), (pa.binary(), VALUES["raw"]), (pa.int8(), VALUES["i8"]),
    (pa.int64(), st.sampled_from([-(2**63), 2**63 - 1, 10**18, 0, -1])), (pa.float64(), st.one_of(extremes, finite)),
    (pa.float32(), extremes), (pa.bool_(), st.booleans()), (pa.timestamp("us", "UTC"), zoned),
    (pa.timestamp("us"), millis), (pa.date32(), st.dates()), (pa.decimal128(30, 12), VALUES["dec"]),
    (pa.null(), st.none()),
)  # fmt: skip


def nested(inner):
    """Lists, maps and structs of what is given as pairs of a type and its values."""
    fields = st.lists(st.tuples(hostile, inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
    return st.one_of(
        inner.map(lambda one: (pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3))),
        inner.map(
            lambda one: (pa.map_(pa.string(), one[0]), st.lists(st.tuples(hostile, st.none() | one[1]), max_size=3))
        ),
        fields.map(
            lambda pairs: (
                pa.struct([(name, kind) for name, (kind, _) in pairs]),
                st.fixed_dictionaries({name: st.none() | value for name, (_, value) in pairs}),
            )
        ),
    )


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data(), name=hostile, cut=st.integers(0, 2))
def test_any_type_in_any_other_holds_hostile_values(data, name, cut):
    """A byte too many, too few or never written shows: each text is UTF-8, is JSON, and says what was to be written."""
    kind, values = data.draw(st.recursive(st.sampled_from(PLAIN), nested, max_leaves=6))
    items = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    batch = pa.RecordBatch.from_arrays([pa.array(items, kind), pa.array(range(len(items)))], names=[name, "row"])
    for number, text in enumerate(columns_to_json(batch.slice(cut)).to_pylist(), cut):
        wanted = {name: expected(items[number], kind)} if items[number] is not None else {}
        # As text, so that both zeros differ.
        assert repr(json.loads(text.decode())) == repr({**wanted, "row": number})


@settings(deadline=None, max_examples=examples(200))
@given(items=rows)
def test_json_survives_a_round_trip(items):
    batch = pa.RecordBatch.from_pylist(items, schema=SCHEMA).drop_columns(["m", "none"])
    back, bad = json_to_columns(columns_to_json(batch), batch.schema)
    assert bad == []
    assert back.to_pylist() == batch.to_pylist()


def test_the_text_is_compact_and_as_spark_writes_it():
    batch = pa.RecordBatch.from_pydict(
        {
            "user": ['a"\\/\n\x01\x7fü', None, None, None, None],
            "n": [1, -5, None, None, None],
            "mean": [2.0, math.nan, math.inf, -math.inf, None],
            "b": [True, False, None, None, None],
            "window": pa.array([{"start": dt.datetime(2013, 1, 1, tzinfo=UTC)}, None, {}, None, None], WINDOW),
        }
    )
    first = r"""{"user":"a\"\\/\n\u0001""" + "\x7fü" + r"""","n":1,"mean":2.0,"b":true,"window":{"start":"""
    assert [text.decode() for text in columns_to_json(batch).to_pylist()] == [
        first + '"2013-01-01T00:00:00.000Z"}}',
        '{"n":-5,"mean":"NaN","b":false}',
        '{"mean":"Infinity","window":{}}',
        '{"mean":"-Infinity"}',
        "{}",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-1.5, "-1.5"), (0.1, "0.1"), (100.25, "100.25"),
        (0.0001, "0.0001"),
        (1e14, "100000000000000.0"), (1e15, "1e+15"), (123456789.125, "123456789.125"),
        (-0.05, "-0.05"), (12.3456, "12.3456"),
        (0.30000000000000004, "0.30000000000000004"), (1e-7, "1e-7"), (1e300, "1e+300"), (5e-324, "5e-324"),
    ],
)  # fmt: skip
def test_doubles(number, text):
    assert columns_to_json(pa.RecordBatch.from_pydict({"a": [number]}))[0].as_py().decode() == f'{{"a":{text}}}'


@settings(deadline=None, max_examples=examples(150))
@given(
    numbers=st.lists(st.one_of(finite, st.integers(-(10**17), 10**17).map(lambda n: n / 1000)), min_size=1, max_size=30)
)
def test_doubles_are_exact_and_as_short_as_can_be(numbers):
    written = columns_to_json(pa.RecordBatch.from_pydict({"a": numbers}))
    for text, number in zip(written.to_pylist(), numbers, strict=True):
        (read,) = json.loads(text).values()
        assert (read, math.copysign(1, read)) == (number, math.copysign(1, number))
        assert len(significant(text.decode()[5:-1])) <= len(significant(repr(number)))


def significant(text):
    return text.partition("e")[0].replace(".", "").replace("-", "").strip("0")


def test_int_edges():
    numbers = [0, 9, 10, 99, 10**18, 2**63 - 1, -(2**63), -1, -10]
    written = columns_to_json(pa.RecordBatch.from_pydict({"a": numbers}))
    assert [json.loads(text)["a"] for text in written.to_pylist()] == numbers


def test_years_beyond_four_digits():
    days = pa.array([2_932_897, -719_529, -800_000], pa.int32()).view(pa.date32())
    written = columns_to_json(pa.RecordBatch.from_arrays([days], names=["d"])).to_pylist()
    assert [json.loads(text)["d"] for text in written] == ["+10000-01-01", "-0001-12-31", "-0221-09-04"]


@pytest.mark.parametrize("year", [-200_000, -9_999, -1, 0, 9_999, 10_000, 99_999, 290_000])
def test_any_year_is_read_as_it_is_written(year):
    days = np.datetime64(f"{year:05d}-02-28", "D").astype(np.int64)
    both = pa.schema([("d", pa.date32()), ("t", pa.timestamp("us", "UTC"))])
    micros = pa.array([days * 86_400_000_000 + 1_000])
    rows = pa.record_batch([pa.array([days], pa.int32()).view(pa.date32()), micros.view(both[1].type)], schema=both)
    read, bad = json_to_columns(columns_to_json(rows), both)
    assert not bad
    assert read.equals(rows)


def test_decimals_are_never_in_scientific_notation():
    column = pa.array([decimal.Decimal("0.000000001"), None], pa.decimal128(20, 9))
    written = columns_to_json(pa.RecordBatch.from_arrays([column], names=["d"])).to_pylist()
    assert written == [b'{"d":0.000000001}', b"{}"]


def test_no_columns_and_no_rows():
    assert columns_to_json(pa.RecordBatch.from_pydict({"a": pa.array([], pa.int32())})).to_pylist() == []


def test_types_that_json_cannot_hold_are_named():
    batch = pa.RecordBatch.from_pydict({"a": pa.array([{"b": dt.timedelta(1)}])})
    with pytest.raises(SerializationException, match="column a.b has type duration"):
        columns_to_json(batch)


@pytest.mark.parametrize(
    ("kind", "key"), [(pa.struct([("x", pa.int32())]), {"x": 1}), (pa.binary(), b"\xff"), (pa.list_(pa.int32()), [1])]
)
def test_a_map_whose_keys_are_no_text_is_refused_in_words(kind, key):
    column = pa.array([[(key, 1)]], pa.map_(kind, pa.int64()))
    rows = pa.RecordBatch.from_arrays([pa.StructArray.from_arrays([column], ["m"])], ["a"])
    with pytest.raises(SerializationException, match=r"column a\.m is a map with keys of type .*transform_keys"):
        columns_to_json(rows)


def test_entries_of_a_map_that_are_a_part_of_others():
    entries = pa.array([{"key": key, "value": number} for number, key in enumerate("abcd")],
                       pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.int64())]))  # fmt: skip
    places = pa.py_buffer(np.array([0, 1, 3], np.int32))
    maps = pa.Array.from_buffers(pa.map_(pa.string(), pa.int64()), 2, [None, places], children=[entries.slice(1)])
    written = columns_to_json(pa.record_batch([maps], ["m"])).to_pylist()
    assert written == [b'{"m":{"b":1}}', b'{"m":{"c":2,"d":3}}']
