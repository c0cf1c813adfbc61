"""The step that joins two streams on a real store, without Spark, beside a join of all rows at once."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.operators.store_specs import WITHOUT_KAFKA

from sparkrelay import hidden_columns
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.operators.emitting.run import TimedSource, applied
from sparkrelay.operators.stream_join import run
from sparkrelay.operators.stream_join.run import JoinStreams, _TaskJoin
from sparkrelay.runtime.contract.commands import TaskCommand
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.task_steps import store_after
from sparkrelay.state import after, view
from sparkrelay.state.lmdb import rows as stored_rows, scan
from sparkrelay.types import TaskId, TopicPartition

KEYS = pa.schema([("k", pa.string())])
ROWS = {"left": pa.schema([("a", pa.int64())]), "right": pa.schema([("b", pa.int64())])}
OUTPUT = pa.schema(
    [
        *KEYS,
        *ROWS["left"],
        *ROWS["right"],
        (hidden_columns.PARTITION, pa.int32()),
        (hidden_columns.TIMESTAMP, pa.int64()),
        (hidden_columns.KEY, pa.binary()),
    ]
)
WAYS = ("inner", "left", "right", "full", "left_semi", "left_anti")
TOPICS = {"left": "clicks", "right": "views"}


def spec_of(side, how, span_us, delay_ms=0, topics=TOPICS):
    return JoinStreams(
        **WITHOUT_KAFKA,
        leg=f"store:j{'' if side == 'left' else '#2'}",
        topics=(topics[side],),
        store="j",
        contents="a join",
        side=side,
        how=how,
        keys=KEYS,
        rows=ROWS,
        output=OUTPUT,
        earlier_us=span_us[0],
        later_us=span_us[1],
        delay_ms=delay_ms,
        ahead_ms=3_600_000,
        sources=tuple(TimedSource(f"{word} {topic}", topic, delay_ms) for word, topic in topics.items()),
        own_sources=(f"{side} {topics[side]}",),
        later=frozenset({topics["right"]} if side == "left" else ()),
        number=0 if side == "left" else 1,
    )


class Join:
    """Drives one task's store through micro-batches of rows ``(side, key, time in us or None, number)``."""

    def __init__(self, path, how, span_us, delay_ms=0, topics=TOPICS):
        self.path, self.topics = path, topics
        self.specs = {side: spec_of(side, how, span_us, delay_ms, topics) for side in ("left", "right")}
        self.positions = {TopicPartition(topic, 0): 0 for topic in topics.values()}
        self.batch = self.tries = 0
        #: Side -> keys of the store that its rows of the last micro-batch have changed.
        self.changes = {}
        #: Bytes of the largest batch that has gone on.
        self.largest = 0

    def run(self, rows, *, commit=True, awaited=("clicks", "views")):
        """Pass one micro-batch through; return what goes on, as ``(key, a, b)``."""
        self.tries += 1
        counts = {side: sum(row[0] == side for row in rows) for side in self.specs}
        after = dict(self.positions)
        for side, count in counts.items():
            after[TopicPartition(self.topics[side], 0)] += count
        ranges = {p: (self.positions[p], end) for p, end in after.items() if end > self.positions[p]}
        command = TaskCommand(
            TaskId(0, 0),
            self.batch + 1,
            self.batch,
            0,
            str(self.path),
            ProducerIdentity("t", 1, 0),
            ranges,
            dict(self.positions),
            tries=self.tries,
            awaited={"j": frozenset(awaited)},
        )
        found = []
        for side, spec in self.specs.items():
            if not counts[side]:
                continue
            own = [row for row in rows if row[0] == side]
            join = _TaskJoin(spec, command, [self.rows_of(side, own)] if own else [])
            done = applied(spec, join)
            self.changes[side] = len(done.keys)
            for batch in join.emitted(store_after(spec, command, done)):
                assert batch.schema.equals(OUTPUT)
                self.largest = max(self.largest, batch.nbytes)
                found += [tuple(row.values())[:3] for row in batch.to_pylist()]
        if commit:
            self.batch, self.positions, self.tries = self.batch + 1, after, 0
        return found

    def rows_of(self, side, rows):
        name = ROWS[side].names[0]
        return pa.record_batch(
            {
                "k": pa.array([row[1] for row in rows], pa.string()),
                name: pa.array([row[3] for row in rows], pa.int64()),
                hidden_columns.PARTITION: pa.array([0] * len(rows), pa.int32()),
                hidden_columns.TIMESTAMP: pa.array([row[3] for row in rows], pa.int64()),
                hidden_columns.EVENT_MICROS: pa.array([row[2] for row in rows], pa.int64()),
            }
        )


