"""Sessions on a real store, without Spark, beside merging all rows of a group one by one."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.doubles.state_steps import task_command
from tests.examples import examples
from tests.unit.operators.store_specs import WITHOUT_KAFKA

from sparkrelay import hidden_columns
from sparkrelay.operators.aggregate.layout import SessionsLayout
from sparkrelay.operators.sessions.run import SessionsRunner, TaskSessions
from sparkrelay.operators.watermarks import WindowWatermark
from sparkrelay.records.keys import key_columns
from sparkrelay.state import BatchStamp, TaskStore, Watermark
from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec
from sparkrelay.state.window_keys import ENDLESS, message_keys
from sparkrelay.types import TopicPartition

US = pa.timestamp("us", "UTC")
WINDOW = pa.struct([pa.field("start", US), pa.field("end", US)])
INPUT = pa.schema([("user", pa.string()), ("s", WINDOW), ("n", pa.int64()), (hidden_columns.TIMESTAMP, pa.int64())])
OUTPUT = pa.schema(
    [
        *(("user", pa.string()), ("s", WINDOW), ("sum", pa.int64())),
        *((hidden_columns.PARTITION, pa.int32()), (hidden_columns.TIMESTAMP, pa.int64())),
        *((hidden_columns.KEY, pa.binary()), (hidden_columns.TOMBSTONE, pa.bool_())),
    ]
)
AGGREGATES = (
    AggregateSpec("sum", "n", pa.int64(), pa.int64()),
    AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()),
)
SPEC = SessionsRunner(
    **WITHOUT_KAFKA,
    leg="store:sessions",
    topics=("clicks",),
    store="sessions",
    contents="sessions",
    layout=SessionsLayout(
        store="sessions",
        keys=pa.schema([("user", pa.string()), ("s", WINDOW)]),
        row=pa.schema([("sum", pa.int64())]),
        window="s",
        aggregates=AGGREGATES,
    ),
    input=INPUT,
    output=OUTPUT,
    watermark=WindowWatermark(0, "s", True, 0),
)
STORED = pa.schema([("key", pa.binary()), ("value", pa.binary())])
CLICKS = TopicPartition("clicks", 0)
#: User, time and gap in milliseconds, and whether the batch is taken back once.
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.integers(1, 6)), max_size=8)
BATCHES = st.lists(st.tuples(ROWS, st.booleans()), max_size=6)


def model(open_, rows, before):
    """Put rows into the open sessions of their users; return which sessions they have changed."""
    touched = set()
    for user, start, gap, number in sorted(rows, key=lambda row: row[1]):
        if start + gap <= before:
            continue
        new = [start, start + gap, number]
        apart = []
        for session in open_.setdefault(user, []):
            if session[1] > before and session[0] <= new[1] and new[0] <= session[1]:
                new = [min(new[0], session[0]), max(new[1], session[1]), new[2] + session[2]]
                touched.discard((user, *session))
            else:
                apart.append(session)
        open_[user] = [*apart, new]
        touched.add((user, *new))
    return touched


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(BATCHES, st.integers(0, 10))
@example([([("a", start, 1) for start in range(0, 39, 3)], False), ([("a", 0, 40), ("b", 0, 6)], True)], 10)
def test_sessions_are_those_of_rows_merged_one_by_one(batches, delay):
    with tempfile.TemporaryDirectory() as folder:
        store = TaskStore.open(Path(folder))
        run(store, batches, delay)
        store.close(clean=False)


def test_sessions_that_a_late_row_makes_one_are_each_merged_once_beside_however_many_others(tmp_path, monkeypatch):
    merged, combine = [], AggregateCodec.combine

    def counting(codec, left, right):
        merged.append(len(left))
        return combine(codec, left, right)

    store = TaskStore.open(tmp_path)
    rows = [("a", start, 1, start) for start in range(0, 800, 4)]
    apply(store, [*rows, *((f"u{number}", 0, 1, 0) for number in range(300))], 0, 1, 0, -1000, 0)
    monkeypatch.setattr(AggregateCodec, "combine", counting)
    bridge = [("a", 0, 900, 7), *((f"u{number}", 1, 1, 1) for number in range(300))]
    applied = apply(store, bridge, 1, 1, len(rows) + 300, -1000, 0)
    (whole,) = [row for row in applied.emitted.to_pylist() if row["user"] == "a" and not row[hidden_columns.TOMBSTONE]]
    assert (*span(whole["s"]), whole["sum"]) == (0, 900, sum(range(0, 800, 4)) + 7)
    assert sum(merged) <= 2 * (len(rows) + 300)
    store.close(clean=False)


def run(store, batches, delay):
    open_, shown, position, mark, number = {}, {}, 0, -1000, 0
    for index, (batch, again) in enumerate(batches):
        rows = []
        for user, start, gap in batch:
            number += 1
            rows.append((user, start, gap, number))
        before, mark = mark, max([mark, *(start - delay for _, start, *_ in rows)])
        late = [row for row in rows if row[1] + row[2] <= before]
        on_time = [row for row in rows if row not in late]
        for tries in range(1, 3 if again else 2):
            applied = apply(store, on_time, index, tries, position, mark, len(late))
        position += len(rows)
        touched = model(open_, rows, before)
        for row in applied.emitted.to_pylist():
            if row[hidden_columns.TOMBSTONE]:
                del shown[row[hidden_columns.KEY]]
            else:
                shown[row[hidden_columns.KEY]] = (row["user"], *span(row["s"]), row["sum"])
        assert touched <= set(shown.values())
        ended = {(user, *s) for user, sessions in open_.items() for s in sessions if before < s[1] <= mark}
        over = pa.Table.from_batches(store.after(applied, task_epoch=0).over(), STORED).combine_chunks()
        over_now = key_columns(message_keys(over["key"].combine_chunks()), pa.schema([*INPUT][:2]))
        sums = AggregateCodec(AGGREGATES).results(over["value"].combine_chunks())[0]
        columns = zip(*(c.to_pylist() for c in (*over_now, sums)), strict=True)
        assert {(user, *span(s), total) for user, s, total in columns} == ended
    assert set(shown.values()) == {(user, *session) for user, sessions in open_.items() for session in sessions}
    for batch in store.scan("sessions", start=ENDLESS):
        for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            times = memoryview(value).cast("q").tolist()
            user = key.removeprefix(ENDLESS).decode()
            kept = sorted((start, end) for start, end, _ in open_[user] if end > mark)
            assert list(zip(times[::2], times[1::2], strict=True)) == [(s * 1000, e * 1000) for s, e in kept]


def apply(store, rows, index, tries, position, mark, late):
    table = pa.table(
        {
            "user": pa.array([row[0] for row in rows], pa.string()),
            "s": pa.array([{"start": row[1] * 1000, "end": (row[1] + row[2]) * 1000} for row in rows], WINDOW),
            "n": pa.array([row[3] for row in rows], pa.int64()),
            hidden_columns.TIMESTAMP: pa.array([row[3] for row in rows], pa.int64()),
        }
    )
    stamp = BatchStamp(
        0, index + 1, index, {CLICKS: (position, position + len(rows) + late)}, {CLICKS: position}, tries=tries
    )
    watermark = Watermark(mark, late, final=True)
    operate = TaskSessions(SPEC, task_command(0), table, watermark).operate
    return store.change_batch(SPEC.leg, SPEC.store, batch=stamp, operate=operate)


def span(window):
    return tuple(int(window[name].timestamp() * 1000 + 0.5) for name in ("start", "end"))
