from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from sparkrelay.errors import SerializationException
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.json import reader
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.json.scan import MAX_DEPTH
from sparkrelay.records.json.values import Misfit, row_from_json

UTC = dt.UTC
FLIGHT = pa.schema([("carrier", pa.string()), ("dep_delay", pa.float64()), ("time", pa.timestamp("us", "UTC"))])
INNER = pa.struct([("x", pa.int32()), ("when", pa.timestamp("us", "UTC"))])
WIDE = pa.schema(
    [
        ("s", pa.string()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("dec", pa.decimal128(12, 3)),
        ("st", INNER),
        ("ls", pa.list_(INNER)),
        ("n", pa.timestamp("us")),
    ]
)
FLAT_NAMES = {"s", "i", "l", "d", "b", "t", "day", "n"}
FLAT = pa.schema([*(field for field in WIDE if field.name in FLAT_NAMES), ("i8", pa.int8()), ("f", pa.float32())])
MAPS = pa.schema([*WIDE, ("m", pa.map_(pa.string(), pa.int64()))])


def read(*values, schema=FLIGHT):
    batch, bad = json_to_columns(
        pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary()), schema
    )
    batch.validate(full=True)
    assert batch.num_rows == len(values)
    assert batch.schema == schema
    return batch.to_pylist(), bad


def one(text, kind):
    rows, bad = read(f'{{"a": {text}}}', schema=pa.schema([("a", kind)]))
    return bad[0].reason if bad else rows[0]["a"]


# Values for each field: right ones, and now and then wrong ones.
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)
local_moments = st.datetimes(dt.datetime(1, 1, 1))  # noqa: DTZ001 - Spark's timestamp_ntz has no zone
east_and_west = st.sampled_from([dt.timezone(dt.timedelta(minutes=minutes)) for minutes in (-570, 0, 60)])
moment_texts = st.one_of(
    local_moments.map(dt.datetime.isoformat),
    st.datetimes(dt.datetime(1950, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001 - the zone stands beside it
        lambda moment: moment.isoformat().replace("+00:00", "Z")
    ),
    st.datetimes(dt.datetime(1950, 1, 1), timezones=east_and_west).map(dt.datetime.isoformat),  # noqa: DTZ001
)
inner = st.fixed_dictionaries({}, optional={"x": st.integers(-5, 5), "when": moment_texts, "extra": anything})
right = {
    "s": st.text(max_size=8),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "d": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**60), 2**60)),
    "b": st.booleans(),
    "t": moment_texts,
    "day": st.dates().map(dt.date.isoformat),
    "raw": st.binary(max_size=5).map(lambda raw: base64.b64encode(raw).decode()),
    "dec": st.integers(-(10**11), 10**11).map(lambda number: number / 1000),
    "st": inner,
    "ls": st.lists(st.one_of(st.none(), inner), max_size=3),
    "n": local_moments.map(dt.datetime.isoformat),
    "i8": st.integers(-128, 127),
    "f": st.floats(width=32, allow_nan=False),
    "m": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3),
}
good_objects = st.fixed_dictionaries(
    {}, optional={**{k: st.one_of(st.none(), v) for k, v in right.items()}, "extra": anything}
)
odd_objects = st.fixed_dictionaries({}, optional=dict.fromkeys(right, anything))
dumped = st.builds(
    lambda value, ascii_only, indent, tail: (json.dumps(value, ensure_ascii=ascii_only, indent=indent) + tail).encode(
        "utf-8", "surrogatepass"
    ),
    st.one_of(good_objects, good_objects, odd_objects),
    st.booleans(),
    st.sampled_from([None, None, 2]),
    st.sampled_from(["", "", " ", "\n", "\r\n"]),
)
BROKEN = [
    b"", b" ", b"null", b"{}{}", b'{"s":"a"}\n{"s":"b"}', b"[]", b'{"s":"a\nb"}', b'{"i":1}x', b"{", b"}",
    b'{"s":"\x80"}', b'{"s":1,"s":"x"}', b'{"i":NaN}', b'{"d":NaN}', b'{"d":Inf}', b'{"d":-Infinity}', b"{\x00}",
    b'{"i":01}', b"{'i':1}", b'"{}"', b'{"i":1}\x00', b"\xef\xbb\xbf{}", b'{"s":"\\ud800"}', b'{"s":"\\ud83d\\ude00"}',
    b'{"s":"\\x"}', b'{"s"}', b'{"a":{}', b"{}}",
]  # fmt: skip
broken = st.one_of(st.binary(max_size=12), st.sampled_from(BROKEN))


