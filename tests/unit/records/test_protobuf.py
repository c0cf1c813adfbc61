import datetime as dt
import decimal

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given, strategies as st

from sparkrelay.errors import SerializationException
from sparkrelay.records.formats import Protobuf
from sparkrelay.records.formatted import columns_to_format, declared_schema, format_to_columns
from sparkrelay.records.framing import prefix

T = descriptor_pb2.FieldDescriptorProto


def field(message, name, number, kind, *, of=None, repeated=False, optional=False):
    one = message.field.add(name=name, number=number, type=kind, label=3 if repeated else 1, proto3_optional=optional)
    if of is not None:
        one.type_name = of
    if optional:
        one.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def descriptors():
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )  # fmt: skip
    order = file.message_type.add(name="Order")
    item = order.nested_type.add(name="Item")
    field(item, "sku", 1, T.TYPE_STRING)
    field(item, "n", 2, T.TYPE_SINT32)
    entry = order.nested_type.add(name="CountsEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    field(entry, "key", 1, T.TYPE_STRING)
    field(entry, "value", 2, T.TYPE_INT64)
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=2)
    field(order, "id", 1, T.TYPE_INT64)
    field(order, "user", 2, T.TYPE_STRING, optional=True)
    field(order, "items", 3, T.TYPE_MESSAGE, of=".shop.Order.Item", repeated=True)
    field(order, "counts", 4, T.TYPE_MESSAGE, of=".shop.Order.CountsEntry", repeated=True)
    field(order, "color", 5, T.TYPE_ENUM, of=".shop.Color")
    field(order, "at", 6, T.TYPE_MESSAGE, of=".google.protobuf.Timestamp")
    field(order, "note", 7, T.TYPE_MESSAGE, of=".google.protobuf.StringValue")
    field(order, "big", 8, T.TYPE_UINT64)
    field(order, "raw", 9, T.TYPE_BYTES)
    field(order, "first", 10, T.TYPE_MESSAGE, of=".shop.Order.Item")
    field(order, "ratios", 11, T.TYPE_DOUBLE, repeated=True)
    node = file.message_type.add(name="Node")
    field(node, "next", 1, T.TYPE_MESSAGE, of=".shop.Node")
    file.message_type.add(name="Nothing")
    files = descriptor_pb2.FileDescriptorSet()
    for known in (timestamp_pb2, wrappers_pb2):
        known.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return files


FILES = descriptors()
POOL = descriptor_pool.DescriptorPool()
for _file in FILES.file:
    POOL.Add(_file)
ORDER = message_factory.GetMessageClass(POOL.FindMessageTypeByName("shop.Order"))
ITEM = message_factory.GetMessageClass(POOL.FindMessageTypeByName("shop.Order.Item"))
FORM = Protobuf(FILES.SerializeToString(), "shop.Order")
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)


def read(values, form=FORM):
    columns, bad = format_to_columns(pa.array(values, pa.binary()), form, "value", declared_schema(form, "value"))
    return pa.RecordBatch.from_pydict(columns).to_pylist(), bad


def full():
    order = ORDER(id=-1, user="", color=2, big=2**64 - 1, raw=b"\xff", counts={"k": 5}, ratios=[0.5])
    order.items.add(sku="a", n=-3)
    order.at.FromDatetime(AT)
    order.note.value = "x"
    order.first.sku = "f"
    return order


ROW = {
    "id": -1, "user": "", "items": [{"sku": "a", "n": -3}], "counts": [("k", 5)], "color": "BLUE", "at": AT,
    "note": "x", "big": decimal.Decimal(2**64 - 1), "raw": b"\xff", "first": {"sku": "f", "n": 0}, "ratios": [0.5],
}  # fmt: skip
DEFAULTS = {
    "id": 0, "user": None, "items": [], "counts": [], "color": "RED", "at": None, "note": None,
    "big": decimal.Decimal(0), "raw": b"", "first": None, "ratios": [],
}  # fmt: skip


def test_messages_are_read_and_written():
    rows, bad = read([full().SerializeToString(), None, b""])
    assert bad == []
    assert rows == [ROW, dict.fromkeys(ROW), DEFAULTS]
    batch = pa.RecordBatch.from_pylist([ROW, DEFAULTS], declared_schema(FORM, "value"))
    written = columns_to_format(batch, FORM).to_pylist()
    assert [ORDER.FromString(data) for data in written] == [full(), ORDER()]


