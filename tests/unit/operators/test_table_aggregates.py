"""Aggregates of a table's rows: what a group holds once rows have come and others have gone, and what is refused."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException
from sparkrelay.operators.aggregate.table_aggregates import TableAggregates
from sparkrelay.operators.table.changes import NEW, OLD
from sparkrelay.state.aggregate import AggregateSpec

PRICE = pa.decimal128(38, 2)
MOST = (1 << 63) - 1
MOST_CENTS = 10**38 - 1
SPECS = [
    AggregateSpec("sum", "n", pa.int64(), pa.int64(), subtracts=True),
    AggregateSpec("sum", "price", PRICE, PRICE, subtracts=True),
    AggregateSpec("avg", "price", PRICE, PRICE, subtracts=True),
    AggregateSpec("count", "n", pa.int64(), pa.int64()),
    AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()),
]
NOTHING = pa.array([None], pa.binary())


def decimal_of(cents):
    """Exactly, which arithmetic of Python's decimals is to 28 digits."""
    return None if cents is None else Decimal(f"{cents}e-2")


def changed(codec, old, *, new=(), gone=()):
    """Return a group's state after a batch; rows are a number and cents."""
    rows = [*((row, NEW) for row in new), *((row, OLD) for row in gone)]
    columns = {
        "k": pa.array(["g"] * len(rows)),
        "n": pa.array([n for (n, _), _ in rows], pa.int64()),
        "price": pa.array([decimal_of(cents) for (_, cents), _ in rows], PRICE),
        hidden_columns.PARTITION: pa.array([0] * len(rows), pa.int32()),
        hidden_columns.CHANGE: pa.array([change for _, change in rows], pa.int8()),
        hidden_columns.TIMESTAMP: pa.array([1] * len(rows), pa.int64()),
    }
    values, _ = codec.merge(codec.partial(pa.table(columns), [hidden_columns.PARTITION, "k"]), old)
    return values


def sums(codec, values):
    return [column[0].as_py() for column in codec.results(values)[:2]]


def test_an_average_beyond_its_type_names_the_group():
    average = AggregateSpec("avg", "price", PRICE, pa.decimal128(38, 6), "mean", subtracts=True)
    with pytest.raises(SerializationException, match=r"mean \(avg\) leaves the range of decimal.*: .*\{'k': 'g'\}"):
        changed(TableAggregates([average, *SPECS[-2:]]), NOTHING, new=[(1, MOST_CENTS)])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_that_changes_may_pass_the_range_in_between(sign):
    codec = TableAggregates(SPECS)
    before = sign * 6 * 10**18, sign * MOST_CENTS
    after = sign * 5 * 10**18, sign * (MOST_CENTS - 7)
    values = changed(codec, NOTHING, new=[before])
    values = changed(codec, values, new=[after], gone=[before])
    assert sums(codec, values) == [after[0], decimal_of(after[1])]
    # In a batch, too, where rows of a group come and go.
    values = changed(codec, values, new=[before] * 3, gone=[before, before, after])
    assert sums(codec, values) == [before[0], decimal_of(before[1])]


def test_what_leaves_the_range_in_the_end_names_its_group():
    codec = TableAggregates(SPECS)
    values = changed(codec, NOTHING, new=[(MOST, None), (None, MOST_CENTS)])
    message = r"sum\(n\) leaves the range of bigint: 9223372036854775808 in the group \{'k': 'g'\}; cast"
    with pytest.raises(SerializationException, match=message):
        changed(codec, values, new=[(1, None)])
    message = r"sum\(price\) leaves the range of decimal\(38,2\): 10+\.00 in the group \{'k': 'g'\}; cast"
    with pytest.raises(SerializationException, match=message):
        changed(codec, values, new=[(None, 1)])


NUMBERS = st.sampled_from([-MOST - 1, 1 - MOST, -5, 0, 1, MOST // 2, MOST - 1, MOST])
CENTS = st.sampled_from([-MOST_CENTS, -7, 0, 1, MOST_CENTS // 2, MOST_CENTS])
ROWS = st.tuples(st.none() | NUMBERS, st.none() | CENTS)
BATCH = st.tuples(st.lists(ROWS, max_size=3), st.sets(st.integers(0, 5), max_size=4)).filter(lambda batch: batch[0])


@given(st.lists(BATCH, max_size=6))
def test_only_what_a_group_holds_counts_and_not_the_way_to_it(batches):
    codec, values, held = TableAggregates(SPECS), NOTHING, []
    for new, going in batches:
        there = [*held, *new]
        gone = [row for place, row in enumerate(there) if place in going]
        after = [row for place, row in enumerate(there) if place not in going]
        numbers = [n for n, _ in after if n is not None]
        cents = [c for _, c in after if c is not None]
        if not -MOST - 1 <= sum(numbers) <= MOST or abs(sum(cents)) > MOST_CENTS:
            with pytest.raises(SerializationException, match="leaves the range"):
                changed(codec, values, new=new, gone=gone)
            continue
        values, held = changed(codec, values, new=new, gone=gone), after
        assert values.null_count == (not held)
        if held:
            assert sums(codec, values) == [sum(numbers) if numbers else None, decimal_of(sum(cents) if cents else None)]