def by_the_rules(value, schema):
    if value is None:
        return dict.fromkeys(schema.names)
    try:
        return row_from_json(value, schema)
    except Misfit as misfit:
        return misfit


@settings(deadline=None, max_examples=examples(150))
@given(
    values=st.lists(st.one_of(st.none(), dumped, dumped, dumped, broken), max_size=80),
    schema=st.sampled_from(
        [FLAT, FLAT, FLAT, WIDE, WIDE, FLIGHT, MAPS, pa.schema([("s", pa.string())]), pa.schema([])]
    ),
)
def test_many_at_once_are_read_as_each_by_the_rules(values, schema):
    batch, bad = json_to_columns(pa.array(values, pa.binary()), schema)
    batch.validate(full=True)
    expected = [by_the_rules(value, schema) for value in values]
    assert bad == [BadRecord(row, str(one)) for row, one in enumerate(expected) if isinstance(one, Misfit)]
    if schema.names:
        assert batch.num_rows == len(values)
    plain = [dict.fromkeys(schema.names) if isinstance(one, Misfit) else one for one in expected]
    for field in schema:
        column = pa.array([row[field.name] for row in plain], field.type)
        # Arrow's equals() takes NaN as different from itself.
        assert repr(batch.column(field.name).to_pylist()) == repr(column.to_pylist())


@settings(deadline=None, max_examples=examples(120))
@given(objects=st.lists(good_objects, min_size=1, max_size=60))
def test_right_objects_are_read_as_python_reads_them(objects):
    values = [json.dumps(one).encode() for one in objects]
    batch, bad = json_to_columns(pa.array(values, pa.binary()), WIDE)
    assert bad == []
    for row, one in zip(batch.to_pylist(), objects, strict=True):
        for name in ("s", "i", "l", "b"):
            assert row[name] == one.get(name)
        for name, convert in {
            "d": float,
            "day": dt.date.fromisoformat,
            "raw": base64.b64decode,
            "t": aware,
            "n": dt.datetime.fromisoformat,
            "dec": lambda number: decimal.Decimal(str(number)).quantize(decimal.Decimal("0.001")),
            "st": inner_row,
            "ls": lambda items: [None if item is None else inner_row(item) for item in items],
        }.items():
            assert row[name] == (None if one.get(name) is None else convert(one[name]))


def aware(text):
    moment = dt.datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def inner_row(item):
    return {"x": item.get("x"), "when": aware(item["when"]) if "when" in item else None}


def test_a_bad_record_among_many_costs_only_itself():
    values = [b'{"carrier": "%d"}' % row for row in range(5_000)]
    for row in (0, 77, 2_500, 4_999):
        values[row] = b'{"dep_delay": "late"}'
    rows, bad = read(*values)
    assert [one.index for one in bad] == [0, 77, 2_500, 4_999]
    assert bad[0].reason == 'field dep_delay is a string, not double: "late"'
    assert [row["carrier"] for row in rows] == [None if i in (0, 77, 2_500, 4_999) else str(i) for i in range(5_000)]


def test_only_few_rows_are_read_one_by_one(monkeypatch):
    seen = []
    real = reader.row_from_json
    monkeypatch.setattr(reader, "row_from_json", lambda value, schema: seen.append(value) or real(value, schema))
    values = [b'{"carrier": "x"}'] * 10_000
    values[4_000] = b'{"carrier": 7}'
    rows, bad = read(*values)
    assert (rows[4_000]["carrier"], bad) == ("7", [])
    assert len(seen) <= 32


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "empty value; a tombstone is null, not empty"),
        (b" \n", "empty value; a tombstone is null, not empty"),
        (b"null", "not a JSON object but null: null"),
        (b"[1]", "not a JSON object but an array: [1]"),
        (b'"x"', 'not a JSON object but a string: "x"'),
        (b"12", "not a JSON object but a number: 12"),
        (b"{}{}", "not JSON: Extra data"),
        (b'{"carrier":"a"}\n{"carrier":"b"}', "not JSON: Extra data"),
        (b'{"carrier":"a"} trailing', "not JSON: Extra data"),
        (b'{"carrier":"a\nb"}', "not JSON: Invalid control character"),
        (b'{"carrier":"\xff"}', "not UTF-8 text"),
        (b'{"carrier":', "not JSON: Expecting value"),
        (b'{"dep_delay":true}', "field dep_delay is a boolean, not double: true"),
        (b'{"dep_delay":1e999}', "field dep_delay does not fit into double: 1e999"),
        (b'{"time":"yesterday"}', "field time is not an ISO-8601 timestamp: yesterday"),
        (b'{"time":"2013-02-29T00:00:00Z"}', "field time is not an ISO-8601 timestamp: 2013-02-29T00:00:00Z"),
        (b'{"time":{}}', "field time is an object, not int64: {}"),
        # As the record has it.
        (b'{"dep_delay":[1, "1", 2.50]}', 'field dep_delay is an array, not double: [1,"1",2.50]'),
        (
            b'{"dep_delay":{"a": 1e3, "b": [null, true]}}',
            'field dep_delay is an object, not double: {"a":1e3,"b":[null',
        ),
        ('{"dep_delay":["Zürich"]}'.encode(), 'field dep_delay is an array, not double: ["Zürich"]'),
        (rb'{"dep_delay":["\ud800"]}', 'field dep_delay is an array, not double: ["?"]'),
    ],
)
def test_what_is_wrong_is_said(value, reason):
    rows, bad = read(b'{"carrier":"before"}', value, None, b'{"carrier":"after"}')
    assert [one.index for one in bad] == [1]
    assert bad[0].reason.startswith(reason)
    assert [row["carrier"] for row in rows] == ["before", None, None, "after"]


