"""The stateful step on a real store, without Spark: which rows are one group."""

import numpy as np
import pyarrow as pa
import pytest

from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime import hidden
from sparkrelay.runtime.orders import TaskOrder
from sparkrelay.runtime.specs import StateSpec
from sparkrelay.runtime.worker import state
from sparkrelay.state.aggregate import AggregateSpec
from sparkrelay.types import TaskId, TopicPartition

ORDERS = TopicPartition("orders", 0)
HIDDEN = [(hidden.PARTITION, pa.int32()), (hidden.TIMESTAMP, pa.int64())]
COUNT = (
    AggregateSpec("count_all", None, pa.null(), pa.int64()),
    AggregateSpec("max", hidden.TIMESTAMP, pa.int64(), pa.int64()),
)


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """`counted(key_column)` runs one batch of those keys and returns key -> count."""
    batches = []

    def run(keys):
        start = batches[-1][1] if batches else 0
        span = (start, start + len(keys))
        batches.append(span)
        spec = StateSpec(
            leg="leg",
            subtopology=0,
            topics=("orders",),
            slots=1,
            client={},
            store="counts",
            changelog="app-counts-changelog",
            keys=("key",),
            aggregates=COUNT,
            input=pa.schema([("key", keys.type), *HIDDEN]),
            output=pa.schema([("key", keys.type), ("n", pa.int64()), *HIDDEN, (hidden.KEY, pa.binary())]),
            contents="counts",
            compression="none",
            flush_seconds=1.0,
            map_limit=1 << 24,
        )
        order = TaskOrder(
            task=TaskId(0, 0),
            batch=len(batches),
            committed=len(batches) - 1,
            owner=0,
            directory=str(tmp_path / "0_0"),
            transaction=ProducerIdentity("app-0_0", 1, 0),
            ranges={ORDERS: span},
            positions={},
        )
        monkeypatch.setattr(state, "leg_tasks", lambda _: [order])
        zeros = np.zeros(len(keys), np.int32)
        rows = pa.record_batch([keys, pa.array(zeros), pa.array(zeros.astype(np.int64))], schema=spec.input)
        (outcome,) = state.apply_leg(spec, iter([rows]))
        emitted = outcome.result().emitted
        assert emitted.column(hidden.KEY).equals(key_bytes([emitted.column("key")]))
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
