"""The step that drops duplicates on a real store, without Spark, beside a dictionary that follows the same rules."""

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.operators.store_specs import WITHOUT_KAFKA

from sparkrelay import hidden_columns
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.operators.dedup.run import Deduplicate, _TaskDeduplication
from sparkrelay.operators.emitting.run import TimedSource, applied
from sparkrelay.runtime.contract.commands import TaskCommand
from sparkrelay.runtime.worker import connections
from sparkrelay.state.changelog import Marker
from sparkrelay.state.window_keys import NO_TIME
from sparkrelay.types import TaskId, TopicPartition

HIDDEN = {
    hidden_columns.PARTITION: pa.int32(),
    hidden_columns.TIMESTAMP: pa.int64(),
    hidden_columns.KEY: pa.binary(),
}
OUTPUT = pa.schema([("k", pa.string()), ("n", pa.int64()), *HIDDEN.items()])
INPUT = pa.schema([*OUTPUT, ("t", pa.int64()), (hidden_columns.EVENT_MICROS, pa.int64())])
TOPICS = ("clicks", "views")
#: Ahead of the machine's clock by more than is believed.
AHEAD = 10**17


def spec_of(rule, delay_ms):
    timed = rule != "for ever"
    return Deduplicate(
        **WITHOUT_KAFKA,
        leg="store:d",
        topics=TOPICS,
        store="d",
        contents="keys",
        output=OUTPUT,
        delay_ms=delay_ms,
        ahead_ms=3_600_000,
        sources=tuple(TimedSource(topic, topic, delay_ms) for topic in TOPICS) if timed else (),
        own_sources=TOPICS,
        keys=("k", "t") if rule == "by time" else ("k",),
        input=INPUT,
        within=rule == "within",
    )


class Driven:
    """Drives one task's store through micro-batches of rows ``(topic, key, time in us or None)``."""

    def __init__(self, folder, rule, delay_ms=0):
        self.folder, self.path = folder, folder / "1" / "0_0"
        self.changelog = []
        self.spec = spec_of(rule, delay_ms)
        self.positions = {TopicPartition(topic, 0): 0 for topic in TOPICS}
        self.batch = self.tries = 0

    def run(self, rows, *, commit=True, awaited=(), behind=()):
        """Pass one micro-batch through; return the numbers of the rows that go on."""
        self.tries += 1
        after = dict(self.positions)
        for topic, *_ in rows:
            after[TopicPartition(topic, 0)] += 1
        ranges = {p: (self.positions[p], end) for p, end in after.items()}
        command = TaskCommand(
            TaskId(0, 0),
            self.batch + 1,
            self.batch,
            0,
            str(self.path),
            ProducerIdentity("t", 1, 0),
            ranges,
            dict(self.positions),
            behind=frozenset(behind),
            tries=self.tries,
            awaited={"d": frozenset(awaited)},
        )
        step = _TaskDeduplication(self.spec, command, [self.rows_of(rows)] if rows else [])
        self.applied = applied(self.spec, step)
        found = []
        for batch in step.emitted(self.applied):
            assert batch.schema.equals(OUTPUT)
            found += batch.column("n").to_pylist()
        if commit:
            self.batch, self.positions, self.tries = self.batch + 1, after, 0
            self.changelog += zip(*map(pa.Array.to_pylist, (self.applied.keys, self.applied.values)), strict=True)
        return found

    def restore(self):
        """Go on with a store that knows nothing but the changelog."""
        self.forget()
        self.path = self.folder / f"{self.batch}-restored" / "0_0"
        if self.batch:
            entry = self.applied.entry
            marker = Marker(
                self.batch, self.positions, self.spec.contents, entry.watermark, entry.expired, entry.sources
            )
            keys, values = (pa.array([record[part] for record in self.changelog], pa.binary()) for part in (0, 1))
            changelog = TopicPartition("changelog", 0)
            self.store.restore("d", changelog, keys, values, len(self.changelog), marker)

    def forget(self):
        connections.forget_store(str(self.path))

    def rows_of(self, rows):
        numbers = range(len(rows))
        times = pa.array([row[2] for row in rows], pa.int64())
        return pa.record_batch(
            {
                "k": pa.array([row[1] for row in rows], pa.string()),
                "n": pa.array(numbers, pa.int64()),
                "t": times,
                hidden_columns.PARTITION: pa.array([0] * len(rows), pa.int32()),
                hidden_columns.TIMESTAMP: pa.array(numbers, pa.int64()),
                hidden_columns.KEY: pa.array([b"key"] * len(rows)),
                hidden_columns.EVENT_MICROS: times,
                hidden_columns.SOURCE: pa.array([TOPICS.index(row[0]) for row in rows], pa.int32()),
            }
        )

    @property
    def store(self):
        return connections.store(str(self.path), map_limit=1 << 30)


