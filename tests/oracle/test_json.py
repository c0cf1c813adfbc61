"""Bytes that Java's Jackson wrote behind a schema's number (`json/record.py`), beside what Python's json reads."""

import datetime as dt
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest

from sparkrelay.records.formats import JsonSchema
from sparkrelay.records.formatted import columns_to_format, declared_schema, format_to_columns

CASE = json.loads((Path(__file__).parent / "json" / "cases.jsonl").read_text())
WRITTEN = [bytes.fromhex(record) for record in CASE["written"]]
FORM = JsonSchema(CASE["schema"], schema_id=CASE["number"])
SCHEMA = declared_schema(FORM, "value")


def rows_of(records):
    columns, bad = format_to_columns(pa.array(records, pa.binary()), FORM, "value", SCHEMA)
    assert bad == []
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def expected(text):
    row = json.loads(text)
    for name in ("ratio", "small", "amount"):
        row[name] = None if row[name] is None else float(row[name])
    if row["note"] is not None:
        # A surrogate alone is no character.
        row["note"] = row["note"].encode("utf-8", "replace").decode()
    if row["counts"] is not None:
        row["counts"] = list(row["counts"].items())
    if row["at"] is not None:
        # Microseconds are what a column has.
        at, _, fraction = row["at"].removesuffix("Z").partition(".")
        micros = int(fraction.ljust(6, "0")[:6])
        row["at"] = dt.datetime.fromisoformat(at).replace(microsecond=micros, tzinfo=dt.UTC)
    if row["day"] is not None:
        row["day"] = dt.date.fromisoformat(row["day"])
    if not isinstance(row["any"], str | None):
        row["any"] = json.dumps(row["any"], separators=(",", ":"))
    return row


def same(one, other):
    return one == other or (isinstance(one, float) and isinstance(other, float) and math.isnan(one + other))


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_java_s_bytes_are_read_and_come_back(number):
    record = WRITTEN[number]
    assert record[:5] == b"\0" + CASE["number"].to_bytes(4)
    read = rows_of([record])
    (row,), wanted = read.to_pylist(), expected(record[5:])
    assert [name for name in wanted if not same(row[name], wanted[name])] == []
    assert list(row) == list(wanted)
    # What we write says the same, with our own spelling of numbers and times.
    again = rows_of(columns_to_format(read, FORM).to_pylist())
    assert [name for name, value in again.to_pylist()[0].items() if not same(value, _in_millis(row[name]))] == []


def _in_millis(value):
    """Times are written in milliseconds, as Spark's to_json does."""
    if isinstance(value, dt.datetime):
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return value


def test_all_at_once_are_what_each_is():
    assert [repr(row) for row in rows_of(WRITTEN).to_pylist()] == [
        repr(row) for record in WRITTEN for row in rows_of([record]).to_pylist()
    ]
