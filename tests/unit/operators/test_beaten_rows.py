"""What does not go through a repartition topic: rows that others of their micro-batch beat."""

import pyarrow as pa
import pytest

from sparkrelay import hidden_columns
from sparkrelay.operators.ranking.beaten_rows import BestRows
from sparkrelay.operators.ranking.row_order import RowRanking

TIME = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])
COLUMNS = ("k", "w", "price")


def best_of(count, *, ties, by=("k", "w"), event_time=None):
    return BestRows(RowRanking("n", (("price", True, False),), count, ties), by, event_time, 1000)


def rows_of(*rows, tombstones=None):
    schema = pa.schema([("k", pa.string()), ("w", pa.struct([("start", pa.int64())])), ("price", pa.int64())])
    batch = pa.RecordBatch.from_pylist([{"k": k, "w": {"start": w}, "price": price} for k, w, price in rows], schema)
    return batch if tombstones is None else batch.append_column(hidden_columns.TOMBSTONE, pa.array(tombstones))


@pytest.mark.parametrize(("count", "ties", "kept"), [(1, True, [9, 9]), (1, False, [9]), (2, False, [9, 9])])
def test_as_many_rows_of_each_key_as_are_kept_behind_it(count, ties, kept):
    rows = rows_of(("a", 1, 3), ("a", 1, 9), ("a", 2, 5), ("a", 1, 9), ("b", 1, 4))
    found = best_of(count, ties=ties)(rows).to_pylist()
    assert [row["price"] for row in found if (row["k"], row["w"]["start"]) == ("a", 1)] == kept
    assert {("a", 2, 5), ("b", 1, 4)} <= {(row["k"], row["w"]["start"], row["price"]) for row in found}


def test_tombstones_go_on_and_beat_nobody():
    rows = rows_of(("a", 1, 99), ("a", 1, 3), ("a", 1, 2), tombstones=[True, False, None])
    found = best_of(1, ties=True)(rows)
    assert found.column("price").to_pylist() == [99, 3]


def test_rows_without_a_key_are_one_key():
    rows = rows_of((None, 1, 1), (None, 1, 2), ("a", 1, 1))
    found = best_of(1, ties=True, by=("k",))(rows)
    assert found.column("price").to_pylist() == [2, 1]


def test_no_rows():
    assert best_of(1, ties=True)(rows_of()).num_rows == 0


def test_the_newest_row_of_each_key_goes_on_for_the_clock_behind_the_topic():
    far = 1 << 53
    rows = rows_of(("a", 1, 9), ("a", 1, 3), ("a", 1, 3), ("a", 1, 1), ("b", 2, 1), ("b", 2, 2))
    times = pa.array([10_000, 30_000, 30_000, far, None, None], TIME)
    rows = rows.append_column("at", times)
    found = best_of(1, ties=True, event_time="at")(rows)
    assert found.column("price").to_pylist() == [9, 3, 2], "one whose time is far ahead moves no watermark"
    windows = pa.array([{"start": 0, "end": end} for end in (10_000, 20_000, 0, 0, 0, 0)], WINDOW)
    found = best_of(1, ties=True, event_time="at")(rows.set_column(3, "at", windows))
    assert found.column("price").to_pylist() == [9, 3, 1, 2]