class Model:
    """What is to come out: a dictionary of keys, forgotten by the rules as they are documented."""

    def __init__(self, rule, delay_ms):
        self.rule, self.delay_ms = rule, delay_ms
        self.watermark = NO_TIME
        self.sources = {}
        self.seen = {}
        self.late = 0

    def run(self, rows, awaited, behind):
        found, before, self.late = [], self.watermark, 0
        seen = {key: until for key, until in self.seen.items() if until is None or before * 1000 <= until}
        for number, (_, name, time) in enumerate(rows):
            key = (name, time) if self.rule == "by time" else name
            if name is None and self.rule != "by time":
                continue
            if self.rule != "for ever" and time is not None and time < before * 1000:
                self.late += 1
            elif self.rule == "within" and time is None:
                found.append(number)
            elif key not in seen:
                found.append(number)
                until = None if self.rule == "for ever" or time is None else time
                seen[key] = until + self.delay_ms * 1000 if self.rule == "within" else until
        self.seen = seen
        self.move(rows, awaited, behind)
        return found

    def move(self, rows, awaited, behind):
        for topic, _, time in rows:
            ms = NO_TIME if time is None or time >= AHEAD else time // 1000 - self.delay_ms
            self.sources[topic] = max(self.sources.get(topic, NO_TIME), ms)
        holding = {*awaited, *behind, *(row[0] for row in rows)}
        held = [self.sources.get(topic, NO_TIME) for topic in holding]
        self.watermark = max(self.watermark, min(held) if held else max(self.sources.values(), default=NO_TIME))


ROW = st.tuples(
    st.sampled_from(TOPICS),
    st.sampled_from(["x", "y", "z", "", "long" * 200, None]),
    st.one_of(st.integers(0, 40_000), st.integers(-9_000_000, 9_000_000), st.sampled_from([AHEAD, None])),
)
BATCH = st.tuples(
    st.lists(ROW, max_size=8), *[st.sets(st.sampled_from(TOPICS))] * 2, st.sampled_from(["", "", "tried", "restored"])
)


@settings(deadline=None, max_examples=60)
@given(
    rule=st.sampled_from(["for ever", "by time", "within"]),
    batches=st.lists(BATCH, max_size=12),
    delay_ms=st.sampled_from([0, 1, 10, 2_000]),
)
def test_the_first_row_of_each_key_goes_on(rule, batches, delay_ms):
    folder = Path(tempfile.mkdtemp())
    driven, model = Driven(folder, rule, delay_ms), Model(rule, delay_ms)
    try:
        for rows, awaited, behind, first in batches:
            if first == "tried":
                # An attempt that failed leaves nothing behind, whatever it had taken in.
                driven.run(rows[:-1], commit=False)
            if first == "restored":
                driven.restore()
            assert driven.run(rows, awaited=awaited, behind=behind) == model.run(rows, awaited, behind)
            assert driven.applied.entry.rows_late == model.late
            if rule != "for ever":
                assert driven.applied.entry.watermark == model.watermark
    finally:
        driven.forget()
        shutil.rmtree(folder)


@pytest.fixture
def driven(tmp_path):
    made = []

    def make(*options):
        made.append(Driven(tmp_path / str(len(made)), *options))
        return made[-1]

    yield make
    for one in made:
        one.forget()


def test_a_key_is_remembered_for_the_delay_and_as_long_as_late_rows_may_come(driven):
    within = driven("within", 10)
    assert within.run([("clicks", "x", 5_000), ("clicks", "x", 14_999)]) == [0]
    # Forgotten once the watermark has passed the first row's time and the delay: 15 ms.
    assert within.run([("clicks", "y", 25_999)]) == [0]
    assert within.run([("clicks", "x", 25_000), ("clicks", "z", 26_000)]) == [1]
    assert within.run([("clicks", "x", 25_000), ("clicks", "y", 16_000), ("clicks", "y", 15_999)]) == [0]
    assert within.applied.entry.rows_late == 1


def test_what_is_over_is_removed(driven):
    for rule in ("by time", "within"):
        task = driven(rule, 2_000)
        for second in range(60):
            task.run([("clicks", f"{second} {number}", second * 1_000_000) for number in range(10)])
        assert 20 <= task.store.rows("d") < 80


def test_what_is_over_with_its_own_batch_is_not_stored(driven):
    for rule in ("by time", "within"):
        task = driven(rule, 1_000)
        assert len(task.run([("clicks", str(second), second * 1_000_000) for second in range(1000)])) == 1000
        assert task.store.rows("d") < 4


@pytest.mark.long
def test_keys_that_come_far_ahead_are_in_few_buckets(driven):
    held = driven("within", 1_000)
    # The second topic has not had a row, and holds the watermark where it is.
    for hour in range(200):
        rows = [("clicks", f"{hour} {minute}", (hour * 60 + minute) * 60_000_000) for minute in range(60)]
        assert held.run(rows, behind=("views",)) == list(range(60))
    held.run([("views", "z", 0)])
    for hour in range(200):
        rows = [("clicks", f"{hour} {minute}", (hour * 60 + minute) * 60_000_000) for minute in range(60)]
        assert held.run([*rows, ("views", "z", 0)]) == []
    ends = {key[:8] for batch in held.store.scan("d") for key in batch.column("key").to_pylist()}
    assert len(ends) < 50
    assert held.run([("clicks", "far", AHEAD)]) == [0]
    assert held.run([("clicks", "far", AHEAD)]) == []


def test_a_null_beside_other_columns_is_a_value(driven):
    by_time = driven("by time", 10)
    assert by_time.run([("clicks", None, 1), ("clicks", "x", None), ("clicks", None, 1), ("clicks", "x", None)]) == [
        0,
        1,
    ]
    by_time.run([("clicks", "y", 10**12)])
    assert by_time.run([("clicks", "x", None), ("clicks", None, 1)]) == []
    assert by_time.applied.entry.rows_late == 1
