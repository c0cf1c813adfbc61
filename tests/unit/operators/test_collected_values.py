"""Collected values on a real store, without Spark: of several tasks, long and short, tries that are taken back."""

import collections

import numpy as np
import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec, task_command

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException, StoreCorruptedException
from sparkrelay.operators.aggregate import collected_values
from sparkrelay.operators.table import run as state
from sparkrelay.runtime.worker import shares
from sparkrelay.state import TaskStore
from sparkrelay.state.aggregate import AggregateSpec

AGGREGATES = (
    AggregateSpec("collect_list", "text", pa.string(), pa.list_(pa.string())),
    AggregateSpec("collect_set", "text", pa.string(), pa.list_(pa.string())),
    AggregateSpec("sum", "number", pa.int32(), pa.int64(), distinct=True),
    AggregateSpec("mode", "number", pa.int32(), pa.int32(), options=("smallest",)),
    AggregateSpec("percentile", "number", pa.int32(), pa.float64(), options=((0.5,), False, False)),
    AggregateSpec("count_all", None, pa.null(), pa.int64()),
    AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()),
)
ARGUMENTS = [("text", pa.string()), ("number", pa.int32())]
NAMES = ("list", "set", "sum", "mode", "median", "n")
RESULTS = [(name, spec.result_type) for name, spec in zip(NAMES, AGGREGATES[:-1], strict=True)]
SPEC = state_spec([("key", pa.string())], ARGUMENTS, RESULTS, AGGREGATES)


def made_up(generator, count):
    keys = [f"k{n}" + "k" * 600 * (n % 2) for n in generator.integers(0, 4, count)]
    return {
        "key": pa.array([None if n % 17 == 3 else key for n, key in enumerate(keys)], pa.string()),
        "text": pa.array([None if n == 5 else "t" * n * 150 for n in generator.integers(0, 6, count)], pa.string()),
        "number": pa.array([None if n == 0 else n for n in generator.integers(-3, 4, count)], pa.int32()),
    }


def add(seen, partitions, rows):
    for partition, key, text, number in zip(partitions, *(rows[name].to_pylist() for name in rows), strict=True):
        if key is not None:
            seen.setdefault((partition, key), []).append((text, number))


def row_of(rows):
    texts = [text for text, _ in rows if text is not None]
    numbers = sorted(number for _, number in rows if number is not None)
    counts = collections.Counter(numbers)
    return {
        "list": texts,
        "set": sorted(set(texts)),
        "sum": sum(set(numbers)) if numbers else None,
        "mode": max(sorted(counts), key=counts.get, default=None),
        "median": float(np.percentile(numbers, 50)) if numbers else None,
        "n": len(rows),
    }


def hidden(partitions):
    count = len(partitions)
    return {hidden_columns.PARTITION: partitions, hidden_columns.TIMESTAMP: np.zeros(count, np.int64)}


def apply(spec, rows, partitions, commands, monkeypatch):
    monkeypatch.setattr(state, "leg_tasks", lambda _: commands)
    return list(spec.apply(iter([pa.record_batch({**rows, **hidden(partitions)})])))


@pytest.mark.parametrize("chunk", [1 << 17, 300], ids=["one", "several"])
@pytest.mark.parametrize("small", [0, 4096], ids=["each", "together"])
def test_results_are_of_all_values_of_each_group_of_each_task(tmp_path, monkeypatch, small, chunk):
    monkeypatch.setattr(shares, "_SMALL", small)
    monkeypatch.setattr(collected_values, "_CHUNK_BYTES", chunk)
    generator, seen = np.random.default_rng(3), {}
    for batch in range(1, 7):
        count = int(generator.integers(0, 60))
        partitions, rows = generator.choice([0, 2], count).astype(np.int32), made_up(generator, count)
        for tries in range(1, 2 + batch % 2):
            commands = [
                task_command(partition, batch, (batch - 1, batch), str(tmp_path / f"0_{partition}"), tries)
                for partition in (2, 0)
            ]
            found = apply(SPEC, rows, partitions, commands, monkeypatch)
        add(seen, partitions.tolist(), rows)
        for row in (row for merged in found for row in merged.emitted.to_pylist()):
            wanted = row_of(seen[row[hidden_columns.PARTITION], row["key"]])
            assert {name: row[name] for name in wanted} == wanted
    for partition in (0, 2):
        state.connections.forget_store(str(tmp_path / f"0_{partition}"))
        store = TaskStore.open(tmp_path / f"0_{partition}")
        stored = pa.concat_batches(list(store.scan("counts")))
        groups = SPEC.layout.groups(stored)
        results = SPEC.layout.results(groups, stored)
        for place, key in enumerate(groups.column("key").to_pylist()):
            wanted = row_of(seen.pop((partition, key.decode())))
            assert [column[place].as_py() for column in results[:-1]] == list(wanted.values())
        store.close(clean=False)
    assert not seen