def expected(rows, how, span_us):
    """Join all rows at once."""
    sides = {side: [row for row in rows if row[0] == side] for side in ("left", "right")}

    def together(left, right):
        return (
            None not in {left[1], left[2], right[2]}
            and left[1] == right[1]
            and -span_us[0] <= right[2] - left[2] <= span_us[1]
        )

    pairs = [
        (left[1], left[3], right[3]) for left in sides["left"] for right in sides["right"] if together(left, right)
    ]
    lefts = [left for left in sides["left"] if not any(together(left, right) for right in sides["right"])]
    rights = [right for right in sides["right"] if not any(together(left, right) for left in sides["left"])]
    if how == "left_semi":
        return sorted(((left[1], left[3], None) for left in sides["left"] if left not in lefts), key=repr)
    found = [] if how == "left_anti" else pairs
    if how in {"left", "full", "left_anti"}:
        found = found + [(left[1], left[3], None) for left in lefts]
    if how in {"right", "full"}:
        found = found + [(right[1], None, right[3]) for right in rights]
    return sorted(found, key=repr)


@pytest.fixture
def join(tmp_path):
    made = []

    def make(how="inner", span_us=(10_000, 10_000), **options):
        made.append(Join(tmp_path / str(len(made)) / "0_0", how, span_us, **options))
        return made[-1]

    yield make
    for one in made:
        connections.forget_store(str(one.path))


def in_pieces(patch, most):
    """Have no more than so many bytes of stored rows be in memory at once."""
    patch.setattr(run, "_KEPT_BYTES", most)
    patch.setattr(run, "_PIECE_BYTES", most)
    patch.setattr(after, "_PIECE_BYTES", most)
    patch.setattr(view, "_UNDO_BYTES", most)
    patch.setattr(scan, "_BATCH_BYTES", most)
    patch.setattr(stored_rows, "_FEW", 1)


ROW = st.tuples(
    st.sampled_from(["left", "right"]),
    st.sampled_from(["x", "y", "", "long" * 200, None]),
    st.one_of(st.integers(0, 40_000), st.integers(-3_000_000, 3_000_000), st.none()),
)


@settings(deadline=None, max_examples=60)
@given(
    how=st.sampled_from(WAYS),
    rows=st.lists(ROW, max_size=25),
    cuts=st.lists(st.integers(0, 25), max_size=6),
    span_us=st.tuples(*[st.sampled_from([0, 500, 10_000, 1_700_000])] * 2),
    tried=st.booleans(),
    most=st.none() | st.integers(1, 100),
)
def test_every_cut_into_micro_batches_gives_what_one_join_of_all_rows_does(how, rows, cuts, span_us, tried, most):
    # A delay that makes nothing late; a row at the end of all times of each stream has everything go out.
    rows = [(*row, number) for number, row in enumerate(rows)]
    folder = Path(tempfile.mkdtemp())
    driven = Join(folder / "0_0", how, span_us, delay_ms=100_000)
    patch = pytest.MonkeyPatch()
    if most is not None:
        # As if what is found, deleted or over were more than fits into memory.
        in_pieces(patch, most)
    try:
        found = []
        bounds = sorted({0, *(min(cut, len(rows)) for cut in cuts), len(rows)})
        for begin, end in itertools.pairwise(bounds):
            if tried:
                # An attempt that failed leaves nothing behind, whatever it had taken in.
                driven.run(rows[begin : end - 1], commit=False)
            found += driven.run(rows[begin:end])
        last = [(side, "end", 10**12, 1000) for side in ("left", "right")]
        found += driven.run(last)
        if how == "left_semi":
            found = [row for row in found if row[0] != "end"]
        ends = [("end", 1000, 1000)] if how not in {"left_semi", "left_anti"} else []
        assert sorted(found, key=repr) == sorted([*expected(rows, how, span_us), *ends], key=repr)
    finally:
        patch.undo()
        connections.forget_store(str(driven.path))
        shutil.rmtree(folder)