def test_entries_of_a_map_come_in_the_order_of_their_keys():
    names = [f"k{number * 7 % 10}" for number in range(10)]
    data = b"".join(ORDER(counts={name: 1}).SerializeToString() for name in names)
    rows, bad = read([data])
    assert not bad
    assert rows[0]["counts"] == [(name, 1) for name in sorted(names)]


def test_a_generated_class_says_everything():
    form = Protobuf(ORDER)
    assert (form.message, form.index) == ("shop.Order", (0,))
    assert form == Protobuf(ORDER)
    assert read([full().SerializeToString()], form) == ([ROW], [])


def test_the_place_in_the_file_is_in_front_of_framed_messages():
    form = Protobuf(FILES.SerializeToString(), "shop.Order", framed=True, schema_id=9)
    data = full().SerializeToString(deterministic=True)
    rows, bad = read(
        [prefix(9) + b"\0" + data, prefix(7) + b"\2\0" + data, prefix(9) + b"\4\0\0" + data, data[:3]], form
    )
    assert rows[:2] == [ROW, ROW]
    assert [one.index for one in bad] == [2, 3]
    assert "the index of another message" in bad[0].reason
    nested = Protobuf(FILES.SerializeToString(), "shop.Order.Item", framed=True, schema_id=9)
    assert nested.index == (0, 0)
    batch = pa.RecordBatch.from_pydict({"sku": ["a"]})
    assert columns_to_format(batch, nested).to_pylist() == [prefix(9) + b"\4\0\0" + ITEM(sku="a").SerializeToString()]


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        (b"\xff\xff", None, "not a FileDescriptorSet"),
        (b"", None, "without files"),
        (FILES.SerializeToString(), "shop.Nobody", "no message 'shop.Nobody'"),
        (5, None, "neither a generated message class"),
        (descriptor_pb2.FileDescriptorSet(file=[descriptor_pb2.FileDescriptorProto(
            name="a.proto", dependency=["b.proto"])]).SerializeToString(), "A", "include_imports"),
    ],
)  # fmt: skip
def test_mistakes_are_named(given, name, reason):
    with pytest.raises(ValueError, match=reason):
        Protobuf(given, name)


@pytest.mark.parametrize(("name", "reason"), [("shop.Node", "in itself"), ("shop.Nothing", "has no fields")])
def test_what_has_no_columns_is_refused(name, reason):
    with pytest.raises(SerializationException, match=reason):
        declared_schema(Protobuf(FILES.SerializeToString(), name), "value")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"nobody": [1]}, "has no field 'nobody', but id"),
        ({"id": [[1]]}, "column 'id' is list"),
        ({"color": ["GREEN"]}, "'GREEN' is not one of RED, BLUE"),
        ({"ratios": [[None]]}, "takes no null"),
    ],
)
def test_what_cannot_be_written_is_refused(rows, reason):
    with pytest.raises(SerializationException, match=reason):
        columns_to_format(pa.RecordBatch.from_pydict(rows), FORM)


@given(st.lists(st.binary(max_size=30) | st.none(), max_size=4))
def test_any_bytes_give_clean_errors(values):
    rows, bad = read(values)
    assert len(rows) == len(values)
    assert all(rows[one.index] == dict.fromkeys(ROW) for one in bad)


@pytest.mark.parametrize("seconds", [-62_135_596_801, 253_402_300_800, 2**62])
def test_a_timestamp_that_no_calendar_has_is_bad(seconds):
    order = ORDER()
    order.at.seconds = seconds
    edges = [ORDER(), ORDER()]
    edges[0].at.seconds, edges[1].at.seconds = -62_135_596_800, 253_402_300_799
    rows, bad = read([order.SerializeToString(), *(edge.SerializeToString() for edge in edges)])
    assert [row["at"] and row["at"].year for row in rows] == [None, 1, 9999]
    assert [one.index for one in bad] == [0]
    assert "is not between the years 1 and 9999" in bad[0].reason


def test_tombstones_need_no_fields_that_a_message_must_have():
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    file.message_type.add(name="Old").field.add(name="n", number=2, type=T.TYPE_INT64, label=T.LABEL_REQUIRED)
    form = Protobuf(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "old.Old")
    rows = pa.RecordBatch.from_pydict({"n": pa.array([1, None, 3], pa.int64())})
    written = columns_to_format(rows, form, pa.array([False, True, False]))
    assert written.to_pylist() == [b"\x10\x01", None, b"\x10\x03"]
    assert columns_to_format(rows.slice(1, 1), form, pa.array([True])).to_pylist() == [None]
    with pytest.raises(SerializationException, match=r"old\.Old"):
        columns_to_format(rows, form)
