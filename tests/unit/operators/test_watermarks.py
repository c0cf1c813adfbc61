"""Event time in the stateful step: late rows, windows that are over, clocks that nothing sets back."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.doubles.state_steps import state_spec, task_command
from tests.examples import examples

from sparkrelay import hidden_columns
from sparkrelay.errors import StateStoreException, StoreOutOfStepException
from sparkrelay.operators.lateness import without_late
from sparkrelay.operators.table import run as state
from sparkrelay.operators.watermarks import Sources, WindowWatermark
from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.worker import shares
from sparkrelay.runtime.worker.event_times import event_times_ms, window_ends
from sparkrelay.runtime.worker.state_reports import state_report
from sparkrelay.state import Watermark
from sparkrelay.state.aggregate import AggregateSpec
from sparkrelay.state.header import JournalEntry
from sparkrelay.state.window_keys import NO_TIME, end_bytes, end_of, message_keys, over, window_keys

SIZE = 10
AHEAD = 3_600_000
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
TIMES = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab"), st.sampled_from([0, 1])), max_size=25)


def windows(times):
    starts = [time // SIZE * SIZE for time in times]
    return pa.array([{"start": start * 1000, "end": (start + SIZE) * 1000} for start in starts], WINDOW)


def batch_of(rows):
    """Return rows of (time in ms, key, partition); a window is ten milliseconds."""
    times = [time for time, *_ in rows]
    return pa.record_batch(
        {
            "window": windows(times),
            "key": pa.array([key for _, key, _ in rows], pa.string()),
            hidden_columns.PARTITION: pa.array([partition for *_, partition in rows], pa.int32()),
            hidden_columns.TIMESTAMP: pa.array(times, pa.int64()),
            hidden_columns.EVENT_TIME: pa.array(times, pa.int64()),
        }
    )


def spec_of(delay_ms, final, keys=("window", "key"), retention_ms=0):
    columns = {"window": WINDOW, "key": pa.string()}
    grouped = [(name, columns[name]) for name in keys]
    return state_spec(
        grouped,
        [],
        [("n", pa.int64())],
        (
            AggregateSpec("count_all", None, pa.null(), pa.int64()),
            AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()),
        ),
        times=[(hidden_columns.EVENT_TIME, pa.int64())],
        watermark=WindowWatermark(delay_ms, "window", final, AHEAD, retention_ms),
    )


class Tasks:
    """Two tasks with stores, which take batch after batch."""

    def __init__(self, folder, monkeypatch, spec):
        self._folder, self._monkeypatch, self.spec = folder, monkeypatch, spec
        self._number, self._at, self.late = 0, 0, 0

    def directory(self, partition):
        return str(self._folder / f"0_{partition}")

    def take(self, rows, *, tries=1, offsets=1, silence_ms=0, sources=None, awaited=None):
        """Run a batch, or try it again; return (window's start, key, count) of what goes on."""
        if tries == 1:
            self._number, self._at = self._number + 1, self._at + offsets
        span = self._at - offsets, self._at
        commands = [
            task_command(partition, self._number, span, self.directory(partition), tries)._replace(
                silence_ms=silence_ms,
                awaited=awaited or {},
            )
            for partition in (1, 0)
        ]
        self._monkeypatch.setattr(state, "leg_tasks", lambda _: commands)
        found, self.reports = [], {}
        batch = batch_of(rows)
        if sources is not None:
            batch = batch.append_column(hidden_columns.SOURCE, pa.array(sources, pa.int32()))
        for merged in self.spec.apply(iter([batch] if rows else [])):
            first = 0
            for outcome in merged.outcomes:
                outcome.result()
                self.late += outcome.result().entry.rows_late
                self.reports[outcome.command.task.partition] = state_report(outcome.result().entry)
                own = merged.emitted.slice(first, outcome.rows_out)
                first += outcome.rows_out
                assert set(own.column(hidden_columns.PARTITION).to_pylist()) <= {outcome.command.task.partition}
                found += [
                    (outcome.command.task.partition, row["window"]["start"].microsecond // 1000, row["key"], row["n"])
                    for row in own.to_pylist()
                ]
        return found

    def kept(self):
        """Return the ends of the windows that have not expired, by partition."""
        stores = {
            partition: state.connections.store(self.directory(partition), map_limit=1 << 24) for partition in (0, 1)
        }
        return {
            partition: [
                end_of(key)
                for batch in store.scan("counts", start=over(store.header.expired_by("counts")))
                for key in batch.column("key").to_pylist()
            ]
            for partition, store in stores.items()
        }

    def close(self):
        for partition in (0, 1):
            state.connections.forget_store(self.directory(partition))


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    made = []

    def make(spec):
        made.append(Tasks(tmp_path / str(len(made)), monkeypatch, spec))
        return made[-1]

    yield make
    for each in made:
        each.close()


def expected(batches, delay_ms):
    """Return what plain Python makes of it: final rows, the number of rows left out, and windows that are left."""
    clocks, open_, final, late = {0: NO_TIME, 1: NO_TIME}, {}, [], 0
    for rows in batches:
        before = dict(clocks)
        for time, key, partition in rows:
            clocks[partition] = max(clocks[partition], time)
            end = time // SIZE * SIZE + SIZE
            if end <= before[partition] - delay_ms:
                late += 1
            else:
                open_[partition, end, key] = open_.get((partition, end, key), 0) + 1
        over = [group for group in open_ if group[1] <= clocks[group[0]] - delay_ms]
        final += [(partition, end - SIZE, key, open_.pop((partition, end, key))) for partition, end, key in over]
    return final, late, open_


@pytest.mark.parametrize("small", [0, 4096], ids=["each", "together"])
@settings(max_examples=examples(100))
@given(rows=TIMES, delay_ms=st.sampled_from([0, 4, 25]), cuts=st.sets(st.integers(0, 25)), again=st.booleans())
def test_final_rows_come_once_and_are_right(small, rows, delay_ms, cuts, again):
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(shares, "_SMALL", small)
        tasks, found = Tasks(Path(folder), monkeypatch, spec_of(delay_ms, final=True)), []
        edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
        for start, end in zip(edges, [*edges[1:], len(rows)], strict=True):
            if again:
                # A try that took a part of it, and more besides, and came to nothing.
                tasks.take([*rows[start:end][:2], (59, "a", 0)])
                tasks.late = 0
            found += tasks.take(rows[start:end], tries=1 + again)
        batches = [rows[start:end] for start, end in zip(edges, [*edges[1:], len(rows)], strict=True)]
        final, late, left = expected(batches, delay_ms)
        kept = tasks.kept()
        tasks.close()
        assert sorted(found) == sorted(final)
        assert again or tasks.late == late
        assert {p: sorted(ends) for p, ends in kept.items()} == {
            p: sorted(end for partition, end, _ in left if partition == p) for p in (0, 1)
        }


def test_updates_go_on_until_the_window_is_over(tasks):
    some = tasks(spec_of(5, final=False))
    assert some.take([(1, "a", 0), (3, "a", 0), (12, "a", 0)]) == [(0, 0, "a", 2), (0, 10, "a", 1)]
    assert some.take([(14, "b", 0), (2, "a", 0)]) == [(0, 0, "a", 3), (0, 10, "b", 1)]
    assert some.take([(15, "a", 0)]) == [(0, 10, "a", 2)]
    assert some.take([(2, "a", 0)]) == []
    assert some.late == 1
    assert some.kept() == {0: [20, 20], 1: []}
    assert some.take([]) == []


def test_more_windows_than_a_batch_emits_are_refused(tasks, monkeypatch):
    some = tasks(spec_of(0, final=True))
    some.take([(number, f"k{number}", 0) for number in range(5)])
    monkeypatch.setattr(state, "_MOST_OVER", 100)
    with pytest.raises(StateStoreException, match="store 'counts': windows of more than 100 bytes .* more tasks"):
        some.take([(61, "a", 0)])
    monkeypatch.undo()
    assert len(some.take([(61, "a", 0)], tries=2)) == 5


def test_windows_that_are_over_are_removed_with_the_next_batch_and_without_a_journal(tasks):
    some = tasks(spec_of(0, final=True))
    some.take([(1, "a", 0), (2, "b", 0), (50, "b", 0)])
    store = state.connections.store(some.directory(0), map_limit=1 << 24)
    assert store.rows("counts") == 3
    some.take([(61, "a", 0)])
    assert store.rows("counts") == 2
    some.take([(59, "a", 0)], tries=2)
    assert store.rows("counts") == 2
    assert store.header.watermark("counts") == 59


@pytest.mark.parametrize(
    ("behind", "watermark"),
    [
        ((), 95),
        ((0,), 95),
        ((1,), 15),
        ((0, 1), 15),
        # Of the third there are no rows.
        ((2,), 7),
    ],
)
def test_the_oldest_of_the_sources_that_are_behind_moves_the_watermark(behind, watermark):
    rows = pa.Table.from_batches([batch_of([(70, "a", 0), (100, "a", 0), (20, "a", 0), (10, "a", 0), (30, "a", 1)])])
    rows = rows.append_column(hidden_columns.SOURCE, pa.array([0, 0, 1, 1, 0], pa.int32()))
    _, after = without_late(
        WindowWatermark(5, "window", False, AHEAD), rows, {0: 7, 1: 8}, {0: 1000, 1: 1000}, {0: behind, 1: ()}
    )
    assert {partition: mark.ms for partition, mark in after.items()} == {0: watermark, 1: 25}


@pytest.mark.parametrize(
    ("holding", "newest", "watermark", "known"),
    [
        # Of the topics a, b, c rows of 50 and 20 have come before, and none; the delay is 5, the watermark was at 7.
        ("ab", {}, 15, {"a": 45, "b": 15}),
        ("ab", {1: 90}, 45, {"a": 45, "b": 85}),
        ("a", {1: 30}, 25, {"a": 45, "b": 25}),
        ("a", {}, 45, {"a": 45, "b": 15}),
        ("", {}, 45, {"a": 45, "b": 15}),
        ("", {0: 40}, 45, {"a": 45, "b": 15}),
        ("abc", {0: 99}, 7, {"a": 94, "b": 15}),
        ("", {2: 13}, 8, {"a": 45, "b": 15, "c": 8}),
        # Its rows have no time, or one far ahead.
        ("", {2: NO_TIME}, 7, {"a": 45, "b": 15}),
    ],
)
def test_the_oldest_of_the_sources_that_are_not_silent_moves_the_watermark(holding, newest, watermark, known):
    sources = Sources(("a", "b", "c"), {"a": 45, "b": 15, "gone": 3}, frozenset(holding))
    found = sources.after(Watermark(7, 0, True, 9), newest, 5)
    read = frozenset("abc"[source] for source in newest)
    assert found == Watermark(watermark, 0, True, 9, known, read)


@pytest.mark.parametrize(
    ("holding", "newest", "limits", "watermark"),
    [
        ("", {0: 50}, {"a": 20}, 20),
        ("", {0: 50}, {"a": 60}, 45),
        ("", {0: 50}, {"a": NO_TIME}, 7),
        ("", {0: 50, 1: 90}, {"a": 20}, 20),
        ("", {}, {"a": 20}, 20),
        ("b", {0: 50}, {"a": 20, "b": 10}, 10),
    ],
)
def test_a_limit_holds_the_watermark_and_not_what_is_known(holding, newest, limits, watermark):
    sources = Sources(("a", "b"), {"a": 30, "b": 15}, frozenset(holding), limits)
    found = sources.after(Watermark(7), newest, 5)
    assert found.ms == watermark
    times = {"a": 35, "b": 20} | {"ab"[source]: ms for source, ms in newest.items()}
    assert found.sources == {topic: ms - 5 for topic, ms in times.items()}


def test_times_of_rows_and_of_windows_are_event_times():
    times = pa.array([None, -1, 1_999, 2_000], pa.timestamp("us", "UTC"))
    assert event_times_ms(times).tolist() == [-1, 1, 2]
    windows = pa.StructArray.from_arrays([times, times], ["start", "end"])
    assert event_times_ms(windows.slice(3)).tolist() == [1]


SOURCED = st.lists(st.tuples(st.integers(0, 99), st.sampled_from([0, 1, 2])), max_size=6)


@given(st.lists(st.tuples(SOURCED, st.sets(st.sampled_from("abc"))), max_size=8))
def test_no_source_that_holds_the_watermark_is_behind_it(batches):
    mark, newest = Watermark(NO_TIME), {}
    for rows, holding in batches:
        before = mark.ms
        times = {source: max(time for time, other in rows if other == source) for _, source in rows}
        mark = Sources(("a", "b", "c"), mark.sources, frozenset(holding)).after(replace(mark), times, 5)
        newest |= {"abc"[source]: max(time, newest.get("abc"[source], -1)) for source, time in times.items()}
        assert mark.sources == {topic: time - 5 for topic, time in newest.items()}
        assert mark.ms >= before
        if mark.ms > before:
            assert all(mark.ms <= newest[topic] - 5 for topic in holding | set(mark.sources_read))


def test_topics_hold_the_watermark_back_until_they_are_waited_for_no_longer(tasks):
    some = tasks(spec_of(0, final=True))
    some.spec = replace(some.spec, topics=("orders", "returns"), watermark=replace(some.spec.watermark, by_source=True))
    both = {"counts": frozenset({"orders", "returns"})}
    assert some.take([(1, "a", 0), (30, "a", 0)], sources=[0, 0], awaited=both) == []
    assert some.reports[0] == StateReport("counts", 2, 0, None, 40, 0, frozenset({"orders"}))
    assert some.take([(12, "b", 0)], sources=[1], awaited=both) == [(0, 0, "a", 1)]
    report = some.reports[0]
    assert (report.left_ms, report.sources) == (0, frozenset({"returns"}))
    assert some.take([], offsets=0, awaited={"counts": frozenset({"orders"})}) == [(0, 10, "b", 1)]
    assert some.reports[0].left_ms == 10
    # The clock goes on from where the newest row is.
    assert some.take([], offsets=0, silence_ms=10) == [(0, 30, "a", 1)]
    assert some.late == 0


def test_silence_moves_the_watermark_of_what_is_silent(tasks):
    some = tasks(spec_of(5, final=True))
    some.take([(1, "a", 0), (12, "a", 0)])
    # Another topic of the task's is silent, not this one.
    assert some.take([(13, "a", 0)], silence_ms=100) == [], "the watermark is at 8"
    assert some.take([], offsets=0, silence_ms=2) == [(0, 0, "a", 1)]
    assert some.take([], offsets=0, silence_ms=9) == []
    assert some.take([], offsets=0, silence_ms=1) == [(0, 10, "a", 2)]
    assert some.kept() == {0: [], 1: []}


def test_a_longer_delay_opens_no_window_again(tasks):
    some = tasks(spec_of(0, final=False))
    some.take([(1, "a", 0), (20, "a", 0)])
    some.spec = spec_of(15, final=False)
    assert some.take([(2, "a", 0)]) == []
    assert some.late == 1


def test_windows_that_are_kept_are_final_once_and_take_no_further_row(tasks):
    some = tasks(spec_of(0, final=True, retention_ms=20))
    assert some.take([(1, "a", 0), (12, "a", 0)]) == [(0, 0, "a", 1)]
    assert some.take([(2, "a", 0), (29, "a", 0)]) == [(0, 10, "a", 1)]
    assert (some.late, some.kept()) == (1, {0: [10, 20, 30], 1: []})
    # The first has expired with this one, and is removed with the next.
    assert some.take([(3, "b", 0), (30, "a", 0)]) == [(0, 20, "a", 1)]
    assert (some.late, some.kept()[0]) == (2, [20, 30, 40])
    store = state.connections.store(some.directory(0), map_limit=1 << 24)
    assert store.rows("counts") == 4
    assert some.take([]) == []
    assert store.rows("counts") == 3
    some.spec = spec_of(0, final=True, retention_ms=1000)
    assert some.take([(41, "a", 0)]) == [(0, 30, "a", 1)], "with a longer retention nothing is final again"
    assert some.kept()[0] == [20, 30, 40, 50]
    some.spec = spec_of(0, final=True)
    assert some.take([(12, "a", 0), (42, "a", 0)]) == []
    assert (some.late, some.kept()[0]) == (3, [50])


def test_a_report_says_what_has_expired_and_how_long_the_next_window_has():
    entry = JournalEntry(1, "leg", 1, 1, "counts", "", {}, 5, 1, 95, 2, 110, 110, 75)
    assert state_report(entry) == StateReport("counts", 5, 2, 75, 110, 15, watermark=95)
    assert state_report(entry._replace(next_end=NO_TIME)).left_ms is None
    # A topic holds the watermark back: without it, it would be further, or so far that the window were over.
    assert state_report(entry._replace(sources={"a": 95, "b": 104})).left_ms == 6
    assert state_report(entry._replace(watermark=NO_TIME, sources={"a": 200})).left_ms == 0
    without = state_report(entry._replace(watermark=NO_TIME, expired=NO_TIME))
    assert (without.expired, without.left_ms) == (None, None)


def test_a_window_that_opens_and_ends_in_one_batch_is_not_kept(tasks):
    some = tasks(spec_of(0, final=True))
    assert some.take([(1, "a", 0), (2, "a", 0), (50, "b", 0)]) == [(0, 0, "a", 2)]
    assert some.kept() == {0: [60], 1: []}


def test_the_window_need_not_come_first_among_the_columns(tasks):
    some = tasks(spec_of(0, final=True, keys=("key", "window")))
    assert some.take([(21, "a", 0), (1, "z", 0), (22, "b", 0)]) == [(0, 0, "z", 1)]
    assert some.take([(31, "a", 0)]) == [(0, 20, "a", 1), (0, 20, "b", 1)]


def test_another_owner_s_batch_is_refused_before_anything_is_read(tasks):
    some = tasks(spec_of(0, final=True))
    some.take([(1, "a", 0)])
    state.connections.store(some.directory(0), map_limit=1 << 24).take_over(9)
    with pytest.raises(StoreOutOfStepException):
        some.take([(2, "a", 0)])


def test_rows_without_an_event_time_do_not_move_the_clock():
    rows = pa.table(
        {
            "window": windows([5, 30]),
            hidden_columns.PARTITION: pa.array([0, 0], pa.int32()),
            hidden_columns.EVENT_TIME: pa.array([5, None], pa.int64()),
        }
    )
    kept, after = without_late(WindowWatermark(0, "window", False, AHEAD), rows, {0: NO_TIME, 1: 7}, {0: 0, 1: 0})
    assert (kept.num_rows, after) == (2, {0: Watermark(5), 1: Watermark(7)})


def test_window_keys_sort_by_the_end_of_their_window():
    encoded = pa.array([b"z", b"", b"long" * 200], pa.binary())
    keys = window_keys(window_ends(windows([100, 20, 3])), encoded)
    assert sorted(keys.to_pylist()) == [keys[2].as_py(), keys[1].as_py(), keys[0].as_py()]
    assert message_keys(keys).equals(encoded)
    assert end_bytes(-5) < end_bytes(0) < end_bytes(1 << 62) < end_bytes(1 << 70)
    assert [end_of(key) for key in keys.to_pylist()] == [110, 30, 10]
    assert end_bytes(10) < over(10) == end_bytes(11)
    assert np.frombuffer(keys[0].as_py()[:8], ">u8")[0] == 110 + (1 << 63)


def test_a_time_far_ahead_of_the_machines_clock_moves_nothing():
    """It counts for its window; the one of an hour ahead still moves the clock."""
    spec = WindowWatermark(0, "window", False, AHEAD)
    rows = pa.Table.from_batches([batch_of([(5, "a", 0), (AHEAD + 8, "a", 0), (AHEAD + 7, "a", 1), (1 << 40, "a", 1)])])
    kept, after = without_late(spec, rows, {0: NO_TIME, 1: 7}, now_ms={0: 7, 1: 7})
    assert (kept.num_rows, after) == (4, {0: Watermark(5), 1: Watermark(AHEAD + 7)})
