"""Tables with a history, beside a dictionary of all the rows that there have been."""

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.doubles.state_steps import task_command
from tests.unit.operators.store_specs import WITHOUT_KAFKA

from sparkrelay import hidden_columns
from sparkrelay.operators.history.layout import HistoryLayout
from sparkrelay.operators.history.run import HistoryRunner, TaskVersions
from sparkrelay.operators.table.changes import NEWEST
from sparkrelay.operators.table.newest_rows import NewestRows
from sparkrelay.records.keys import key_bytes
from sparkrelay.state import BatchStamp, TaskStore, versions
from sparkrelay.state.key_parts import key_parts
from sparkrelay.types import TopicPartition

TOPIC = TopicPartition("t", 0)
ROW = pa.schema([("v", pa.string())])
HIDDEN = [(hidden_columns.PARTITION, pa.int32()), (hidden_columns.TIMESTAMP, pa.int64())]
INPUT = pa.schema([("k", pa.string()), *ROW, *HIDDEN, (hidden_columns.TOMBSTONE, pa.bool_())])
OUTPUT = pa.schema(
    [
        *(("k", pa.string()), *ROW, *HIDDEN, (hidden_columns.KEY, pa.binary())),
        (hidden_columns.TOMBSTONE, pa.bool_()),
    ]
)
#: The last one stands in the store as a digest.
KEYS = ("a", "ab", "a\0b", "c" * 500)


def spec_of(history_ms):
    layout = HistoryLayout(store="s", keys=pa.schema([("k", pa.string())]), row=ROW, history_ms=history_ms)
    return HistoryRunner(
        **WITHOUT_KAFKA,
        leg="leg",
        topics=("t",),
        store="s",
        contents="rows",
        layout=layout,
        input=INPUT,
        output=OUTPUT,
        joined=True,
    )


class Table:
    """A table and its model: what each key was from when on, and what the newest rows are."""

    def __init__(self, path, history_ms):
        self.spec = spec_of(history_ms)
        self.history_ms = history_ms
        self.store = TaskStore.open(path)
        self.was, self.clock, self.before, self.shown = {}, -1, -1, {}
        #: What is later does not move the stream time.
        self.latest = 1 << 62
        #: Others look into the table from here on.
        self.looked_from = 1 << 62
        self.number = 0

    def batch(self, rows, *, tries=1):
        """Take rows ``key, value, time`` as a micro-batch; return how many are too old."""
        step = TaskVersions(
            self.spec, task_command(0, self.number + 1), self.columns(rows), self.latest, self.looked_from
        )
        span = (self.number, self.number + 1)
        stamp = BatchStamp(
            0, self.number + 1, self.number, {TOPIC: span}, {TOPIC: self.number}, contents="rows", tries=tries
        )
        found = {}

        def operate(view):
            changes = step.operate(view)
            found.update(changes.beside)
            return changes

        applied = self.store.change_batch("leg", "s", batch=stamp, operate=operate)
        return applied, found[NEWEST].to_pylist()

    def columns(self, rows):
        return pa.Table.from_pylist(
            [
                {
                    "k": key,
                    "v": value,
                    hidden_columns.PARTITION: 0,
                    hidden_columns.TIMESTAMP: at,
                    hidden_columns.TOMBSTONE: value is None,
                }
                for key, value, at in rows
            ],
            INPUT,
        )

    def run(self, rows, *, tries=1):
        """Take rows, and look at what goes on."""
        applied, changed = self.batch(rows, tries=tries)
        self.number += 1
        old, late = {key: self.newest(key) for key in self.was}, 0
        self.before = self.clock
        for key, value, at in rows:
            if key is None:
                continue
            if at < self.before - self.history_ms:
                late += 1
                continue
            self.clock = max(self.clock, min(at, self.looked_from) if at <= self.latest else -1)
            self.was.setdefault(key, {})[at] = value
        assert applied.entry.rows_late == late
        for row in applied.emitted.to_pylist():
            if row[hidden_columns.TOMBSTONE]:
                assert self.shown.pop(row["k"]) == row["v"]
            else:
                assert self.shown.get(row["k"]) != row["v"]
                self.shown[row["k"]] = row["v"]
            assert row[hidden_columns.TIMESTAMP] == max(self.was[row["k"]])
        are = {key: self.newest(key) for key in self.was}
        assert self.shown == {key: value for key, value in are.items() if value is not None}
        assert {row["key"] for row in changed} == {key.encode() for key in are if old.get(key) != are[key]}
        for row in changed:
            (value,) = NewestRows(ROW).results(pa.array([row["old"]], pa.binary()))[0].to_pylist()
            assert value == old.get(row["key"].decode())

    def newest(self, key):
        known = self.was.get(key, {})
        return known[max(known)] if known else None

    def as_of(self, key, at, clock):
        known = self.was.get(key, {})
        if at < clock - self.history_ms:
            return self.newest(key) if known and max(known) <= at else None
        return known[max(then for then in known if then <= at)] if known and min(known) <= at else None

    def look(self, asked, batch):
        """Return what is found for keys and times with a micro-batch."""
        parts = key_parts(key_bytes([pa.array([key for key, _ in asked])]).cast(pa.binary()))
        times = np.array([at for _, at in asked], dtype=np.int64)
        found = self.store.look(
            "s", lambda view: versions.as_of(view, parts, times, self.history_ms, batch), contents="rows"
        )
        rows = NewestRows(ROW).results(found.values.dictionary)[0]
        return rows.take(found.values.indices).to_pylist()

    def known(self):
        """Return the keys of which there are rows; those that are digests are None."""
        keys = [key for batch in self.store.scan("s", start=versions.VERSIONS[0]) for key in batch["key"].to_pylist()]
        return set(versions.plain_keys(pa.array(keys, pa.binary())).to_pylist())

    def entries(self):
        return sum(batch.num_rows for batch in self.store.scan("s"))


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_found_as_of_their_times(tmp_path, seed):
    draw = random.Random(seed)
    table = Table(tmp_path / "0_0", draw.choice((0, 20, 1500)))
    now = 0
    for _ in range(40):
        now += draw.choice((0, 3, 40, 3000 if draw.random() < 0.2 else 0))
        rows = []
        for _ in range(draw.randrange(7)):
            now += draw.choice((0, 1, 5))
            at = max(0, now - draw.choice((0, 0, 0, 2, 15, 30, 1400, 1600)))
            if draw.random() < 0.03:
                at = now + draw.choice((6000, 10**9))
            key = None if draw.random() < 0.05 else draw.choice(KEYS)
            rows.append((key, None if draw.random() < 0.25 else draw.choice("xyz"), at))
        table.latest = now + 5000
        table.looked_from = draw.choice((1 << 62, 1 << 62, now - 10, now - 2000))
        if draw.random() < 0.2:
            # A first try that was of other rows is taken back.
            table.batch([("a", "never", now + 9999), (KEYS[-1], None, now)])
            table.run(rows, tries=2)
        else:
            table.run(rows)
        ages = (*range(40), 1400, 1500, 1501, 1600, 5000, -6000, -(10**9))
        asked = [(draw.choice(KEYS), max(0, now - draw.choice(ages))) for _ in range(60)]
        assert table.look(asked, table.number) == [table.as_of(key, at, table.before) for key, at in asked]
        assert table.look(asked, table.number + 1) == [table.as_of(key, at, table.clock) for key, at in asked]
    table.store.close(clean=False)


