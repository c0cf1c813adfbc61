"""Small records whose lists make a great many cells are bad ones; honest records are not."""

import json

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from tests.unit.records.avro.random_schemas import written

from sparkrelay.records.avro.defaults import varint
from sparkrelay.records.avro.reader import AvroReader
from sparkrelay.records.cells import widest
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.protobuf.reader import protobuf_to_columns
from sparkrelay.records.protobuf.schema import as_text, protobuf_schema

T = descriptor_pb2.FieldDescriptorProto
FIELDS = 100
INNER = {
    "type": "record",
    "name": "I",
    "fields": [{"name": f"f{number}", "type": ["null", "string"]} for number in range(FIELDS)],
}
ITEMS = 30_000
"""Of as many fields these are more cells than are free, and more than their bytes are worth."""


def record(*fields):
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def array(items):
    return {"type": "array", "items": items}


LISTED = record(("n", "int"), ("p", array(["null", INNER])), ("q", array("int")))


def listed(n, items, numbers=0):
    counts = (varint(count) + b"\0" * count + b"\0" if count else b"\0" for count in (items, numbers))
    return varint(n) + b"".join(counts)


def test_widths_of_lists():
    inner = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64())), ("c", pa.struct([("d", pa.int8())]))])
    assert widest([pa.int32(), pa.struct([("x", pa.int32())])]) == 0
    assert widest([pa.list_(pa.int32())]) == 1
    assert widest([pa.list_(inner)]) == 5
    assert widest([pa.struct([("x", pa.map_(pa.string(), inner))])]) == 6
    assert widest([pa.list_(pa.list_(inner))]) == 5


def test_avro_nulls_of_wide_records_are_a_bad_record():
    good = listed(1, 3, 2)
    values = [good, listed(2, ITEMS), None, listed(3, ITEMS)[:-9], good, listed(4, 10_000)]
    batch, bad = AvroReader(json.dumps(LISTED), None, "value").read(pa.array(values))
    batch.validate(full=True)
    assert [one.index for one in bad] == [1, 3]
    assert bad[0].reason.startswith(f"its lists make {ITEMS * (FIELDS + 1)} values")
    assert "read it by a schema with fewer fields" in bad[0].reason
    assert batch.column("n").to_pylist() == [1, None, None, None, 1, 4]
    assert [None if one is None else len(one) for one in batch.column("p").to_pylist()] == [
        3,
        None,
        None,
        None,
        3,
        10_000,
    ]
    assert batch.column("q").to_pylist() == [[0, 0], None, None, None, [0, 0], []]


def test_defaults_in_items_of_avro_lists_count():
    writer = record(("p", array(record(("x", "int")) | {"name": "I"})))
    reader = json.loads(json.dumps(writer))
    reader["fields"][0]["type"]["items"]["fields"].append({"name": "d", "type": array("int"), "default": [1] * 100})
    read = AvroReader(json.dumps(reader), json.dumps(writer), "value").read
    batch, bad = read(pa.array([listed(0, 20_000)[1:-1], listed(0, 5)[1:-1]]))
    assert [one.index for one in bad] == [0]
    assert len(batch.column("p")[1]) == 5


def test_a_megabyte_of_small_numbers_is_no_bad_record():
    batch, bad = AvroReader(json.dumps(LISTED), None, "value").read(pa.array([listed(0, 0, 1 << 20)]))
    assert (bad, len(batch.column("q")[0])) == ([], 1 << 20)
    rows = [{"n": 0, "p": [{f"f{number}": "x" for number in range(FIELDS)}] * 5000, "q": []}]
    batch, bad = AvroReader(json.dumps(LISTED), None, "value").read(pa.array([written(LISTED, rows[0])]))
    assert (bad, len(batch.column("p")[0])) == ([], 5000)


