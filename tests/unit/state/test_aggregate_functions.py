"""Every aggregate against a model in plain Python: in batches, as states put together, and with rows taken out."""

from __future__ import annotations

import decimal
import functools
import math
import operator
import statistics

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec

PRICE = pa.decimal128(10, 2)
POINT = pa.struct([("x", pa.int32()), ("names", pa.list_(pa.string()))])
D = decimal.Decimal

KINDS = {
    "whole": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-3, 3)),
    "double": (pa.float64(), st.floats(-1e6, 1e6).map(lambda x: round(x, 3)) | st.sampled_from([0.0, 1.0, 2.0])),
    "weight": (pa.float64(), st.sampled_from([-2.0, -1.0, 0.5, 1.0, 4.0])),
    "text": (pa.string(), st.text(max_size=3)),
    "price": (PRICE, st.decimals(-(10**8) + 1, 10**8 - 1, places=2)),
    "on": (pa.bool_(), st.booleans()),
    "point": (POINT, st.fixed_dictionaries({"x": st.none() | st.integers(0, 9),
                                            "names": st.none() | st.lists(st.text(max_size=2), max_size=2)})),
}  # fmt: skip
COLUMNS = list(KINDS)
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()})


def values(rows, column):
    return [row[column] for row in rows if row[column] is not None]


def pairs(rows):
    there = [(row["double"], row["whole"]) for row in rows if row["double"] is not None and row["whole"] is not None]
    return [(float(y), float(x)) for y, x in there]


def spread(numbers, power=2):
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((number - mean) ** power for number in numbers)


def together(rows):
    found = pairs(rows)
    my, mx = (math.fsum(column) / len(found) for column in zip(*found, strict=True))
    return math.fsum((y - my) * (x - mx) for y, x in found)


def constant(rows, place):
    return len({pair[place] for pair in pairs(rows)}) < 2


def folded(function):
    return lambda rows: functools.reduce(function, values(rows, "whole")) if values(rows, "whole") else None


def shape(power, minus):
    def model(rows):
        numbers = values(rows, "double")
        if len(set(numbers)) < 2:
            return None
        return len(numbers) ** (power / 2 - 1) * spread(numbers, power) / spread(numbers) ** (power / 2) - minus

    return model


def of_pairs(least, formula):
    return lambda rows: formula(rows, len(pairs(rows))) if len(pairs(rows)) >= least else None


def slope(rows):
    return None if constant(rows, 1) else together(rows) / spread([x for _, x in pairs(rows)])


def correlation(rows):
    if constant(rows, 0) or constant(rows, 1):
        return None
    return together(rows) / math.sqrt(spread([y for y, _ in pairs(rows)]) * spread([x for _, x in pairs(rows)]))


def intercept(rows, count):
    tilt = slope(rows)
    return None if tilt is None else (sum(y for y, _ in pairs(rows)) - tilt * sum(x for _, x in pairs(rows))) / count


def determination(rows, _):
    if constant(rows, 1):
        return None
    return 1.0 if constant(rows, 0) else correlation(rows) ** 2


def by(rows, sign, column="price"):
    there = [row for row in rows if row[column] is not None]
    order = {row[column] for row in there}
    wanted = max(order) if sign > 0 else min(order)
    return [row["point"] for row in there if row[column] == wanted][-1]


def average(prices):
    with decimal.localcontext(prec=60, rounding=decimal.ROUND_HALF_UP):
        return (sum(prices) / len(prices)).quantize(D("1e-6"))


