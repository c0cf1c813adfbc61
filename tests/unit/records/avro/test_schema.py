import json

import numpy as np
import pyarrow as pa
import pytest

from sparkrelay.errors import SerializationException
from sparkrelay.records.avro.arrow_types import arrow_schema_of
from sparkrelay.records.avro.schema import AvroRecord, parse_schema
from sparkrelay.records.avro.writer import columns_to_avro


def record(*fields):
    return json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [dict(zip(("name", "type", "default"), one, strict=False)) for one in fields],
        }
    )


def test_names_and_namespaces():
    schema = {
        "type": "record", "name": "Order", "namespace": "shop", "aliases": ["Old"],
        "fields": [
            {"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "b", "type": "F"},
            {"name": "c", "type": ["null", "shop.F"]},
        ],
    }  # fmt: skip
    parsed = parse_schema(json.dumps(schema))
    assert isinstance(parsed, AvroRecord)
    assert parsed.name == "shop.Order"
    assert parsed.aliases == {"shop.Old"}
    assert parsed.fields[0].type is parsed.fields[1].type


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ('"Missing"', "no type 'Missing' was declared"),
        ('{"type": "record", "name": "R"}', "no list of fields"),
        ('{"type": "record", "fields": []}', "has the invalid name None"),
        (record(("a", "int"), ("a", "int")), "two fields 'a'"),
        (record(("a", ["int", "int"])), "different types"),
        (record(("a", [])), "different types"),
        (record(("a", {"type": "enum", "name": "E", "symbols": []})), "no list of symbols"),
        (record(("a", {"type": "enum", "name": "E", "symbols": ["A"], "default": "B"})), "not one of its symbols"),
        (record(("a", {"type": "fixed", "name": "F", "size": -1})), "has the invalid size -1"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 40})), "40 digits"),
        ("[" * 100 + "]" * 100, "deeper than 64"),
        ("17", "is not a type"),
    ],
)
def test_wrong_schemas_are_refused(text, reason):
    with pytest.raises(SerializationException, match=reason):
        parse_schema(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            record(("a", ["int", "string"])),
            "'a' of the Avro schema is a union of int, string, and a column has one type",
        ),
        (record(("a", "null")), "is always null"),
        (record(("a", ["null", "R"])), "is a record R in itself"),
        (record(("a", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})), "items take no bytes"),
        (record(("a", {"type": "record", "name": "S", "fields": []})), "without fields"),
        (record(), "without fields"),
    ],
)
def test_what_has_no_column_is_refused(text, reason):
    with pytest.raises(SerializationException, match=reason):
        arrow_schema_of(parse_schema(text), "value")


def columns(**arrays):
    return pa.RecordBatch.from_pydict(arrays)


@pytest.mark.parametrize(
    ("rows", "text", "reason"),
    [
        (columns(a=[1], b=[2]), record(("a", "long")), "no field 'b', but a; drop"),
        (columns(a=[1]), record(("a", "long"), ("b", "long")), "field 'b' without a default"),
        (columns(a=[1]), record(("a", "int")), "column 'a' is int64, and the Avro schema has int there"),
        (columns(a=["x"]), record(("a", {"type": "enum", "name": "E", "symbols": ["Y"]})), "not one of the symbols"),
        (columns(a=[None, 1]), record(("a", "long")), "'a' of a row is null"),
        (columns(a=[b"abc"]), record(("a", {"type": "fixed", "name": "F", "size": 2})), "another number of bytes"),
        (columns(a=[1], b=[2]), '"long"', "one column"),
        (columns(a=[[1, None]]), record(("a", {"type": "array", "items": "long"})), r"'a\[\]' of a row is null"),
        (columns(a=[{"x": 1, "y": 1}]), record(("a", {"type": "record", "name": "S", "fields": [
            {"name": "x", "type": "long"}]})), "no field 'a.y'"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused(rows, text, reason):
    with pytest.raises(SerializationException, match=reason):
        columns_to_avro(rows, text)


def test_columns_are_written_in_the_order_of_the_schema_with_its_defaults():
    rows = columns(b=["x", "y"], a=pa.array([1, 2], pa.int8()))
    text = record(("a", "long"), ("c", ["null", "int"], None), ("b", ["null", "string"]), ("d", "int", 3))
    assert columns_to_avro(rows, text).to_pylist() == [b"\x02\x00\x02\x02x\x06", b"\x04\x00\x02\x02y\x06"]


def test_a_union_of_several_takes_the_branch_of_the_column():
    text = record(("a", ["null", "int", "string", "double"]))
    assert columns_to_avro(columns(a=["x", None]), text).to_pylist() == [b"\x04\x02x", b"\x00"]
    assert columns_to_avro(columns(a=pa.array([1], pa.int32())), text).to_pylist() == [b"\x02\x02"]


def test_entries_of_a_map_that_are_a_part_of_others():
    entries = pa.array([{"key": key, "value": number} for number, key in enumerate("abc")],
                       pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.int64())]))  # fmt: skip
    places = pa.py_buffer(np.array([0, 1, 2], np.int32))
    maps = pa.Array.from_buffers(pa.map_(pa.string(), pa.int64()), 2, [None, places], children=[entries.slice(1)])
    text = record(("m", {"type": "map", "values": "long"}))
    assert columns_to_avro(columns(m=maps), text).to_pylist() == [b"\x02\x02b\x02\x00", b"\x02\x02c\x04\x00"]
