"""Avro's rules of schema resolution: what a reader makes of what a writer with another schema wrote."""

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest
from tests.unit.records.avro.random_schemas import written

from sparkrelay.errors import SerializationException
from sparkrelay.records.avro.defaults import varint
from sparkrelay.records.avro.reader import AvroReader


def record(*fields, name="R"):
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), one, strict=False)) for one in fields],
    }


def read(writer, reader, *rows, place="value"):
    values = pa.array([written(writer, row) for row in rows])
    return AvroReader(json.dumps(reader), json.dumps(writer), place).read(values)


def read_field(writer_type, reader_type, value):
    batch, bad = read(record(("a", writer_type)), record(("a", reader_type)), {"a": value})
    assert bad == [], bad
    return batch.to_pylist()[0]["a"]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", -7, -7),
        ("int", "float", 3, 3.0),
        ("int", "double", 2**31 - 1, 2.0**31 - 1),
        ("long", "float", 5, 5.0),
        ("long", "double", 2**53, 2.0**53),
        ("float", "double", 1.5, 1.5),
        ("string", "bytes", "ä", "ä".encode()),
        ("bytes", "string", "ä".encode(), "ä"),
        ("int", ["null", "long"], 1, 1),
        (["null", "int"], ["long", "null"], 1, 1),
        (["null", "int"], ["long", "null"], None, None),
        (["null", "int"], "long", 4, 4),
        ("null", ["null", "long"], None, None),
        (["int", "string"], "string", "x", "x"),
        (["int", "string"], ["null", "string"], "x", "x"),
        (["int", "long"], "double", 3, 3.0),
        ({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "double"]}, [1, 2], [1.0, 2.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"k": 1}, [("k", 1)]),
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"},
         dt.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=dt.UTC)),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "G", "size": 2}, b"ab", b"ab"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]},
         {"type": "enum", "name": "E", "symbols": ["B", "Z"], "default": "Z"}, "A", "Z"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]},
         {"type": "enum", "name": "E", "symbols": ["B", "A"]}, "B", "B"),
    ],
)  # fmt: skip
def test_values_are_promoted(writer, reader, value, expected):
    assert read_field(writer, reader, value) == expected


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        (["null", "int"], "long", None),
        (["int", "string"], "string", 1),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["B"]}, "A"),
    ],
)
def test_a_value_that_the_reader_does_not_take_is_a_bad_record(writer, reader, value):
    batch, bad = read(record(("a", writer)), record(("a", reader)), {"a": value})
    assert [one.index for one in bad] == [0]
    assert "'a'" in bad[0].reason
    assert batch.to_pylist() == [{"a": None}]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("long", "int"),
        ("double", "float"),
        ("string", "int"),
        ("boolean", "int"),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
         {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}),
        (["int", "long"], "string"),
    ],
)  # fmt: skip
def test_types_that_never_go_together_are_refused(writer, reader):
    with pytest.raises(SerializationException, match="'a"):
        AvroReader(json.dumps(record(("a", reader))), json.dumps(record(("a", writer))), "value")