#: name -> function, its columns, result's type, model
FUNCTIONS = {
    "sum of decimals": ("sum", ["price"], pa.decimal128(20, 2), lambda r: sum(values(r, "price"), D(0))),
    "avg of decimals": ("avg", ["price"], pa.decimal128(14, 6), lambda r: average(values(r, "price"))),
    "min of decimals": ("min", ["price"], PRICE, lambda r: min(values(r, "price"))),
    "max of decimals": ("max", ["price"], PRICE, lambda r: max(values(r, "price"))),
    "count of decimals": ("count", ["price"], pa.int64(), lambda r: len(values(r, "price"))),
    "bool_and": ("min", ["on"], pa.bool_(), lambda r: all(values(r, "on"))),
    "bool_or": ("max", ["on"], pa.bool_(), lambda r: any(values(r, "on"))),
    "bit_and": ("bit_and", ["whole"], pa.int32(), folded(operator.and_)),
    "bit_or": ("bit_or", ["whole"], pa.int32(), folded(operator.or_)),
    "bit_xor": ("bit_xor", ["whole"], pa.int32(), folded(operator.xor)),
    "product": ("product", ["weight"], pa.float64(), lambda r: math.prod(values(r, "weight"))),
    "var_pop": ("var_pop", ["double"], pa.float64(), lambda r: statistics.pvariance(values(r, "double"))),
    "stddev_pop": ("stddev_pop", ["double"], pa.float64(), lambda r: statistics.pstdev(values(r, "double"))),
    "var_samp": ("var_samp", ["double"], pa.float64(), lambda r: statistics.variance(values(r, "double"))),
    "stddev_samp": ("stddev_samp", ["double"], pa.float64(), lambda r: statistics.stdev(values(r, "double"))),
    "sum_of_squares": ("sum_of_squares", ["double"], pa.float64(), lambda r: spread(values(r, "double"))),
    "skewness": ("skewness", ["double"], pa.float64(), shape(3, 0)),
    "kurtosis": ("kurtosis", ["double"], pa.float64(), shape(4, 3)),
    "covar_pop": ("covar_pop", ["double", "whole"], pa.float64(), of_pairs(1, lambda r, n: together(r) / n)),
    "covar_samp": ("covar_samp", ["double", "whole"], pa.float64(), of_pairs(2, lambda r, n: together(r) / (n - 1))),
    "regr_sxy": ("regr_sxy", ["double", "whole"], pa.float64(), of_pairs(1, lambda r, _: together(r))),
    "corr": ("corr", ["double", "whole"], pa.float64(), of_pairs(2, lambda r, _: correlation(r))),
    "regr_slope": ("regr_slope", ["double", "whole"], pa.float64(), of_pairs(1, lambda r, _: slope(r))),
    "regr_intercept": ("regr_intercept", ["double", "whole"], pa.float64(), of_pairs(1, intercept)),
    "regr_r2": ("regr_r2", ["double", "whole"], pa.float64(), of_pairs(1, determination)),
    "first": ("first", ["text"], pa.string(), lambda r: r[0]["text"]),
    "last": ("last", ["price"], PRICE, lambda r: r[-1]["price"]),
    "first, no null": ("first_not_null", ["point"], POINT, lambda r: values(r, "point")[0]),
    "last, no null": ("last_not_null", ["text"], pa.string(), lambda r: values(r, "text")[-1]),
    "first of some": ("first", ["whole", "on"], pa.int32(), lambda r: next(x["whole"] for x in r if x["on"])),
    "last of some": ("last_not_null", ["whole", "on"], pa.int32(),
                     lambda r: [x["whole"] for x in r if x["on"] and x["whole"] is not None][-1]),
    "max_by": ("max_by", ["point", "price"], POINT, lambda r: by(r, 1)),
    "min_by": ("min_by", ["point", "price"], POINT, lambda r: by(r, -1)),
    "max_by text": ("max_by", ["point", "text"], POINT, lambda r: by(r, 1, "text")),
    "min_by double": ("min_by", ["point", "double"], POINT, lambda r: by(r, -1, "double")),
}  # fmt: skip
SPECS = [
    AggregateSpec(function, columns[0], KINDS[columns[0]][0], result, name,
                  tuple((column, KINDS[column][0]) for column in columns[1:]))
    for name, (function, columns, result, _) in FUNCTIONS.items()
]  # fmt: skip
CODEC = AggregateCodec(SPECS)
SUBTRACTING = AggregateCodec(
    [AggregateSpec("count_all", None, pa.int64(), pa.int64())]
    + [AggregateSpec("sum", "whole", pa.int32(), pa.int64(), subtracts=True)]
    + [AggregateSpec("sum", "price", PRICE, pa.decimal128(20, 2), subtracts=True)]
    + [spec for spec, aggregate in zip(SPECS, CODEC.aggregates, strict=True) if aggregate.subtracts and
       spec.function != "sum"]
)  # fmt: skip


def table(rows):
    return pa.table({"key": [0] * len(rows), **{
        name: pa.array([row[name] for row in rows], kind) for name, (kind, _) in KINDS.items()
    }})  # fmt: skip


#: What models raise of too few rows.
TOO_FEW = (ValueError, IndexError, StopIteration, ZeroDivisionError, decimal.InvalidOperation)


def model(rows):
    """Return the results by name; null where there are too few values."""

    def result(function):
        try:
            return function(rows)
        except TOO_FEW:
            return None

    return {name: None if name in EMPTY_IS_NULL and not values(rows, columns[0]) else result(function)
            for name, (_, columns, _, function) in FUNCTIONS.items()}  # fmt: skip


