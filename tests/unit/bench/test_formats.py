"""The topics of all formats hold the same rows."""

import pyarrow as pa
import pytest
from bench.formats import NAMES, FormatWorkload, record_format
from bench.workload import NOTE

from sparkrelay.records.formatted import columns_to_format, format_to_columns


@pytest.mark.parametrize("name", NAMES)
def test_rows_come_back(name):
    form = record_format(name)
    rows = pa.record_batch({"amount": [1.25], "action": ["buy"], "n": [7], "note": [NOTE]})
    columns, bad = format_to_columns(columns_to_format(rows, form), form, "value", rows.schema)
    assert not bad
    assert pa.RecordBatch.from_pydict(columns).to_pylist() == rows.to_pylist()


def test_each_format_has_a_topic():
    assert {FormatWorkload(format=name).orders("in")["source"] for name in NAMES} == {f"in-{name}" for name in NAMES}
