"""What the compiled loop writes are the library's bytes, and what it does not take goes through the library."""

import datetime as dt
import decimal

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from tests.unit.records.protobuf.test_reader import NAME, SCHEMA
from tests.unit.records.test_protobuf import FORM, ORDER, ROW, full

from sparkrelay.errors import SerializationException
from sparkrelay.records.protobuf import writer
from sparkrelay.records.protobuf.messages import columns_to_messages
from sparkrelay.records.protobuf.schema import as_text
from sparkrelay.records.protobuf.writer import columns_to_protobuf


@pytest.fixture
def left(monkeypatch):
    """The batches that were left to the library."""
    batches = []

    def note(batch, *arguments):
        batches.append(batch)
        return columns_to_messages(batch, *arguments)

    monkeypatch.setattr(writer, "columns_to_messages", note)
    return batches


def write(batch, text=FORM.schema, name=NAME):
    written = columns_to_protobuf(batch, text, name, b"in front")
    assert written.to_pylist() == columns_to_messages(batch, text, name, b"in front").to_pylist()
    return [data.removeprefix(b"in front") for data in written.to_pylist()]


def test_rows_without_maps_need_no_library(left):
    row = {name: ROW[name] for name in SCHEMA.names}
    empty = {"first": {"sku": None, "n": None}, "items": [], "note": "", "at": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}
    batch = pa.RecordBatch.from_pylist([row, {}, empty], SCHEMA)
    expected = full()
    expected.ClearField("counts")
    written = write(batch)
    assert ORDER.FromString(written[0]) == expected
    assert written[1] == b""
    assert write(batch.slice(1, 1)) == [b""]
    assert not left


@pytest.mark.parametrize(
    ("columns", "common"),
    [
        ({"id": pa.array([1, None], pa.int16())}, True),
        ({"at": pa.array([0, -1], pa.timestamp("us", "Europe/Berlin"))}, True),
        ({"user": pa.array(["a", None], pa.large_string())}, False),
        ({"user": pa.array(["a", "b", "a"]).dictionary_encode()}, True),
        ({"ratios": pa.array([[1.0], None], pa.large_list(pa.float32()))}, True),
        ({"big": pa.array([5, 0], pa.int64())}, True),
        ({"counts": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))}, False),
        ({"ratios": pa.array([[1, 2]], pa.list_(pa.int32()))}, False),
        ({"first": pa.array([{"n": 1}, None], pa.struct([("n", pa.int32())]))}, True),
    ],
)
def test_columns_of_other_types(columns, common, left):
    try:
        write(pa.RecordBatch.from_pydict(columns))
    except SerializationException:
        assert not common
    assert (not left) is common


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"big": pa.array([decimal.Decimal(2**64)], pa.decimal128(38, 0))}, "column 'big' cannot be written"),
        ({"first": pa.array([{"n": 2**31}], pa.struct([("n", pa.int64())]))}, "column 'first' cannot be written"),
        ({"color": ["GREEN"]}, "'GREEN' is not one of RED, BLUE"),
        ({"items": pa.array([[None]], SCHEMA.field("items").type)}, "takes no null"),
    ],
)
def test_values_that_a_field_cannot_have_are_named(columns, reason):
    with pytest.raises(SerializationException, match=reason):
        columns_to_protobuf(pa.RecordBatch.from_pydict(columns), FORM.schema, NAME)


def proto2(*fields):
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", syntax="proto2")
    message = file.message_type.add(name="Old")
    message.oneof_decl.add(name="one")
    for field in fields:
        message.field.add(type=5, **field)
    return as_text(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())[0]


def test_of_several_one_is_written(left):
    text = proto2({"name": "a", "number": 1, "label": 1, "oneof_index": 0}, {
        "name": "b", "number": 2, "label": 1, "oneof_index": 0})  # fmt: skip
    assert write(pa.RecordBatch.from_pydict({"a": [1, None], "b": [None, 0]}), text, "Old") == [b"\x08\1", b"\x10\0"]
    assert not left
    with pytest.raises(SerializationException, match="columns 'a' and 'b' both .* its oneof 'one'; set all but one to"):
        columns_to_protobuf(pa.RecordBatch.from_pydict({"b": [1, 1], "a": [None, 2]}), text, "Old")


def test_a_required_field_that_is_missing_is_refused():
    text = proto2({"name": "a", "number": 1, "label": 2}, {"name": "b", "number": 2, "label": 1, "oneof_index": 0})
    assert write(pa.RecordBatch.from_pydict({"a": [1], "b": [2]}), text, "Old") == [b"\x08\1\x10\2"]
    with pytest.raises(SerializationException, match="cannot be written as the Protobuf message Old: .*required"):
        columns_to_protobuf(pa.RecordBatch.from_pydict({"b": [2]}), text, "Old")