EMPTY_IS_NULL = {"sum of decimals", "bool_and", "bool_or", "product"}
#: In what near equality of doubles is measured: the numbers that go in are up to 2e9, their squares 5e18.
ROUGH = {"skewness", "kurtosis", "corr", "regr_r2", "regr_slope", "regr_intercept"}


def assert_same(found, wanted, rows):
    scale = max([1.0, *(abs(float(v)) for name in ("double", "whole") for v in values(rows, name))])
    for name, value in wanted.items():
        got = found[name]
        if not isinstance(value, float) or got is None:
            assert (got, type(got)) == (value, type(value)), (name, rows)
        elif name in ROUGH:
            assert math.isclose(got, value, rel_tol=1e-3, abs_tol=1e-3), (name, got, value, rows)
        else:
            assert math.isclose(got, value, rel_tol=1e-9, abs_tol=1e-9 * scale**2), (name, got, value, rows)


def state_of(codec, rows):
    (state,) = codec.states(codec.partial(table(rows), ["key"])).to_pylist() or [None]
    return pa.array([state], pa.binary())


def shown(codec, states):
    names = [spec.result or str(spec) for spec in codec.specs]
    return {name: column[0].as_py() for name, column in zip(names, codec.results(states), strict=True)}


def well_conditioned(rows):
    """Leave out pairs of which one column hardly differs beside its size: no formula has a slope of those."""
    for column in ("double", "whole"):
        numbers = [float(number) for number in values(rows, column)]
        for wanted in (numbers, [pair[column == "whole"] for pair in pairs(rows)]):
            if len(set(wanted)) > 1 and statistics.pstdev(wanted) < 1e-4 * max(map(abs, wanted)):
                return False
    return True


@pytest.mark.long
@settings(max_examples=examples(150))
@given(batches=st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=4))
def test_batches_and_states_put_together_give_what_all_rows_do(batches):
    rows = [row for batch in batches for row in batch]
    if not rows or not well_conditioned(rows):
        return
    merged, joined = pa.array([None], pa.binary()), pa.array([None], pa.binary())
    for batch in batches:
        joined = CODEC.combine(joined, state_of(CODEC, batch))
        if batch:
            merged, results = CODEC.merge(CODEC.partial(table(batch), ["key"]), merged)
    assert [column.type for column in results] == [spec.result_type for spec in SPECS]
    for states in (merged, joined):
        assert_same(shown(CODEC, states), model(rows), rows)


@settings(max_examples=examples(100))
@given(kept=st.lists(ROW, max_size=5), gone=st.lists(ROW, max_size=5))
def test_rows_taken_out_again_leave_what_the_others_give(kept, gone):
    if not all(map(well_conditioned, (kept, gone, [*kept, *gone]))):
        return
    left = SUBTRACTING.subtract(state_of(SUBTRACTING, [*kept, *gone]), state_of(SUBTRACTING, gone))
    if left[0].as_py() is None:
        assert not kept
        return
    found = shown(SUBTRACTING, left)
    wanted = {name: value for name, value in model(kept).items() if name in found and name not in ROUGH}
    assert_same(found, wanted, [*kept, *gone])
    assert found["count_all(*)"] == len(kept)
    assert found["sum(whole)"] == (sum(values(kept, "whole")) if values(kept, "whole") else None)
    assert found["sum(price)"] == (sum(values(kept, "price"), D(0)) if values(kept, "price") else None)


def test_groups_are_kept_apart():
    rest = {"weight": 1.0, "point": None}
    rows = [
        {"double": float(n), "whole": n * n % 7, "text": str(n), "price": D(n), "on": n > 3, **rest} for n in range(20)
    ]
    rows = table(rows).set_column(0, "key", pa.array([n % 3 for n in range(20)]))
    chunked = pa.concat_tables([rows.slice(0, 7), rows.slice(7)])
    together = CODEC.partial(chunked, ["key"])
    states = dict(zip(together.column("key").to_pylist(), CODEC.states(together).to_pylist(), strict=True))
    for key in range(3):
        own = chunked.filter(pa.array([n % 3 == key for n in range(20)]))
        (alone,) = CODEC.states(CODEC.partial(own, ["key"])).to_pylist()
        assert states[key] == alone


def test_no_state_stays_none():
    none = pa.nulls(2, pa.binary())
    assert CODEC.combine(none, none).null_count == 2
    assert SUBTRACTING.subtract(none, none).null_count == 2
    assert shown(CODEC, none)["count of decimals"] == 0
    assert {name for name, value in shown(CODEC, none).items() if value is not None} == {"count of decimals"}


