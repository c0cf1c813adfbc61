"""Running aggregates against a model in plain Python, over several batches."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import sys
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.errors import SerializationException, StoreCorruptedException, TopologyException
from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec

MAX = (1 << 63) - 1
MIN = -(1 << 63)
EPSILON = sys.float_info.epsilon
SMALLEST = math.ulp(0.0)

CASES = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "int64": (pa.int64(), st.integers(-(1 << 60), 1 << 60) | st.integers(-10, 10)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats(-1e300, 1e300) | st.sampled_from([math.inf, -math.inf, math.nan])),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "duration": (pa.duration("us"), st.timedeltas(dt.timedelta(days=-9), dt.timedelta(days=9))),
    "string": (pa.string(), st.text(max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
}
NUMBERS = {"int8", "int32", "int64", "float32", "float64"}


def specs_for(name):
    kind, _ = CASES[name]
    specs = [AggregateSpec("count_all", None, pa.int64(), pa.int64()), AggregateSpec("count", "x", kind, pa.int64())]
    if name in NUMBERS:
        total = pa.int64() if pa.types.is_integer(kind) else pa.float64()
        specs += [AggregateSpec("sum", "x", kind, total), AggregateSpec("avg", "x", kind, pa.float64())]
    return [*specs, AggregateSpec("min", "x", kind, kind), AggregateSpec("max", "x", kind, kind)]


def greater(value):
    """Spark's order: NaN after everything, strings by their bytes."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value.encode() if isinstance(value, str) else value


def expected(name, values):
    there = [value for value in values if value is not None]
    row = [len(values), len(there)]
    if name in NUMBERS:
        row += [Rounded(there, 1), Rounded(there, len(there))] if there else [None, None]
    return [*row, min(there, key=greater, default=None), max(there, key=greater, default=None)]


class Rounded:
    """The sum of some numbers over a divisor: exact for integers, else as near as any order of adding doubles gets.

    Where summands cancel, that is near on the scale of the summands, not of the result.
    """

    def __init__(self, numbers, divisor):
        self.numbers = numbers
        self.divisor = divisor

    def __repr__(self):
        return f"Rounded({self.numbers}, {self.divisor})"

    def equals(self, value):
        if not all(map(math.isfinite, self.numbers)):
            return same(value, sum(self.numbers))
        exact = sum(map(Fraction, self.numbers)) / self.divisor
        if isinstance(value, int):
            return value == exact
        slack = len(self.numbers) * Fraction(EPSILON) * sum(abs(Fraction(n)) for n in self.numbers) / self.divisor
        return abs(Fraction(value) - exact) <= slack + Fraction(SMALLEST)


def same(left, right):
    if isinstance(right, Rounded):
        return left is not None and right.equals(left)
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return left == right and (left is None) == (right is None)


