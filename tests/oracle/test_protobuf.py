"""Bytes that Java's Protobuf library wrote; recorded by `protobuf/record.py`."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf import text_format
from tests.unit.records.test_protobuf import ORDER

from sparkrelay.records.formats import Protobuf
from sparkrelay.records.formatted import columns_to_format, declared_schema, format_to_columns

(CASE,) = map(json.loads, (Path(__file__).parent / "protobuf" / "cases.jsonl").read_text().splitlines())
FORM = Protobuf(CASE["files"], CASE["message"])
SCHEMA = declared_schema(FORM, "value")


def rows_of(data):
    columns, bad = format_to_columns(pa.array([data], pa.binary()), FORM, "value", SCHEMA)
    assert bad == []
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


@pytest.mark.parametrize("number", range(len(CASE["texts"])))
def test_java_s_bytes_are_read_and_written(number):
    data = bytes.fromhex(CASE["written"][number])
    message = text_format.Parse(CASE["texts"][number], ORDER())
    read = rows_of(data)
    assert read.to_pylist() == rows_of(message.SerializeToString()).to_pylist()
    (row,) = read.to_pylist()
    assert (row["id"], row["user"]) == (message.id, message.user if message.HasField("user") else None)
    assert [item["n"] for item in row["items"]] == [item.n for item in message.items]
    (written,) = columns_to_format(read, FORM).to_pylist()
    assert ORDER.FromString(written) == message
    if len(message.counts) < 2:
        # Entries of a map have no order.
        assert written == data
