"""How much one `poll` returns: records, bytes, and what a column can hold."""

from __future__ import annotations

import pytest
from tests.unit.consumer.fetched_data import T0, T1, joined, positions, records, rows

from sparkrelay.consumer.fetch import fetch_buffer
from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.errors import CorruptRecordException
from sparkrelay.records.batches import decode as decoder
from sparkrelay.types import TopicPartition


def test_bytes_are_limited_but_one_row_always_comes(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a" * 10, "b" * 10, "c" * 10]))], 0.0)
    assert len(rows(buffering.collect(100, 25))) == 2
    assert len(rows(buffering.collect(100, 1))) == 1
    assert rows(buffering.collect(100, 1)) == []


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_limits_are_kept_exactly_within_and_across_responses(buffering, compression, monkeypatch):
    monkeypatch.setattr(fetch_buffer, "_ROWS_AT_ONCE", 7)
    values = [str(i % 10) * (i % 13) for i in range(60)]
    parts = [records(values[i : i + 10], i, compression=compression) for i in range(0, 60, 10)]
    buffering.fetched([Fetched(T0, 0, joined(*parts[:3]))], 0.0, 1)
    buffering.fetched([Fetched(T0, 30, joined(*parts[3:]))], 0.0, 1)
    seen = []
    while table := rows(buffering.collect(9, 40)):
        sizes = [len(value) for _, _, value in table]
        at = len(seen)
        assert len(table) <= 9
        assert sum(sizes) <= 40
        following = values[at + len(table) : at + len(table) + 1]
        assert len(table) == 9 or not following or sum(sizes) + len(following[0]) > 40
        seen += [value.decode() for _, _, value in table]
    assert seen == values


def test_a_record_larger_than_the_limit_comes_alone(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a", "b" * 100, "c"]))], 0.0, 1)
    assert [len(rows(buffering.collect(10, 50))) for _ in range(3)] == [1, 1, 1]


def test_each_record_is_decoded_once_however_few_are_taken(buffering, monkeypatch):
    """KAFKA-20535."""
    calls = []
    real = decoder.decode
    monkeypatch.setattr(decoder, "decode", lambda *args, **more: calls.append(1) or real(*args, **more))
    buffering.fetched([Fetched(T0, 0, records(["v"] * 5_000))], 0.0, 1)
    count = 0
    while buffering.collect(1, None).num_rows:
        count += 1
    assert count == 5_000
    assert len(calls) == 1


def test_topic_and_partition_columns_are_right_for_any_number_of_rows(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a"] * 3)), Fetched(T1, 0, records(["x"] * 3_000))], 0.0, 1)
    table = buffering.collect(10_000, None)
    table.validate(full=True)
    assert table.column("partition").to_pylist() == [0] * 3 + [1] * 3_000
    assert table.column("topic").unique().to_pylist() == ["t"]
    buffering.subscription.assign_by_hand([TopicPartition("t", p) for p in range(200)])
    for number in range(200):
        partition = TopicPartition("t", number)
        buffering.subscription.seek(partition, 0)
        buffering.fetched([Fetched(partition, 0, records(["a"]))], 0.0, 1)
        assert rows(buffering.collect(10, None)) == [(number, 0, b"a")]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_batch_that_no_column_can_hold_comes_in_parts(buffering, monkeypatch, compression):
    monkeypatch.setattr(decoder, "_BINARY_LIMIT", 100)
    monkeypatch.setattr(fetch_buffer, "_MOST_COLUMN_BYTES", 100)
    values = [str(i) * 30 for i in range(10)]
    buffering.fetched([Fetched(T0, 0, records(values, compression=compression))], 0.0)
    found = []
    while table := rows(buffering.collect(100, None)):
        found += table
    assert found == [(0, i, value.encode()) for i, value in enumerate(values)]


def test_a_record_that_no_column_can_hold_is_an_error_that_names_it(buffering, monkeypatch):
    monkeypatch.setattr(decoder, "_BINARY_LIMIT", 100)
    monkeypatch.setattr(fetch_buffer, "_MOST_COLUMN_BYTES", 100)
    buffering.fetched([Fetched(T0, 0, records(["a", "b" * 101]))], 0.0)
    assert rows(buffering.collect(100, None)) == [(0, 0, b"a")]
    with pytest.raises(CorruptRecordException, match="t-0: the record at offset 1 is larger than"):
        buffering.collect(100, None)
    assert positions(buffering.subscription)[T0] == 1