def test_shifts_that_keep_the_number_of_rows_are_found():
    # Two objects in one value and none in another: a parser of streams counts the right number of rows.
    rows, bad = read(b'{"carrier":"a"}{"carrier":"b"}', b"", b'{"carrier":"c"}')
    assert [one.index for one in bad] == [0, 1]
    assert [row["carrier"] for row in rows] == [None, None, "c"]


def test_pretty_printed_objects():
    text = json.dumps({"carrier": 'a{"}[\\', "dep_delay": 1.5}, indent=4).replace("\n", "\r\n")
    assert read(text) == ([{"carrier": 'a{"}[\\', "dep_delay": 1.5, "time": None}], [])


DEEP = {
    "arrays": ("[", "]"),
    "objects": ('{"[": ', "}"),
    "both, with text that looks like them": ('[{"\\"}]":"{[","b":', "}]"),
}


@pytest.mark.parametrize("shape", DEEP)
@pytest.mark.parametrize("column", ["deep", "other"])
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.int64(), INNER, pa.list_(pa.string()), pa.map_(pa.string(), pa.string())]
)
def test_deep_nesting_is_a_bad_record_from_one_depth_on(shape, column, kind):
    opening, closing = DEEP[shape]
    levels = (MAX_DEPTH - 1) // (opening.count("[{") + 1)  # the record itself is one
    text, deeper, deepest = (f'{{"deep": {opening * n}1{closing * n}}}' for n in (levels, levels + 1, 200_000))
    rows, bad = read("{}", deeper, text, deepest, schema=pa.schema([(column, kind)]))
    too_deep = f"nested deeper than {MAX_DEPTH} levels"
    assert [one for one in bad if one.index != 2] == [BadRecord(1, too_deep), BadRecord(3, too_deep)]
    assert [one.reason for one in bad if one.index == 2 and "nested" in one.reason] == []
    assert rows[0] == rows[1] == rows[3] == {column: None}
    if column == "deep" and pa.types.is_string(kind):
        assert rows[2]["deep"] == json.dumps(json.loads(text)["deep"], separators=(",", ":"))
    elif column == "other":
        assert rows[2]["other"] is None
        assert len(bad) == 2


def test_many_brackets_need_not_be_deep():
    flat = json.dumps({"s": [[]] * MAX_DEPTH + ["[" * MAX_DEPTH + '\\"', {"a": [], "b": {}}]}, separators=(",", ":"))
    rows, bad = read(flat, schema=pa.schema([("s", pa.string())]))
    assert (rows, bad) == ([{"s": flat[5:-1]}], [])


