"""The first rows of each key, beside sorting all there have been."""

import math

import pyarrow as pa
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from sparkrelay import hidden_columns
from sparkrelay.operators.ranking.first_rows import FirstRows
from sparkrelay.operators.ranking.row_order import RowRanking

ROW = pa.schema([("price", pa.float64()), ("id", pa.int64())])
SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int32()), *ROW, (hidden_columns.TIMESTAMP, pa.int64())])

PRICES = st.sampled_from([None, -1.0, 0.0, -0.0, 2.5, math.nan, math.inf])
ROWS = st.lists(st.tuples(st.sampled_from("ab"), PRICES), max_size=12)


def in_order(price, descending, nulls_first):
    null = (price is None) != nulls_first
    if price is None:
        return (null, 0, 0.0)
    number = (math.isnan(price), 0.0 if math.isnan(price) else price)
    return (null, *(((-number[0]), -number[1]) if descending else number))


@settings(max_examples=examples(300))
@given(st.lists(ROWS, max_size=5), st.integers(1, 4), st.booleans(), st.booleans())
def test_places_are_those_of_all_rows_in_order(batches, count, descending, nulls_first):
    codec = FirstRows(ROW, RowRanking("n", (("price", descending, nulls_first),), count))
    store, seen, number = {}, {}, 0
    for batch in batches:
        rows = []
        for key, price in batch:
            rows.append({"key": key, "n": 1, "price": price, "id": number, hidden_columns.TIMESTAMP: number})
            seen.setdefault(key, []).append((price, number))
            number += 1
        partial = codec.partial(pa.Table.from_pylist(rows, SCHEMA), ["key", "n"])
        slots = list(zip(partial.column("key").to_pylist(), partial.column("n").to_pylist(), strict=True))
        old = pa.array([store.get(slot) for slot in slots], pa.binary())
        new, results = codec.merge(partial, old)
        assert results[-2].true_count == 0
        for slot, before, after, changed in zip(
            slots, old.to_pylist(), new.to_pylist(), results[-1].to_pylist(), strict=True
        ):
            assert changed == (before != after)
            assert after is not None or before is None
            if after is not None:
                store[slot] = after
        assert sorted(slots) == sorted((key, n) for key in {key for key, _ in batch} for n in range(1, count + 1))
    for key, rows in seen.items():
        wanted = sorted(rows, key=lambda row: (*in_order(row[0], descending, nulls_first), row[1]))[:count]
        values = pa.array([store[key, n] for n in range(1, len(wanted) + 1)], pa.binary())
        assert (key, len(wanted) + 1) not in store
        prices, ids, times = codec.results(values)
        assert ids.to_pylist() == times.to_pylist() == [row[1] for row in wanted]
        assert str(prices.to_pylist()) == str([row[0] for row in wanted])
