"""Bytes that Java's Avro library wrote, and what it makes of them by another schema; recorded by `avro/record.py`."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from sparkrelay.errors import SerializationException
from sparkrelay.records.avro.reader import AvroReader
from sparkrelay.records.avro.writer import columns_to_avro

CASES = [json.loads(line) for line in (Path(__file__).parent / "avro" / "cases.jsonl").read_text().splitlines()]
#: Written by unions that have no column.
SEVERAL_TYPES = {"promotion 15", "promotion 16"}


def rows_of(reader, writer, data):
    batch, bad = AvroReader(json.dumps(reader), json.dumps(writer), "value").read(pa.array([bytes.fromhex(data)]))
    batch.validate(full=True)
    return None if bad else batch.to_pylist()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_java_s_bytes_are_read_and_written(case):
    writer, reader = case["writer"], case.get("reader", case["writer"])
    for data, read in zip(case["written"], case["read"], strict=True):
        try:
            found = rows_of(reader, writer, data)
        except SerializationException:
            found = None
        assert found == (None if read is None else rows_of(reader, reader, read))
        for schema, its in ((writer, data), (reader, read)):
            if its is None:
                continue
            if case["name"] in SEVERAL_TYPES and schema is writer:
                with pytest.raises(SerializationException, match="a union of"):
                    AvroReader(json.dumps(schema), None, "value")
                continue
            batch, bad = AvroReader(json.dumps(schema), None, "value").read(pa.array([bytes.fromhex(its)]))
            assert bad == []
            assert columns_to_avro(batch, json.dumps(schema)).to_pylist() == [bytes.fromhex(its)]