def test_values_longer_than_a_block():
    long = "x" * 3_000_000
    rows, bad = read(json.dumps({"carrier": long}), '{"carrier":"short"}')
    assert ([row["carrier"] for row in rows], bad) == ([long, "short"], [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"2013-01-01T05:00:00Z"', dt.datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ('"2013-01-01 05:00:00"', dt.datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ('"2013-01-01T05:00"', dt.datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ('"2013-01-01"', dt.datetime(2013, 1, 1, tzinfo=UTC)),
        ('"2013-01-01T05:00:00.123456789+01:30"', dt.datetime(2013, 1, 1, 3, 30, 0, 123456, tzinfo=UTC)),
        ('"2013-01-01T05:00:00.1-0500"', dt.datetime(2013, 1, 1, 10, 0, 0, 100000, tzinfo=UTC)),
        ('"1969-12-31T23:59:59.999Z"', dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        ("1357016400", dt.datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ('"2013-01-01T24:00:00Z"', "field a is not an ISO-8601 timestamp: 2013-01-01T24:00:00Z"),
        ('"2013-01-01T05:00:00 Z"', "field a is not an ISO-8601 timestamp: 2013-01-01T05:00:00 Z"),
        ('"2013-1-1"', "field a is not an ISO-8601 timestamp: 2013-1-1"),
        ('"+300000-01-01T00:00:00Z"', "field a is not an ISO-8601 timestamp: +300000-01-01T00:00:00Z"),
        ('"+1000000-01-01T00:00:00Z"', "field a is not an ISO-8601 timestamp: +1000000-01-01T00:00:00Z"),
        ('"+13-01-01T00:00:00Z"', "field a is not an ISO-8601 timestamp: +13-01-01T00:00:00Z"),
        ('"-"', "field a is not an ISO-8601 timestamp: -"),
        ('"+12345"', "field a is not an ISO-8601 timestamp: +12345"),
        ("1.5", "field a is a number, not int64: 1.5"),
        ("99999999999999999", "field a does not fit into timestamp[us, tz=UTC]: 99999999999999999 seconds since 1970"),
    ],
)
def test_timestamps(text, expected):
    assert one(text, pa.timestamp("us", "UTC")) == expected


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("5", pa.string(), "5"),
        ("1.50", pa.string(), "1.50"),
        ('{"b": [1, "\\u00fc"]}', pa.string(), '{"b":[1,"ü"]}'),
        ("true", pa.string(), "true"),
        ('"NaN"', pa.float64(), math.nan),
        ("-Infinity", pa.float64(), -math.inf),
        ("3.5e38", pa.float32(), "field a does not fit into float: 3.5e38"),
        ("[1.5e308, 1.0E309]", pa.list_(pa.float64()), "field a[1] does not fit into double: 1.0E309"),
        ("128", pa.int8(), "field a does not fit into int8: 128"),
        ("1.0", pa.int64(), "field a is a number, not int64: 1.0"),
        ("1.2345", pa.decimal128(5, 2), decimal.Decimal("1.23")),
        ("0.125", pa.decimal128(5, 2), decimal.Decimal("0.13")),
        ('"7.5"', pa.decimal128(5, 2), decimal.Decimal("7.50")),
        ("12345", pa.decimal128(5, 2), "field a does not fit into decimal128(5, 2): 12345"),
        ('"2013-01-01T00:00:00"', pa.date32(), "field a is not an ISO-8601 date: 2013-01-01T00:00:00"),
        ("15706", pa.date32(), dt.date(2013, 1, 1)),
        ('"2013-01-01T00:00:00Z"', pa.timestamp("us"), "field a is not an ISO-8601 timestamp: 2013-01-01T00:00:00Z"),
        ('"?"', pa.binary(), "field a is not base64: ?"),
        ('{"x": 1, "y": null}', pa.map_(pa.string(), pa.int32()), [("x", 1), ("y", None)]),
        ("[1, 12345]", pa.list_(pa.decimal128(5, 2)), "field a[1] does not fit into decimal128(5, 2): 12345"),
        ("[[1], [], null]", pa.list_(pa.list_(pa.int16())), [[1], [], None]),
    ],
)  # fmt: skip
def test_types_and_their_edges(text, kind, expected):
    assert repr(one(text, kind)) == repr(expected)


def test_strings_slices_and_nulls():
    values = pa.array(['{"carrier":"x"}', '{"carrier":"ü"}', None, '{"carrier":"z"}']).slice(1)
    batch, bad = json_to_columns(values, FLIGHT)
    assert (batch.column("carrier").to_pylist(), bad) == (["ü", None, "z"], [])
    assert json_to_columns(pa.array([], pa.binary()), FLIGHT)[0].num_rows == 0


def test_schemas_that_json_cannot_fill_are_refused():
    with pytest.raises(SerializationException, match="field a.b has type duration"):
        json_to_columns(pa.array([b"{}"]), pa.schema([("a", pa.struct([("b", pa.duration("s"))]))]))
    with pytest.raises(SerializationException, match="map keys must be too"):
        json_to_columns(pa.array([b"{}"]), pa.schema([("a", pa.map_(pa.int32(), pa.int32()))]))
    with pytest.raises(SerializationException, match="names a field twice"):
        json_to_columns(pa.array([b"{}"]), pa.schema([("a", pa.int32()), ("a", pa.int32())]))
    with pytest.raises(SerializationException, match="JSON is read from bytes: .* got int64"):
        json_to_columns(pa.array([1]), FLIGHT)


number_texts = st.from_regex(r"\A-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?\Z")