class Groups:
    """What a store would hold."""

    def __init__(self, specs):
        self.codec = AggregateCodec(specs)
        self.states = {}

    def add(self, kind, rows):
        keys = pa.array([key for key, _ in rows], pa.string())
        table = pa.table({"key": keys, "x": pa.array([value for _, value in rows], kind)})
        partial = self.codec.partial(table, ["key"])
        names = partial.column("key").to_pylist()
        assert len(set(names)) == len(names)
        new, results = self.codec.merge(partial, pa.array([self.states.get(name) for name in names], pa.binary()))
        self.states.update(zip(names, new.to_pylist(), strict=True))
        return dict(zip(names, zip(*(column.to_pylist() for column in results), strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40)
@given(data=st.data())
def test_batches_merge_to_what_all_rows_give(name, data):
    kind, values = CASES[name]
    row = st.tuples(st.sampled_from(["a", "b", "", "ü"]), st.none() | values)
    batches = data.draw(st.lists(st.lists(row, max_size=8), min_size=1, max_size=4))
    specs = specs_for(name)
    groups = Groups(specs)
    seen = {}
    for batch in batches:
        for key, value in batch:
            seen.setdefault(key, []).append(value)
        emitted = groups.add(kind, batch)
        assert set(emitted) == {key for key, _ in batch}
        for key, row in emitted.items():
            exact = pa.array(seen[key], kind).to_pylist()
            assert all(map(same, row, expected(name, exact))), (key, row, expected(name, exact))
    keys = list(groups.states)
    stored = groups.codec.results(pa.array([groups.states[key] for key in keys], pa.binary()))
    assert [column.type for column in stored] == [spec.result_type for spec in specs]
    for key, row in zip(keys, zip(*(column.to_pylist() for column in stored), strict=True), strict=True):
        assert all(map(same, row, expected(name, pa.array(seen[key], kind).to_pylist())))


def test_state_has_the_documented_bytes():
    codec = AggregateCodec(
        [
            AggregateSpec("count", "x", pa.int32(), pa.int64()),
            AggregateSpec("sum", "x", pa.int32(), pa.int64()),
            AggregateSpec("max", "x", pa.int32(), pa.int32()),
        ]
    )
    partial = codec.partial(pa.table({"k": ["a"], "x": pa.array([-2], pa.int32())}), ["k"])
    (state,) = codec.merge(partial, pa.array([None], pa.binary()))[0].to_pylist()
    assert state.hex() == "01" + "07" + "0100000000000000" + "feffffffffffffff" + "feffffff"
    codec = AggregateCodec([AggregateSpec("min", "x", pa.string(), pa.string())])
    partial = codec.partial(pa.table({"k": ["a"], "x": ["xyz"]}), ["k"])
    (state,) = codec.merge(partial, pa.array([None], pa.binary()))[0].to_pylist()
    assert state.hex() == "02" + "01" + "03000000" + b"xyz".hex()


def test_several_keys_and_a_null_key_make_groups():
    codec = AggregateCodec([AggregateSpec("count_all", None, pa.int64(), pa.int64())])
    table = pa.table({"k": ["a", "a", None, "a"], "n": [1, 2, 1, 1]})
    partial = codec.partial(table, ["k", "n"])
    _, (counts,) = codec.merge(partial, pa.nulls(3, pa.binary()))
    rows = zip(partial["k"].to_pylist(), partial["n"].to_pylist(), counts.to_pylist(), strict=True)
    assert list(rows) == [("a", 1, 2), ("a", 2, 1), (None, 1, 1)]


def test_more_than_eight_fields_need_a_longer_bitmap():
    specs = [AggregateSpec("max", f"x{i}", pa.int32(), pa.int32()) for i in range(19)]
    codec = AggregateCodec(specs)
    values = [None if i % 3 else i for i in range(19)]
    table = pa.table({"k": ["a"], **{f"x{i}": pa.array([value], pa.int32()) for i, value in enumerate(values)}})
    new, _ = codec.merge(codec.partial(table, ["k"]), pa.array([None], pa.binary()))
    assert [column[0].as_py() for column in codec.results(new)] == values
    assert len(new[0].as_py()) == 1 + 3 + 19 * 4


def sum_groups(kind=None):
    return Groups([AggregateSpec("sum", "x", kind or pa.int64(), pa.int64())])


def test_a_sum_may_reach_the_ends_of_bigint():
    groups = sum_groups()
    assert groups.add(pa.int64(), [("a", MAX), ("b", MIN)]) == {"a": (MAX,), "b": (MIN,)}
    # The way through a batch may lead outside as long as the batch's own sum does not.
    assert groups.add(pa.int64(), [("c", MAX), ("c", MAX), ("c", MIN)]) == {"c": (MAX - 1,)}


def test_a_sum_beyond_bigint_within_a_batch_names_the_group():
    with pytest.raises(SerializationException, match=r"sum\(x\) leaves the range of bigint: .*\{'key': 'b'\}; cast"):
        sum_groups().add(pa.int64(), [("a", 1), ("b", MAX), ("b", 1)])


def test_an_overflow_names_the_column_of_the_result():
    """The argument may be an expression, whose column is our own."""
    groups = Groups([AggregateSpec("sum", "x", pa.int64(), pa.int64(), "total")])
    with pytest.raises(SerializationException, match=r"^total \(sum\) leaves the range of bigint"):
        groups.add(pa.int64(), [("a", MAX), ("a", 1)])


def test_a_sum_beyond_bigint_with_the_state_names_the_group():
    groups = sum_groups()
    groups.add(pa.int64(), [("a", MIN)])
    with pytest.raises(SerializationException, match=r"-1 in the group \{'key': 'a'\}"):
        groups.add(pa.int64(), [("a", -1)])


def test_avg_of_large_whole_numbers_is_a_double():
    groups = Groups([AggregateSpec("avg", "x", pa.int64(), pa.float64())])
    assert groups.add(pa.int64(), [("a", MAX), ("a", MAX)]) == {"a": (float(MAX),)}


def test_nan_is_greater_than_any_number():
    groups = Groups(specs_for("float64"))
    assert groups.add(pa.float64(), [("a", math.nan), ("a", math.inf)])["a"][-2] == math.inf
    row = groups.add(pa.float64(), [("b", math.nan)])["b"]
    assert math.isnan(row[-1])
    assert math.isnan(row[-2])
    assert groups.add(pa.float64(), [("b", 1.0)])["b"][-2] == 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", ["sum", "avg"])
def test_sums_of_infinities_and_beyond_a_double_warn_of_nothing(function):
    groups = Groups([AggregateSpec(function, "x", pa.float64(), pa.float64())])
    groups.add(pa.float64(), [("a", math.inf), ("b", 1.7e308)])
    assert groups.add(pa.float64(), [("b", 1.7e308)])["b"] == (math.inf,)
    assert math.isnan(groups.add(pa.float64(), [("a", -math.inf)])["a"][0])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(10, 2), decimal.Decimal("1.50")),
        (pa.struct([("a", pa.int32())]), {"a": None}),
        (pa.list_(pa.string()), []),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
    ],
)
def test_values_of_any_type_are_counted(kind, value):
    groups = Groups([AggregateSpec("count", "x", kind, pa.int64())])
    assert groups.add(kind, [("a", value), ("a", None), ("b", None)]) == {"a": (1,), "b": (0,)}


