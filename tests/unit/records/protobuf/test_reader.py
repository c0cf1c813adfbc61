"""What the compiled loop reads, and what it leaves to Google's library; `fuzz_protobuf` compares the two."""

import datetime as dt

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from tests.unit.records.test_protobuf import FORM, ORDER, full

from sparkrelay.records.protobuf import reader
from sparkrelay.records.protobuf.messages import messages_to_columns
from sparkrelay.records.protobuf.reader import protobuf_to_columns
from sparkrelay.records.protobuf.schema import as_text, protobuf_schema

NAME = "shop.Order"
#: A map is the library's alone.
NAMES = ["id", "user", "items", "color", "at", "note", "big", "raw", "first", "ratios"]
SCHEMA = pa.schema([protobuf_schema(FORM.schema, NAME).field(name) for name in NAMES])


@pytest.fixture
def left(monkeypatch):
    """The rows that were left to the library."""
    rows = []

    def note(values, *arguments):
        rows.extend(values.to_pylist())
        return messages_to_columns(values, *arguments)

    monkeypatch.setattr(reader, "messages_to_columns", note)
    return rows


def read(values, schema=SCHEMA, text=FORM.schema, name=NAME):
    array = pa.array(values, pa.binary())
    batch, bad = protobuf_to_columns(array, text, name, schema, None)
    batch.validate(full=True)
    expected, others = messages_to_columns(array, text, name, schema, None)
    assert (batch.to_pylist(), bad) == (expected.to_pylist(), others)
    return batch.to_pylist(), bad


def test_ordinary_messages_need_no_library(left):
    rows, bad = read([full().SerializeToString(), None, b"", ORDER(user="ü", ratios=[1, 2, -0.0]).SerializeToString()])
    assert not bad
    assert not left
    assert (rows[3]["user"], rows[3]["ratios"]) == ("ü", [1.0, 2.0, -0.0])
    assert rows[1] == dict.fromkeys(NAMES)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x32\x02\x08\x01\x32\x02\x10\x05", "two Timestamps are merged"),
        (b"\x52\x03\x0a\x01a\x52\x02\x10\x02", "two messages are merged"),
        (b"\x3a\x03\x0a\x01a\x3a\x00", "two wrappers are merged"),
        (b"\x28\x05", "an enum's number without a word"),
        (b"\x13\x08\x01\x14\x08\x07", "a group that nobody knows"),
        (b"\x12\x01\xff", "no UTF-8"),
        (b"\x08", "it ends too early"),
        (b"\x12\x7f", "longer than what is there"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "a number of eleven bytes"),
        (b"\x02\x00", "field 0"),
        (b"\x32\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x00", "a time that no calendar has"),
    ],
)
def test_what_is_out_of_the_ordinary_is_the_library_s(left, data, why):
    others = [full().SerializeToString(), ORDER(id=5, ratios=[3]).SerializeToString()]
    rows, _ = read([others[0], data, others[1], None])
    assert left == [data], why
    assert rows[0]["items"] == [{"sku": "a", "n": -3}]
    assert rows[2]["ratios"] == [3.0]


def test_fields_come_in_any_order_and_kind(left):
    packed, one = b"\x5a\x10" + bytes(16), b"\x59" + bytes(8)
    item, other = b"\x1a\x03\x0a\x01b", b"\x1a\x02\x10\x03"
    rows, bad = read([one + item + packed + b"\x08\x05\x08\x07" + other + one, b"\x0d\1\0\0\0" + b"\x82\x3f\x01z"])
    assert not bad
    assert not left
    assert rows[0]["ratios"] == [0.0] * 4
    assert rows[0]["items"] == [{"sku": "b", "n": 0}, {"sku": "", "n": -2}]
    # The last one counts; one of another kind than declared is of a field that nobody knows.
    assert (rows[0]["id"], rows[1]["id"]) == (7, 0)


@pytest.mark.parametrize("names", [[], ["at"], ["ratios", "id"], ["items", "note"]])
def test_only_the_wanted_columns_are_read(names, left):
    values = [full().SerializeToString(), None, ORDER(id=1).SerializeToString()]
    rows, _ = read(values, pa.schema([SCHEMA.field(name) for name in names]))
    assert len(rows) == len(values) or not names
    assert not left


def test_of_messages_in_messages_some_fields_may_be_wanted(left):
    schema = pa.schema([("first", pa.struct([("n", pa.int32())])), ("items", pa.list_(pa.struct([("n", pa.int32())])))])
    rows, _ = read([full().SerializeToString(), b""], schema)
    assert rows == [{"first": {"n": 0}, "items": [{"n": -3}]}, {"first": None, "items": []}]
    assert not left


def test_of_several_the_last_one_is_there(left):
    file = descriptor_pb2.FileDescriptorProto(name="one.proto", syntax="proto3")
    message = file.message_type.add(name="Pay")
    message.oneof_decl.add(name="by")
    for number, name in enumerate(("card", "cash", "coins"), 1):
        message.field.add(name=name, number=number, type=5, label=1, oneof_index=0)
    text, _ = as_text(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    schema = pa.schema([("card", pa.int32()), ("coins", pa.int32())])
    assert read([b"\x08\x01", b"\x18\x00", b""], schema, text, "Pay")[0] == [
        {"card": 1, "coins": None}, {"card": None, "coins": 0}, {"card": None, "coins": None},
    ]  # fmt: skip
    assert not left
    # Cash takes the card away, though nobody wants the cash.
    rows, _ = read([b"\x08\x01\x10\x02", b"\x08\x01\x18\x02"], schema, text, "Pay")
    assert rows == [{"card": None, "coins": None}, {"card": None, "coins": 2}]
    assert len(left) == 2


def test_many_damaged_lists_leave_the_others_alone():
    good = ORDER(ratios=[1.0, 2.0], raw=b"x")
    good.items.add(sku="s", n=1)
    bad = good.SerializeToString()[:-1]
    rows, found = read([good.SerializeToString(), bad] * 50)
    assert [one.index for one in found] == list(range(1, 100, 2))
    assert all(row["ratios"] == [1.0, 2.0] for row in rows[::2])


def test_a_text_of_proto2_that_is_no_utf8_is_bad():
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", syntax="proto2")
    file.message_type.add(name="Old").field.add(name="text", number=1, type=9, label=1)
    text, _ = as_text(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    rows, bad = read([b"\x0a\x01\xff", b"\x0a\x01a"], pa.schema([("text", pa.string())]), text, "Old")
    assert rows == [{"text": None}, {"text": "a"}]
    assert "is not UTF-8" in bad[0].reason


def test_times_of_all_years():
    edges = [ORDER(), ORDER(), ORDER()]
    for order, seconds in zip(edges, (-62_135_596_800, 253_402_300_799, -1), strict=True):
        order.at.seconds, order.at.nanos = seconds, 999_999_999
    rows, bad = read([edge.SerializeToString() for edge in edges])
    assert not bad
    assert [row["at"].year for row in rows] == [1, 9999, 1969]
    assert rows[2]["at"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