def test_a_batch_writes_what_it_has_and_no_more(tmp_path, monkeypatch):
    rows = {"key": ["a"] * 3, "text": ["t", "u", "t"], "number": pa.array([4, 4, 5], pa.int32())}
    changed = []
    for batch in (1, 2):
        command = task_command(0, batch, (batch - 1, batch), str(tmp_path / "0_0"))
        (merged,) = apply(SPEC, rows, np.zeros(3, np.int32), [command], monkeypatch)
        changed.append(len(merged.outcomes[0].result().keys))
    chunk, texts, seen, numbers = 1, 2, 2, 2
    assert changed == [1 + chunk + texts + seen + 2 * numbers, 1 + chunk + texts + 2 * numbers]
    state.connections.forget_store(str(tmp_path / "0_0"))


def test_a_list_too_long_for_a_record_is_refused_with_its_group_and_nothing_is_written(tmp_path, monkeypatch):
    spec = state_spec([("key", pa.string())], ARGUMENTS, RESULTS, AGGREGATES)
    object.__setattr__(spec.layout, "most", 1000)
    for batch in (1, 2, 3):
        texts = ["x" * 300] * batch
        rows = {"key": ["the key"] * batch, "text": texts, "number": pa.array([1] * batch, pa.int32())}
        command = task_command(0, batch, (batch - 1, batch), str(tmp_path / "0_0"))
        (merged,) = apply(spec, rows, np.zeros(batch, np.int32), [command], monkeypatch)
        if batch < 3:
            assert merged.emitted.column("list")[0].as_py() == ["x" * 300] * (1 if batch == 1 else 3)
    with pytest.raises(SerializationException, match=r"'the key' have 1806 bytes.*max.request.size.*FILTER"):
        merged.outcomes[0].result()
    state.connections.forget_store(str(tmp_path / "0_0"))
    store = TaskStore.open(tmp_path / "0_0")
    stored = pa.concat_batches(list(store.scan("counts")))
    lists = spec.layout.results(spec.layout.groups(stored), stored)[0]
    assert lists.to_pylist() == [["x" * 300] * 3]
    store.close(clean=False)


FRONT = b"\x02\x00\x00\x00\x01a\x00"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (FRONT + b"\x00" + bytes(8), b""),
        (FRONT + b"\x00" + bytes(8), b"\xff\xff\xff\xff"),
        (FRONT + b"\x00" + bytes(8), b"\x01\x00\x00\x00\xff\xff\xff\xff"),
        (FRONT + b"\x00" + bytes(8), b"\x01\x00\x00\x00\x01\x00\x00\x00ab"),
        (FRONT + b"\x01x", b""),
        (FRONT + b"\x01x", bytes(9)),
        (b"\x02\x00", b""),
        (b"\x02\xff\xff\xff\xffa", b""),
        (b"\x02\x00\x00\x00\x09a", b""),
        (FRONT, b""),
        (FRONT + b"\x01x", b"\xff" * 8),
    ],
)
def test_damaged_values_are_an_error_and_not_believed(key, value):
    codec = SPEC.layout.codec
    state_of_a = codec.states(codec.partial(pa.table({"key": ["a"], "text": ["t"], "number": [1],
                                                      hidden_columns.TIMESTAMP: [0]}), ["key"]))  # fmt: skip
    stored = pa.record_batch([pa.array([b"\x00a", key]), pa.array([state_of_a[0].as_py(), value])], ["key", "value"])
    with pytest.raises(StoreCorruptedException, match="sparkrelay reset"):
        SPEC.layout.results(SPEC.layout.groups(stored), stored)
