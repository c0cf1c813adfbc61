"""Columns of bytes to typed columns, and what happens at a record that cannot be read."""

from __future__ import annotations

import datetime as dt
import pickle
import struct

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparkrelay.consumer.api.deserializers import Deserializers, first_offsets
from sparkrelay.consumer.api.record import Record, to_records
from sparkrelay.consumer.fetch.fetch_buffer import TABLE_SCHEMA
from sparkrelay.errors import ConfigException
from sparkrelay.records.formats import Integer, Json, Long, Raw, String
from sparkrelay.types import TopicPartition


def table(*values, keys=None, partitions=None):
    """One chunk for each partition, as the fetch buffer makes them."""
    rows = [
        {
            "key": keys[i] if keys else None, "value": value,
            "topic": "t", "partition": partitions[i] if partitions else 0,
            "offset": 100 + i, "timestamp": 1_700_000_000_000 + i, "timestampType": i % 2, "headers": [],
        }
        for i, value in enumerate(values)
    ]  # fmt: skip
    parts = sorted({row["partition"] for row in rows})
    batches = [pa.RecordBatch.from_pylist([r for r in rows if r["partition"] == p], schema=TABLE_SCHEMA) for p in parts]
    return pa.Table.from_batches(batches, TABLE_SCHEMA)


def read(values, deserializer, **more):
    readers, _ = Deserializers.of({}, None, deserializer)
    return readers.read(table(*values, **more))


@pytest.mark.parametrize(
    ("deserializer", "values", "kind", "expected"),
    [
        ("string", [b"a", "é".encode(), None, b""], pa.string(), ["a", "é", None, ""]),
        (String(), [b"a"], pa.string(), ["a"]),
        ("org.apache.kafka.common.serialization.StringDeserializer", [b"a"], pa.string(), ["a"]),
        ("long", [struct.pack(">q", -5), None], pa.int64(), [-5, None]),
        (Long(), [struct.pack(">q", 2**62)], pa.int64(), [2**62]),
        ("integer", [struct.pack(">i", -7)], pa.int32(), [-7]),
        (Integer(), [None], pa.int32(), [None]),
        ("short", [struct.pack(">h", -7), None], pa.int16(), [-7, None]),
        ("double", [struct.pack(">d", 1.5), None], pa.float64(), [1.5, None]),
        ("org.apache.kafka.common.serialization.FloatDeserializer", [struct.pack(">f", -2.5)], pa.float32(), [-2.5]),
        ("bytes", [b"x", None], pa.binary(), [b"x", None]),
        (Raw(), [b"x"], pa.binary(), [b"x"]),
        (None, [b"x"], pa.binary(), [b"x"]),
        (
            Json(pa.schema([("a", pa.int64()), ("b", pa.string())])),
            [b'{"a": 1, "b": "x"}', None, b'{"c": 0}'],
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            [{"a": 1, "b": "x"}, None, {"a": None, "b": None}],
        ),
        (pc.binary_length, [b"abc", None], pa.int32(), [3, None]),
    ],
)
def test_values_become_columns(deserializer, values, kind, expected):
    got, error = read(values, deserializer)
    assert error is None
    assert got.column("value").type == kind
    assert got.column("value").to_pylist() == expected
    readers, _ = Deserializers.of({}, None, deserializer)
    assert readers.empty.schema == got.schema
    assert readers.read(table())[0].schema == got.schema


def test_settings_are_taken_out_and_arguments_win():
    readers, rest = Deserializers.of({"key.deserializer": "long", "value.deserializer": "long", "x": 1}, None, "string")
    assert rest == {"x": 1}
    assert readers.empty.schema.field("key").type == pa.int64()
    assert readers.empty.schema.field("value").type == pa.string()


DEEP = b"[" * 600 + b"]" * 600


def eight(column):
    for value in column.to_pylist():
        if value == b"bad":
            raise ValueError("this one is bad")
    return column.cast(pa.large_binary())


