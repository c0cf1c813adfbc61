"""The step whose rows wait on a real store, without Spark, beside a list of those that wait."""

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings, strategies as st
from tests.unit.operators.store_specs import WITHOUT_KAFKA

from sparkrelay import hidden_columns
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.operators.delay.run import DelayRows, _TaskDelay
from sparkrelay.operators.emitting.run import TimedSource, applied
from sparkrelay.runtime.contract.commands import TaskCommand
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.task_steps import store_after
from sparkrelay.state.changelog import Marker
from sparkrelay.state.window_keys import NO_TIME
from sparkrelay.types import TaskId, TopicPartition

ROW = pa.schema([("n", pa.int64()), ("list", pa.list_(pa.string()))])
HIDDEN = [(hidden_columns.PARTITION, pa.int32()), (hidden_columns.TIMESTAMP, pa.int64())]
INPUT = pa.schema([*ROW, *HIDDEN, (hidden_columns.EVENT_MICROS, pa.int64())])
OUTPUT = pa.schema([*ROW, *HIDDEN, (hidden_columns.KEY, pa.binary())])
TOPIC, CHANGELOG = TopicPartition("orders", 0), TopicPartition("changelog", 0)
#: Ahead of the machine's clock by more than is believed.
AHEAD_MS = 10**14


class Driven:
    """Drives one task's store through micro-batches of rows ``(number, event time in ms)``, beside a model."""

    def __init__(self, folder, grace_ms):
        self.folder, self.path, self.grace_ms = folder, folder / "1" / "0_0", grace_ms
        self.spec = DelayRows(
            **WITHOUT_KAFKA,
            leg="store:d",
            topics=("orders",),
            store="d",
            contents="rows",
            output=OUTPUT,
            delay_ms=grace_ms,
            ahead_ms=3_600_000,
            sources=(TimedSource("orders", "orders", grace_ms),),
            own_sources=("orders",),
            input=INPUT,
            row=ROW,
        )
        self.changelog, self.batch, self.tries, self.position = [], 0, 0, 0
        self.watermark, self.waiting = NO_TIME, []

    def run(self, rows, *, commit=True):
        """Pass one micro-batch through; return the numbers of the rows that go on."""
        self.tries += 1
        after = self.position + len(rows)
        command = TaskCommand(
            TaskId(0, 0),
            self.batch + 1,
            self.batch,
            0,
            str(self.path),
            ProducerIdentity("t", 1, 0),
            {TOPIC: (self.position, after)},
            {TOPIC: self.position},
            tries=self.tries,
        )
        step = _TaskDelay(self.spec, command, [self.rows_of(rows)] if rows else [])
        self.applied = applied(self.spec, step)
        found = []
        for batch in step.emitted(store_after(self.spec, command, self.applied)):
            assert batch.schema.equals(OUTPUT)
            assert batch.column("list").to_pylist() == [[f"{n}", None] for n in batch.column("n").to_pylist()]
            assert batch.column(hidden_columns.TIMESTAMP).to_pylist() == [n + 7 for n in batch.column("n").to_pylist()]
            found += batch.column("n").to_pylist()
        if commit:
            self.batch, self.position, self.tries = self.batch + 1, after, 0
            self.changelog += zip(*map(pa.Array.to_pylist, (self.applied.keys, self.applied.values)), strict=True)
        return found

    def model(self, rows):
        """Return what is to come out."""
        at_once = [number for number, time in rows if time <= self.watermark or time >= AHEAD_MS]
        self.waiting += [(time, number) for number, time in rows if number not in at_once]
        newest = max((time for _, time in rows if time < AHEAD_MS), default=NO_TIME)
        self.watermark = max(self.watermark, newest - self.grace_ms)
        over = sorted(row for row in self.waiting if row[0] <= self.watermark)
        self.waiting = [row for row in self.waiting if row[0] > self.watermark]
        return at_once + [number for _, number in over]

    def rows_of(self, rows):
        columns = [
            [number for number, _ in rows],
            [[f"{number}", None] for number, _ in rows],
            [0] * len(rows),
            [number + 7 for number, _ in rows],
            [time * 1000 + 999 for _, time in rows],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, INPUT, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=INPUT)

    def restore(self):
        """Go on with a store that knows nothing but the changelog."""
        self.forget()
        self.path = self.folder / f"{self.batch}-restored" / "0_0"
        if self.batch:
            entry = self.applied.entry
            positions = {TOPIC: self.position}
            marker = Marker(self.batch, positions, "rows", entry.watermark, entry.expired, entry.sources)
            keys, values = (pa.array([record[part] for record in self.changelog], pa.binary()) for part in (0, 1))
            self.store.restore("d", CHANGELOG, keys, values, len(self.changelog), marker)

    def forget(self):
        connections.forget_store(str(self.path))

    @property
    def store(self):
        return connections.store(str(self.path), map_limit=1 << 30)


TIMES = st.one_of(st.integers(-50, 3_000), st.just(AHEAD_MS))
BATCHES = st.lists(st.tuples(st.lists(TIMES, max_size=8), st.sampled_from(["", "", "tried", "restored"])), max_size=12)


@settings(deadline=None, max_examples=60)
@given(batches=BATCHES, grace_ms=st.sampled_from([0, 1, 10, 2_000]))
def test_each_row_goes_on_once_when_it_is_over(batches, grace_ms):
    folder = Path(tempfile.mkdtemp())
    driven, number = Driven(folder, grace_ms), 0
    try:
        for times, first in batches:
            rows = list(enumerate(times, number))
            number += len(rows)
            if first == "tried":
                # An attempt that failed leaves nothing behind, whatever it had taken in.
                driven.run(rows[:-1], commit=False)
            if first == "restored":
                driven.restore()
            assert driven.run(rows) == driven.model(rows)
            assert driven.applied.entry.watermark == driven.watermark
    finally:
        driven.forget()
        shutil.rmtree(folder)


def test_rows_that_have_gone_on_leave_the_store(tmp_path):
    driven = Driven(tmp_path, 100)
    most = []
    for number in range(60):
        driven.run([(number, number * 50)])
        most.append(driven.store.rows("d"))
    assert max(most) <= 6
    driven.forget()
