"""The stateful step on a real store, without Spark: which rows are one group."""

import numpy as np
import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec, task_command

from sparkrelay import hidden_columns
from sparkrelay.errors import StoreOutOfStepException
from sparkrelay.operators.table import run as state
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.worker import shares
from sparkrelay.state import TaskStore
from sparkrelay.state.aggregate import AggregateSpec

COUNT = (
    AggregateSpec("count_all", None, pa.null(), pa.int64()),
    AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()),
)


SUM = (COUNT[0], AggregateSpec("sum", "amount", pa.int64(), pa.int64()), COUNT[1])


def spec_of(kind, users=(), aggregates=COUNT):
    totals = [("amount", pa.int64())] if aggregates is SUM else []
    sums = [("total", pa.int64())] if aggregates is SUM else []
    columns = [*users, ("key", kind)]
    return state_spec(columns, totals, [("n", pa.int64()), *sums], aggregates)


def command_of(tmp_path, partition, batch, span):
    return task_command(partition, batch, span, str(tmp_path / f"0_{partition}"))


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """`counted(keys)` runs one batch of those keys and returns key -> count.

    `kind` is the type that the pipeline knows, if another than Spark sends; `user=True` groups by a user too.
    """
    batches = []

    def run(keys, *, kind=None, user=False):
        kind = kind or keys.type
        users = [("user", pa.string())] if user else []
        start = batches[-1][1] if batches else 0
        span = (start, start + len(keys))
        batches.append(span)
        spec = spec_of(kind, users)
        command = command_of(tmp_path, 0, len(batches), span)
        monkeypatch.setattr(state, "leg_tasks", lambda _: [command])
        zeros = np.zeros(len(keys), np.int32)
        rows = pa.record_batch(
            {
                **{name: pa.array(["u"] * len(keys)) for name, _ in users},
                "key": keys,
                hidden_columns.PARTITION: zeros,
                hidden_columns.TIMESTAMP: zeros.astype(np.int64),
            }
        )
        (merged,) = spec.apply(iter([rows]))
        (outcome,) = merged.outcomes
        assert outcome.result()
        emitted = merged.emitted
        assert emitted.schema.equals(spec.output)
        assert emitted.column(hidden_columns.KEY).equals(
            key_bytes([emitted.column(name) for name in spec.layout.keys.names])
        )
        return emitted.column("key"), dict(
            zip(map(repr, emitted.column("key").to_pylist()), emitted.column("n").to_pylist(), strict=True)
        )

    yield run
    state.connections.forget_store(str(tmp_path / "0_0"))


def floats(dtype):
    bits = {np.float64: (np.int64, 0x7FF8000000000001, -1), np.float32: (np.int32, 0x7FC00001, -1)}[dtype]
    nans = np.array(bits[1:], bits[0]).view(dtype)
    assert np.isnan(nans).all()
    return np.concatenate([np.array([0.0, -0.0, 1.5, np.nan], dtype), nans, np.array([-0.0], dtype)])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_both_zeros_are_one_group_and_so_are_all_nans(counted, dtype):
    keys, counts = counted(pa.array(floats(dtype)))
    assert counts == {"0.0": 3, "1.5": 1, "nan": 3}
    assert not np.signbit(keys.to_numpy(zero_copy_only=False)).any(), "as Spark gives them"
    assert counted(pa.array(floats(dtype)[1:2]))[1] == {"0.0": 4}, "the other zero of a later batch"


def test_zeros_within_a_struct_are_one_group(counted):
    prices = pa.array([0.0, -0.0, -1.0])
    _, counts = counted(pa.StructArray.from_arrays([prices], names=["price"]))
    assert counts == {"{'price': 0.0}": 2, "{'price': -1.0}": 1}


def test_a_null_beside_zeros_stays_a_null(counted):
    _, counts = counted(pa.array([None, -0.0, 0.0]))
    assert counts == {"0.0": 2}, "a record without a key belongs to no group"


CITIES = [None, {"city": None}, {"city": "x"}, None, {"city": None}, {"city": "x"}, None]


def test_a_null_struct_is_another_group_than_one_of_nulls(counted):
    keys = pa.array(CITIES)
    expected = {"None": 3, "{'city': None}": 2, "{'city': 'x'}": 2}
    column, counts = counted(keys, user=True)
    assert counts == expected
    assert column.null_count == 1
    _, counts = counted(keys.filter(keys.is_valid()), user=True)
    assert counts == {"{'city': None}": 4, "{'city': 'x'}": 4}, "a batch without nulls has the same keys"
    assert counted(keys, user=True)[1] == {"None": 6, "{'city': None}": 6, "{'city': 'x'}": 6}