def test_fields_are_reordered_removed_added_and_renamed():
    writer = record(
        ("a", "int"), ("gone", {"type": "array", "items": {"type": "map", "values": "string"}}), ("b", "string")
    )
    reader = {
        "type": "record",
        "name": "Other",
        "fields": [
            {"name": "c", "type": "string", "aliases": ["b"]},
            {"name": "text", "type": "string", "default": "x"},
            {"name": "maybe", "type": ["null", "long"], "default": None},
            {"name": "first", "type": ["long", "null"], "default": 5},
            {"name": "some", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
            {"name": "names", "type": {"type": "map", "values": "int"}, "default": {"k": 1}},
            {"name": "raw", "type": "bytes", "default": "\u00ff"},
            {"name": "word", "type": {"type": "enum", "name": "W", "symbols": ["A", "B"]}, "default": "B"},
            {
                "name": "inner",
                "type": record(("x", "int"), ("y", "double", 2.5), name="I"),
                "default": {"x": 9},
            },
            {"name": "a", "type": "double"},
        ],
    }
    batch, bad = read(writer, reader, *({"a": n, "gone": [{"k": "v"}, {}], "b": f"t{n}"} for n in range(3)))
    assert bad == []
    assert batch.to_pylist() == [
        {
            "c": f"t{n}", "text": "x", "maybe": None, "first": 5, "some": [1, 2], "names": [("k", 1)], "raw": b"\xff",
            "word": "B", "inner": {"x": 9, "y": 2.5}, "a": float(n),
        }
        for n in range(3)
    ]  # fmt: skip


def test_records_in_lists_change_too():
    items = {"type": "array", "items": record(("sku", "string"), ("n", "int"), name="I")}
    more = {
        "type": "array",
        "items": record(("n", "long"), ("price", ["null", "double"], None), ("tag", "string", "-"), name="I"),
    }
    batch, bad = read(
        record(("items", items)), record(("items", more)), {"items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]}
    )
    assert bad == []
    assert batch.to_pylist() == [{"items": [{"n": 1, "price": None, "tag": "-"}, {"n": 2, "price": None, "tag": "-"}]}]


def test_a_field_without_a_default_must_be_written():
    with pytest.raises(SerializationException, match="'b' is not in the writer's schema, and has no default"):
        AvroReader(json.dumps(record(("a", "int"), ("b", "int"))), json.dumps(record(("a", "int"))), "value")


def test_a_wrong_default_is_refused():
    with pytest.raises(
        SerializationException, match="the default of field 'b' of the Avro schema, 'x', is not a valid int"
    ):
        AvroReader(json.dumps(record(("a", "int"), ("b", "int", "x"))), json.dumps(record(("a", "int"))), "value")


def test_logical_types():
    schema = record(
        ("d", {"type": "int", "logicalType": "date"}),
        ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
        ("us", {"type": "long", "logicalType": "timestamp-micros"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("dec", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}),
        ("fdec", {"type": "fixed", "size": 20, "name": "D", "logicalType": "decimal", "precision": 10, "scale": 2}),
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("clock", {"type": "int", "logicalType": "time-millis"}),
    )
    row = {
        "d": dt.date(1969, 12, 31),
        "ms": dt.datetime(1969, 1, 2, 3, 4, 5, 6000, tzinfo=dt.UTC),
        "us": dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
        "local": dt.datetime(2026, 1, 2, 3, 4, 5, 678901),  # noqa: DTZ001 - it has none
        "dec": decimal.Decimal("-12345678901234567890123456789012345.678"),
        "fdec": decimal.Decimal("-99999999.99"),
        "id": "00112233-4455-6677-8899-aabbccddeeff",
        "clock": dt.time(0, 0, 1),
    }
    batch, bad = read(schema, schema, row)
    assert bad == []
    assert batch.schema.types == [
        pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(38, 3),
        pa.decimal128(10, 2), pa.string(), pa.int32(),
    ]  # fmt: skip
    assert batch.to_pylist() == [{**row, "clock": 1000}]


@pytest.mark.parametrize("number", [10**4, -(10**4), 10**40, -(10**40)])
def test_a_decimal_with_too_many_digits_is_bad(number):
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}
    size = (number.bit_length() + 8) // 8
    reader = AvroReader(json.dumps(wide), None, "value")
    _, bad = reader.read(pa.array([bytes([2 * size]) + number.to_bytes(size, "big", signed=True)]))
    assert "larger than its type" in bad[0].reason
    good = (-9999).to_bytes(20, "big", signed=True)
    batch, bad = reader.read(pa.array([bytes([40]) + good]))
    assert (batch.to_pylist(), bad) == ([{"value": decimal.Decimal(-9999)}], [])


def test_uuids_of_sixteen_bytes_are_texts():
    schema = record(("id", {"type": "fixed", "size": 16, "name": "U", "logicalType": "uuid"}), ("b", "int"))
    data = bytes.fromhex("00112233445566778899aabbccddeeff") + b"\x02"
    batch, bad = AvroReader(json.dumps(schema), None, "value").read(pa.array([data, None, data]))
    text = "00112233-4455-6677-8899-aabbccddeeff"
    assert bad == []
    assert batch.column("id").to_pylist() == [text, None, text]


def test_hostile_counts_and_lengths():
    schema = json.dumps(record(("a", {"type": "array", "items": {"type": "array", "items": "int"}}), ("s", "string")))
    hostile = [
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # 2^63 - 1 items
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # -2^63 items
        b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # one item, in -2^63 bytes
        b"\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a string of 2^63 - 1 bytes
        b"\x00\x01",  # of -1 bytes
        b"\x02" * 300,
        b"\xff" * 20,
        b"",
    ]
    batch, bad = AvroReader(schema, None, "value").read(pa.array(hostile))
    assert [one.index for one in bad] == list(range(len(hostile)))
    assert batch.column("s").null_count == len(hostile)


def test_bytes_behind_a_record_are_refused():
    _, bad = AvroReader('"int"', None, "value").read(pa.array([b"\x02\x02"]))
    assert "bytes after its last field" in bad[0].reason


@pytest.mark.parametrize("more", [0, 40])
def test_of_two_entries_of_a_map_with_one_key_the_last_one_counts(more):
    inner = {"type": "map", "values": {"type": "array", "items": "int"}}
    schema = json.dumps(record(("p", inner), ("m", {"type": "map", "values": inner})))

    def entries(*pairs):
        counted = varint(len(pairs)) if pairs else b""
        return counted + b"".join(varint(len(key)) + key + value for key, value in pairs) + b"\0"

    def numbers(*values):
        return varint(len(values)) + b"".join(map(varint, values)) + b"\0"

    others = [(b"o%d" % number, numbers(number)) for number in range(more)]
    again = entries((b"k", numbers(1)), (b"l", numbers(2, 3)), *others, (b"k", numbers(4, 5)), (b"", numbers(6)))
    expected = [("l", [2, 3]), *((f"o{number}", [number]) for number in range(more)), ("k", [4, 5]), ("", [6])]
    values = [
        again + entries(),
        None,
        entries() + entries((b"x", again), (b"y", entries()), (b"x", again)),
        again + b"\1",
    ]
    batch, bad = AvroReader(schema, None, "value").read(pa.array(values))
    batch.validate(full=True)
    assert [one.index for one in bad] == [3]
    assert batch.column("p").to_pylist() == [expected, None, [], None]
    assert batch.column("m").to_pylist() == [[], None, [("y", []), ("x", expected)], None]


CAT, DOG = record(("name", "string"), name="a.Cat"), record(("name", "string"), ("legs", "int"), name="a.Dog")
CAT_OR_DOG = ["null", CAT, DOG]


def animal(branch, *fields):
    text = b"\x06" + (b"Tom" if branch == 1 else b"Rex")
    return bytes([2 * branch]) + text + b"".join(bytes([2 * number]) for number in fields)


@pytest.mark.parametrize(
    ("reader", "names"),
    [
        (CAT, ["Tom", None]),
        (DOG | {"fields": CAT["fields"]}, [None, "Rex"]),
        (CAT | {"name": "b.Cat"}, ["Tom", None]),
        (CAT | {"name": "b.Pet", "aliases": ["a.Dog"]}, [None, "Rex"]),
        (CAT | {"name": "a.Cat", "aliases": ["a.Dog"]}, ["Tom", "Rex"]),
        (CAT | {"name": "a.Pet"}, ["Tom", "Rex"]),
    ],
)
def test_of_several_records_in_a_union_the_reader_s_name_says_which(reader, names):
    values = [animal(1), animal(2, 4)]
    for writer, own, column in (
        (CAT_OR_DOG, reader, lambda row: row["name"]),
        (record(("p", CAT_OR_DOG)), record(("p", ["null", reader])), lambda row: row["p"] and row["p"]["name"]),
    ):
        batch, bad = AvroReader(json.dumps(own), json.dumps(writer), "value").read(pa.array(values))
        assert [column(row) for row in batch.to_pylist()] == names
        assert [one.index for one in bad] == [index for index, name in enumerate(names) if name is None]
        assert all("of a branch that the reader's schema does not take" in one.reason for one in bad)


def test_of_several_enums_and_fixed_types_too():
    words = [{"type": "enum", "name": name, "symbols": ["A", "B"]} for name in ("E", "F")]
    sizes = [{"type": "fixed", "name": name, "size": 1} for name in ("G", "H")]
    for branches, reader, data in ((words, words[1], b"\x02"), (sizes, sizes[1], b"x")):
        writer = record(("a", [*branches, "string"]))
        read = AvroReader(json.dumps(record(("a", reader))), json.dumps(writer), "value").read
        batch, bad = read(pa.array([b"\x00" + data, b"\x02" + data, b"\x04\x00"]))
        assert [one.index for one in bad] == [0, 2]
        assert batch.column("a").null_count == 2


def test_a_writer_s_schema_with_many_ways_through_it_takes_no_time():
    inner = record(("x", "null"), name="R0")
    for number in range(1, 60):
        inner = record(("x", inner), ("y", f"R{number - 1}"), name=f"R{number}")
    reader = json.dumps(record(("q", "int")))
    batch, bad = AvroReader(reader, json.dumps(record(("p", inner), ("q", "int"))), "value").read(pa.array([b"\x02"]))
    assert (batch.to_pylist(), bad) == ([{"q": 1}], [])
    with pytest.raises(SerializationException, match="array whose items take no bytes"):
        AvroReader(reader, json.dumps(record(("q", "int"), ("p", {"type": "array", "items": inner}))), "value")
