"""The workload of wide records: notes of 20,000 bytes, whose sums are known beforehand."""

import json
import zlib
from dataclasses import replace

import pytest
from bench.results import Totals
from bench.wide import WideWorkload

SMALL = WideWorkload(records=4_400, keys=40)


def written(workload: WideWorkload) -> list[dict]:
    return [json.loads(text) for _, _, values in workload.chunks() for text in values.to_pylist()]


def totals(records: list[dict]) -> Totals:
    found: Totals = {}
    for record in records:
        count, amount = found.get(record["user"], (0, 0.0))
        found[record["user"]] = (count + 1, amount + record["amount"])
    return found


def test_what_is_expected_is_what_is_written():
    records = written(SMALL)
    assert [record["n"] for record in records] == list(range(SMALL.records))
    assert {len(record["note"]) for record in records} == {20_000}
    assert replace(SMALL, query="passed on").expected() == totals(records)
    kept = [record for record in records if record["action"] != "view"]
    assert replace(SMALL, query="counted by user").expected() == totals(kept)


@pytest.mark.parametrize(("compressed", "least", "most"), [(False, 1.0, 1.5), (True, 15, 40)])
def test_notes_compress_as_the_topic_says(compressed, least, most):
    notes = replace(SMALL, compressed=compressed).notes().to_pylist()
    assert len(set(notes)) == len(notes)
    size = sum(len(zlib.compress(note.encode())) for note in notes[:20])
    assert least < 20 * 20_000 / size < most
