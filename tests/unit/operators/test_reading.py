"""Keys that are read together have the rows, and the texts, that each has alone: of all column types and stores."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.doubles.state_steps import NEWEST_ROWS, state_spec, table_step, task_command
from tests.examples import examples
from tests.unit.records.json.test_writing import SCHEMA, rows as json_rows
from tests.unit.state.conftest import Driver

from sparkrelay import hidden_columns
from sparkrelay.errors import StateStoreNotAvailableException
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.operators.table import run as state
from sparkrelay.operators.table.reading import StoreReading
from sparkrelay.operators.table.search import rows_of
from sparkrelay.operators.watermarks import WindowWatermark
from sparkrelay.records.json.writer import columns_to_json
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.worker.event_times import window_ends
from sparkrelay.state import TaskStore
from sparkrelay.state.aggregate import AggregateSpec
from sparkrelay.state.reader import UNCOMMITTED, StoreReader
from sparkrelay.state.window_keys import window_keys

ROW = pa.schema([field for field in SCHEMA if not pa.types.is_null(field.type)])
TABLE = table_step([("key", pa.int64())], [], [*ROW], NEWEST_ROWS)
TIME = AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64())
COUNTED = AggregateSpec("count_all", None, pa.null(), pa.int64())
TEXT = ("text", pa.string())
SPECS = {
    "aggregates": state_spec(
        [("key", pa.string())], [TEXT], [("n", pa.int64()), ("last", pa.string())],
        (COUNTED, AggregateSpec("max", "text", pa.string(), pa.string()), TIME),
    ),
    "distinct": state_spec(
        [("key", pa.string())], [TEXT], [("n", pa.int64())],
        (AggregateSpec("count", "text", pa.string(), pa.int64(), distinct=True), TIME),
    ),
    "collected": state_spec(
        [("key", pa.string())], [TEXT], [("all", pa.list_(pa.string()))],
        (AggregateSpec("collect_list", "text", pa.string(), pa.list_(pa.string())), TIME),
    ),
}  # fmt: skip


def check_together(read, keys):
    """Check keys that are read together against each of them alone; return the rows of each."""
    together = read(keys)
    texts = columns_to_json(together.rows).to_pylist()
    shown = []
    for number, place in enumerate(together.places):
        alone = read(keys.slice(number, 1))
        own = together.rows.slice(max(place, 0), int(place >= 0))
        own.validate(full=True)
        assert columns_to_json(alone.rows).to_pylist() == ([texts[place]] if place >= 0 else [])
        assert alone.places == (0 if place >= 0 else -1,)
        assert (own.schema, repr(own.to_pylist())) == (alone.rows.schema, repr(alone.rows.to_pylist()))
        shown.append(own)
    return shown


@settings(deadline=None, max_examples=examples(60))
@given(items=json_rows, opened=st.integers(0, 3), asked=st.lists(st.integers(-1, 12), min_size=1, max_size=14))
def test_rows_of_all_types_are_the_same_read_together_and_alone(tmp_path_factory, items, opened, asked):
    """Rows of a table, of which the first ones change in a batch that is open."""
    codec, table = StoredColumns(ROW), pa.Table.from_pylist(items, ROW)
    values = codec.values(table.append_column(hidden_columns.TIMESTAMP, pa.array([0] * len(items)))).to_pylist()
    keys = key_bytes([pa.array(range(len(items)))]).to_pylist()
    store = TaskStore.open(tmp_path_factory.mktemp("state") / "0_0")
    try:
        driver = Driver(store, name=TABLE.store)
        driver.apply(dict(zip(keys, values, strict=True)))
        driver.apply(dict.fromkeys(keys[:opened], None), commit=False)
        reader = StoreReader(store.path, store._environment)
        wanted = pa.RecordBatch.from_pylist([{"key": number} for number in asked], TABLE.layout.keys)
        for committed, first in ((driver.committed, 0), (UNCOMMITTED, opened)):

            def read(keys, committed=committed):
                reading = StoreReading("rows", "0_0", key=keys)
                table = TABLE.layout
                return reader.read(TABLE.store, lambda snapshot: reading.of(table, snapshot), committed=committed)

            for number, rows in zip(asked, check_together(read, wanted), strict=True):
                there = first <= number < len(items)
                named = [{"key": number, **items[number]}] if there else []
                assert columns_to_json(rows).equals(columns_to_json(pa.RecordBatch.from_pylist(named, rows.schema)))
    finally:
        store.close(clean=False)


@pytest.mark.parametrize("kind", SPECS)
def test_rows_of_any_store_are_the_same_read_together_and_alone(tmp_path, monkeypatch, kind):
    spec, directory = SPECS[kind], tmp_path / "0_0"
    groups = ["a", "b", "a", "long" * 200, "a", "b"]
    rows = {
        "key": pa.array(groups),
        "text": pa.array(["x", "y", "x", None, "z", "y"]),
        hidden_columns.PARTITION: pa.array([0] * len(groups), pa.int32()),
        hidden_columns.TIMESTAMP: pa.array(range(len(groups)), pa.int64()),
    }
    monkeypatch.setattr(state, "leg_tasks", lambda _: [task_command(0, 1, (0, 1), str(directory))])
    list(spec.apply(iter([pa.record_batch(rows)])))
    reader = StoreReader.of(state.connections.store(str(directory), map_limit=spec.map_limit))

    def read(keys):
        reading = StoreReading("rows", "0_0", key=keys)
        return reader.read(spec.store, lambda snapshot: reading.of(spec.layout, snapshot), committed=1)

    wanted = ["b", "nobody", "a", "long" * 200, "a"]
    shown = check_together(read, pa.RecordBatch.from_pylist([{"key": key} for key in wanted], spec.layout.keys))
    assert [[row["key"] for row in rows.to_pylist()] for rows in shown] == [["b"], [], ["a"], ["long" * 200], ["a"]]


def test_windows_that_have_expired_do_not_show_among_others():
    window = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
    spec = state_spec(
        [("key", pa.string()), ("window", window)], [], [("n", pa.int64())], (COUNTED, TIME),
        watermark=WindowWatermark(window="window", delay_ms=0, ahead_ms=0, final=False),
    )  # fmt: skip
    begun = [dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC) for hour in range(3)]
    windows = [{"start": one, "end": one + dt.timedelta(hours=1)} for one in begun]
    keys = pa.RecordBatch.from_pylist([{"key": "a", "window": one} for one in windows], spec.layout.keys)
    codec = spec.layout.codec
    states = codec.states(
        codec.partial(pa.table({"of": [0, 1, 1, 2, 2, 2], hidden_columns.TIMESTAMP: range(6)}), ["of"])
    )
    stored = window_keys(window_ends(keys.column("window")), key_bytes(keys.columns)).to_pylist()

    held = dict(zip(stored, states.to_pylist(), strict=True))

    class Snapshot:
        expired = int(windows[0]["end"].timestamp() * 1000)

        def get(self, keys):
            return pa.array([held.get(key) for key in keys.to_pylist()], pa.binary())

    found, places = rows_of(spec.layout, Snapshot(), keys)
    assert (found.column("n").to_pylist(), places) == ([2, 3], [-1, 0, 1])
    assert found.schema == spec.layout.columns


@pytest.mark.parametrize("what", ["page", "rows"])
def test_a_copy_of_another_owner_is_not_taken_for_the_one_that_is_meant(tmp_path, what):
    """It may have been emptied when it was taken over, and be on its way up: what is missing would count as deleted."""
    spec = SPECS["aggregates"]
    store = TaskStore.open(tmp_path / "0_0")
    try:
        Driver(store, name=spec.store, task_epoch=1)
        reader, key = StoreReader.of(store), pa.record_batch({"key": ["a"]}) if what == "rows" else None

        def read(task_epoch):
            return StoreReading(what, "0_0", key=key, task_epoch=task_epoch).by(reader, spec.layout).rows.num_rows

        assert read(1) == read(None) == 0
        store.take_over(2)
        with pytest.raises(StateStoreNotAvailableException, match="closed during the query.*task epoch 1, found 2"):
            read(1)
        assert read(2) == read(None) == 0
    finally:
        store.close(clean=False)