def test_rows_go_out_alone_once_nothing_can_come_for_them(join):
    driven = join("left", span_us=(10_000, 10_000), delay_ms=5)
    assert driven.run([("left", "x", 0, 1), ("right", "y", 0, 2)]) == []
    assert driven.run([("left", "x", 15_000, 3), ("right", "x", 15_000, 4)]) == [("x", 3, 4)]
    # The watermark is 10 ms: a row of the right stream at 10 ms would still go with the one at 0.
    assert driven.run([("left", "z", 16_000, 5), ("right", "z", 16_000, 6)]) == [("z", 5, 6), ("x", 1, None)]


def test_late_rows_are_left_out_and_counted(join):
    driven = join("full", span_us=(1_000, 1_000))
    driven.run([("left", "x", 100_000, 1), ("right", "y", 100_000, 2)])
    assert driven.run([("left", "x", 99_999, 3), ("right", "x", 100_000, 4)]) == [("x", 1, 4)]
    store = connections.store(str(driven.path), map_limit=1 << 30)
    assert [entry.rows_late for entry in store.header.journals] == [1, 0]


def test_each_stream_holds_the_watermark(join):
    driven = join("left", span_us=(1_000, 1_000))
    driven.run([("left", "x", 1_000_000, 1)])
    assert driven.run([("right", "x", 1_000, 2)]) == []
    assert driven.run([("right", "x", 1_000_000, 3)]) == [("x", 1, 3)]


def test_a_stream_that_is_silent_for_long_holds_it_no_more(join):
    driven = join("left", span_us=(1_000, 1_000))
    driven.run([("left", "x", 0, 1)])
    assert driven.run([("left", "x", 1_000_000, 2)]) == []
    assert driven.run([("left", "x", 1_000_001, 3)], awaited=()) == [("x", 1, None)]
    assert driven.run([("right", "x", 999_000, 4)]) == []
    assert driven.run([("right", "x", 1_000_000, 5)]) == [("x", 2, 5), ("x", 3, 5)]


def test_what_is_over_is_removed(join):
    driven = join("full", span_us=(1_000, 1_000))
    for second in range(20):
        driven.run([("left", "x", second * 1_000_000, 1), ("right", "y", second * 1_000_000, 2)])
    store = connections.store(str(driven.path), map_limit=1 << 30)
    assert store.rows("j") < 15


def test_many_pairs_go_on_in_pieces(join, monkeypatch):
    monkeypatch.setattr(run, "_MOST_PAIRS", 7)
    driven = join("inner", span_us=(10_000, 10_000))
    rows = [(side, "x", number, number) for side in ("left", "right") for number in range(10)]
    assert sorted(driven.run(rows), key=repr) == expected(rows, "inner", (10_000, 10_000))


@pytest.mark.parametrize("how", ["inner", "full", "left_semi", "left_anti"])
def test_pieces_are_of_so_many_bytes_however_long_the_key_is(join, monkeypatch, how):
    driven = join(how, span_us=(10_000, 10_000))
    rows = [("left", "x" * 300, number, number) for number in range(50)]
    in_pieces(monkeypatch, 5000)
    found = driven.run(rows)
    found += driven.run([("right", "x" * 300, 0, 0), ("left", "end", 10**12, 1), ("right", "end", 10**12, 2)])
    assert len([row for row in found if row[0] != "end"]) == (0 if how == "left_anti" else 50)
    assert driven.largest < 7000


@pytest.mark.parametrize("how", ["left", "full"])
def test_a_row_that_has_found_one_is_not_taken_from_those_alone_again(join, how):
    driven = join(how, (1000, 1000))
    driven.run([("left", "hot", 0, number) for number in range(50)])
    changed = []
    for number in range(4):
        assert len(driven.run([("right", "hot", 0, number)])) == 50
        changed.append(driven.changes["right"])
    assert changed == [51, 1, 1, 1]