def message(*, mapped=False):
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="p", syntax="proto3")
    outer, inner = file.message_type.add(name="M"), file.message_type.add(name="In")
    for number in range(FIELDS):
        inner.field.add(name=f"f{number}", number=number + 1, type=T.TYPE_STRING, label=1)
    outer.field.add(name="m", number=1, type=T.TYPE_MESSAGE, type_name=".p.In", label=3)
    outer.field.add(name="n", number=2, type=T.TYPE_INT64, label=3)
    entry = outer.nested_type.add(name="XEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=T.TYPE_INT32, label=1)
    entry.field.add(name="value", number=2, type=T.TYPE_MESSAGE, type_name=".p.In", label=1)
    if mapped:
        outer.field.add(name="x", number=4, type=T.TYPE_MESSAGE, type_name=".p.M.XEntry", label=3)
    return as_text(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())[0]


def read_messages(values, *, mapped=False, index=None):
    text = message(mapped=mapped)
    return protobuf_to_columns(pa.array(values, pa.binary()), text, "p.M", protobuf_schema(text, "p.M"), index)


EMPTY = b"\x0a\x00"
ENTRIES = b"".join(
    b"\x22" + bytes([1 + len(varint(key)) + 2]) + b"\x08" + varint(key) + b"\x12\0" for key in range(9000)
)
PACKED = b"\x12" + b"\x80\x80\x40" + b"\0" * (1 << 20)


@pytest.mark.parametrize(
    ("value", "mapped"),
    [
        (EMPTY * ITEMS, False),
        (EMPTY * ITEMS, True),
        (EMPTY * ITEMS + b"\x0a", False),
        (b"\x33\x08\x01\x34" + EMPTY * ITEMS, False),
        (EMPTY * ITEMS + b"\x1d\1\0\0\0", True),
    ],
)
def test_empty_protobuf_messages_are_a_bad_record(value, mapped):
    for index in (None, b"\0"):
        values = [EMPTY * 2, value, None, EMPTY + b"\x12\2\5\6"]
        framed = values if index is None else [one and index + one for one in values]
        batch, bad = read_messages(framed, mapped=mapped, index=index)
        batch.validate(full=True)
        assert [one.index for one in bad] == [1]
        assert f"its lists make {ITEMS * (FIELDS + 1)} values" in bad[0].reason
        assert [one if one is None else len(one) for one in batch.column("m").to_pylist()] == [2, None, None, 1]
        assert batch.column("n").to_pylist() == [[], None, None, [5, 6]]


@pytest.mark.parametrize("mapped", [False, True])
def test_honest_protobuf_messages_are_read(mapped):
    sparse = b"\x0a\x08\x0a\x01x\x12\x03abc" * 20_000
    batch, bad = read_messages([PACKED, sparse, *([ENTRIES] * mapped)], mapped=mapped)
    assert not bad
    assert len(batch.column("n")[0]) == 1 << 20
    assert len(batch.column("m")[1]) == 20_000
    if mapped:
        assert len(batch.column("x")[2]) == 9000


def test_empty_json_objects_are_a_bad_record():
    inner, wide = (pa.struct([(f"f{number}", pa.string()) for number in range(many)]) for many in (FIELDS, 4 * FIELDS))
    schema = pa.schema([("p", pa.list_(inner)), ("m", pa.map_(pa.string(), wide)), ("q", pa.list_(pa.int64()))])
    many = json.dumps({"p": [{}] * 40_000})
    named = json.dumps({"m": {str(number): {} for number in range(20_000)}})
    numbers = json.dumps({"q": [0] * 100_000})
    full = json.dumps({"p": [{f"f{number}": "x" for number in range(FIELDS)}] * 300})
    values = pa.array(['{"p": [{}]}', many, None, named, numbers, full, many[:-1], many], pa.string())
    for columns in (schema, pa.schema([schema.field("p"), schema.field("q")])):
        batch, bad = json_to_columns(values, columns)
        batch.validate(full=True)
        assert [one.index for one in bad] == ([1, 3, 6, 7] if "m" in columns.names else [1, 6, 7])
        assert f"its lists make {40_000 * (FIELDS + 1)} values" in bad[0].reason
        assert "not JSON" in next(one.reason for one in bad if one.index == 6)
        assert [one if one is None else len(one) for one in batch.column("p").to_pylist()][:2] == [1, None]
        assert len(batch.column("q")[4]) == 100_000
        assert len(batch.column("p")[5]) == 300


def test_a_number_that_python_does_not_make_hides_no_cells():
    schema = pa.schema([("p", pa.list_(pa.struct([(f"f{number}", pa.string()) for number in range(FIELDS)])))])
    value = '{"x": ' + "1" * 5_000 + ', "p": [' + ",".join(["{}"] * 40_000) + "]}"
    batch, bad = json_to_columns(pa.array(['{"p": [{}]}', value]), schema)
    assert [one.index for one in bad] == [1]
    assert f"its lists make {40_000 * (FIELDS + 1)} values" in bad[0].reason
    assert batch.column("p")[1].as_py() is None
