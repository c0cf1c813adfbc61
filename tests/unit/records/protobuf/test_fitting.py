"""Columns that a Protobuf message does not hold are refused by their types, and values that it cannot have."""

import decimal

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

from sparkrelay.errors import SerializationException
from sparkrelay.records.protobuf.messages import columns_to_messages
from sparkrelay.records.protobuf.reader import protobuf_to_columns
from sparkrelay.records.protobuf.schema import as_text, protobuf_schema
from sparkrelay.records.protobuf.writer import columns_to_protobuf

T = descriptor_pb2.FieldDescriptorProto
D = decimal.Decimal
ZONED = pa.timestamp("us", "UTC")
LATE = 253_402_300_800_000_000


def descriptors():
    file = descriptor_pb2.FileDescriptorProto(
        name="x.proto", package="p", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )  # fmt: skip
    file.enum_type.add(name="Word").value.add(name="ONE", number=0)
    inner = file.message_type.add(name="Inner")
    inner.oneof_decl.add(name="k")
    inner.field.add(name="x", number=1, type=T.TYPE_INT32, label=1)
    inner.field.add(name="a", number=2, type=T.TYPE_INT32, label=1, oneof_index=0)
    inner.field.add(name="b", number=3, type=T.TYPE_STRING, label=1, oneof_index=0)
    inner.field.add(name="at", number=4, type=T.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="NamedEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=T.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=T.TYPE_MESSAGE, type_name=".p.Inner", label=1)
    kinds = {
        "int32": T.TYPE_INT32, "int64": T.TYPE_INT64, "uint32": T.TYPE_UINT32, "uint64": T.TYPE_UINT64,
        "double": T.TYPE_DOUBLE, "float": T.TYPE_FLOAT, "bool": T.TYPE_BOOL, "string": T.TYPE_STRING,
        "bytes": T.TYPE_BYTES,
    }  # fmt: skip
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    message.field.add(name="word", number=20, type=T.TYPE_ENUM, type_name=".p.Word", label=1)
    of = {"time": "google.protobuf.Timestamp", "wrapped": "google.protobuf.DoubleValue", "inner": "p.Inner"}
    for number, (name, kind) in enumerate(of.items(), 21):
        message.field.add(name=name, number=number, type=T.TYPE_MESSAGE, type_name=f".{kind}", label=1)
    message.field.add(name="items", number=30, type=T.TYPE_MESSAGE, type_name=".p.Inner", label=3)
    message.field.add(name="named", number=31, type=T.TYPE_MESSAGE, type_name=".p.M.NamedEntry", label=3)
    message.field.add(name="ratios", number=32, type=T.TYPE_DOUBLE, label=3)
    files = descriptor_pb2.FileDescriptorSet()
    for known in (timestamp_pb2, wrappers_pb2):
        known.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return as_text(files.SerializeToString())[0]


TEXT = descriptors()
SCHEMA = protobuf_schema(TEXT, "p.M")


def written(name, array, write=columns_to_protobuf):
    return write(pa.RecordBatch.from_pydict({name: array}), TEXT, "p.M")


def again(name, array):
    batch, bad = protobuf_to_columns(written(name, array), TEXT, "p.M", pa.schema([SCHEMA.field(name)]), None)
    assert not bad
    return batch.column(0).to_pylist()


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("double", pa.decimal128(10, 2), "double"),
        ("float", pa.decimal128(10, 2), "float"),
        ("int64", pa.decimal128(10, 2), "bigint"),
        ("uint64", pa.decimal128(10, 2), r"decimal\(20,0\)"),
        ("bool", pa.decimal128(1, 0), "boolean"),
        ("bool", pa.int64(), "boolean"),
        ("int64", pa.bool_(), "bigint"),
        ("int64", pa.float64(), "bigint"),
        ("double", pa.int64(), "double"),
        ("float", pa.int32(), "float"),
        ("float", pa.float64(), "float"),
        ("string", pa.int64(), "string"),
        ("bytes", pa.string(), "binary"),
        ("word", pa.int32(), "string"),
        ("time", pa.timestamp("us"), "timestamp"),
        ("time", pa.timestamp("ns", "UTC"), "timestamp"),
        ("time", pa.date32(), "timestamp"),
        ("wrapped", pa.int64(), "double"),
    ],
)
def test_a_type_that_a_field_does_not_hold_is_refused_with_the_cast(name, kind, wanted):
    for write in (columns_to_protobuf, columns_to_messages):
        with pytest.raises(SerializationException, match=rf"column '{name}' is .*F.col\('{name}'\).cast\('{wanted}'\)"):
            written(name, pa.array([], kind), write)


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("ratios", pa.list_(pa.decimal128(5, 1)), r"column 'ratios\[\]' is decimal128\(5, 1\).* cast\(\) it to double"),
        ("ratios", pa.float64(), "has array there"),
        ("inner", pa.struct([("x", pa.decimal128(5, 1))]), r"column 'inner.x' is decimal.* cast\(\) it to int"),
        ("inner", pa.struct([("x", pa.int32()), ("y", pa.int32())]),
         r"p.Inner has no field 'inner.y', but x, a, b, at; leave it out, F.col\('inner'\).dropFields\('y'\)"),
        ("inner", pa.string(), "has struct there"),
        ("items", pa.list_(pa.struct([("y", pa.int32())])), r"p.Inner has no field 'items\[\].y'"),
        ("named", pa.map_(pa.string(), pa.struct([("y", pa.int32())])), r"p.Inner has no field 'named\{\}.y'"),
        ("named", pa.list_(pa.struct([("key", pa.string())])), "has map there"),
    ],
)  # fmt: skip
def test_what_is_in_a_column_is_looked_at_too(name, kind, reason):
    with pytest.raises(SerializationException, match=reason):
        written(name, pa.array([], kind))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("int64", pa.array([1, None, -(2**31)], pa.int32())),
        ("int64", pa.array([D(2**62)], pa.decimal128(20, 0))),
        ("int32", pa.array([-(2**31)], pa.int64())),
        ("uint32", pa.array([2**32 - 1], pa.int64())),
        ("uint64", pa.array([D(2**64 - 1)], pa.decimal128(38, 0))),
        ("uint64", pa.array([5], pa.int64())),
        ("double", pa.array([2**31 - 1], pa.int32())),
        ("double", pa.array([0.5], pa.float32())),
        ("float", pa.array([2**15 - 1], pa.int16())),
        ("word", pa.array(["ONE"])),
        ("string", pa.array([b"text"])),
        ("wrapped", pa.array([1], pa.int32())),
        ("inner", pa.array([{"x": 1}], pa.struct([("x", pa.int64())]))),
        ("double", pa.nulls(1)),
    ],
)
def test_what_fits_comes_back_as_it_was(name, array):
    found, given = again(name, array), array.to_pylist()
    if name == "inner":
        found = [{"x": one["x"]} for one in found]
    elif pa.types.is_binary(array.type):
        found = [text.encode() for text in found]
    assert found == [one or 0 for one in given]


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("int32", pa.array([2**31])),
        ("uint32", pa.array([-1])),
        ("uint64", pa.array([-1])),
        ("int64", pa.array([D(2**63)], pa.decimal128(38, 0))),
        ("string", pa.array([b"\xff"])),
    ],
)
def test_a_value_that_a_field_does_not_hold_is_refused_with_its_column(name, array):
    with pytest.raises(SerializationException, match=f"column '{name}' cannot be written as Protobuf"):
        written(name, array)