@pytest.mark.parametrize("function", ["min", "max_by", "first", "bit_or", "product", "sum"])
def test_what_cannot_take_rows_out_says_so(function):
    others = (("y", pa.int64()),) if function == "max_by" else ()
    codec = AggregateCodec([AggregateSpec(function, "x", pa.int64(), pa.int64(), others=others)])
    assert codec.subtracts is (function == "sum")
    with pytest.raises(TopologyException, match="cannot subtract a row"):
        codec.subtract(pa.nulls(1, pa.binary()), pa.nulls(1, pa.binary()))


def test_a_sum_of_decimals_beyond_its_precision_names_the_group():
    kind = pa.decimal128(38, 2)
    codec = AggregateCodec([AggregateSpec("sum", "x", kind, kind, "total")])
    most = D(10**36 - 1)
    rows = pa.table({"key": ["a", "a"], "x": pa.array([most, most], kind)})
    with pytest.raises(SerializationException, match=r"total \(sum\) leaves the range of decimal.*: .*\{'key': 'a'\}"):
        codec.partial(rows, ["key"])
    state, _ = codec.merge(codec.partial(rows.slice(1), ["key"]), pa.nulls(1, pa.binary()))
    with pytest.raises(SerializationException, match=r"total \(sum\) leaves the range of decimal.*: .*\{'key': 'a'\}"):
        codec.merge(codec.partial(rows.slice(1), ["key"]), state)


def test_an_average_of_decimals_beyond_its_precision_names_the_group():
    """Spark gives it four digits more behind the point, and they are taken from those in front of it."""
    kind, result = pa.decimal128(38, 2), pa.decimal128(38, 6)
    codec = AggregateCodec([AggregateSpec("avg", "x", kind, result, "mean")])
    rows = pa.table({"key": ["a", "b"], "x": pa.array([D(1), D(-(10**32))], kind)})
    partial = codec.partial(rows, ["key"])
    with pytest.raises(SerializationException, match=r"mean \(avg\) leaves the range of decimal.*: .*\{'key': 'b'\}"):
        codec.merge(partial, pa.nulls(2, pa.binary()))
    rows = pa.table({"key": ["a"], "x": pa.array([D(10**32 - 1)], kind)})
    assert codec.merge(codec.partial(rows, ["key"]), pa.nulls(1, pa.binary()))[1][0].to_pylist() == [10**32 - 1]


def test_doubles_that_are_no_numbers_go_through():
    codec = AggregateCodec(
        [AggregateSpec(f, "x", pa.float64(), pa.float64()) for f in ("var_pop", "product", "max")]
        + [
            AggregateSpec(f, "x", pa.float64(), pa.float64(), others=(("x", pa.float64()),))
            for f in ("max_by", "min_by")
        ]
    )
    rows = pa.table({"key": [0, 0, 0], "x": [1.0, math.nan, math.inf]})
    _, results = codec.merge(codec.partial(rows, ["key"]), pa.nulls(1, pa.binary()))
    variance, product, largest, by_largest, by_smallest = (column[0].as_py() for column in results)
    assert all(map(math.isnan, (variance, product, largest, by_largest)))
    assert by_smallest == 1.0


def test_variances_are_of_values_far_from_zero_too():
    codec = AggregateCodec([AggregateSpec("var_pop", "x", pa.float64(), pa.float64())])
    numbers = 1e9 + np.arange(1000.0)
    state = pa.nulls(1, pa.binary())
    for part in np.array_split(numbers, 13):
        state, (result,) = codec.merge(codec.partial(pa.table({"key": [0] * len(part), "x": part}), ["key"]), state)
    assert result[0].as_py() == pytest.approx(np.var(np.arange(1000.0)), rel=1e-12)


@pytest.mark.parametrize("value", [0.1, 19.99, -1e-7, 1e300])
def test_equal_values_have_no_variance_and_no_slope(value):
    """Spark's null, or 0, must not become a number that is made of the digits which a sum has lost."""
    double = pa.float64()
    alone = ["var_pop", "stddev_samp", "skewness", "kurtosis"]
    pairs = ["covar_pop", "corr", "regr_slope", "regr_intercept", "regr_r2"]
    codec = AggregateCodec(
        [AggregateSpec(f, "x", double, double) for f in alone]
        + [AggregateSpec(f, "y", double, double, others=(("x", double),)) for f in pairs]
    )
    for count in (3, 7, 10):
        rows = pa.table({"key": [0] * count, "x": [value] * count, "y": [float(n) for n in range(count)]})
        state = pa.nulls(1, pa.binary())
        for part in (rows, rows, rows.slice(1)):
            state, results = codec.merge(codec.partial(part, ["key"]), state)
            found = [column[0].as_py() for column in results]
            assert found == [0.0, 0.0, None, None, 0.0, None, None, None, None], (count, found)