def test_what_does_not_add_up_is_refused():
    with pytest.raises(TopologyException, match=r"sum\(x\): string does not add up"):
        AggregateCodec([AggregateSpec("sum", "x", pa.string(), pa.int64())])
    with pytest.raises(TopologyException, match=r"max\(x\): values of list"):
        AggregateCodec([AggregateSpec("max", "x", pa.list_(pa.int64()), pa.list_(pa.int64()))])
    with pytest.raises(TopologyException, match=r"median\(x\)"):
        AggregateCodec([AggregateSpec("median", "x", pa.int64(), pa.int64())])


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
@pytest.mark.parametrize("state", [b"", b"\x01", b"\x07" + bytes(9), b"\x02\x01\xff\xff\xff\xff"])
def test_states_of_another_form_are_refused(kind, state):
    codec = AggregateCodec([AggregateSpec("max", "x", kind, kind)])
    with pytest.raises(StoreCorruptedException, match="do not have the form of its aggregates"):
        codec.results(pa.array([state], pa.binary()))


def test_slices_and_chunks_are_read_right():
    codec = AggregateCodec([AggregateSpec("max", "x", pa.string(), pa.string())])
    one = pa.table({"k": ["z", "a"], "x": ["q", "long one"]}).slice(1)
    table = pa.concat_tables([one, pa.table({"k": ["b", "a"], "x": [None, "m"]})])
    partial = codec.partial(table, ["k"])
    old = pa.array([b"junk", None, b"\x02\x01\x01\x00\x00\x00c"], pa.binary()).slice(1)
    new, (result,) = codec.merge(partial, old)
    assert result.to_pylist() == ["m", "c"]
    assert codec.results(new.slice(1))[0].to_pylist() == ["c"]