INNER = pa.struct([("a", pa.int32()), ("b", pa.string()), ("at", ZONED)])
BOTH, TOO_LATE = {"a": 1, "b": "x"}, {"at": LATE}


@pytest.mark.parametrize(
    ("name", "array", "path"),
    [
        ("inner", pa.array([None, {"a": 1}, BOTH], INNER), "inner."),
        ("items", pa.array([[], None, [{"a": 1}, BOTH]], pa.list_(INNER)), "items[]."),
        ("named", pa.array([None, [("k", {"b": ""}), ("l", BOTH)]], pa.map_(pa.string(), INNER)), "named{}."),
    ],
)
def test_two_members_of_a_oneof_are_an_error_wherever_they_are(name, array, path):
    for given in (array, array.slice(1)):
        with pytest.raises(SerializationException) as raised:
            written(name, given)
        assert f"columns '{path}a' and '{path}b' both have a value" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "array", "path"),
    [
        ("time", pa.array([0, LATE], ZONED), "time"),
        ("inner", pa.array([None, TOO_LATE], INNER), "inner.at"),
        ("items", pa.array([[], [TOO_LATE]], pa.list_(INNER)), "items[].at"),
        ("named", pa.array([[], [("k", TOO_LATE)]], pa.map_(pa.string(), INNER)), "named{}.at"),
    ],
)
def test_a_time_that_no_timestamp_is_is_an_error_wherever_it_is(name, array, path):
    for write in (columns_to_protobuf, columns_to_messages):
        with pytest.raises(SerializationException) as raised:
            written(name, array, write)
        assert f"column {path!r} has the timestamp 253402300800 s after 1970" in str(raised.value)
    assert len(written(name, array.slice(0, 1))) == 1