def test_a_null_struct_alone_is_no_group(counted):
    assert counted(pa.array(CITIES))[1] == {"{'city': None}": 2, "{'city': 'x'}": 2}


def window(zone):
    times = pa.array([0, 3_600_000_000, 0], pa.timestamp("us", zone))
    return pa.StructArray.from_arrays([times, times], names=["start", "end"])


@pytest.mark.parametrize("user", [False, True])
def test_keys_of_a_session_on_another_zone_are_those_of_utc(counted, user):
    _, counts = counted(window("America/New_York"), kind=window("UTC").type, user=user)
    assert sorted(counts.values()) == [1, 2]
    _, counts = counted(window("UTC"), user=user)
    assert sorted(counts.values()) == [2, 4], "the same groups"
    times = window("America/New_York").field(0)
    assert sorted(counted(times, kind=pa.timestamp("us", "UTC"), user=user)[1].values()) == [1, 2]


@pytest.mark.parametrize("small", [0, 4096], ids=["each", "together"])
def test_tasks_that_are_merged_together_have_each_its_own_groups(tmp_path, monkeypatch, small):
    """Two partitions may hold one key, if whoever wrote them says so; and tasks come in any order."""
    monkeypatch.setattr(shares, "_SMALL", small)
    generator = np.random.default_rng(7)
    totals, spec = {}, spec_of(pa.string(), aggregates=SUM)
    for batch in range(1, 6):
        commands = [command_of(tmp_path, partition, batch, (batch - 1, batch)) for partition in (3, 0, 2)]
        monkeypatch.setattr(state, "leg_tasks", lambda _, commands=commands: commands)
        count = int(generator.integers(0, 40))
        partitions, keys = generator.choice([0, 3], count), generator.integers(0, 5, count)
        amounts = generator.integers(-100, 100, count)
        for partition, key, amount in zip(partitions.tolist(), keys.tolist(), amounts.tolist(), strict=True):
            before = totals.get((partition, f"key{key}"), (0, 0))
            totals[partition, f"key{key}"] = before[0] + 1, before[1] + amount
        rows = pa.record_batch(
            {
                "key": pa.array([f"key{key}" for key in keys], pa.string()),
                "amount": amounts,
                hidden_columns.PARTITION: partitions.astype(np.int32),
                hidden_columns.TIMESTAMP: np.zeros(count, np.int64),
            }
        )
        found = list(spec.apply(iter([rows])))
        assert len(found) == (1 if small or not count else 3)
        for merged in found:
            first = 0
            for outcome in merged.outcomes:
                partition = outcome.command.task.partition
                own = merged.emitted.slice(first, outcome.rows_out).to_pylist()
                first += outcome.rows_out
                assert outcome.rows_in == int((partitions == partition).sum())
                assert {row[hidden_columns.PARTITION] for row in own} <= {partition}
                assert sorted(row["key"] for row in own) == sorted({f"key{k}" for k in keys[partitions == partition]})
                for row in own:
                    assert (row["n"], row["total"]) == totals[partition, row["key"]]
    for partition in (0, 2, 3):
        state.connections.forget_store(str(tmp_path / f"0_{partition}"))


def test_a_task_that_fails_leaves_no_rows_of_the_others(tmp_path, monkeypatch):
    commands = [command_of(tmp_path, partition, 1, (0, 1)) for partition in (0, 1)]
    taken = TaskStore.open(tmp_path / "0_1")
    taken.take_over(5)
    taken.close(clean=False)
    monkeypatch.setattr(state, "leg_tasks", lambda _: commands)
    zeros = np.zeros(2, np.int64)
    rows = pa.record_batch(
        {
            "key": ["a", "b"],
            hidden_columns.PARTITION: np.array([0, 1], np.int32),
            hidden_columns.TIMESTAMP: zeros,
        }
    )
    (merged,) = spec_of(pa.string()).apply(iter([rows]))
    good, bad = merged.outcomes
    assert good.error is None
    assert isinstance(bad.error, StoreOutOfStepException), "another owner has taken it over"
    assert not merged.emitted.num_rows
    assert not good.rows_out
    state.connections.forget_store(str(tmp_path / "0_0"))
