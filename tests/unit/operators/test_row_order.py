"""Ranks, and rows that others beat, beside counting what is better."""

import math
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.operators.test_first_rows import in_order

from sparkrelay.operators.ranking.row_order import RowOrder, RowRanking

FLOATS = (pa.float64(), [None, -1.0, 0.0, -0.0, 2.5, math.nan, math.inf])
INTS = (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1])
TIMES = (pa.timestamp("us", "UTC"), [-5, 0, 7])


@pytest.mark.long
@settings(max_examples=300)
@given(st.data())
def test_ranks_and_the_best_are_those_of_counting_what_is_better(data):
    kind, values = data.draw(st.sampled_from([FLOATS, INTS, TIMES]))
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(values), st.integers(1, 3)), max_size=15))
    descending, nulls_first = data.draw(st.booleans()), data.draw(st.booleans())
    count, ties = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    order = RowOrder(RowRanking("n", (("x", descending, nulls_first),), count, ties))
    table = pa.table({"x": pa.array([value for _, value, _ in rows], kind)})
    which = np.array([key for key, _, _ in rows], dtype=np.int64)

    def at(value):
        return in_order(value, descending, nulls_first)

    sorted_ = order.sort(table, which)
    counts = np.array([count for *_, count in rows], dtype=np.int64)[sorted_]
    ranks = order.ranks(table.take(pa.array(sorted_)), which[sorted_], counts)
    for index, rank in zip(sorted_, ranks, strict=True):
        better = [n for key, value, n in rows if key == rows[index][0] and at(value) < at(rows[index][1])]
        assert rank == 1 + sum(better)
    wanted = []
    for index, (key, value, _) in enumerate(rows):
        own = [(at(other), number) for number, (one, other, _) in enumerate(rows) if one == key]
        before = [other for other in own if (other[0] < at(value) if ties else other < (at(value), index))]
        if len(before) < count:
            wanted.append(index)
    assert order.best(table, which).tolist() == wanted


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.uint64(), [1, 2, 2]),
        (pa.decimal128(20, 2), [Decimal(1), Decimal(2), Decimal(2)]),
        (pa.string(), ["a", "b", "b"]),
        (pa.date32(), [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 2)]),
        (pa.bool_(), [False, True, True]),
    ],
    ids=str,
)
def test_the_best_of_other_types(kind, values):
    table = pa.table({"x": pa.array(values, kind)})
    best = RowOrder(RowRanking("n", (("x", True, False),), 1, ties=True)).best(table, np.zeros(3, dtype=np.int64))
    assert best.tolist() == [1, 2]


def test_without_an_order_all_rows_of_a_key_are_equal():
    """As where it names columns of the key alone."""
    table, which = pa.table({"k": [1, 1, 2]}), np.array([0, 0, 1])
    assert RowOrder(RowRanking("n", (), 1, ties=True)).best(table, which).tolist() == [0, 1, 2]
    assert RowOrder(RowRanking("n", (), 1)).best(table, which).tolist() == [0, 2]
