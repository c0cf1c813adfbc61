"""What a step takes of the rows of the one before it, where both are one Python stage."""

import pyarrow as pa
import pytest

from sparkrelay.runtime.worker import context
from sparkrelay.runtime.worker.context import PickedColumns, in_pieces, in_turn

ROWS = pa.RecordBatch.from_pydict({"a": [1, None, 3, None], "gone": [True, True, None, False], "b": list("wxyz")})
A, B = ("x", "a", pa.int64()), ("b", "b", pa.string())


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        ((), "wxyz"),
        (((("a", False),),), "wy"),
        (((("gone", True),),), "wx"),
        (((("gone", True), ("a", False)),), "wxy"),
        (((("gone", True),), (("a", False),)), "w"),
        (((),), ""),
    ],
)
def test_rows_pass_of_which_each_condition_is_true(conditions, left):
    passed = PickedColumns((B,), conditions).of(ROWS)
    assert "".join(passed.column("b").to_pylist()) == left


def test_columns_come_under_their_names_and_others_are_null():
    passed = PickedColumns((A, B, ("again", "a", pa.int64()), ("none", None, pa.list_(pa.string())))).of(ROWS)
    assert passed.schema.names == ["x", "b", "again", "none"]
    assert passed.column("again").equals(passed.column("x"))
    assert passed.column("none").null_count == ROWS.num_rows
    assert passed.schema.field("none").type == pa.list_(pa.string())


def test_a_step_runs_on_what_passes():
    taken = []

    def make(batches):
        assert list(batches) == ["given"]
        yield ROWS
        yield ROWS.slice(0, 0)

    def take(batches):
        taken.extend(batch.to_pydict() for batch in batches)
        yield "made"

    assert list(in_turn(make, PickedColumns((A,), ((("a", False),),)), take, iter(["given"]))) == ["made"]
    assert taken == [{"x": [1, 3]}, {"x": []}]


def test_large_rows_go_to_the_jvm_in_pieces(monkeypatch):
    monkeypatch.setattr(context, "_JVM_BYTES", 100)
    batches = [pa.record_batch({"v": ["x" * 30] * count}) for count in (10, 0, 1)]
    made = list(in_pieces(iter, iter([*batches, pa.record_batch({"v": ["y" * 1000] * 2})])))
    assert [batch.num_rows for batch in made] == [2, 2, 2, 2, 2, 1, 1, 1]
    assert pa.Table.from_batches(made)["v"].to_pylist() == [*["x" * 30] * 11, *["y" * 1000] * 2]
    # Large ones stand together.
    values = [*["x"] * 100, *["y" * 90] * 10]
    made = list(in_pieces(iter, iter([pa.record_batch({"v": values})])))
    assert max(batch.nbytes for batch in made) <= 200
    assert pa.Table.from_batches(made)["v"].to_pylist() == values