@settings(deadline=None, max_examples=examples(150))
@given(texts=st.lists(st.one_of(number_texts, st.from_regex(r"\A[-+0-9.eE]{1,8}\Z")), min_size=1, max_size=20))
def test_numbers_are_read_to_the_nearest_double(texts):
    values = pa.array([b'{"d":%s,"l":%s}' % (text.encode(), text.encode()) for text in texts])
    schema = pa.schema([("d", pa.float64())])
    batch, bad = json_to_columns(values, schema)
    wrong = {one.index for one in bad}
    for row, text in enumerate(texts):
        try:
            expected = json.loads(text, parse_int=float)
        except (ValueError, OverflowError):
            expected = math.inf
        if math.isinf(expected):
            assert row in wrong
        else:
            assert repr(batch.column(0)[row].as_py()) == repr(expected)


@settings(deadline=None, max_examples=examples(120))
@given(
    text=st.text(st.sampled_from('{}[]",:\\ntfu0123456789abcdefD8.-eE \n\ttrue'), max_size=25),
    around=st.sampled_from(
        ["%s", '{"x":%s}', '{"x":[%s],"s":"y"}', '{"s":"%s"}', '{"x":"%s","i":1}', "{%s}", '{"d":%s}']
    ),
)  # fmt: skip
def test_whatever_looks_like_json_is_judged_as_python_judges_it(text, around):
    value = (around % text).encode()
    schema = pa.schema([("s", pa.string()), ("i", pa.int32()), ("d", pa.float64())])
    batch, bad = json_to_columns(pa.array([value]), schema)
    expected = by_the_rules(value, schema)
    if isinstance(expected, Misfit):
        assert bad == [BadRecord(0, str(expected))]
    else:
        assert repr(batch.to_pylist()) == repr(
            [{**expected, "d": None if expected["d"] is None else float(expected["d"])}]
        )


def test_another_locale_changes_no_number(monkeypatch):
    monkeypatch.setattr("sparkrelay.records.json.flat.loop.obeys_c_locale", lambda _: False)
    rows, bad = read('{"dep_delay":1.5,"carrier":"x"}', None, "[]", '{"time":"2013-01-01"}')
    assert [row["dep_delay"] for row in rows] == [1.5, None, None, None]
    assert [one.index for one in bad] == [2]


def test_most_rows_take_the_compiled_loop(monkeypatch):
    monkeypatch.setattr(pyarrow.json, "read_json", lambda *_, **__: pytest.fail("the loop declined a plain row"))
    texts = [
        '{"s":"a\\"\\u00fc\\ud83d\\ude00\\n","i":-5,"d":1.25e-3,"b":true,"t":"2013-01-01T00:00:00Z","day":"2013-01-01"}',
        ' { "x" : { "y" : [ 1 , { } , [ ] , "}" , null ] } , "s" : "ü" , "b" : false , "d" : 12345678901234567890} \n',
        '{"d":0.30000000000000004,"i":null,"t":1357016400,"extra":-0.0}',
        "{}",
    ]
    rows, bad = read(*texts, None, schema=FLAT)
    assert bad == []
    assert [row["s"] for row in rows] == ['a"ü\U0001f600\n', "ü", None, None, None]
    assert [row["d"] for row in rows] == [0.00125, 12345678901234567890.0, 0.30000000000000004, None, None]
    assert [row["b"] for row in rows] == [True, False, None, None, None]
    assert [row["day"] for row in rows] == [dt.date(2013, 1, 1), None, None, None, None]


@settings(deadline=None, max_examples=examples(120))
@given(raw=st.one_of(st.binary(max_size=8), st.text(max_size=4).map(str.encode)))
def test_only_utf8_is_text(raw):
    value = b'{"s":"' + raw + b'"}'
    _, bad = json_to_columns(pa.array([value, b'{"s":"ok"}']), pa.schema([("s", pa.string())]))
    assert bad == ([BadRecord(0, str(one))] if isinstance(one := by_the_rules(value, FLIGHT), Misfit) else [])


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.int64()), pa.list_(pa.map_(pa.string(), pa.int64()))])
def test_half_a_surrogate_pair_in_a_name_of_a_map_is_a_question_mark(kind):
    """As in a text: else one record of a producer that cuts names would end the pipeline, whatever the handler says."""
    inner = '{"\\ud800": 1, "b\\udc00": 2, "\\udc01": 3}'
    found = one(inner if pa.types.is_map(kind) else f"[{inner}]", kind)
    assert found == ([("?", 3), ("b?", 2)] if pa.types.is_map(kind) else [[("?", 3), ("b?", 2)]])
    assert "field a.\\ud800 is a string" in one('{"\\ud800": "x"}', pa.map_(pa.string(), pa.int64()))