@pytest.mark.parametrize(
    ("deserializer", "good", "bad", "reason"),
    [
        ("long", struct.pack(">q", 1), b"bad", "int64 is written as 8, big endian"),
        ("double", struct.pack(">d", 1), b"bad", "has 3 bytes: b'bad'; double is written as 8"),
        ("string", b"text", b"\xff", "is not UTF-8 text"),
        (Json(pa.schema([("a", pa.int64())])), b'{"a": 1}', b'{"a": "x"}', ""),
        (Json(pa.schema([("a", pa.string())])), b'{"a": []}', b'{"a": %s}' % DEEP, "nested deeper than 500 levels"),
        (eight, b"good", b"bad", "this one is bad"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 6, 9])
def test_rows_in_front_of_a_bad_one_are_returned_and_its_error_names_it(deserializer, good, bad, reason, at):
    values = [good] * 10
    values[at] = values[9] = bad
    got, error = read(values, deserializer, keys=[b"k"] * 10)
    assert got.num_rows == at
    assert (error.topic, error.partition, error.offset, error.column) == ("t", 0, 100 + at, "value")
    assert f"t-0: the value of the record at offset {100 + at} cannot be read: " in str(error)
    assert reason in str(error)
    assert f"seek() to {101 + at}" in str(error)
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_the_first_bad_row_of_both_columns_counts():
    readers, _ = Deserializers.of({}, "string", "string")
    values, keys = [b"v"] * 6, [b"k"] * 6
    values[4], keys[2] = b"\xff", b"\xff"
    got, error = readers.read(table(*values, keys=keys, partitions=[0, 0, 0, 1, 1, 1]))
    assert (got.num_rows, error.column, error.partition, error.offset) == (2, "key", 0, 102)
    values[1] = b"\xff"
    got, error = readers.read(table(*values, keys=keys, partitions=[0, 0, 0, 1, 1, 1]))
    assert (got.num_rows, error.column, error.offset) == (1, "value", 101)
    assert got.column("key").to_pylist() == ["k"]


def test_first_offsets():
    rows = table(b"", b"", b"", b"", partitions=[0, 0, 1, 1])
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    assert first_offsets(rows) == {zero: 100, one: 102}
    assert first_offsets(rows.slice(1)) == {zero: 101, one: 102}
    assert first_offsets(rows.slice(3)) == {one: 103}
    assert first_offsets(rows.slice(4)) == {}


@pytest.mark.parametrize(
    ("deserializer", "text"),
    [
        ("strnig", r"value\.deserializer='strnig' must be one of .*string"),
        (Json("a int"), r"needs Json\(pyarrow\.schema"),
        (str, "must be one of"),
        (7, "must be one of"),
        (lambda column: column.slice(0, 0).to_pylist(), "must return a pyarrow column.*returned list"),
        (lambda column: 1 / 0, "failed on a column without rows.*ZeroDivisionError"),
    ],
)
def test_nonsense_is_refused_before_anything_is_read(deserializer, text):
    with pytest.raises(ConfigException, match=text):
        Deserializers.of({}, None, deserializer)


def test_a_deserialiser_that_loses_rows_or_changes_its_type_is_found():
    with pytest.raises(ConfigException, match="for 2 it returned 1 rows"):
        read([b"a", b"b"], lambda column: column.slice(0, 1))
    with pytest.raises(ConfigException, match="returned a column of string, but of binary"):
        read([b"a"], lambda column: column.cast(pa.string()) if len(column) else column)


def test_records_are_frozen_views_of_rows():
    rows = table(b"a", None, keys=[None, b"k"], partitions=[0, 1])
    headers = pa.array(
        [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], []], TABLE_SCHEMA.field("headers").type
    )
    rows = rows.set_column(7, "headers", headers)
    one, two = to_records(rows)
    assert one == Record("t", 0, 100, 1_700_000_000_000, 0, None, b"a", (("h", b"1"), ("h", None)))
    assert two == Record("t", 1, 101, 1_700_000_000_001, 1, b"k", None)
    assert two.topic_partition == TopicPartition("t", 1)
    assert hash(one) != hash(two)
    with pytest.raises(AttributeError):
        one.value = b"other"
    assert to_records(rows.slice(2)) == []
    assert to_records(TABLE_SCHEMA.empty_table()) == []


def test_records_have_what_deserialisers_made():
    readers, _ = Deserializers.of({}, "long", Json(pa.schema([("a", pa.int64())])))
    got, _ = readers.read(table(b'{"a": 1}', None, keys=[None, struct.pack(">q", 9)]))
    assert [(r.key, r.value) for r in to_records(got)] == [(None, {"a": 1}), (9, None)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.int64()), [[1, 2], None]),
        (pa.timestamp("us"), [dt.datetime(2026, 1, 1, 0, 0, 0, 5), None]),  # noqa: DTZ001 - as the column's type
        (pa.timestamp("ms", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None]),
        (pa.bool_(), [True, None]),
        (pa.float64(), [1.5, None]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", None]),
        (pa.large_binary(), [b"a", None]),
        (pa.null(), [None, None]),
        (pa.date32(), [dt.date(2026, 1, 1), None]),
        (pa.list_(pa.struct([("key", pa.string())])), [[{"key": "a"}], None]),
    ],
)
@pytest.mark.parametrize("nulls", [False, True])
def test_records_have_values_of_any_type(kind, values, nulls):
    readers, _ = Deserializers.of({}, None, lambda column: pa.array(values[: len(column)], kind))
    got, _ = readers.read(table(*([b"x"] * (2 if nulls else 1))))
    assert [record.value for record in to_records(got)] == values[: got.num_rows]


def test_a_record_without_a_timestamp_has_minus_one():
    rows = table(b"a", b"b")
    at = TABLE_SCHEMA.get_field_index("timestamp")
    rows = rows.set_column(at, TABLE_SCHEMA.field(at), pa.array([None, 5], TABLE_SCHEMA.field(at).type))
    assert [record.timestamp for record in to_records(rows)] == [-1, 5]
