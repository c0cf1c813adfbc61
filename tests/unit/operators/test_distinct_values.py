"""Distinct values on a real store, without Spark: of several tasks, long and short ones, tries that are taken back."""

import collections

import numpy as np
import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec, task_command

from sparkrelay import hidden_columns
from sparkrelay.operators.table import run as state
from sparkrelay.runtime.worker import shares
from sparkrelay.state import TaskStore
from sparkrelay.state.aggregate import AggregateSpec

AGGREGATES = (
    AggregateSpec("count", "text", pa.string(), pa.int64(), others=(("x", pa.float64()),), distinct=True),
    AggregateSpec("sum", "number", pa.int32(), pa.int64(), distinct=True),
    AggregateSpec("count_all", None, pa.null(), pa.int64()),
    AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()),
)
ARGUMENTS = [("text", pa.string()), ("x", pa.float64()), ("number", pa.int32())]
RESULTS = [("texts", pa.int64()), ("total", pa.int64()), ("n", pa.int64())]
SPEC = state_spec([("key", pa.string())], ARGUMENTS, RESULTS, AGGREGATES)


def made_up(generator, count):
    keys = [f"k{n}" + "k" * 600 * (n % 2) for n in generator.integers(0, 4, count)]
    return {
        "key": pa.array([None if n % 17 == 3 else key for n, key in enumerate(keys)], pa.string()),
        "text": pa.array([None if n == 5 else "t" * n * 150 for n in generator.integers(0, 6, count)], pa.string()),
        "x": pa.array([(0.0, -0.0, float("nan"), None, 1.0)[n] for n in generator.integers(0, 5, count)], pa.float64()),
        "number": pa.array([None if n == 0 else n for n in generator.integers(-3, 4, count)], pa.int32()),
    }


def add(seen, partitions, rows):
    """Add rows to a model: (partition, key) -> the distinct values and the number of rows."""
    for partition, key, text, x, number in zip(partitions, *(rows[name].to_pylist() for name in rows), strict=True):
        if key is None:
            continue
        texts, numbers, count = seen.setdefault((partition, key), (set(), set(), collections.Counter()))
        count["n"] += 1
        if text is not None and x is not None:
            texts.add((text, repr(x + 0.0)))
        if number is not None:
            numbers.add(number)


def row_of(seen, group):
    texts, numbers, count = seen[group]
    return len(texts), sum(numbers) if numbers else None, count["n"]


@pytest.mark.parametrize("small", [0, 4096], ids=["each", "together"])
def test_values_count_once_in_each_group_of_each_task(tmp_path, monkeypatch, small):
    monkeypatch.setattr(shares, "_SMALL", small)
    generator, seen = np.random.default_rng(3), {}
    for batch in range(1, 7):
        count = int(generator.integers(0, 60))
        partitions, rows = generator.choice([0, 2], count).astype(np.int32), made_up(generator, count)
        more = {hidden_columns.PARTITION: partitions, hidden_columns.TIMESTAMP: np.zeros(count, np.int64)}
        for tries in range(1, 2 + batch % 2):
            commands = [
                task_command(partition, batch, (batch - 1, batch), str(tmp_path / f"0_{partition}"), tries)
                for partition in (2, 0)
            ]
            monkeypatch.setattr(state, "leg_tasks", lambda _, commands=commands: commands)
            found = list(SPEC.apply(iter([pa.record_batch({**rows, **more})])))
        add(seen, partitions.tolist(), rows)
        emitted = [row for merged in found for row in merged.emitted.to_pylist()]
        for row in emitted:
            group = row[hidden_columns.PARTITION], row["key"]
            assert (row["texts"], row["total"], row["n"]) == row_of(seen, group), group
        keys = rows["key"].to_pylist()
        assert {(row[hidden_columns.PARTITION], row["key"]) for row in emitted} == {
            (partition, key) for partition, key in zip(partitions.tolist(), keys, strict=True) if key is not None
        }
    for partition in (0, 2):
        state.connections.forget_store(str(tmp_path / f"0_{partition}"))
        store = TaskStore.open(tmp_path / f"0_{partition}")
        own = {key: value for (where, key), value in seen.items() if where == partition}
        assert store.rows("counts") == len(own) + sum(len(texts) + len(numbers) for texts, numbers, _ in own.values())
        groups = [SPEC.layout.groups(stored) for stored in store.scan("counts")]
        assert {key.decode() for some in groups for key in some.column("key").to_pylist()} == set(own)
        store.close(clean=False)


def test_values_that_are_known_are_not_written_again(tmp_path, monkeypatch):
    rows = {"key": ["a", "a"], "text": ["t", "u"], "x": [1.0, 1.0], "number": pa.array([4, 4], pa.int32())}
    more = {hidden_columns.PARTITION: np.zeros(2, np.int32), hidden_columns.TIMESTAMP: np.zeros(2, np.int64)}
    changed = []
    for batch in (1, 2):
        command = task_command(0, batch, (batch - 1, batch), str(tmp_path / "0_0"))
        monkeypatch.setattr(state, "leg_tasks", lambda _, command=command: [command])
        (merged,) = SPEC.apply(iter([pa.record_batch({**rows, **more})]))
        changed.append(len(merged.outcomes[0].result().keys))
    assert changed == [1 + 2 + 1, 1], "the group, two texts and a number; then the group alone"
    state.connections.forget_store(str(tmp_path / "0_0"))
