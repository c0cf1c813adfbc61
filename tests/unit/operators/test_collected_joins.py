"""A stream's rows joined with those of a DataFrame, beside a join that is written down row by row."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay import hidden_columns
from sparkrelay.operators.collected_join import run as collected_joins
from sparkrelay.operators.collected_join.run import CollectedIndex, CollectedJoinRunner, join_rows

KINDS = {
    pa.string(): st.sampled_from([None, "", "a", "b", "a\0", "\0a", "ab"]),
    pa.binary(): st.sampled_from([None, b"", b"\0", b"\0\0", b"x"]),
    pa.int32(): st.sampled_from([None, 0, 1, -1, 256]),
    pa.int64(): st.sampled_from([None, 0, 1, 1 << 40]),
    pa.float64(): st.sampled_from([None, 0.0, -0.0, math.nan, -math.nan, 1.5, math.inf]),
    pa.bool_(): st.sampled_from([None, True, False]),
}


class Broadcast:
    def __init__(self, table):
        self.asked = 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        self.data = sink.getvalue().to_pybytes()

    @property
    def value(self):
        self.asked += 1
        return self.data


def spec_of(rows, table, keys, how="inner", **more):
    given = table.column_names[keys:]
    output = pa.schema([*rows.schema, *(table.schema.field(name) for name in given)])
    names = {"keys": tuple(rows.schema.names[:keys]), "given": tuple(given)}
    facts = {"frame": 1, "version": b"1", "rows": Broadcast(table), "tombstones_pass": False, "output": output}
    return CollectedJoinRunner(**{**facts, **names, "how": how, **more})


def joined(spec, table, rows):
    return pa.Table.from_batches(
        join_rows(spec, CollectedIndex(table, len(spec.keys)), rows), schema=spec.output
    ).to_pylist()


def normal(key):
    return tuple(
        ("nan",) if isinstance(v, float) and math.isnan(v) else v + 0.0 if isinstance(v, float) else v for v in key
    )


@given(
    data=st.data(),
    kinds=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=2),
    how=st.sampled_from(["inner", "left"]),
)
def test_it_is_the_join_of_sql_in_the_order_of_both_sides(data, kinds, how):
    draw_key = st.tuples(*(KINDS[kind] for kind in kinds))
    left, right = data.draw(st.lists(draw_key, max_size=12)), data.draw(st.lists(draw_key, max_size=12))
    rows = pa.record_batch(
        [*(pa.array([key[i] for key in left], kind) for i, kind in enumerate(kinds)), pa.array(range(len(left)))],
        names=[*(f"k{i}" for i in range(len(kinds))), "n"],
    )
    table = pa.table(
        [*(pa.array([key[i] for key in right], kind) for i, kind in enumerate(kinds)), pa.array(range(len(right)))],
        names=[*(f"k{i}" for i in range(len(kinds))), "m"],
    )
    expected = []
    for n, key in enumerate(left):
        found = [m for m, other in enumerate(right) if None not in key and normal(key) == normal(other)]
        expected += [(n, m) for m in found or ([None] if how == "left" else [])]
    result = joined(spec_of(rows, table, len(kinds), how), table, rows)
    assert [(row["n"], row["m"]) for row in result] == expected


def test_keys_of_one_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(collected_joins, "_HASHES", 3)
    keys = [f"k{i}" for i in range(50)]
    table = pa.table({"k": keys * 2, "m": list(range(100))})
    rows = pa.record_batch({"k": [*keys[::-1], "none", None], "n": list(range(52))})
    result = joined(spec_of(rows, table, 1), table, rows)
    assert [(row["n"], row["m"]) for row in result] == [(n, m) for n in range(50) for m in (49 - n, 99 - n)]


def test_a_batch_is_cut_where_it_would_become_too_large(monkeypatch):
    table = pa.table({"k": ["a"] * 10 + ["b"], "m": ["x" * 100] * 11})
    rows = pa.record_batch({"k": ["a", "b", None, "a"], "n": [0, 1, 2, 3]})
    spec = spec_of(rows, table, 1, "left")
    (whole,) = join_rows(spec, CollectedIndex(table, 1), rows)
    for name, most in (("_MOST_BYTES", 300), ("_MOST_ROWS", 4)):
        with monkeypatch.context() as patch:
            patch.setattr(collected_joins, name, most)
            pieces = list(join_rows(spec, CollectedIndex(table, 1), rows))
        assert len(pieces) > 2
        assert pa.Table.from_batches(pieces).to_pylist() == whole.to_pylist()


def test_columns_that_nest_others_come_along():
    kinds = pa.struct([("x", pa.list_(pa.int64()))])
    table = pa.table({"k": pa.array([1, 2]), "m": pa.array([{"x": [1, 2]}, None], kinds)})
    rows = pa.record_batch({"k": [2, 1, 1]})
    assert [row["m"] for row in joined(spec_of(rows, table, 1), table, rows)] == [None, {"x": [1, 2]}, {"x": [1, 2]}]


def test_a_deletion_goes_on_to_a_table_whatever_it_finds():
    table = pa.table({"k": ["a"], "m": [1]})
    rows = pa.record_batch({"k": ["a", None, "b", "a"], hidden_columns.TOMBSTONE: [False, True, False, None]})
    result = joined(spec_of(rows, table, 1, tombstones_pass=True), table, rows)
    assert [(row["k"], row["m"]) for row in result] == [("a", 1), (None, None), ("a", 1)]
    assert len(joined(spec_of(rows, table, 1), table, rows)) == 2


def test_a_worker_keeps_one_version_of_a_dataframe():
    rows = pa.record_batch({"k": ["a"]})
    first, other = (
        spec_of(rows, pa.table({"k": ["a"], "m": [m]}), 1, frame=2, version=version)
        for m, version in ((1, b"1"), (2, b"2"))
    )
    for spec, found, asked in ((first, 1, 1), (first, 1, 1), (other, 2, 1), (first, 1, 2)):
        (batch,) = spec([rows])
        assert batch.column("m").to_pylist() == [found]
        assert spec.rows.asked == asked


def test_a_worker_keeps_the_dataframes_that_were_used_last(monkeypatch):
    monkeypatch.setattr(collected_joins, "_MOST_FRAMES", 16)
    rows = pa.record_batch({"k": ["a"]})
    specs = [spec_of(rows, pa.table({"k": ["a"], "m": [1]}), 1, frame=number) for number in range(100, 140)]
    for spec in specs:
        list(spec([]))
        list(specs[0]([]))
    for spec in reversed(specs[1:]):
        list(spec([]))
    assert [spec.rows.asked for spec in specs] == [1] + [2] * 24 + [1] * 15


def test_sliced_rows_are_joined_as_they_are():
    table = pa.table({"k": pa.array([5, 7, 9], pa.int32()), "m": ["five", "seven", "nine"]})
    rows = pa.record_batch({"k": pa.array([1, 5, 9, 5], pa.int32()), "s": ["a", "b", "c", "d"]}).slice(1, 2)
    result = joined(spec_of(rows, table, 1), table, rows)
    assert [(row["s"], row["m"]) for row in result] == [("b", "five"), ("c", "nine")]


@pytest.mark.parametrize("count", [0, 1])
def test_a_dataframe_without_rows_or_with_null_keys_alone_gives_nothing(count):
    table = pa.table({"k": pa.array([None] * count, pa.string()), "m": pa.array([1] * count, pa.int64())})
    rows = pa.record_batch({"k": pa.array(["a", None])})
    assert joined(spec_of(rows, table, 1), table, rows) == []
    assert [row["m"] for row in joined(spec_of(rows, table, 1, "left"), table, rows)] == [None, None]
    assert np.array_equal(CollectedIndex(table, 1).counts, [0])