def test_a_row_that_is_found_many_times_is_there_a_few_times(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "_AT_A_TIME", 100)
    table = Table(tmp_path / "0_0", 2000)
    table.run([("a", "x", 0), ("a", "y", 500), ("b", None, 0), ("c", "z", 10)])
    asked = [(key, at) for key in "abcd" for at in range(1000)]
    parts = key_parts(key_bytes([pa.array([key for key, _ in asked])]).cast(pa.binary()))
    times = np.array([at for _, at in asked], dtype=np.int64)
    found = table.store.look("s", lambda view: versions.as_of(view, parts, times, 2000, 1), contents="rows").values
    assert len(found.dictionary) < 50
    assert table.look(asked, 1) == [table.as_of(key, at, -1) for key, at in asked]
    table.store.close(clean=False)


def test_a_key_that_changes_for_ever_takes_no_more_room(tmp_path):
    table = Table(tmp_path / "0_0", 2000)
    most = []
    for second in range(200):
        table.run([("a", f"{second}", second * 1000), ("ab", None if second % 2 else "x", second * 1000 + 1)])
        most.append(table.entries())
    assert max(most[20:]) == max(most[:20]), most
    assert max(most) < 20
    table.store.close(clean=False)


def test_a_time_far_ahead_of_the_clock_lets_in_what_comes_after_it(tmp_path):
    table = Table(tmp_path / "0_0", 2000)
    table.latest = 5000
    table.run([("a", "now", 1000), ("ab", "year 2100", 1 << 42)])
    assert table.look([("ab", 1 << 42), ("ab", 5000), ("a", 1 << 42)], 1) == ["year 2100", None, "now"]
    table.run([("a", "then", 2000), ("ab", "now", 2000)])
    assert table.look([("a", 2000), ("ab", 2000), ("ab", 1 << 42)], 2) == ["then", "now", "year 2100"]
    assert table.clock == 2000
    table.store.close(clean=False)


@pytest.mark.parametrize("value", ["x", None])
def test_a_key_with_a_row_far_ahead_takes_no_more_room_either(tmp_path, value):
    table = Table(tmp_path / "0_0", 2000)
    table.run([])
    most = []
    for second in range(100):
        table.latest = second * 1000 + 5000
        table.run([("a", f"{second}", second * 1000), *([("a", value, 90_500)] if second == 1 else [])])
        most.append(table.entries())
    assert max(most[20:]) <= max(most[:20]), most
    assert max(most) < 20
    # Once its time has come it is a row like others.
    assert table.look([("a", 90_999), ("a", 91_000)], 100) == [None, None]
    assert table.look([("a", 99_000)], 101) == ["99"]
    table.store.close(clean=False)


def test_keys_that_are_deleted_leave_nothing_behind(tmp_path):
    table = Table(tmp_path / "0_0", 2000)
    table.run([(key, value, at) for key in KEYS[:3] for value, at in (("x", 10), ("y", 20), (None, 30))])
    table.run([("a\0b", None, 40)])
    assert table.known() == {key.encode() for key in KEYS[:3]}
    for at in (1000, 4000, 4001):
        table.run([(KEYS[-1], "still", at)])
    assert table.known() == {None}, "the other keys are gone"
    table.run([(KEYS[-1], None, 60_000)])
    table.run([("b", "alone", 130_000)])
    for _ in range(3):
        table.run([])
    assert table.known() == {b"b"}
    assert table.entries() == 2, "its row, and the stream time"
    table.store.close(clean=False)
